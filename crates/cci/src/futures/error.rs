//! Why tasks do not get what they wait for.

use crate::error::ConnectFailure;
use crate::messages::{self, CallFailure, SendFailure};
use std::fmt;

/// Why there is no connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The attempt could not be started.
    NotStarted(crate::ConnectError),
    /// The request could not be accepted.
    NotAccepted(crate::AcceptError),
    /// It was started, and has failed.
    Failed(ConnectFailure),
    /// The driver has ended.
    Over,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::NotStarted(error) => error.fmt(f),
            ConnectError::NotAccepted(error) => error.fmt(f),
            ConnectError::Failed(failure) => failure.fmt(f),
            ConnectError::Over => f.write_str("the messenger's driver has ended"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a message was not sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// It was not taken for sending.
    NotTaken(messages::SendError),
    /// It was taken, and did not arrive.
    Failed(SendFailure),
    /// The driver has ended.
    Over,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::NotTaken(error) => error.fmt(f),
            SendError::Failed(failure) => failure.fmt(f),
            SendError::Over => f.write_str("the messenger's driver has ended"),
        }
    }
}

impl std::error::Error for SendError {}

/// Why there is no reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The request was not taken for sending.
    NotTaken(messages::SendError),
    /// The call has failed.
    Failed(CallFailure),
    /// The driver has ended.
    Over,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NotTaken(error) => error.fmt(f),
            CallError::Failed(failure) => failure.fmt(f),
            CallError::Over => f.write_str("the messenger's driver has ended"),
        }
    }
}

impl std::error::Error for CallError {}
