//! Remote memory access over a channel that delivers records reliably and in order: a ring, a stream. No input or
//! output here: the transport gives the records that came to [`Flow::take`](flow::Flow::take), and a [`Channel`] to push others to.
//!
//! A connection with something under way has a [`Flow`], borrowed from a pool. The *initiator* has its operations in
//! a queue, splits them into records as there is space, and knows each request by a slot, of which there are [`SLOTS`]. The
//! *target* keeps for each slot whether a write was refused, how far a read has got, or an answer that found
//! no space yet; so what a peer can make us remember is bounded by its slots, and a peer that uses one out of turn is at
//! fault. Nothing of the data is kept: it goes from memory to record and from record to memory.
//!
//! | record | from | says |
//! |---|---|---|
//! | WRITE | initiator | address, data; `LAST`: answer with DONE |
//! | READ | initiator | address, length; answered with DATA in order, or DONE that refuses it |
//! | DATA | target | offset, data |
//! | GONE | target | the region went away in the middle of a read |
//! | ATOMIC | initiator | address, operation |
//! | NOTIFY | initiator | a message, to be delivered if no write of the slot was refused; answered with DONE |
//! | DONE | target | how it ended, and an atomic's value from before |
//! | PULL | initiator | address, length, address: fetch it from there yourself; answered with DONE |
//! | WHERE | initiator | address, length: where does that lie? Answered with HERE, or DONE that refuses it |
//! | HERE | target | address: the initiator fetches it, and then pushes an empty last WRITE; DONE answers whether the region was there all the time |
//! | HOLD | target | there is no receive buffer for the message of a NOTIFY: keep it |
//! | AGAIN | target | now there is one: send it again |
//!
//! A fenced operation waits at the head of the queue until everything before it has been answered and every record
//! pushed before it was taken. As all is in order, data is there before the NOTIFY behind it.
//!
//! A message without a receive buffer stays where it is in a ring, which then stands still. A stream can't: what has left
//! can't be taken back when its time is up, and what is behind it would wait. So there ([`Arrived::ASKS_AGAIN`]) it is
//! thrown away, and its sender, which keeps it until it is answered, gets an answer that says so. Messages behind it are held too.

mod flow;
mod flows;
mod initiator;
mod operations;
mod slots;
mod step;
pub(crate) mod stream;
mod target;
mod wire;

pub(crate) use crate::limits::progress_ns as allowance_ns;
pub(crate) use flow::{Flow, Suspended};
pub(crate) use flows::{FLOW_BYTES, Flows};
pub(crate) use initiator::put_result;
pub(crate) use operations::{Ops, Route, Start, Trial, What};
pub(crate) use step::Turn;

use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use cci_memory::bytes::Bytes;
use cci_proto::limits;
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};

/// Requests of one side of a connection that may be unanswered at once; more wait for their turn.
pub(crate) const SLOTS: usize = limits::RMA_SLOTS;

/// What came of a push.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is on its way.
    Yes,
    /// There is no space now; nothing was pushed.
    Full,
    /// The channel is of no use any more.
    Broken,
}

/// The peer sent what no honest peer sends. Its link is of no use any more.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// The path to the peer of one connection, as long as a call lasts.
pub(crate) trait Channel {
    /// A message for which the peer has no buffer does not stay in the channel: this side keeps it until it is asked for again.
    const ASKS_AGAIN: bool = false;
    /// Long operations take turns, record by record, so that a short one behind them waits for little.
    const TAKES_TURNS: bool = false;

    /// Pushes a record made of the two.
    fn push(&mut self, head: &[u8], tail: &[u8]) -> Pushed;

    /// Pushes a message to the peer's program, which can be refused for want of a buffer. The transport passes `slot` to
    /// [`flow::Flow::notify_taken_back`] if it takes the message back.
    fn push_notify(&mut self, head: &[u8], message: &[u8], slot: u16) -> Pushed {
        let _ = slot;
        self.push(head, message)
    }

    /// Pushes a record made of the two; no more than [`Channel::data_bytes_max`] of data.
    fn push_memory(&mut self, head: &[u8], data: &Bytes) -> Pushed;

    /// How much data a record may carry.
    fn data_bytes_max(&self) -> usize;

    /// True while bulk may be pushed: part of the channel is kept free for messages.
    fn has_space_for_bulk(&mut self) -> bool;

    /// True once the peer has taken all that was pushed up to there.
    fn is_taken(&mut self, position: u64) -> bool;

    /// Does an operation at once, where the memory is within reach. None: it is not, and nothing was done.
    fn direct(
        &mut self,
        _: &mut Core,
        _: Connection,
        _: RmaKind,
        _: &RmaSegment,
        _: &[RmaSegment],
    ) -> Option<Status> {
        None
    }

    /// Does an atomic operation at once, where the memory is within reach. `None`: it is not, and nothing was done.
    fn direct_atomic(
        &mut self,
        _: &mut Core,
        _: Connection,
        _: Atomic,
        _: RemoteAddress,
        _: Option<RemoteAddress>,
    ) -> Option<Status> {
        None
    }

    /// How an operation of one segment of this length goes. Asked once for each; with a trial, [`flow::Flow::trial`] says when it
    /// has ended.
    fn route(&mut self, kind: RmaKind, len_bytes: u64) -> (Route, Option<Trial>) {
        let fetches = len_bytes >= self.pull_from_bytes(kind);
        (if fetches { Route::Fetch } else { Route::Push }, None)
    }

    /// From which length on the two sides fetch from each other's memory rather than push the data; u64::MAX: never.
    fn pull_from_bytes(&self, _: RmaKind) -> u64 {
        u64::MAX
    }

    /// Fetches from the peer's memory.
    fn pull(&mut self, from: u64, to: &Bytes) -> Pulled {
        let _ = (from, to);
        Pulled::Unreadable
    }
}

/// What became of a pull.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pulled {
    All,
    /// Nothing is there to be read, or it may not be.
    Unreadable,
    /// The peer has ended; the channel will say so soon.
    PeerGone,
}

/// A record that came, as long as the channel keeps it.
pub(crate) trait Arrived {
    /// A message for which there is no receive buffer does not stay in the channel: the answer makes its sender hold it.
    const ASKS_AGAIN: bool = false;
    /// It came from a process of this host, which may get addresses.
    const OF_THIS_HOST: bool = true;

    /// The data behind the head was put in place before, segment by segment: whether all of it was. None: it is here.
    fn placed(&self) -> Option<bool> {
        None
    }

    /// Its length.
    fn len_bytes(&self) -> usize;

    /// Copies from byte `skip_bytes` on, as much as there is and fits; answers how much.
    fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize;

    /// Copies everything from byte `skip_bytes` on into memory.
    fn read_to(&self, skip_bytes: usize, to: &Bytes) -> bool;
}

/// What became of a record that came.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Yes,
    /// It has a message and there is no receive buffer: give it again later.
    NoBuffer,
}
