//! Endpoints over a transport from outside this crate.

use super::{Endpoint, Poller};
use crate::device::{Device, DeviceInfo, TransportKind};
use crate::engine::core::Core;
use crate::error::CreateError;
use crate::options::Options;
use crate::transport::Transport;
use std::sync::Arc;

/// Opens an endpoint whose longest message is of so many bytes, over the transport that `make` opens. `name` is its device's.
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
    // It stands in for shared memory where a kind is asked for: nothing of it goes over a network.
    let info = DeviceInfo {
        max_send_size: message_bytes_max,
        ..DeviceInfo::new(name.to_owned(), TransportKind::Shm)
    };
    let poller = Arc::new(Poller::new(false)?);
    let core = Core::new(options.clone(), message_bytes_max, poller.clone())?;
    let transport = make(&options, &poller)?;
    Endpoint::of(&Device(Arc::new(info)), core, transport)
}
