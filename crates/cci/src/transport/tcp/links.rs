//! All connections of an endpoint, from when they are entered until they are forgotten: what is done with one after the
//! other, and what the end of one means for what it holds.

use super::conn::{Batch, Conn, Due, ReadError, Shared, State, Written};
use super::counts::Fault;
use super::deadlines::Deadlines;
use super::input::Take;
use super::pipe::Pipe;
use super::receive::{Came, Receiver};
use super::transfers::{Transfers, Verdict, Work, WorkError};
use super::wire::Kind;
use crate::ConnectFailure;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::limits;
use crate::transport::ordered_rma::Start;
use cci_memory::slab::{Key, Slab};
use cci_sys::clock;
use std::io::ErrorKind;

/// Connections without a receive buffer that are looked at in one poll; the others have their turn in the next ones.
const FED_MAX: usize = 64;
/// Messages that came and are not acknowledged: from so many on their acknowledgement waits for no pause.
const UNANNOUNCED_MAX: u32 = 32;
/// How long the peer's end of a stream is awaited once CLOSE was sent.
const LINGER_NS: u64 = 1_000_000_000;
/// What a connection that closes is given beyond the deadlines of what is under way.
const CLOSING_NS_MIN: u64 = 1_000_000_000;

/// So many connections at a time make room for those that wait.
const CROWDING_MAX: usize = 8;
/// A connection's entry in the table.
const CONN_BYTES: usize = size_of::<Option<Conn>>() + 8;

/// What connections made from now on have.
pub(super) struct Defaults {
    pub send_timeout_ns: u64,
    pub keepalive_ns: u64,
}

/// The table of connections, and what they share.
pub(super) struct Links {
    pub conns: Slab<Conn>,
    /// What the table may grow to.
    conns_bytes_max: u64,
    /// One more than the highest index that a connection ever had.
    conns_max: u32,
    pub defaults: Defaults,
    pub shared: Shared,
    pub transfers: Transfers,
    pub deadlines: Deadlines,
    /// Connections whose second stream is to be dialled.
    pub seconds_wanted: Vec<Key>,
    /// Where streams are read into; empty while it is worked in.
    scratch: Box<[u8]>,
}

impl Links {
    pub fn new(
        conns_bytes_max: u64,
        defaults: Defaults,
        shared: Shared,
        transfers: Transfers,
        scratch: Box<[u8]>,
    ) -> Links {
        Links {
            conns: Slab::new(limits::CONNECTIONS_MAX),
            conns_bytes_max,
            conns_max: 0,
            defaults,
            shared,
            transfers,
            deadlines: Deadlines::new(),
            seconds_wanted: Vec::new(),
            scratch,
        }
    }

    #[inline]
    pub fn send(
        &mut self,
        core: &mut Core,
        key: Key,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let is_alone = self.conns.len() < 2;
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state == State::Open) else {
            return Err(SendError::Disconnected);
        };
        let written = conn.send(&mut self.shared, core, segments, op, is_alone)?;
        if written != Written::Done {
            self.written(core, key, written);
        }
        Ok(())
    }

    /// Queues a control record; it leaves with the next progress.
    pub fn send_control(&mut self, key: Key, kind: Kind) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.send_control(&mut self.shared.streams, kind);
        }
    }

    /// Writes what waits on one connection.
    pub fn flush(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let written = conn.flush(&mut self.shared, core);
        self.written(core, key, written);
    }

    /// What follows from a write.
    fn written(&mut self, core: &mut Core, key: Key, written: Written) {
        match written {
            Written::Done => {}
            Written::Failed => self.write_failed(core, key),
            Written::MayClose => self.go_on_closing(core, key),
        }
    }

    /// What the peer said before it went may still be there: the next read finds it, and the end behind it.
    fn write_failed(&mut self, core: &mut Core, key: Key) {
        while self.read(core, key) {}
        let holds = self.conns.get(key).is_some_and(|conn| conn.input.is_holding());
        if !holds {
            self.end(core, key, DisconnectReason::Died);
        }
    }

    /// Writes everything that the program, or the last progress, has queued.
    #[cold]
    pub fn flush_unwritten(&mut self, core: &mut Core) {
        let mut unwritten = self.shared.streams.take_unwritten();
        for key in unwritten.drain(..) {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.listed.abandoned_unwritten();
            let written = conn.flush(&mut self.shared, core);
            self.written(core, key, written);
        }
        // What was queued meanwhile is for the next time.
        self.shared.streams.put_back(unwritten);
        while let Some(key) = self.shared.streams.next_doomed() {
            self.fault(core, key, Fault::Answers);
        }
    }

    /// Acknowledges what came, where nothing went the other way that could carry it. A peer that goes on sending is
    /// told now and then; `all`: nobody is to wait.
    #[cold]
    pub fn acknowledge(&mut self, core: &mut Core, all: bool) {
        let mut at = 0;
        while let Some(key) = self.shared.streams.unacknowledged(at) {
            let Some(conn) = self.conns.get_mut(key) else {
                self.shared.streams.take_unacknowledged(at);
                continue;
            };
            let unannounced = conn.input.unannounced();
            if unannounced > 0
                && !all
                && conn.input.poll == self.shared.pace.polls
                && unannounced < UNANNOUNCED_MAX
            {
                at += 1;
                continue;
            }
            conn.listed.abandoned_unacknowledged();
            self.shared.streams.take_unacknowledged(at);
            if unannounced > 0 && matches!(conn.state, State::Open | State::PeerClosing | State::Closing) {
                //= wire.md R-TCP-8
                self.shared.counts.acks_sent += 1;
                conn.send_control(&mut self.shared.streams, Kind::Ack);
                let written = conn.flush(&mut self.shared, core);
                self.written(core, key, written);
            }
        }
    }

    /// Reads once and deals with what came. Answers whether something did.
    #[inline]
    pub fn read(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        if conn.input.is_holding() || matches!(conn.state, State::Dialing | State::PeerClosed | State::Gone) {
            return false;
        }
        if conn.state == State::Lingering {
            self.read_last(core, key);
            return false;
        }
        // Taken out as long as it is worked in; what goes wrong meanwhile puts it back all the same.
        let mut scratch = std::mem::take(&mut self.scratch);
        let came = match conn.read(&mut self.shared, &mut scratch) {
            Ok(None) => false,
            Ok(Some(batch)) => self.took(core, key, &mut scratch, &batch),
            Err(error) => {
                self.read_failed(core, key, error);
                true
            }
        };
        self.scratch = scratch;
        came
    }

    /// Deals with what was read. Answers whether something came of it.
    #[inline]
    fn took(&mut self, core: &mut Core, key: Key, scratch: &mut [u8], batch: &Batch) -> bool {
        let filled = scratch.get(..batch.filled).unwrap_or_default();
        let used = self.deal(core, key, filled, batch.keeps);
        let mut conn = self.conns.get_mut(key);
        if conn.as_ref().is_some_and(|conn| conn.state.may_end()) {
            self.go_on_closing(core, key);
            conn = self.conns.get_mut(key);
        }
        let Some(conn) = conn else { return true };
        match conn.keep_remainder(&mut self.shared, core, scratch, batch, used) {
            Ok(came) => came,
            Err(error) => {
                self.read_failed(core, key, error);
                true
            }
        }
    }

    fn read_failed(&mut self, core: &mut Core, key: Key, error: ReadError) {
        match error {
            ReadError::Fault(fault) => self.fault(core, key, fault),
            ReadError::Ended(reason) => self.end(core, key, reason),
        }
    }

    /// Deals with all whole records; answers how many bytes they were. Where it had to stop, the rest is for later.
    #[inline]
    fn deal(&mut self, core: &mut Core, key: Key, bytes: &[u8], may_hold: bool) -> usize {
        let mut used = 0;
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return bytes.len() };
            let mut receiver = Receiver { conn, shared: &mut self.shared, core, may_hold };
            match receiver.deal(bytes, &mut used) {
                Ok(()) => return used,
                Err(Came::Confirm) => self.open(core, key),
                Err(Came::AskSecond) => self.want_second(key),
                Err(Came::Closing) => self.peer_closing(core, key),
                Err(Came::Close) => {
                    self.peer_closed(core, key);
                    return bytes.len();
                }
                Err(Came::Fault(fault)) => {
                    self.fault(core, key, fault);
                    return bytes.len();
                }
            }
        }
    }

    /// Connections whose messages wait for receive buffers: there are some again, or the wait was too long.
    #[cold]
    pub fn feed(&mut self, core: &mut Core) {
        for _ in 0..self.shared.streams.starved().min(FED_MAX) {
            let Some(key) = self.shared.streams.next_starved() else { break };
            self.shared.counts.starved_looks += 1;
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.listed.abandoned_starved();
            let (free, has_buffer) = (core.receive.free_count(), core.has_buffer_for(conn.connection));
            match conn.input.take {
                Take::Holding { until_ns } if has_buffer || self.shared.now_ns >= until_ns => {
                    self.feed_held(core, key, !has_buffer);
                }
                Take::Dropping if has_buffer => {
                    let window = free / (self.shared.streams.starved() as u32 + 1);
                    if !conn.send_ready(&mut self.shared, window.max(1)) {
                        self.fault(core, key, Fault::Answers);
                    }
                }
                Take::All | Take::Awaited => {}
                Take::Holding { .. } => {
                    // What is not read now would end each sleep at once.
                    conn.unwatch(core);
                    self.shared.streams.starve(&mut conn.listed);
                }
                Take::Dropping => self.shared.streams.starve(&mut conn.listed),
            }
        }
    }

    /// Goes on with what was held: delivers it, or drops it.
    fn feed_held(&mut self, core: &mut Core, key: Key, drop: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (kept, at) = conn.input.lift();
        conn.input.take = Take::All;
        if drop {
            conn.drop_messages(&mut self.shared);
        }
        let used = self.deal(core, key, kept.behind(at), true);
        let Some(conn) = self.conns.get_mut(key) else {
            return self.shared.keepers.give_back(kept);
        };
        conn.input.put_back(&mut self.shared.keepers, kept, at + used);
        if !conn.input.is_holding() {
            if !conn.input.kept().is_empty() || conn.stream.as_ref().is_some_and(|stream| stream.has_part()) {
                // A part of a record was behind what was held: from now on it has a time.
                conn.record_ns = Some(self.shared.now_ns);
                conn.await_remainder(&mut self.shared);
            }
            conn.watch(core);
            self.go_on_closing(core, key);
        }
    }

    /// A stream of which nothing but the end is wanted.
    fn read_last(&mut self, core: &mut Core, key: Key) {
        let Some(Conn { stream: Some(stream), .. }) = self.conns.get_mut(key) else { return };
        match stream.recv(&mut self.scratch) {
            Ok(0) => {}
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {}
        }
        self.remove(core, key);
    }

    /// The program is done with a connection.
    pub fn disconnect(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let connection = conn.connection;
        match conn.state {
            State::Open | State::PeerClosing => {
                conn.state = State::Closing;
                // All that is under way has a deadline; this one is for what the peer may think of beside it.
                let timeout_ns = conn.send_timeout_ns.saturating_mul(2).saturating_add(CLOSING_NS_MIN);
                let until_ns = self.shared.now_ns.saturating_add(timeout_ns);
                let allowance_ns = self.transfers.allowance_ns(conn);
                conn.until_ns = until_ns.saturating_add(allowance_ns);
                self.deadlines.add(conn);
                self.go_on_closing(core, key);
                self.flush(core, key);
            }
            State::Dialing | State::Accepting | State::PeerClosed | State::Gone => {
                self.transfers.end(core, conn, Status::Disconnected);
                core.closed(connection);
                self.remove(core, key);
            }
            State::Closing | State::Lingering => {}
        }
    }

    /// A connection that closes may have come a step further.
    #[inline]
    pub fn go_on_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match conn.state {
            State::Closing => self.go_on_closing_now(core, key),
            State::PeerClosed if !self.transfers.await_answers(conn) => {
                self.end(core, key, DisconnectReason::Closed);
            }
            _ => {}
        }
    }

    #[cold]
    fn go_on_closing_now(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        //= wire.md R-TCP-13
        if !self.transfers.are_over(conn) {
            return;
        }
        if !conn.closing_sent {
            conn.closing_sent = true;
            conn.send_control(&mut self.shared.streams, Kind::Closing);
        }
        //= wire.md R-TCP-13
        if conn.out.sends() > 0 || self.transfers.owe_answers(conn) {
            return;
        }
        //= wire.md R-TCP-14
        conn.state = State::Lingering;
        conn.until_ns = self.shared.now_ns + LINGER_NS;
        conn.send_control(&mut self.shared.streams, Kind::Close);
        self.transfers.end(core, conn, Status::Disconnected);
        core.closed(conn.connection);
        self.deadlines.add(conn);
        self.flush(core, key);
    }

    /// The peer's program has disconnected: it takes no more messages. What it answers to remote operations still comes, over a
    /// stream of its own.
    fn peer_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.closing_came = true;
        let was_open = conn.state == State::Open;
        if was_open {
            conn.state = State::PeerClosing;
        }
        conn.out.keep_begun(&self.shared.sends);
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
        if conn.state != State::PeerClosing || !self.transfers.await_answers(conn) {
            self.transfers.end(core, conn, Status::Disconnected);
        }
        if was_open {
            core.peer_gone(conn.connection);
        }
    }

    /// The peer has sent CLOSE.
    #[cold]
    fn peer_closed(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !self.transfers.await_answers(conn) || !matches!(conn.state, State::Open | State::PeerClosing) {
            return self.end(core, key, DisconnectReason::Closed);
        }
        //= wire.md R-TCP-14
        conn.state = State::PeerClosed;
        conn.until_ns = self.shared.now_ns.saturating_add(LINGER_NS);
        conn.unwatch(core);
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
        core.peer_gone(conn.connection);
        self.deadlines.add(conn);
    }

    /// A peer that is not to be believed.
    #[cold]
    pub fn fault(&mut self, core: &mut Core, key: Key, fault: Fault) {
        //= wire.md R-TCP-1
        self.shared.counts.fault(fault);
        self.end(core, key, DisconnectReason::Refused);
    }

    /// The stream has ended, or is of no use any more.
    #[cold]
    pub fn end(&mut self, core: &mut Core, key: Key, reason: DisconnectReason) {
        let status = match reason {
            DisconnectReason::TimedOut => Status::TimedOut,
            _ => Status::Disconnected,
        };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (state, connection) = (conn.state, conn.connection);
        match state {
            State::Dialing | State::Accepting => return self.fail(core, key, ConnectFailure::Disconnected),
            State::Lingering => return self.remove(core, key),
            State::Gone => return,
            State::Open | State::PeerClosing | State::PeerClosed | State::Closing => {}
        }
        // Whatever ends it then, its peer had closed before.
        let reason = if state == State::PeerClosed { DisconnectReason::Closed } else { reason };
        if state == State::Open {
            // One that has closed in an orderly way is not broken.
            self.shared.counts.broken += 1;
        }
        conn.unwatch(core);
        conn.stream = None;
        conn.state = State::Gone;
        conn.input.drop_kept(&mut self.shared.keepers);
        conn.end_sends(&mut self.shared, core, status);
        self.transfers.end(core, conn, status);
        if state == State::Closing {
            core.closed(connection);
            self.remove(core, key);
        } else {
            core.ended(connection, reason);
        }
    }

    /// A connection does not come about.
    pub fn fail(&mut self, core: &mut Core, key: Key, why: ConnectFailure) {
        if let Some(conn) = self.conns.get(key) {
            core.failed(conn.connection, why);
        }
        self.remove(core, key);
    }

    /// Forgets a connection, whose sends have ended.
    pub fn remove(&mut self, core: &mut Core, key: Key) {
        if let Some(mut conn) = self.conns.remove(key) {
            self.transfers.end(core, &mut conn, Status::Disconnected);
            conn.unwatch(core);
            conn.input.drop_kept(&mut self.shared.keepers);
            while conn.out.abandon(&mut self.shared.sends, &mut self.shared.chunks).is_some() {
                debug_assert!(false, "their ends were reported before");
            }
        }
    }

    /// A new entry in the table of connections, if it fits under the cap.
    pub fn insert(&mut self, connection: Connection, state: State, is_reliable: bool) -> Option<Key> {
        // The table doubles when it is full.
        let bytes = self.conns.bytes();
        let full = (self.conns.len() as usize + 1) * CONN_BYTES > bytes;
        if full && 2 * bytes as u64 > self.conns_bytes_max {
            return None;
        }
        let timeouts_ns = (self.defaults.send_timeout_ns, self.defaults.keepalive_ns);
        let key = self.conns.insert(Conn::new(connection, state, is_reliable, timeouts_ns)).ok()?;
        if let Some(conn) = self.conns.get_mut(key) {
            conn.listed.key = key;
        }
        self.conns_max = self.conns_max.max(key.index + 1);
        Some(key)
    }

    /// A connection is made.
    pub fn open(&mut self, core: &mut Core, key: Key) {
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.state = State::Open;
        (conn.heard_ns, conn.moved_ns, conn.until_ns) = (now_ns, now_ns, u64::MAX);
        if conn.keepalive_ns > 0 {
            self.deadlines.keep_alive(key);
        }
        conn.bound_silence();
        core.opened(conn.connection, conn.mss);
        self.activate(core, key);
    }

    /// Enters an operation of remote memory, and does of it what can be done now.
    #[inline]
    pub fn start(&mut self, core: &mut Core, key: Key, mut start: Start<'_>) -> Result<(), SendError> {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state == State::Open) else {
            return Err(SendError::Disconnected);
        };
        self.shared.now_ns = clock::now_ns();
        if self.transfers.start(&self.shared, core, conn, &mut start)? {
            self.work(core, key, Work::Serve);
        } else {
            self.want_second(key);
        }
        Ok(())
    }

    /// Remote memory needs the second stream: sees to it that it comes, at which [`Links::second_came`] is called.
    fn want_second(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if std::mem::replace(&mut conn.wants_second, true) {
            return;
        }
        if conn.dialled {
            self.seconds_wanted.push(key);
        } else {
            //= wire.md R-TCP-15
            conn.send_control(&mut self.shared.streams, Kind::AskBulk);
        }
    }

    /// The second stream of a connection is there.
    pub fn second_came(&mut self, core: &mut Core, key: Key, stream: Pipe) {
        if self.conns.get(key).is_some_and(|conn| conn.state == State::Accepting) {
            // Nobody else knows the ticket: its CONFIRM is on the way.
            self.open(core, key);
        }
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.second_may_come()) else { return };
        conn.wants_second = true;
        match self.transfers.attach(core, conn, stream) {
            // What this side waits for can go; of what comes the kernel tells.
            Some(true) => self.work(core, key, Work::Everything),
            Some(false) => {}
            None => {
                self.shared.counts.refused_system += 1;
                self.end(core, key, DisconnectReason::Refused);
            }
        }
    }

    /// The kernel has something to say of a second stream. Answers whether it is one that polls did not look at.
    pub fn second_ready(&mut self, core: &Core, key: Key, hung_up: bool) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        self.transfers.ready(&self.shared, core, conn, hung_up)
    }

    /// Gives connections with operations under way their turn, and looks after them. Called in every poll.
    #[inline]
    pub fn transfer(&mut self, core: &mut Core) {
        if self.transfers.are_any() {
            self.transfer_some(core);
        }
    }

    fn transfer_some(&mut self, core: &mut Core) {
        for _ in 0..self.transfers.begin_turns(&self.shared, core) {
            let Some(key) = self.transfers.next() else { break };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            let work = self.transfers.next_work(&self.shared, conn);
            let worked = self.transfers.work(&mut self.shared, core, conn, work);
            if worked.is_err() || conn.state.may_end() {
                self.worked(core, key, worked);
            }
            if self.transfers.others_wait() {
                self.retire_for_space(core, key);
            }
        }
        self.transfers.admit_waiting(&self.shared, core, &mut self.conns);
        self.transfers.end_turns();
        if self.transfers.is_time_to_look(self.shared.now_ns) {
            self.look_at_transfers(core);
        }
    }

    /// Moves what can be moved over a connection's second stream.
    #[inline]
    fn work(&mut self, core: &mut Core, key: Key, work: Work) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let worked = self.transfers.work(&mut self.shared, core, conn, work);
        if worked.is_err() || conn.state.may_end() {
            self.worked(core, key, worked);
        }
    }

    /// What follows from a turn of a connection that closes, or whose second stream is over.
    #[cold]
    fn worked(&mut self, core: &mut Core, key: Key, worked: Result<(), WorkError>) {
        match worked {
            Ok(()) => self.go_on_closing(core, key),
            Err(WorkError::Ended) => {
                if let Some(conn) = self.conns.get_mut(key) {
                    self.transfers.stream_ended(&self.shared, core, conn);
                }
                self.go_on_closing(core, key);
            }
            //= wire.md R-TCP-1
            Err(WorkError::Fault(fault)) => self.fault(core, key, fault),
        }
    }

    /// Has a connection give way to others.
    fn retire_for_space(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Err(fault) = self.transfers.retire_for_space(core, conn) {
            self.fault(core, key, fault);
        }
    }

    /// Ends connections whose operations are overdue, and those that hold memory which others wait for.
    fn look_at_transfers(&mut self, core: &mut Core) {
        let mut at = 0;
        while let Some(key) = self.transfers.active(at) {
            let verdict = match self.conns.get_mut(key) {
                Some(conn) => self.transfers.look_at(&self.shared, core, conn),
                None => Verdict::Idle,
            };
            if verdict == Verdict::Keep {
                at += 1;
                continue;
            }
            self.transfers.take_active(at);
            match verdict {
                Verdict::Keep | Verdict::Idle => {}
                Verdict::Over(reason) => self.end(core, key, reason),
                Verdict::Fault(fault) => self.fault(core, key, fault),
            }
        }
        for _ in 0..CROWDING_MAX {
            let Some(key) = self.transfers.next_to_retire(&self.shared, &self.conns) else { return };
            self.end(core, key, DisconnectReason::TimedOut);
        }
    }

    /// When something is due at the latest.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.shared.sends_due_ns.min(self.deadlines.first_ns()).min(self.shared.streams.unfinished_due_ns)
    }

    /// Does what is due on connections that have been made.
    pub fn time_out(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        if self.shared.sends_due_ns <= now_ns {
            self.time_out_sends(core);
        }
        if self.shared.streams.unfinished_due_ns <= now_ns {
            self.time_out_unfinished(core);
        }
        self.deadlines.ask_silent(&mut self.shared, core, &mut self.conns);
    }

    /// Ends sends that are overdue.
    ///
    /// What the peer has refused for want of a buffer is taken back: it ends in RNR, was not delivered, and the connection
    /// lives on. What it has not answered at all: `TimedOut`, whether it will be delivered is not known, and the
    /// connection is broken. A peer that goes on taking messages, but has not come so far, gets more time: the send
    /// timeout once more, whatever it says.
    fn time_out_sends(&mut self, core: &mut Core) {
        self.flush_unwritten(core);
        let mut next_ns = u64::MAX;
        for index in 0..self.conns_max {
            let Some(key) = self.conns.key_at(index) else { continue };
            if self.conns.get(key).is_some_and(|conn| conn.out.sends() > 0) {
                next_ns = next_ns.min(self.time_out_sends_of(core, key));
            }
        }
        self.shared.sends_due_ns = next_ns;
    }

    /// Answers when the next one is due.
    fn time_out_sends_of(&mut self, core: &mut Core, key: Key) -> u64 {
        let Some(conn) = self.conns.get_mut(key) else { return u64::MAX };
        match conn.time_out_sends(&mut self.shared, core) {
            Due::At(due_ns) => return due_ns,
            Due::Over => self.end(core, key, DisconnectReason::TimedOut),
            Due::Never => self.go_on_closing(core, key),
        }
        u64::MAX
    }

    /// Overrides the endpoint's send timeout for one connection.
    pub fn change_send_timeout(&mut self, key: Key, timeout_ns: u64) {
        let now_ns = clock::now_ns();
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.send_timeout_ns = timeout_ns;
        // Sends under way must not outlive later ones: completions of a connection stay in order.
        let limit_ns = now_ns.saturating_add(timeout_ns);
        conn.out.bring_forward(&mut self.shared.sends, limit_ns);
        self.shared.sends_due_ns = self.shared.sends_due_ns.min(limit_ns);
        conn.bound_silence();
        self.transfers.timeout_changed();
    }

    /// Overrides the endpoint's keepalive for one connection; 0: off.
    pub fn change_keepalive(&mut self, key: Key, timeout_ns: u64) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        self.shared.now_ns = clock::now_ns();
        // Silence counts from now on.
        (conn.keepalive_ns, conn.heard_ns) = (timeout_ns, self.shared.now_ns);
        self.deadlines.let_be(key);
        if timeout_ns != 0 {
            self.deadlines.keep_alive(key);
        }
    }

    /// Reads a connection in every poll from now on, instead of the one that was idle longest.
    pub fn activate(&mut self, core: &Core, key: Key) {
        let lives = |key| self.conns.get(key).is_some();
        if let Some(idle) = self.shared.streams.activate(key, lives) {
            self.watch_again(core, idle);
        }
    }

    /// Has the kernel report a connection again that was asked itself.
    pub fn watch_again(&mut self, core: &Core, key: Key) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.active_reads = 0;
            if !conn.input.is_holding() {
                conn.watch(core);
            }
        }
    }

    /// Ends connections on which a record does not get whole.
    #[cold]
    fn time_out_unfinished(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let (mut at, mut next_ns) = (0, u64::MAX);
        while let Some(&key) = self.shared.streams.unfinished().get(at) {
            match self.conns.get(key).and_then(|conn| conn.record_due_ns(now_ns)) {
                Some(due_ns) if due_ns > now_ns => {
                    next_ns = next_ns.min(due_ns);
                    at += 1;
                    continue;
                }
                //= wire.md R-TCP-26
                Some(_) => self.fault(core, key, Fault::Unfinished),
                None => {}
            }
            self.shared.streams.take_unfinished(at);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.listed.abandoned_unfinished();
            }
        }
        self.shared.streams.unfinished_due_ns = next_ns;
    }
}
