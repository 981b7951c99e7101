//! Datagrams with the protocol above them: UDP.

mod size;
mod uri;

pub(crate) use size::{MTU_BYTES_DEFAULT, MTU_BYTES_MAX, MTU_BYTES_MIN, message_bytes_max};
pub(crate) use uri::parse_host;

use super::Transport;
use crate::device::DeviceInfo;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::options::Options;
use std::sync::Arc;

/// Opens an endpoint's UDP transport.
pub(crate) fn open_udp(
    _: &DeviceInfo,
    _: &Options,
    _: &Arc<Poller>,
) -> Result<Box<dyn Transport>, CreateError> {
    Err(CreateError::DeviceDown)
}
