//! A connection, and what all of them share.

use super::counts::Counts;
use super::input::{Input, Keepers};
use super::lent::Lent;
use super::out::Out;
use super::pipe::Pipe;
use super::said::Ticket;
use super::second_stream::Bulk;
use super::sends::{Send, Sends};
use super::wire::{Header, Kind};
use crate::engine::chunks::Chunks;
use crate::engine::core::Core;
use crate::event::{Connection, Status};
use crate::transport::quota::Host;
use std::net::SocketAddr;

/// Where a connection stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Dialled: the stream is being made, or the peer has not answered. In the list of those being made.
    Dialing,
    /// Accepted: the peer has not confirmed. In the same list.
    Accepting,
    Open,
    /// The peer's program has disconnected; what it sent before still comes.
    PeerClosing,
    /// The peer has said all, and closed; what it has answered over the second stream still comes. In the list.
    PeerClosed,
    /// Our program has disconnected; what it sent before is still on its way. In the list.
    Closing,
    /// CLOSE was said, the program's handle is gone; the peer's end of the stream is awaited. In the list.
    Lingering,
    /// The stream is gone; waits for the program to disconnect.
    Gone,
}

impl State {
    /// Whether it has a deadline of its own, [`Conn::until_ns`].
    pub fn has_deadline(self) -> bool {
        match self {
            State::Dialing | State::Accepting | State::PeerClosed | State::Closing | State::Lingering => true,
            State::Open | State::PeerClosing | State::Gone => false,
        }
    }
}

/// See the module.
pub(super) struct Conn {
    /// The engine's handle.
    pub connection: Connection,
    /// None: gone, or to be dialled again.
    pub stream: Option<Pipe>,
    pub state: State,
    pub is_reliable: bool,
    /// We dialled it.
    pub dialled: bool,
    /// It is in the endpoint's epoll set.
    pub is_watched: bool,
    /// The set tells when it can be written, too.
    pub is_watched_for_room: bool,
    /// The peer's library has answered HELLO.
    pub is_heard: bool,
    /// CLOSING was said, and has come.
    pub closing_said: bool,
    pub closing_came: bool,
    /// In [`super::Tcp::making`].
    pub has_deadline: bool,
    /// In [`super::Tcp::unfinished`].
    pub has_part: bool,
    /// Since when a part of a record of the first stream is here.
    pub record_ns: Option<u64>,
    /// That part was left in the kernel, which tells when the record is whole.
    pub leaves_part: bool,
    /// The kernel has room for what follows such a part.
    pub has_room_behind_parts: bool,
    /// Polls that found something by asking the stream itself, since the last sleep.
    pub hot_reads: u32,
    /// In [`super::Tcp::dirty`].
    pub is_dirty: bool,
    /// In [`super::Tcp::acks`].
    pub owes_ack: bool,
    /// In [`super::Tcp::starved`].
    pub is_starved: bool,
    pub input: Input,
    pub out: Out,
    /// The longest message, both sides considered.
    pub mss: u32,
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
    /// When the peer was last heard of, and asked for a sign of life.
    pub heard_ns: u64,
    pub pinged_ns: u64,
    /// When the peer last took something, or had nothing to take.
    pub moved_ns: u64,
    /// Until when it must be made, or gone.
    pub until_ns: u64,
    /// When it is to be dialled again.
    pub again_ns: u64,
    /// Of the sends in progress, those that are not silent.
    pub to_be_told: u32,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// Times the peer had no receive buffer.
    pub not_ready: u64,
    /// Where the peer is, or was dialled at.
    pub peer: Option<SocketAddr>,
    /// What the second stream shows: ours at the side that accepted, the peer's at the side that dialled.
    pub ticket: Ticket,
    /// Where the second stream is to be dialled: at the peer's host.
    pub bulk_at: Option<SocketAddr>,
    /// The second stream is wanted: asked for, or being dialled.
    pub wants_bulk: bool,
    /// The second stream and all of remote memory access; None: none was ever needed.
    pub bulk: Option<Box<Bulk>>,
    /// The name of who must be at the other end.
    pub expected: Option<Box<str>>,
    /// HELLO, as long as it may be needed again.
    pub hello: Vec<u8>,
    /// REQUEST, which is said once HELLO was heard; empty: it was said, or HELLO had all.
    pub request: Vec<u8>,
    /// What was read of the answer.
    pub hello_answer: Vec<u8>,
}

impl Conn {
    pub fn new(connection: Connection, state: State, is_reliable: bool, timeouts_ns: (u64, u64)) -> Conn {
        Conn {
            connection,
            stream: None,
            state,
            is_reliable,
            dialled: state == State::Dialing,
            is_watched: false,
            is_watched_for_room: false,
            is_heard: false,
            closing_said: false,
            closing_came: false,
            has_deadline: false,
            has_part: false,
            record_ns: None,
            leaves_part: false,
            has_room_behind_parts: false,
            hot_reads: 0,
            is_dirty: false,
            owes_ack: false,
            is_starved: false,
            input: Input::new(),
            out: Out::new(),
            mss: 0,
            send_timeout_ns: timeouts_ns.0,
            keepalive_ns: timeouts_ns.1,
            heard_ns: 0,
            pinged_ns: 0,
            moved_ns: 0,
            until_ns: u64::MAX,
            again_ns: u64::MAX,
            to_be_told: 0,
            messages_sent: 0,
            bytes_sent: 0,
            messages_received: 0,
            bytes_received: 0,
            not_ready: 0,
            peer: None,
            ticket: Ticket { key: 0, secret: [0; 16] },
            bulk_at: None,
            wants_bulk: false,
            bulk: None,
            expected: None,
            hello: Vec::new(),
            request: Vec::new(),
            hello_answer: Vec::new(),
        }
    }

    /// Where the peer is, as far as quotas tell.
    pub fn host(&self) -> Host {
        Host::of(self.peer)
    }

    /// A header that says how much was taken from the peer.
    #[inline]
    pub fn header(&mut self, kind: Kind, len: u16) -> Header {
        Header { kind, len, ack: self.input.tell() }
    }

    /// Queues a control record. False: the peer lets too many pile up.
    pub fn say(&mut self, kind: Kind) -> bool {
        let header = self.header(kind, 0);
        self.out.say(header, None)
    }

    /// The second stream is there, or was.
    pub fn has_bulk(&self) -> bool {
        self.bulk.as_ref().is_some_and(|bulk| bulk.was_made())
    }

    /// A second stream is in order: once, and not behind CLOSING of either side.
    pub fn bulk_may_come(&self) -> bool {
        let lives = match self.state {
            State::Accepting | State::Open => true,
            State::Closing => !self.closing_said,
            State::Dialing | State::PeerClosing | State::PeerClosed | State::Lingering | State::Gone => false,
        };
        lives && self.is_reliable && !self.has_bulk()
    }

    /// The peer may send messages that we want.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        matches!(self.state, State::Open | State::PeerClosing)
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub sends: Sends,
    pub chunks: Chunks,
    /// Of the memory cap, what sends that wait for room have.
    pub lent: Lent,
    pub counts: Counts,
    /// The clock, as of the last look at it.
    pub now_ns: u64,
    /// No send is overdue before.
    pub sends_due_ns: u64,
    pub keepers: Keepers,
}

impl Shared {
    /// A send of a connection has ended.
    #[inline]
    pub fn complete(conn: &mut Conn, core: &mut Core, send: &Send, status: Status) {
        let op = send.op();
        if !op.silent {
            conn.to_be_told = conn.to_be_told.saturating_sub(1);
        }
        core.complete(conn.connection, op, status);
    }

    /// Every send of a connection ends so.
    pub fn end_sends(&mut self, conn: &mut Conn, core: &mut Core, status: Status) {
        while let Some(send) = conn.out.abandon(&mut self.sends, &mut self.chunks) {
            Self::complete(conn, core, &send, status);
        }
    }
}
