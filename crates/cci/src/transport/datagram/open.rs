//! Opens a protocol endpoint over a carrier, within the memory cap.

use super::Datagram;
use super::adapter::Adapter;
use super::carrier::{Carrier, Report};
use super::rest::Rest;
use crate::device::DeviceInfo;
use crate::engine::event::Event;
use crate::error::{CreateError, SysError};
use crate::limits;
use crate::options::Options;
use cci_proto::{Config, ConfigError, Endpoint, Time};
use cci_sys::random;

/// How many bytes an entry of the engine's connection table may take while the table doubles.
const TABLE_BYTES_PER_CONNECTION: u64 = 96;

/// What the transport must know of its carrier when it opens.
#[derive(Clone)]
pub(super) struct Setup {
    /// The endpoint's own address, to which others connect.
    pub uri: String,
    /// What the protocol derives nonces and cookies from: different for every endpoint and every start.
    pub secret: [u8; 32],
    /// The largest datagram to send, bytes; a multiple of 8.
    pub datagram_bytes_max: u16,
    /// Bytes that the system holds for this endpoint before it reads them; 0 means that it is not known.
    pub receive_buffer_bytes: u64,
    /// Bytes of the memory cap that are kept for other things than connections.
    pub reserved_bytes: u64,
    /// Numbers of the protocol that only simulations change.
    pub numbers: Numbers,
}

/// Numbers of the protocol that no option changes.
#[derive(Copy, Clone)]
pub(super) struct Numbers {
    /// The number of each connection's first bundle; `None`: it follows from the secret.
    pub first_seq: Option<u32>,
    /// How many connections there may be, if the memory allows so many.
    pub connections_max: u32,
    /// How many requests may wait for the program.
    pub requests_max: u32,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            first_seq: None,
            connections_max: limits::CONNECTIONS_MAX,
            requests_max: limits::REQUESTS_MAX,
        }
    }
}

/// Draws a random secret.
pub(super) fn secret() -> Result<[u8; 32], SysError> {
    let mut secret = [0; 32];
    random::fill(&mut secret)?;
    Ok(secret)
}

impl<C: Carrier> Datagram<C> {
    /// Opens an endpoint's transport over a carrier. The carrier's descriptors are watched only when the program first sleeps.
    /// Wake-ups cost the kernel time for each datagram, and programs that poll save it.
    pub(super) fn open(
        carrier: C,
        setup: Setup,
        device: &DeviceInfo,
        options: &Options,
    ) -> Result<Datagram<C>, CreateError> {
        let config = config(device, options, &carrier, &setup)?;
        let proto = Endpoint::new(config).map_err(|error| config_error(error, options))?;
        let now = Time(carrier.now_ns());
        Ok(Datagram {
            proto,
            carrier,
            adapter: Adapter::new(device.kind, device.max_send_size),
            rest: Rest::new(),
            has_left_many: false,
            uri: setup.uri,
            now,
            polls_since_clock: 0,
            polls_per_clock: 0,
            received_at: Time(0),
            sends_since_clock: 0,
            sent_alone_at: None,
            queued_bytes: 0,
            failed: false,
        })
    }
}

/// The protocol's configuration. The memory cap less the engine's buffers, the carrier's batches and what is reserved is shared: the
/// engine's table of connections may take a quarter of it, the protocol the other three.
fn config(
    device: &DeviceInfo,
    options: &Options,
    carrier: &impl Carrier,
    setup: &Setup,
) -> Result<Config, CreateError> {
    let events = u64::from(options.recv_buffers)
        + u64::from(options.send_buffers.min(limits::SENDS_DEFAULT))
        + u64::from(options.rma_operations.min(limits::RMA_EVENTS_RESERVED));
    let slots_bytes = u64::from(options.recv_buffers) * u64::from(device.max_send_size.next_multiple_of(64));
    let mut batches = Vec::new();
    carrier.report(Report::Memory(&mut batches));
    let batches_bytes = batches.iter().fold(0, |sum, (_, bytes)| sum + bytes);
    let engine_bytes =
        slots_bytes + events * size_of::<Event>() as u64 + batches_bytes + setup.reserved_bytes;
    let Some(remaining_bytes) = options.memory_bytes_max.checked_sub(engine_bytes) else {
        return Err(CreateError::NoMemory {
            needed_bytes: engine_bytes,
            cap_bytes: options.memory_bytes_max,
        });
    };
    let numbers = setup.numbers;
    let connections =
        (remaining_bytes / 4 / TABLE_BYTES_PER_CONNECTION).clamp(1, numbers.connections_max.into());
    Ok(Config {
        secret: setup.secret,
        datagram_bytes_max: setup.datagram_bytes_max,
        memory_bytes_max: remaining_bytes / 4 * 3,
        receive_buffer_bytes: setup.receive_buffer_bytes,
        connections_max: u32::try_from(connections).unwrap_or(numbers.connections_max),
        serves: device.serves,
        requests_max: numbers.requests_max,
        sends_max: options.send_buffers,
        operations_max: options.rma_operations,
        send_timeout_ns: ns(options.send_timeout),
        keepalive_ns: options.keepalive.map_or(0, ns),
        first_seq: numbers.first_seq,
    })
}

fn config_error(error: ConfigError, options: &Options) -> CreateError {
    match error {
        ConfigError::Memory { bytes_min } => CreateError::NoMemory {
            // The protocol gets three quarters of each byte by which the cap is raised.
            needed_bytes: options.memory_bytes_max.saturating_add(bytes_min.saturating_mul(4) / 3),
            cap_bytes: options.memory_bytes_max,
        },
        ConfigError::OutOfMemory { bytes } => {
            CreateError::NoMemory { needed_bytes: bytes, cap_bytes: options.memory_bytes_max }
        }
        ConfigError::DatagramBytes | ConfigError::Count => {
            CreateError::BadOption { name: "send_buffers", reason: error.to_string() }
        }
    }
}

/// A duration in nanoseconds.
pub(super) fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
