//! Shared memory between processes of one host.

use super::Transport;
use crate::device::DeviceInfo;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::options::Options;
use std::sync::Arc;

/// Longest message.
pub(crate) const MESSAGE_BYTES_MAX: u32 = crate::limits::MESSAGE_BYTES_MAX;

/// Opens an endpoint's shared-memory transport.
pub(crate) fn open(_: &DeviceInfo, _: &Options, _: &Arc<Poller>) -> Result<Box<dyn Transport>, CreateError> {
    Err(CreateError::DeviceDown)
}
