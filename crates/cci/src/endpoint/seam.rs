//! Opens endpoints over a transport from outside this crate.

use super::{Endpoint, Poller};
use crate::device::{Device, DeviceInfo, TransportKind};
use crate::engine::core::Core;
use crate::error::CreateError;
use crate::options::Options;
use crate::transport::Transport;
use std::sync::Arc;

/// Opens an endpoint over the transport that `make` opens. `name` is the name of its device, and `message_bytes_max` its longest
/// message.
///
/// # Errors
/// Those of [`Endpoint::create`], and those of `make`.
pub fn open(
    name: &str,
    message_bytes_max: u32,
    options: Options,
    make: impl FnOnce(&Options, &Arc<Poller>) -> Result<Box<dyn Transport>, CreateError>,
) -> Result<Endpoint, CreateError> {
    options.check()?;
    // Where the kind of the device is asked for, it is shared memory, since nothing goes over a network.
    let info = DeviceInfo {
        max_send_size: message_bytes_max,
        ..DeviceInfo::new(name.to_owned(), TransportKind::Shm)
    };
    let poller = Arc::new(Poller::new(false)?);
    let core = Core::new(options.clone(), message_bytes_max, poller.clone())?;
    let transport = make(&options, &poller)?;
    Endpoint::of(&Device(Arc::new(info)), core, transport)
}
