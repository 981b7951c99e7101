//! Opens an endpoint: makes the listening socket, and tables that fit the memory cap, of a device and options.

use super::conns::{Conns, Defaults};
use super::counts::Counts;
use super::handshakes::Handshakes;
use super::input::{Keepers, SCRATCH_BYTES};
use super::lent::Lent;
use super::links::Links;
use super::local::Local;
use super::pace::Pace;
use super::pipe::Security;
use super::reactor::Reactor;
use super::sends::{Send, Sends};
use super::shared::Shared;
use super::streams::Streams;
use super::transfers::Transfers;
use super::{MESSAGE_BYTES_MAX, SCHEME, Tcp, Transport};
use crate::device::DeviceInfo;
use crate::engine::chunks::Chunks;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::limits;
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::{ip_port, ip_uri};
use cci_memory::fallible;
use cci_sys::clock;
use cci_sys::tcp::Listener;
use std::sync::Arc;

/// The part of the memory cap that outgoing messages may take.
const CHUNKS_SHARE: u64 = 4;
/// The most bytes that outgoing messages may take, however high the cap is.
const CHUNKS_BYTES_MAX: u64 = 256 << 20;
/// The part of the cap for input that is not handled yet.
const INPUTS_SHARE: u64 = 16;
/// The part of the cap that the table of connections may take while it doubles.
const CONNS_SHARE: u64 = 3;
/// The part of the cap for sealed bytes that are not sent yet, and for those that have come and are not opened yet.
const BUFFERS_SHARE: u64 = 8;
/// The part of the cap for the handshakes of clients whose streams are sealed.
const HANDSHAKES_SHARE: u64 = 16;
/// The part of the cap for sends that wait for space. When it is used up, chunks are lent to them as well.
const WAITING_SHARE: u64 = 16;
/// The part of this process's descriptors for clients that wait for the program.
const REQUESTS_SHARE: u64 = 4;

/// Opens an endpoint's TCP transport.
pub(crate) fn open(
    device: &DeviceInfo,
    options: &Options,
    poller: &Arc<Poller>,
    sealing: Option<Sealing>,
) -> Result<Box<dyn Transport>, CreateError> {
    let ip = device.ip.ok_or(CreateError::DeviceDown)?;
    let port = ip_port::port("TCP", device, options)?;
    let at = ip_uri::socket_addr(ip, device.scope_id, port);
    let listener = device.serves.then(|| Listener::bind(at)).transpose();
    let listener = listener.map_err(|error| ip_port::bind_error(error, options, port))?;
    let address = listener.as_ref().map_or(at, Listener::local_addr);
    let remaining_bytes = remaining_bytes(device, options, sealing.is_some())?;
    let (buffers, handshakes) = (remaining_bytes / BUFFERS_SHARE, remaining_bytes / HANDSHAKES_SHARE);
    let security = sealing.map(|sealing| Security::new(sealing, buffers, handshakes)).transpose()?;
    let no_memory = |bytes| CreateError::without_memory("have memory for buffers", bytes);
    let sends_bytes = options.send_buffers as usize * size_of::<Send>();
    let uri = ip_uri::format(SCHEME, address, device.interface.as_deref());
    let local = Local { address, security, mss: device.max_send_size.min(MESSAGE_BYTES_MAX) };
    let handshakes = Handshakes::new(local, listener, requests_max());
    handshakes.watch_listener(poller)?;
    let defaults =
        Defaults { send_timeout_ns: ns(options.send_timeout), keepalive_ns: options.keepalive.map_or(0, ns) };
    let links = Links::new(
        Conns::new(remaining_bytes / CONNS_SHARE, defaults),
        Shared {
            sends: Sends::new(options.send_buffers).ok_or_else(|| no_memory(sends_bytes))?,
            chunks: Chunks::new((remaining_bytes / CHUNKS_SHARE).min(CHUNKS_BYTES_MAX)),
            lent: Lent::new(remaining_bytes / WAITING_SHARE),
            counts: Counts::default(),
            now_ns: clock::now_ns(),
            sends_due_ns: u64::MAX,
            keepers: Keepers::new(remaining_bytes / INPUTS_SHARE),
            streams: Streams::new(),
            pace: Pace::new(),
        },
        Transfers::new(
            options.rma_operations,
            device.max_send_size.min(MESSAGE_BYTES_MAX),
            options.memory_bytes_max,
        ),
        fallible::zeroed(SCRATCH_BYTES).ok_or_else(|| no_memory(SCRATCH_BYTES))?,
    );
    Ok(Box::new(Tcp { uri, reactor: Reactor::new(handshakes, links) }))
}

/// The part of the cap that is left beside the engine's buffers and the transport's tables.
fn remaining_bytes(device: &DeviceInfo, options: &Options, is_sealed: bool) -> Result<u64, CreateError> {
    let slots = u64::from(options.recv_buffers) * u64::from(device.max_send_size.next_multiple_of(64));
    let sends = u64::from(options.send_buffers) * size_of::<Send>() as u64;
    let sealing = if is_sealed { Security::BYTES_MIN } else { 0 };
    let needed_bytes = slots + sends + SCRATCH_BYTES as u64 + sealing;
    let cap_bytes = options.memory_bytes_max;
    cap_bytes.checked_sub(needed_bytes).ok_or(CreateError::NoMemory { needed_bytes, cap_bytes })
}

/// The most requests that may wait for the program. Each takes a descriptor, and strangers may not take all of these.
fn requests_max() -> u32 {
    let descriptors = cci_sys::limits::read().descriptors.unwrap_or(u64::MAX);
    let max = (descriptors / REQUESTS_SHARE).clamp(4, u64::from(limits::REQUESTS_MAX));
    u32::try_from(max).unwrap_or(limits::REQUESTS_MAX)
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
