//! What a transport must do: the seam below the engine.
//!
//! There is one transport for each endpoint, and calls come from one thread at a time. The engine knows a connection by its handle,
//! and the transport by a number of its own, the *link*, which it returns from [`Transport::connect`] and
//! [`Transport::accept`]; the engine keeps the link in its table and passes it with each call. So a message costs one look-up in the
//! engine's table, one dynamic call, and one look-up in the transport's table.
//!
//! The seam can be extended for later transports. A request to transmit what was queued can be added beside
//! [`Transport::progress`]. [`RegionChange`] can report added regions to transports that must register memory. Another variant of
//! [`Armed`] can stand for a transport without a descriptor to sleep on.

use super::commitment::Commitment;
use crate::connection::{Connection, Status};
use crate::counters::{ConnectionCounters, DropReason};
use crate::engine::core::{Core, OperationOp, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::{Lender, ShortMessage};
use crate::engine::mapped_pairs::MappedRegion;
use crate::engine::regions::Region;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, SendError};
use crate::explain::Explanation;
use crate::loan::Loans;
use crate::options::Attribute;
use cci_memory::ring::Line;
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::clock;
use cci_sys::shared_memory::LendingSlot;

/// One endpoint's transport.
///
/// Each `connect` and `accept` that returned `Ok` ends in exactly one [`Core::opened`] or [`Core::failed`]. Each send that returned
/// `Ok` ends in exactly one [`Core::complete`], before [`Core::closed`] of its connection.
pub trait Transport: Send {
    /// What stays the same for as long as the endpoint is open.
    fn about(&self) -> About<'_>;

    /// Starts a connection. `connection` is in the engine's table already. Returns the link.
    fn connect(&mut self, core: &mut Core, connection: Connection, to: Dial<'_>)
    -> Result<u64, ConnectError>;

    /// Completes a request, which may have come to another endpoint's transport. Returns the link. On error the transport has seen
    /// to it that the peer learns of the refusal.
    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError>;

    /// A request that came to this endpoint was refused, or another endpoint accepted it. A transport whose part of a request
    /// refuses it when it is dropped needs nothing here.
    fn decided(&mut self, core: &mut Core, decision: Decision) {
        let _ = (core, decision);
    }

    /// Closes a connection from this side. What was sent goes on being delivered until it is, or times out; then comes
    /// [`Core::closed`].
    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64);

    /// Takes one message, made of the segments, and copies it. The engine has checked its length against the MSS, and the
    /// connection's state. After [`SendError::WouldBlock`] nothing was taken.
    fn send(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError>;

    /// Takes messages of a burst, from the first on, and copies them, as far as that can be done in one go; what it leaves is sent one by
    /// one. The engine has checked the connection's state, and nothing waits. The transport checks that no message that it takes is
    /// longer than `mss`. Each ends as one that was sent by itself, or several of them in one [`Core::complete_run`].
    fn send_burst(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        let _ = (core, connection, link, messages, mss, op);
        Taken::default()
    }

    /// Memory for a message of a reliable and open connection, which the peer can map, so that it is handed over where it lies. None:
    /// there is none, or none now, and the message has to be copied. Its length was checked.
    fn loan(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        len_bytes: usize,
    ) -> Option<LendingSlot> {
        let _ = (core, connection, link, len_bytes);
        None
    }

    /// Takes the message that lies in memory which [`Transport::loan`] has returned for the same connection: the memory, and the
    /// message's length, which was checked. It ends in one [`Core::complete_apart`] when the memory is free again, or the connection
    /// ends. After an error, which gives the memory back, nothing was taken.
    fn send_loan(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        message: (LendingSlot, usize),
        op: SendOp,
    ) -> Result<(), (SendError, LendingSlot)> {
        let _ = (core, connection, link, op);
        Err((SendError::Disconnected, message.0))
    }

    /// Starts an operation on remote memory, on a reliable and open connection, in the process that made the endpoint. Its local addresses
    /// were checked.
    ///
    /// What needs no answer of the peer's may be over when this returns. Everything else is entered into the engine's tables by
    /// [`Core::begin_operation`], which gives it an identifier, and ends in exactly one [`Core::complete_operation`] with that,
    /// before [`Core::closed`] of its connection. After an error it must not be there any more
    /// ([`Core::withdraw_operation`]).
    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError>;

    /// A region of a peer's that is mapped, so that the engine does operations of the connection there by itself, as long as nothing has
    /// cleared its pairs (`MappedPairs::clear`), and the connection is open. `None`: it is not.
    fn mapped(&mut self, link: u64, region: u64, key: u64) -> Option<MappedRegion> {
        let _ = (link, region, key);
        None
    }

    /// The table of regions has changed. When this returns, peers change nothing of a region that was removed.
    fn region(&mut self, core: &mut Core, change: &RegionChange<'_>) {
        let _ = (core, change);
    }

    /// A region of memory of the library's, or of a file, was registered for one connection, which is on this link. The transport may announce it to the peer before
    /// the program does.
    fn region_for(&mut self, core: &mut Core, link: u64, region: u64) {
        let _ = (core, link, region);
    }

    /// Receives, does what is due, and transmits what waits. One call does a bounded amount of work.
    fn progress(&mut self, core: &mut Core);

    /// Whether [`Transport::next`] hands events out without queueing them. It never changes.
    fn hands_out_events(&self) -> bool {
        false
    }

    /// Makes progress while no event is queued, and answers the next one, if any. Connections whose peers are gone are released before.
    /// For transports that [hand out events](Transport::hands_out_events); for others it adds a call to [`Transport::progress`].
    fn next(&mut self, core: &mut Core) -> Option<Event> {
        self.progress(core);
        self.take_queued(core)
    }

    /// Returns the next event if it has come alone, with nothing else to do before it; no event is queued. None says nothing: call
    /// [`Transport::progress`]. For the parts of a transport that [hands out events](Transport::hands_out_events).
    fn take_alone(&mut self, core: &mut Core) -> Option<Event> {
        let _ = core;
        None
    }

    /// Releases the connections whose peers are gone, and answers the next event of those that are queued.
    #[inline(always)]
    fn take_queued(&mut self, core: &mut Core) -> Option<Event> {
        if core.has_ended() {
            self.release_ended(core);
        }
        if core.has_events() { core.pop_event() } else { None }
    }

    /// Disconnects what [`Core::ended`] has reported as over.
    #[cold]
    fn release_ended(&mut self, core: &mut Core) {
        while let Some((connection, link)) = core.next_ended() {
            self.disconnect(core, connection, link);
        }
    }

    /// Whether [`Transport::take_short`] does something. It never changes.
    fn takes_short(&self) -> bool {
        false
    }

    /// Copies the next message to `line`, if it is all that there is to do: see [`Endpoint::take_short`](crate::Endpoint::take_short).
    /// No event is queued. What it does not find at once is left to [`Transport::progress_lending`].
    fn take_short(&mut self, core: &mut Core, line: &mut Line) -> ShortMessage {
        let _ = (core, line);
        ShortMessage::Other
    }

    /// Makes progress, and may lend messages that have come instead of delivering them, as far as the lender allows.
    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        let _ = lender;
        self.progress(core);
    }

    /// Prepares for sleep. Afterwards either something is pending, or a watched descriptor becomes readable when something comes.
    fn arm(&mut self, core: &mut Core) -> Armed;

    /// How much it has left to do.
    fn activity(&self) -> Activity;

    /// How a connection's sends stand. `None` if there is no such connection.
    fn link_state(&self, link: u64) -> Option<LinkState>;

    /// Sends of a connection that have not completed, without the silent ones. `None` if there is no such connection. A transport may
    /// count them only when it is asked, which takes the longer the more there are.
    fn unreported(&self, link: u64) -> Option<u32>;

    /// Changes what can be changed of a connection or of the endpoint.
    fn configure(&mut self, core: &mut Core, setting: Setting);

    /// Answers a question about counters, memory or a connection.
    fn report(&self, core: &Core, report: Report<'_>);

    /// The clock of this endpoint, nanoseconds: the system's, except in simulations.
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
}

/// What a transport is. See [`Transport::about`].
pub struct About<'a> {
    /// What others connect to.
    pub uri: &'a str,
    /// It can send to groups and join them. Without that it is never asked to connect to one.
    pub offers_multicast: bool,
}

/// How much of a burst was taken.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    pub messages: u32,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// An operation on remote memory.
pub struct Operation<'a> {
    pub action: Action<'a>,
    /// How its completion reaches the program.
    pub op: OperationOp,
}

/// What an operation does.
pub enum Action<'a> {
    /// Reads or writes.
    Transfer(RmaRequest<'a>),
    /// Changes a value atomically.
    Atomic(AtomicRequest),
}

/// A read or write of remote memory.
pub struct RmaRequest<'a> {
    pub kind: RmaKind,
    /// In order, each contiguous on both sides; at least one.
    pub segments: &'a [RmaSegment],
    /// For the peer's program, behind the data. Its length was checked.
    pub message: Option<&'a [u8]>,
    pub fence: bool,
}

/// An atomic operation.
#[derive(Copy, Clone)]
pub struct AtomicRequest {
    pub atomic: Atomic,
    pub target: RemoteAddress,
    /// Where the value from before goes, as wide as the operation.
    pub result: Option<RemoteAddress>,
    pub fence: bool,
}

/// What became of an operation that was started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// It is over, and was never in the engine's tables.
    Done {
        /// How it ended.
        status: Status,
        /// On ordered connections: how many sends before it have completions that the program has yet to get.
        sends: u32,
    },
    /// It is in progress.
    Pending,
}

/// What has changed in the table of regions.
pub enum RegionChange<'a> {
    /// A region was taken out.
    Removed { id: u64, region: &'a Region },
}

/// What came of arming.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Armed {
    /// Something came meanwhile: make progress instead of sleeping.
    Pending,
    /// Sleep is safe: a watched descriptor becomes readable when something comes; wake at the deadline at the latest.
    Sleep {
        /// On the monotonic clock.
        deadline_ns: Option<u64>,
    },
}

/// How much a transport has left to do, the most first: a transport made of several is in the least of their states.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Activity {
    /// Sends are in progress.
    Active,
    /// No send is in progress. What is left is to take leave of the peers.
    Delivered,
    /// Nothing sent is on its way, and no closing connection is left: the endpoint may go.
    Drained,
    /// There are no connections and none is being made. Whatever comes next may wait a few microseconds.
    Idle,
}

/// How a connection's sends stand.
#[derive(Copy, Clone, Debug)]
pub struct LinkState {
    /// Sends that have not completed, as far as the transport keeps something of each.
    pub held: u32,
    /// The peer takes what is sent without anything that this side does meanwhile: there may be room in the next moment.
    pub drains_by_itself: bool,
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
}

/// What can be changed of an open endpoint.
#[derive(Copy, Clone, Debug)]
pub enum Setting {
    /// The send timeout of one connection.
    SendTimeout { link: u64, timeout_ns: u64 },
    /// The keepalive of one connection; 0 turns it off.
    Keepalive { link: u64, timeout_ns: u64 },
    /// How messages that the peer lends reach the program.
    Loans { link: u64, loans: Loans },
    /// Both, for connections made from now on.
    Defaults { send_timeout_ns: u64, keepalive_ns: u64 },
    /// So many bytes of the transport's part of the memory cap, of those that it could spare, are the engine's for now.
    Lent { bytes: u64 },
    /// Of the endpoint's memory cap, so many bytes are other transports' from now on. It concerns those that look at the whole cap
    /// when they take memory; others were opened with a cap of their own.
    SetApart { bytes: u64 },
}

/// A question, and where the answer goes. Numbers are added to what is there, so that a transport made of several passes
/// most questions on to each.
pub enum Report<'a> {
    /// The transport's own counters, by name.
    Counters { into: &'a mut Vec<(&'static str, u64)>, drops: &'a mut Vec<DropReason> },
    /// Bytes held beside the engine's, by kind.
    Memory(&'a mut Vec<(&'static str, u64)>),
    /// Of the endpoint's memory cap, the bytes that the transport can do without for now.
    SpareBytes(&'a mut u64),
    /// Sends of all connections that have not completed, as far as the transport keeps something of each.
    SendsHeld(&'a mut u32),
    /// Counters of one connection.
    Connection { link: u64, into: &'a mut ConnectionCounters },
    /// Path, facts and what holds a connection up. The engine fills in transport and attribute.
    Explanation { link: u64, into: &'a mut Explanation },
    /// What the peer has let this side know.
    Peer { link: u64, into: &'a mut PeerState },
}

/// What the peer of a connection has let this side know.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// Its program has no receive buffer free.
    pub refuses: bool,
    /// Its library has answered the attempt to connect, so that its program may have heard of it. Asked only while the engine's
    /// own note of it ([`Core::heard`]) does not say so.
    pub has_answered: bool,
}

/// What a connection attempt needs.
pub struct Dial<'a> {
    pub uri: &'a str,
    pub request: &'a [u8],
    pub attribute: Attribute,
    /// `None`: try for ever.
    pub timeout_ns: Option<u64>,
    /// There may be other ways to the peer: its program is to hear of the request only once this one is settled on.
    pub is_one_of_several: bool,
    /// The name of who must be at the other end; `None`: whoever may be connected.
    pub expected: Option<&'a str>,
    /// What the peer has to prove before it hears of the request.
    pub proof: Option<Commitment>,
}
