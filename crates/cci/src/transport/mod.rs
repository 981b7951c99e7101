//! The seam below the engine: what a transport must do. Everything the program sees — events, buffers, handles — is
//! the engine's; a transport moves bytes and tells the [`Core`] what happened.

pub(crate) mod any;
mod crowd;
pub(crate) mod datagram;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod ip_port;
pub(crate) mod ip_uri;
pub(crate) mod ordered_rma;
mod quota;
pub(crate) mod reach;
pub(crate) mod shm;
pub(crate) mod tcp;
mod token;

use self::shm::Admission;
use crate::counters::{ConnectionCounters, DropReason};
use crate::device::{Device, DeviceInfo, TransportKind};
use crate::engine::core::{Core, SendOp};
use crate::engine::origin::RequestBody;
use crate::engine::poller::Poller;
use crate::engine::regions::Region;
use crate::error::{AcceptError, ConnectError, CreateError, SendError};
use crate::event::{Connection, Status};
use crate::explain::Explanation;
use crate::options::{Attribute, Options};
use crate::sealing::Sealing;
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::clock;
use std::borrow::Cow;
use std::sync::Arc;

/// What came of arming.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    /// Something came meanwhile: make progress instead of sleeping.
    Pending,
    /// Sleep is safe: a watched descriptor becomes readable when something comes; wake at the deadline at the latest.
    Sleep {
        /// On the monotonic clock.
        deadline_ns: Option<u64>,
    },
}

/// One endpoint's transport. Calls come from one thread at a time.
///
/// Every `connect` and `accept` that returned Ok ends in exactly one `Core::opened` or `Core::failed`; every send that
/// returned Ok ends in exactly one `Core::complete`, before `Core::closed` of its connection.
pub(crate) trait Transport: Send {
    /// Where others connect to.
    fn uri(&self) -> &str;

    /// Whether it can send to groups and join them. Without that it is never asked to connect to one.
    fn offers_multicast(&self) -> bool {
        false
    }

    /// Starts a connection; `connection` is already in the core's table. Returns the transport's own name for it.
    fn connect(&mut self, core: &mut Core, connection: Connection, to: Dial<'_>)
    -> Result<u64, ConnectError>;

    /// Completes a request, which may have come to another endpoint's transport. On error the transport has seen to
    /// it that the peer learns of the refusal.
    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError>;

    /// The program refused a request that came to this endpoint. `via`: by which transport, where there are several.
    fn refused(
        &mut self,
        core: &mut Core,
        via: TransportKind,
        ticket: u64,
        inner: crate::engine::origin::RequestInner,
    );

    /// Another endpoint accepted a request that came to this one.
    fn taken(&mut self, core: &mut Core, via: TransportKind, ticket: u64);

    /// Local and orderly: what was sent goes on being delivered until it is, or times out; then `Core::closed`.
    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64);

    /// Takes one message made of the segments, copying them. The engine has checked the length against the MSS and
    /// the connection's state. `SendError::WouldBlock`: nothing taken.
    fn send(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError>;

    /// Does a remote memory operation here and now, where that needs no word of the peer's: shared memory that is mapped.
    /// None: it can't, and nothing was done.
    fn rma_at_once(&mut self, _: &mut Core, _: Connection, _: u64, _: &RmaRequest<'_>) -> Option<Status> {
        None
    }

    /// Starts a remote memory operation on a reliable, open connection. Ok: it ends in exactly one
    /// `Core::complete_operation` with `operation`, before `Core::closed` of its connection. Local places were checked.
    fn rma(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &RmaRequest<'_>,
        operation: u64,
    ) -> Result<(), SendError>;

    /// As [`Transport::rma_at_once`].
    fn atomic_at_once(&mut self, _: &mut Core, _: Connection, _: u64, _: &AtomicRequest) -> Option<Status> {
        None
    }

    /// As [`Transport::rma`].
    fn atomic(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &AtomicRequest,
        operation: u64,
    ) -> Result<(), SendError>;

    /// Whether the peer's library has answered the attempt that is under way, so that its program may have heard of it.
    /// Asked only while the engine's own note of it ([`Core::heard`]) does not say so.
    fn heard(&self, _link: u64) -> bool {
        false
    }

    /// True while there are no connections, none is being made, and nothing waits to leave: whatever comes next may wait
    /// a few microseconds.
    fn is_idle(&self) -> bool {
        false
    }

    /// A region was taken out of the table. When this returns, nothing of it changes any more on account of peers.
    fn region_removed(&mut self, _: &mut Core, _: u64, _: &Region) {}

    /// Sends of a connection that have not completed, without the silent ones.
    fn sends_in_progress(&self, link: u64) -> u32;

    /// Sends of all connections that have not completed, as far as this transport keeps something of each.
    fn sends_held(&self) -> u32;

    /// How many of these are one connection's.
    fn sends_held_by(&self, link: u64) -> u32;

    /// The peer says that its program has no receive buffer free.
    fn is_refused(&self, link: u64) -> bool;

    /// Whether what is sent on a connection is taken by the peer without anything that this side does meanwhile, so that there may be
    /// room in the next moment.
    fn drains_by_itself(&self, _link: u64) -> bool {
        false
    }

    /// Of the endpoint's memory cap, the bytes that this transport can do without for now.
    fn spare_bytes(&mut self, core: &mut Core) -> u64;

    /// Of its part of the cap, this transport has to do without so many bytes, no more than it could spare: they are lent.
    fn lend(&mut self, bytes: u64);

    /// The clock of this endpoint, nanoseconds: the system's, except in simulations.
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// Drains what came, times out what is due, transmits what waits. Bounded work per call.
    fn progress(&mut self, core: &mut Core);

    /// Prepares for sleep: see [`crate::engine::poller`].
    fn arm(&mut self, core: &mut Core) -> Armed;

    /// True when nothing sent is still on its way and no closing connection is left: the endpoint may go.
    fn is_drained(&self) -> bool;

    /// True when no send is in progress: what is left is to take leave of the peers.
    fn has_delivered_all(&self) -> bool {
        self.is_drained()
    }

    /// Overrides the endpoint's send timeout for one connection.
    fn set_send_timeout(&mut self, link: u64, timeout_ns: u64);

    /// Overrides the endpoint's keepalive for one connection; 0 = off.
    fn set_keepalive(&mut self, core: &mut Core, link: u64, timeout_ns: u64);

    /// The endpoint's defaults changed; they hold for connections made from now on.
    fn set_defaults(&mut self, send_timeout_ns: u64, keepalive_ns: u64);

    /// The send timeout and the keepalive in force for one connection, nanoseconds.
    fn timeouts_ns(&self, link: u64) -> Option<(u64, u64)>;

    /// Counters of one connection.
    fn connection_counters(&self, link: u64) -> ConnectionCounters;

    /// Transport's own counters, by name.
    fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>);

    /// Bytes held, by kind, beside the engine's.
    fn memory(&self, into: &mut Vec<(&'static str, u64)>);

    /// Path, facts and what holds the connection up. The engine fills in transport and attribute.
    fn explain(&self, link: u64, into: &mut Explanation);
}

/// A read or write of remote memory.
pub(crate) struct RmaRequest<'a> {
    pub kind: RmaKind,
    /// In order, each contiguous on both sides; at least one.
    pub pieces: &'a [RmaSegment],
    /// For the peer's program, behind the data. Its length was checked.
    pub message: Option<&'a [u8]>,
    pub fence: bool,
}

/// An atomic operation.
pub(crate) struct AtomicRequest {
    pub atomic: Atomic,
    pub target: RemoteAddress,
    /// Where the value from before goes, as wide as the operation.
    pub result: Option<RemoteAddress>,
    pub fence: bool,
}

/// What a connection attempt needs.
pub(crate) struct Dial<'a> {
    pub uri: &'a str,
    pub request: &'a [u8],
    pub attribute: Attribute,
    /// None: try for ever.
    pub timeout_ns: Option<u64>,
    /// The name of who must be at the other end; `None`: whoever may be connected.
    pub expected: Option<&'a str>,
    /// Over shared memory: what the peer has to prove before it hears of the request.
    pub proof: Option<shm::Commitment>,
}

/// What an endpoint of a device can use of a URI: of one that lists several ways, its own; and whom it has to find there.
pub(crate) fn own_part<'a>(
    device: &DeviceInfo,
    uri: &'a str,
) -> Result<(Cow<'a, str>, Option<shm::Commitment>), ConnectError> {
    if !device.beyond.is_empty() {
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
            // Which is none, or an error.
            Sealing::of(device, options)?;
            shm::open(device, options, options.memory_bytes_max, poller, Admission::of(device, false), None)
        }
        TransportKind::Udp => datagram::open_udp(device, options),
        TransportKind::Eth => datagram::open_eth(device, options),
        TransportKind::Tcp => tcp::open(device, options, poller, Sealing::of(device, options)?),
        // It is none of those that endpoints of a device `any` are made of.
        TransportKind::Any => Err(CreateError::DeviceDown),
    }
}
