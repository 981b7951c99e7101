//! Why a handshake failed.

use crate::limits::HANDSHAKE_VERSION;
use std::fmt;

/// Why a handshake failed, for people. It says nothing that is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The peer's bytes are no handshake of this kind.
    Malformed,
    /// The peer means a key that this side has not, or has another key of that name.
    Key,
    /// The peer's certificate won't do, or the peer's TLS says why it goes no further.
    Certificate(String),
    /// The peer has a certificate, but no name.
    NoName,
    /// The peer is who it is, and may not connect; its name.
    NotAllowed(String),
    /// Others are connected from that address as somebody else; who is there, and who would be.
    AnotherPeer(String, String),
    /// The peer speaks another version of these handshakes; which.
    Version(u8),
    /// The peer is this endpoint itself: somebody returns its own messages to it.
    Own,
    /// The peer is who it is, and somebody else was expected; who is there, and who was expected.
    NotExpected(String, String),
    /// No answer in time; what this side proved with who it is.
    Silence(String),
    /// The system had no randomness, or the like.
    Internal(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Malformed => {
                f.write_str("the peer speaks, but not this handshake: does it use the same security?")
            }
            Failure::Key => f.write_str("the peer has not the same pre-shared key"),
            Failure::Certificate(why) => write!(f, "certificates: {why}"),
            Failure::NoName => f.write_str("the peer's certificate has no DNS name (subjectAltName)"),
            Failure::NotAllowed(who) => {
                write!(f, "{who} is not among those that may connect (allow_connect)")
            }
            Failure::AnotherPeer(now, other) => {
                write!(f, "{other} came from the address of {now}, with whom there are connections")
            }
            Failure::Version(theirs) => write!(
                f,
                "the peer shakes hands by version {theirs}, this side by version {HANDSHAKE_VERSION}: \
                 have the same release on both"
            ),
            Failure::Own => {
                f.write_str("it is this endpoint itself that answers: its own words come back to it")
            }
            Failure::NotExpected(found, expected) => {
                write!(f, "{found} is there, and {expected} was expected")
            }
            Failure::Silence(what) => {
                write!(
                    f,
                    "no answer: nobody is there, or it is not secured likewise, or does not accept {what}"
                )
            }
            Failure::Internal(what) => write!(f, "the handshake failed here: {what}"),
        }
    }
}

impl Failure {
    /// Nobody but the peer can have brought this about, and trying again changes nothing: it has proved who it is, and that
    /// is not who may be there, or the two sides do not understand each other.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Failure::NotAllowed(_) | Failure::NotExpected(..) | Failure::NoName | Failure::Version(_)
        )
    }
}

impl std::error::Error for Failure {}
