//! Datagrams with the protocol above them: UDP.

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
