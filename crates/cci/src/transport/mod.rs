//! The transports, and the seam between them and the engine ([`seam`]). Everything that the program sees (events, buffers,
//! handles) is the engine's; a transport moves bytes and reports to the [`Core`](crate::engine::core::Core) what happened.

pub(crate) mod any;
pub(crate) mod commitment;
pub(crate) mod datagram;
mod eviction;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod ip_port;
pub(crate) mod ip_uri;
#[cfg(test)]
mod lend_tests;
pub(crate) mod ordered_rma;
mod quota;
pub(crate) mod reach;
mod seam;
pub(crate) mod shm;
pub(crate) mod tcp;
mod token;

pub use seam::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, PeerState, RegionChange,
    Report, RmaRequest, Setting, Started, Taken, Transport,
};

use self::commitment::Commitment;
use self::shm::Admission;
use crate::device::{Device, DeviceInfo, TransportKind};
use crate::engine::poller::Poller;
use crate::error::{ConnectError, CreateError};
use crate::options::Options;
use crate::sealing::Sealing;
use crate::security::SHM_HAS_NONE;
use std::borrow::Cow;
use std::sync::Arc;

/// What an endpoint of a device can use of a URI: of one that lists several ways, its own; and whom it has to find there.
pub(crate) fn own_part<'a>(
    device: &DeviceInfo,
    uri: &'a str,
) -> Result<(Cow<'a, str>, Option<Commitment>), ConnectError> {
    if !device.on_demand.is_empty() {
        return Ok((Cow::Borrowed(uri), None));
    }
    match any::part_for(device.kind, uri) {
        None => Ok((Cow::Borrowed(uri), None)),
        Some(Ok((own, proof))) => Ok((Cow::Owned(own), proof)),
        Some(Err(reason)) => Err(ConnectError::BadUri { uri: uri.to_owned(), reason }),
    }
}

/// Opens the transport of an endpoint.
pub(crate) fn open(
    device: &Device,
    options: &Options,
    poller: &Arc<Poller>,
) -> Result<Box<dyn Transport>, CreateError> {
    // Shared memory finds out for itself what it lacks, and says it better.
    if !device.is_up() && device.transport() != TransportKind::Shm {
        return Err(CreateError::DeviceDown);
    }
    let options = any::options_of_home(&device.0, options);
    match device.transport() {
        TransportKind::Any => any::open(device, &options, poller),
        _ => open_one(&device.0, &options, poller),
    }
}

/// Opens the transport of a device that is not made of others: the one place that knows them all.
pub(crate) fn open_one(
    device: &DeviceInfo,
    options: &Options,
    poller: &Arc<Poller>,
) -> Result<Box<dyn Transport>, CreateError> {
    match device.kind {
        TransportKind::Shm => {
            if options.security.is_some() {
                return Err(CreateError::BadOption { name: "security", reason: SHM_HAS_NONE.to_owned() });
            }
            shm::open(device, options, options.memory_bytes_max, poller, Admission::of(device, false), None)
        }
        TransportKind::Udp => datagram::open_udp(device, options),
        TransportKind::Eth => datagram::open_eth(device, options),
        TransportKind::Tcp => tcp::open(device, options, poller, Sealing::of(device, options)?),
        // It is none of those that endpoints of a device `any` are made of.
        TransportKind::Any => Err(CreateError::DeviceDown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Security;

    #[test]
    fn shared_memory_has_nothing_to_seal() {
        let keys = b"node1 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
        let device = DeviceInfo::new("s".to_owned(), TransportKind::Shm);
        let options = Options { security: Some(Security::psk(keys).unwrap()), ..Options::default() };
        let poller = Arc::new(Poller::new(false).unwrap());
        let error = open_one(&device, &options, &poller).err().unwrap().to_string();
        assert!(error.contains("security") && error.contains("nothing to seal"), "{error}");
    }
}
