//! Opens an endpoint's Ethernet transport, by its device and options.

use super::super::Datagram;
use super::super::sealed::{self, Sealed};
use super::{Counts, Eth, SocketPath, Sockets, uri};
use crate::device::{DeviceInfo, EthMode, Unavailable};
use crate::error::{CreateError, SysError};
use crate::limits;
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::Transport;
use crate::transport::datagram::open::{Numbers, Setup, secret};
use crate::transport::datagram::size;
use cci_memory::fallible;
use cci_proto::limits::{DATAGRAM_OVERHEAD_BYTES, WINDOW_BUNDLES_MAX};
use cci_secure::limits::OVERHEAD_BYTES;
use cci_sys::ethernet::{ETHERNET_BYTES, EndpointLock, FrameHeader, FrameSocket, Link, Lookout};
use cci_sys::xdp::{self, Attachment, Check, Mode, Program, Refusal, Wanted};
use cci_sys::{packet, random};
use std::cell::RefCell;
use std::io::{self, ErrorKind};

/// The memory for frames that arrive, bytes, if the endpoint's cap leaves so much.
const RECV_BYTES: u64 = 8 << 20;
/// The most frames for arrivals.
const RECV_FRAMES_MAX: u64 = 2048;
/// The fewest frames for arrivals: fewer would not hold a burst of acknowledgements.
const RECV_FRAMES_MIN: u64 = 32;
/// The memory for frames that are being sent, bytes, if the endpoint's cap leaves so much.
const SEND_BYTES: u64 = 2 << 20;
/// The most frames to be sent.
const SEND_FRAMES_MAX: u64 = 512;
/// The fewest frames to be sent.
const SEND_FRAMES_MIN: u64 = 16;
/// How many endpoint numbers are tried if the program has not asked for one.
const TRIES_MAX: u32 = 32;
/// The least number that an endpoint chooses by itself. Those below are for services.
const ANY_ENDPOINT: u32 = 1 << 31;

/// How many frames are allocated for each direction, and how long they are.
#[derive(Copy, Clone)]
struct FrameCounts {
    frame_bytes_max: usize,
    recv_frames: usize,
    send_frames: usize,
}

impl FrameCounts {
    /// Counts that take about a 20th of `memory_bytes_max`.
    fn new(frame_bytes_max: usize, memory_bytes_max: u64) -> FrameCounts {
        let slot_bytes = (frame_bytes_max as u64).next_multiple_of(2048);
        let frames = |bytes: u64, min: u64, max: u64| (bytes / slot_bytes).clamp(min, max) as usize;
        FrameCounts {
            frame_bytes_max,
            recv_frames: frames(RECV_BYTES.min(memory_bytes_max / 32), RECV_FRAMES_MIN, RECV_FRAMES_MAX),
            send_frames: frames(SEND_BYTES.min(memory_bytes_max / 64), SEND_FRAMES_MIN, SEND_FRAMES_MAX),
        }
    }

    fn packet(self, link: &Link, lock: &EndpointLock) -> packet::Options {
        packet::Options {
            interface_index: link.index,
            endpoint: lock.endpoint(),
            frame_bytes_max: self.frame_bytes_max,
            recv_frames: self.recv_frames,
            send_frames: self.send_frames,
        }
    }

    fn xdp(self, link: &Link) -> xdp::Options {
        xdp::Options {
            interface_index: link.index,
            frame_bytes_max: self.frame_bytes_max,
            recv_frames: self.recv_frames,
            send_frames: self.send_frames,
        }
    }
}

/// Opens an endpoint's Ethernet transport.
pub(crate) fn open(device: &DeviceInfo, options: &Options) -> Result<Box<dyn Transport>, CreateError> {
    let name = device.interface.as_deref().ok_or(CreateError::DeviceDown)?;
    let link = Link::of(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => CreateError::DeviceDown,
        _ if error.errno() == Some(ENODEV) => CreateError::DeviceDown,
        _ => CreateError::System(error),
    })?;
    let mtu_bytes = link.mtu_bytes.min(device.mtu_bytes as usize);
    let sealing = Sealing::of(device, options)?;
    let overhead_bytes = if sealing.is_some() { OVERHEAD_BYTES } else { 0 };
    if mtu_bytes < size::FRAME_MTU_BYTES_MIN as usize + overhead_bytes {
        return Err(sealed::mtu_too_small(device.mtu_bytes, size::FRAME_MTU_BYTES_MIN));
    }
    let counts = FrameCounts::new(ETHERNET_BYTES + mtu_bytes, options.memory_bytes_max);
    let lock = lock(&link, device, options)?;
    let (attachment, sockets, socket_path) = sockets(&link, &lock, counts, device.eth.mode)?;
    let main = sockets.main.borrow();
    let datagram_bytes_max = size::datagram_bytes_in_frame(main.frame_bytes_max() - overhead_bytes);
    let reserved_bytes = sealing.as_ref().map_or(0, |_| options.memory_bytes_max / sealed::MEMORY_SHARE);
    let setup = Setup {
        uri: uri::format(&link.name, link.mac, lock.endpoint()),
        secret: secret()?,
        datagram_bytes_max,
        receive_buffer_bytes: receive_window_bytes(&**main, counts),
        reserved_bytes,
        numbers: Numbers::default(),
    };
    drop(main);
    let from_endpoint = lock.endpoint();
    let scrap_bytes = usize::from(datagram_bytes_max) + overhead_bytes;
    let header = FrameHeader { to: link.mac, from: link.mac, to_endpoint: from_endpoint, from_endpoint };
    let carrier = Eth {
        link,
        attachment,
        sockets,
        lock,
        socket_path,
        header,
        pending: 0,
        counts: Counts::default(),
        lookout: Lookout::current().map_err(CreateError::System)?,
        dead: false,
        cut_off_until_ns: 0,
        scrap: fallible::zeroed(scrap_bytes)
            .ok_or_else(|| CreateError::without_memory("have memory for frames", scrap_bytes))?,
        looked_at_ns: 0,
        is_watched: false,
    };
    match sealing {
        None => Ok(Box::new(Datagram::open(carrier, setup, device, options)?)),
        Some(sealing) => {
            let carrier = Sealed::new(carrier, sealing, None, &setup, options.memory_bytes_max)?;
            Ok(Box::new(Datagram::open(carrier, setup, device, options)?))
        }
    }
}

/// The system's error number for a device that is not there.
const ENODEV: i32 = 19;

/// How many bytes peers may have in flight to this endpoint. Each frame takes a whole slot, however short it is. But one
/// connection has at most [`WINDOW_BUNDLES_MAX`] frames in flight. So where there are slots for several connections, only bytes
/// count.
fn receive_window_bytes(socket: &dyn FrameSocket, counts: FrameCounts) -> u64 {
    if counts.recv_frames >= 2 * WINDOW_BUNDLES_MAX as usize {
        return socket.receive_buffer_bytes() as u64;
    }
    counts.recv_frames as u64 * u64::from(DATAGRAM_OVERHEAD_BYTES)
}

/// Locks the endpoint's number. It is the one that the service gives, otherwise the device's, otherwise a random one.
//= wire.md R-ETH-2
fn lock(link: &Link, device: &DeviceInfo, options: &Options) -> Result<EndpointLock, CreateError> {
    let wanted = match &options.service {
        Some(service) if service == "0" => None,
        Some(service) => Some(uri::parse_endpoint(service).ok_or_else(|| CreateError::BadService {
            service: service.clone(),
            reason: format!("an Ethernet service is an endpoint number from 1 to {}, or 0 for any", u32::MAX),
        })?),
        None => device.eth.endpoint,
    };
    if let Some(endpoint) = wanted {
        return EndpointLock::take(link.mac, endpoint).map_err(|error| taken(error, endpoint));
    }
    let mut tries = 0;
    loop {
        let endpoint = ANY_ENDPOINT | random::u64()? as u32;
        match EndpointLock::take(link.mac, endpoint) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries < TRIES_MAX => tries += 1,
            other => return other.map_err(|error| taken(error, endpoint)),
        }
    }
}

fn taken(error: SysError, endpoint: u32) -> CreateError {
    match error.kind() {
        ErrorKind::AddrInUse => CreateError::InUse { service: endpoint.to_string() },
        _ => CreateError::System(error),
    }
}

/// Opens the best available sockets that the device may use.
fn sockets(
    link: &Link,
    lock: &EndpointLock,
    counts: FrameCounts,
    mode: EthMode,
) -> Result<Opened, CreateError> {
    let wanted = match mode {
        EthMode::Packet => {
            let reason = "mode = packet says so".to_owned();
            return with_packet(
                link,
                lock,
                counts,
                None,
                unavailable(link, reason, "write mode = auto".to_owned()),
            );
        }
        EthMode::XdpGeneric => Wanted::Generic,
        // On virtual pairs native mode is no faster, since the driver also makes a buffer for each frame.
        EthMode::Auto if link.is_veth() => Wanted::Generic,
        EthMode::Auto | EthMode::Xdp => Wanted::Auto,
    };
    let refusal = match Program::attach(link.index, wanted) {
        Ok(program) => match xdp::Socket::open(&counts.xdp(link)) {
            Ok(socket) => match with_xdp(link, lock, counts, program, socket)? {
                Ok(opened) => return Ok(opened),
                Err(refusal) => refusal,
            },
            // Without its socket, the program can still drop forged frames.
            Err(refusal) if mode == EthMode::Auto => {
                let attachment = Attachment::create(program, lock, link.mac, None).ok();
                return with_packet(link, lock, counts, attachment, refused(link, &refusal));
            }
            Err(refusal) => refusal,
        },
        Err(refusal) => refusal,
    };
    if mode == EthMode::Auto {
        return with_packet(link, lock, counts, None, refused(link, &refusal));
    }
    if let Refusal::System(error) = refusal {
        return Err(CreateError::System(error));
    }
    let why = format!("{refusal}; {}", refusal.remedy());
    let error = SysError::new("have AF_XDP, as the device's mode demands", io::Error::other(why));
    Err(CreateError::System(error.on(&link.name)))
}

type Opened = (Option<Attachment>, Sockets, SocketPath);

/// Opens a packet socket beside an AF_XDP socket, for frames that arrive on other queues, and enters the endpoint into the
/// interface's program.
fn with_xdp(
    link: &Link,
    lock: &EndpointLock,
    counts: FrameCounts,
    program: Program,
    socket: xdp::Socket,
) -> Result<Result<Opened, Refusal>, CreateError> {
    let attachment = match Attachment::create(program, lock, link.mac, Some(&socket)) {
        Ok(attachment) => attachment,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let path = match attachment.mode() {
        Mode::Native => "AF_XDP, in the driver",
        Mode::Generic => "AF_XDP, behind the driver",
    };
    let reason = format!(
        "the interface's program puts frames into the ring of queue {}; {}",
        socket.queue(),
        if socket.zero_copy() {
            "the card reads and writes them in place"
        } else {
            "the kernel copies each once"
        }
    );
    let few = FrameCounts {
        recv_frames: (counts.recv_frames / 4).max(RECV_FRAMES_MIN as usize),
        send_frames: 1,
        ..counts
    };
    let side = packet::Socket::open(&few.packet(link, lock))?;
    let sockets = Sockets { main: RefCell::new(Box::new(socket)), side: Some(RefCell::new(Box::new(side))) };
    Ok(Ok((Some(checked(attachment)), sockets, SocketPath { path, reason, missing: Vec::new() })))
}

/// Opens a packet socket as the only socket.
fn with_packet(
    link: &Link,
    lock: &EndpointLock,
    counts: FrameCounts,
    attachment: Option<Attachment>,
    missing: Unavailable,
) -> Result<Opened, CreateError> {
    let socket = packet::Socket::open(&counts.packet(link, lock))?;
    let sockets = Sockets { main: RefCell::new(Box::new(socket)), side: None };
    let reason = "the kernel copies each frame that comes into our ring, and sends from our ring".to_owned();
    let socket_path = SocketPath { path: "AF_PACKET with mapped rings", reason, missing: vec![missing] };
    Ok((attachment.map(checked), sockets, socket_path))
}

/// Has the interface's program check nonces, but not the indices of connections. A peer whose connection is gone must get an
/// answer.
fn checked(mut attachment: Attachment) -> Attachment {
    // If this fails, every frame comes through, as it would without the program.
    let _ = attachment.set_check(Check::Nonce);
    attachment
}

fn unavailable(link: &Link, reason: String, remedy: String) -> Unavailable {
    Unavailable { what: format!("AF_XDP on {}", link.name), reason, remedy }
}

fn refused(link: &Link, refusal: &Refusal) -> Unavailable {
    unavailable(link, refusal.to_string(), refusal.remedy().into_owned())
}

/// Why an endpoint on this interface would have no AF_XDP, if that can be known without opening one.
pub(crate) fn lacks_xdp(link: &Link, mtu_bytes: u32) -> Option<Unavailable> {
    let counts = FrameCounts::new(ETHERNET_BYTES + mtu_bytes as usize, limits::MEMORY_BYTES_DEFAULT);
    xdp::probe(&counts.xdp(link)).err().map(|refusal| refused(link, &refusal))
}
