//! All connections of an endpoint: the work that polls do on each, and how a connection gets from one stage to the next, up to
//! its end.

use super::conn::Conn;
use super::conns::Conns;
use super::counts::Fault;
use super::deadlines::Deadlines;
use super::established::{Batch, Due, ReadError, Rest, Stage, Written};
use super::input::Take;
use super::pipe::Pipe;
use super::receive::{Came, Receiver};
use super::second_stream::Work;
use super::shared::Shared;
use super::transfers::{Transfers, Verdict, WorkError};
use super::wire::Kind;
use crate::ConnectFailure;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::transport::Taken;
use crate::transport::ordered_rma::Start;
use cci_memory::slab::Key;
use cci_sys::clock;
use std::io::ErrorKind;

/// How many connections without a receive buffer one poll handles. The others have their turn in the next polls.
const FED_MAX: usize = 64;
/// How many unacknowledged messages there may be before an acknowledgement no longer waits for the peer to pause.
const UNANNOUNCED_MAX: u32 = 256;
/// How long this side waits for the peer's end of a stream after it has sent CLOSE.
const LINGER_NS: u64 = 1_000_000_000;
/// How long a connection that closes may outlast the deadlines of what is under way.
const CLOSING_NS_MIN: u64 = 1_000_000_000;

/// The most connections that one look ends to free memory for those that wait.
const CROWDING_MAX: usize = 8;
/// The table of connections, and what the connections share.
pub(super) struct Links {
    pub conns: Conns,
    pub shared: Shared,
    pub transfers: Transfers,
    pub deadlines: Deadlines,
    /// Connections whose second stream this side is to dial.
    pub seconds_wanted: Vec<Key>,
    /// The read buffer. It is empty while a call uses it.
    pub scratch: Box<[u8]>,
    /// The input in the read buffer that is still to be lent. Nothing is read while there is some.
    pub rest: Option<Rest>,
}

impl Links {
    pub fn new(conns: Conns, shared: Shared, transfers: Transfers, scratch: Box<[u8]>) -> Links {
        let (deadlines, seconds_wanted) = (Deadlines::new(), Vec::new());
        Links { conns, shared, transfers, deadlines, seconds_wanted, scratch, rest: None }
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
        let Some(conn) = self.conns.established_mut(key).filter(|conn| conn.stage == Stage::Open) else {
            return Err(SendError::Disconnected);
        };
        let written = conn.send(&mut self.shared, core, segments, op, is_alone)?;
        if written != Written::Done {
            self.written(core, key, written);
        }
        Ok(())
    }

    /// Sends messages of a burst, as many as there is space for.
    pub fn send_burst(&mut self, core: &mut Core, key: Key, burst: (&[&[u8]], u32), op: SendOp) -> Taken {
        let is_alone = self.conns.len() < 2;
        let Some(conn) = self.conns.established_mut(key).filter(|conn| conn.stage == Stage::Open) else {
            return Taken::default();
        };
        let (taken, written) = conn.send_burst(&mut self.shared, core, burst, op, is_alone);
        self.written(core, key, written);
        taken
    }

    /// Queues a control record; it leaves with the next progress.
    pub fn send_control(&mut self, key: Key, kind: Kind) {
        if let Some(conn) = self.conns.established_mut(key) {
            conn.send_control(&mut self.shared.streams, kind);
        }
    }

    /// Writes what waits on one connection.
    pub fn flush(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        let written = conn.flush(&mut self.shared, core);
        self.written(core, key, written);
    }

    /// Handles the result of a write.
    fn written(&mut self, core: &mut Core, key: Key, written: Written) {
        match written {
            Written::Done => {}
            Written::Failed => self.write_failed(core, key),
            Written::MayClose => self.go_on_closing(core, key),
        }
    }

    /// After a write has failed, reads what the peer sent before, and the end of the stream behind it.
    fn write_failed(&mut self, core: &mut Core, key: Key) {
        while self.read_apart(core, key) {}
        let holds = self.conns.established(key).is_some_and(|conn| conn.input.is_holding());
        if !holds {
            self.end(core, key, DisconnectReason::Died);
        }
    }

    /// Writes everything that the program, or the last progress, has queued.
    #[cold]
    pub fn flush_unwritten(&mut self, core: &mut Core) {
        let mut unwritten = self.shared.streams.take_unwritten();
        for key in unwritten.drain(..) {
            let Some(conn) = self.conns.established_mut(key) else { continue };
            conn.base.listed.abandoned_unwritten();
            let written = conn.flush(&mut self.shared, core);
            self.written(core, key, written);
        }
        // What was queued meanwhile is written next time.
        self.shared.streams.put_back(unwritten);
        while let Some(key) = self.shared.streams.next_doomed() {
            self.fault(core, key, Fault::Answers);
        }
    }

    /// Acknowledges what came, unless something else that is sent carries the acknowledgement. A peer that goes on sending gets
    /// an acknowledgement now and then. With `all`, every peer gets one now.
    #[cold]
    pub fn acknowledge(&mut self, core: &mut Core, all: bool) {
        let mut at = 0;
        while let Some(key) = self.shared.streams.unacknowledged(at) {
            let Some(conn) = self.conns.established_mut(key) else {
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
            conn.base.listed.abandoned_unacknowledged();
            self.shared.streams.take_unacknowledged(at);
            if unannounced > 0 && conn.stage.acknowledges() {
                //= wire.md R-TCP-8
                self.shared.counts.acks_sent += 1;
                conn.send_control(&mut self.shared.streams, Kind::Ack);
                let written = conn.flush(&mut self.shared, core);
                self.written(core, key, written);
            }
        }
    }

    /// Handles input that was still to be lent, then reads once. It is not inlined, to keep it out of the path of every message.
    #[inline(never)]
    pub fn read_apart(&mut self, core: &mut Core, key: Key) -> bool {
        self.finish_rest(core);
        self.read(core, key)
    }

    /// Reads once and handles what came. No input may be left to be lent. Returns whether something came.
    #[inline(always)]
    pub fn read(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(conn) = self.conns.established_mut(key) else { return false };
        match conn.stage {
            _ if conn.input.is_holding() => return false,
            Stage::PeerClosed { .. } => return false,
            Stage::Lingering { .. } => {
                self.read_last(core, key);
                return false;
            }
            _ => {}
        }
        // The buffer is taken out while it is used, and put back whatever fails meanwhile.
        let mut scratch = std::mem::take(&mut self.scratch);
        let came = match conn.read(&mut self.shared, &mut scratch) {
            Ok(None) => false,
            Ok(Some(batch)) => self.took(core, key, &mut scratch, &batch, 0),
            Err(error) => {
                self.read_failed(core, key, error);
                true
            }
        };
        self.scratch = scratch;
        came
    }

    /// Handles input that was still to be lent in the ordinary way. Returns whether something came.
    #[cold]
    pub fn finish_rest(&mut self, core: &mut Core) -> bool {
        let Some(Rest { key, batch, used }) = self.rest.take() else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        let came = self.took(core, key, &mut scratch, &batch, used);
        self.scratch = scratch;
        came
    }

    /// Deals with what was read, behind the first `used` bytes. Returns whether something came of it.
    // Apart, so that a poll that finds nothing saves no registers for it.
    #[inline(never)]
    fn took(&mut self, core: &mut Core, key: Key, scratch: &mut [u8], batch: &Batch, used: usize) -> bool {
        let filled = scratch.get(..batch.filled).unwrap_or_default();
        let used = self.deal(core, key, filled, used, batch.keeps);
        let mut conn = self.conns.established_mut(key);
        if conn.as_ref().is_some_and(|conn| conn.stage.may_end()) {
            self.go_on_closing(core, key);
            conn = self.conns.established_mut(key);
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

    pub fn read_failed(&mut self, core: &mut Core, key: Key, error: ReadError) {
        match error {
            ReadError::Fault(fault) => self.fault(core, key, fault),
            ReadError::Ended(reason) => self.end(core, key, reason),
        }
    }

    /// Deals with complete records from byte `used` on, until one has to wait; answers up to where they were.
    // Always: left to itself, the compiler makes calls of these, of which there are several callers.
    #[inline(always)]
    fn deal(&mut self, core: &mut Core, key: Key, bytes: &[u8], mut used: usize, may_hold: bool) -> usize {
        loop {
            let Some(conn) = self.conns.established_mut(key) else { return bytes.len() };
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

    /// Continues connections whose messages wait for receive buffers, if there are some or the wait was too long.
    #[cold]
    pub fn feed(&mut self, core: &mut Core) {
        for _ in 0..self.shared.streams.starved().min(FED_MAX) {
            let Some(key) = self.shared.streams.next_starved() else { break };
            self.shared.counts.starved_looks += 1;
            let Some(conn) = self.conns.established_mut(key) else { continue };
            conn.base.listed.abandoned_starved();
            let (free, has_buffer) = (core.receive.free_count(), core.has_buffer_for(conn.base.connection));
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
                    // Input that is not to be read now would end each sleep at once.
                    conn.unwatch(core);
                    self.shared.streams.starve(&mut conn.base.listed);
                }
                Take::Dropping => self.shared.streams.starve(&mut conn.base.listed),
            }
        }
    }

    /// Continues with the messages that were held: delivers or drops them.
    fn feed_held(&mut self, core: &mut Core, key: Key, drop: bool) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        let (kept, at) = conn.input.lift();
        conn.input.take = Take::All;
        if drop {
            conn.drop_messages(&mut self.shared);
        }
        let used = self.deal(core, key, kept.behind(at), 0, true);
        let Some(conn) = self.conns.established_mut(key) else {
            return self.shared.keepers.give_back(kept);
        };
        conn.input.put_back(&mut self.shared.keepers, kept, at + used);
        if !conn.input.is_holding() {
            if !conn.input.kept().is_empty() || conn.stream.has_part() {
                // An incomplete record is behind what was held. It has a deadline from now on.
                conn.record_ns = Some(self.shared.now_ns);
                conn.await_remainder(&mut self.shared);
            }
            conn.watch(core);
            self.go_on_closing(core, key);
        }
    }

    /// Reads a stream of which only the end is awaited.
    fn read_last(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        match conn.stream.recv(&mut self.scratch) {
            Ok(0) => {}
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {}
        }
        self.remove(core, key);
    }

    /// Closes a connection, after the program has disconnected.
    pub fn disconnect(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let connection = conn.base().connection;
        if let Conn::Established(conn) = conn {
            match conn.stage {
                Stage::Open | Stage::PeerClosing => {
                    // Everything that is under way has a deadline. This one is for a peer that never finishes closing.
                    let timeout_ns =
                        conn.base.send_timeout_ns.saturating_mul(2).saturating_add(CLOSING_NS_MIN);
                    let allowance_ns = self.transfers.allowance_ns(conn);
                    let until_ns = self.shared.now_ns.saturating_add(timeout_ns).saturating_add(allowance_ns);
                    let came = conn.stage == Stage::PeerClosing;
                    conn.stage = Stage::Closing { until_ns, sent: false, came };
                    self.deadlines.add(&mut conn.base, until_ns);
                    self.go_on_closing(core, key);
                    return self.flush(core, key);
                }
                Stage::Closing { .. } | Stage::Lingering { .. } => return,
                Stage::Accepting { .. } | Stage::PeerClosed { .. } => {}
            }
            self.transfers.end(core, conn, Status::Disconnected);
        }
        core.closed(connection);
        self.remove(core, key);
    }

    /// Brings a connection that closes to its next stage, if it may go there.
    #[inline]
    pub fn go_on_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        match conn.stage {
            Stage::Closing { .. } => self.go_on_closing_now(core, key),
            Stage::PeerClosed { .. } if !self.transfers.await_answers(conn) => {
                self.end(core, key, DisconnectReason::Closed);
            }
            _ => {}
        }
    }

    #[cold]
    fn go_on_closing_now(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        //= wire.md R-TCP-13
        if !self.transfers.are_over(conn) {
            return;
        }
        let Stage::Closing { sent, .. } = &mut conn.stage else { return };
        if !std::mem::replace(sent, true) {
            conn.send_control(&mut self.shared.streams, Kind::Closing);
        }
        //= wire.md R-TCP-13
        if conn.out.sends() > 0 || self.transfers.owe_answers(conn) {
            return;
        }
        //= wire.md R-TCP-14
        let until_ns = self.shared.now_ns + LINGER_NS;
        conn.stage = Stage::Lingering { until_ns };
        conn.send_control(&mut self.shared.streams, Kind::Close);
        self.transfers.end(core, conn, Status::Disconnected);
        core.closed(conn.base.connection);
        self.deadlines.add(&mut conn.base, until_ns);
        self.flush(core, key);
    }

    /// Handles CLOSING: the peer's program has disconnected and takes no more messages. Its answers to remote operations still
    /// come, over the second stream.
    fn peer_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        let was_open = conn.stage == Stage::Open;
        match &mut conn.stage {
            Stage::Closing { came, .. } => *came = true,
            stage if was_open => *stage = Stage::PeerClosing,
            _ => {}
        }
        conn.out.keep_begun(&self.shared.sends);
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
        if conn.stage != Stage::PeerClosing || !self.transfers.await_answers(conn) {
            self.transfers.end(core, conn, Status::Disconnected);
        }
        if was_open {
            core.peer_gone(conn.base.connection);
        }
    }

    /// Handles CLOSE, the last record of the peer.
    #[cold]
    fn peer_closed(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        if !self.transfers.await_answers(conn) || !conn.takes_messages() {
            return self.end(core, key, DisconnectReason::Closed);
        }
        //= wire.md R-TCP-14
        let until_ns = self.shared.now_ns.saturating_add(LINGER_NS);
        conn.stage = Stage::PeerClosed { until_ns };
        conn.unwatch(core);
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
        core.peer_gone(conn.base.connection);
        self.deadlines.add(&mut conn.base, until_ns);
    }

    /// Counts a fault of the peer, and ends its connection.
    #[cold]
    pub fn fault(&mut self, core: &mut Core, key: Key, fault: Fault) {
        //= wire.md R-TCP-1
        self.shared.counts.fault(fault);
        self.end(core, key, DisconnectReason::Refused);
    }

    /// Ends a connection whose stream has ended or has failed.
    #[cold]
    pub fn end(&mut self, core: &mut Core, key: Key, reason: DisconnectReason) {
        if self.rest.is_some_and(|rest| rest.key == key) {
            self.finish_rest(core);
        }
        let status = match reason {
            DisconnectReason::TimedOut => Status::TimedOut,
            _ => Status::Disconnected,
        };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let established = match conn {
            Conn::Dialling(_) => return self.fail(core, key, ConnectFailure::Disconnected),
            Conn::Established(established) => established,
            Conn::Gone(_) => return,
        };
        let stage = established.stage;
        match stage {
            Stage::Accepting { .. } => return self.fail(core, key, ConnectFailure::Disconnected),
            Stage::Lingering { .. } => return self.remove(core, key),
            // A connection that has closed in an orderly way does not count as broken.
            Stage::Open => self.shared.counts.broken += 1,
            Stage::PeerClosing | Stage::PeerClosed { .. } | Stage::Closing { .. } => {}
        }
        established.end(&mut self.shared, core, status);
        self.transfers.end(core, established, status);
        let base = established.base.clone();
        let connection = base.connection;
        *conn = Conn::Gone(base);
        match stage {
            Stage::Closing { .. } => {
                core.closed(connection);
                self.remove(core, key);
            }
            // Whatever ends the stream now, the peer has closed before.
            Stage::PeerClosed { .. } => core.ended(connection, DisconnectReason::Closed),
            _ => core.ended(connection, reason),
        }
    }

    /// Ends the stage of a connection that has taken too long to reach the next one.
    pub fn stage_timed_out(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established(key) else { return };
        match conn.stage {
            Stage::Accepting { .. } => {
                self.shared.counts.handshake_timed_out += 1;
                self.fail(core, key, ConnectFailure::TimedOut);
            }
            //= wire.md R-TCP-17
            Stage::Closing { .. } => self.end(core, key, DisconnectReason::TimedOut),
            Stage::PeerClosed { .. } => self.end(core, key, DisconnectReason::Closed),
            Stage::Lingering { .. } => self.remove(core, key),
            Stage::Open | Stage::PeerClosing => {}
        }
    }

    /// Fails an attempt to connect.
    pub fn fail(&mut self, core: &mut Core, key: Key, why: ConnectFailure) {
        if let Some(conn) = self.conns.get(key) {
            core.failed(conn.base().connection, why);
        }
        self.remove(core, key);
    }

    /// Removes a connection whose sends have ended.
    pub fn remove(&mut self, core: &mut Core, key: Key) {
        match self.conns.remove(key) {
            Some(Conn::Established(mut conn)) => {
                self.transfers.end(core, &mut conn, Status::Disconnected);
                debug_assert_eq!(conn.out.sends(), 0, "their ends were reported before");
                conn.end(&mut self.shared, core, Status::Disconnected);
            }
            Some(Conn::Dialling(mut dialling)) => dialling.give_up_until(core, u64::MAX),
            Some(Conn::Gone(_)) | None => {}
        }
    }

    /// Opens a connection, and informs the program.
    pub fn open(&mut self, core: &mut Core, key: Key) {
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.established_mut(key) else { return };
        conn.stage = Stage::Open;
        (conn.heard_ns, conn.moved_ns) = (now_ns, now_ns);
        if conn.base.keepalive_ns > 0 {
            self.deadlines.keep_alive(key);
        }
        conn.bound_silence();
        core.opened(conn.base.connection, conn.base.mss);
        self.activate(core, key);
    }

    /// Enters an operation of remote memory, and starts what can be done of it now.
    #[inline]
    pub fn start(&mut self, core: &mut Core, key: Key, mut start: Start<'_>) -> Result<(), SendError> {
        let Some(conn) = self.conns.established_mut(key).filter(|conn| conn.stage == Stage::Open) else {
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

    /// Dials the second stream, or has the peer dial it. Once it is there, [`Links::second_came`] is called.
    fn want_second(&mut self, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        if std::mem::replace(&mut conn.wants_second, true) {
            return;
        }
        if conn.has_dialled() {
            self.seconds_wanted.push(key);
        } else {
            //= wire.md R-TCP-15
            conn.send_control(&mut self.shared.streams, Kind::AskBulk);
        }
    }

    /// Attaches the second stream of a connection.
    pub fn second_came(&mut self, core: &mut Core, key: Key, stream: Pipe) {
        if self.conns.established(key).is_some_and(|conn| matches!(conn.stage, Stage::Accepting { .. })) {
            // Only the peer knows the ticket, so its CONFIRM must be on the way.
            self.open(core, key);
        }
        let Some(conn) = self.conns.established_mut(key).filter(|conn| conn.second_may_come()) else {
            return;
        };
        conn.wants_second = true;
        match self.transfers.attach(core, conn, stream) {
            // Records that have waited can be sent. The kernel reports what comes.
            Some(true) => self.work(core, key, Work::Everything),
            Some(false) => {}
            None => {
                self.shared.counts.refused_system += 1;
                self.end(core, key, DisconnectReason::Refused);
            }
        }
    }

    /// Handles the kernel's report of a second stream. Returns whether it is one that polls did not look at.
    pub fn second_ready(&mut self, core: &Core, key: Key, hung_up: bool) -> bool {
        let Some(conn) = self.conns.established_mut(key) else { return false };
        self.transfers.ready(&self.shared, core, conn, hung_up)
    }

    /// Gives each connection with operations under way its turn, and checks deadlines and memory. Called in every poll.
    #[inline]
    pub fn transfer(&mut self, core: &mut Core) {
        if self.transfers.schedule.has_any() {
            self.transfer_some(core);
        }
    }

    fn transfer_some(&mut self, core: &mut Core) {
        for _ in 0..self.transfers.schedule.begin(core, self.shared.now_ns) {
            let Some(key) = self.transfers.schedule.next() else { break };
            let Some(conn) = self.conns.established_mut(key) else { continue };
            let work = self.transfers.next_work(&self.shared, conn);
            let worked = self.transfers.work(&mut self.shared, core, conn, work);
            if worked.is_err() || conn.stage.may_end() {
                self.worked(core, key, worked);
            }
            if self.transfers.schedule.others_wait() {
                self.retire_for_space(core, key);
            }
        }
        self.transfers.admit_waiting(&self.shared, core, &mut self.conns);
        self.transfers.schedule.end();
        if self.transfers.is_time_to_look(self.shared.now_ns) {
            self.look_at_transfers(core);
        }
    }

    /// Moves data over a connection's second stream.
    #[inline]
    fn work(&mut self, core: &mut Core, key: Key, work: Work) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        let worked = self.transfers.work(&mut self.shared, core, conn, work);
        if worked.is_err() || conn.stage.may_end() {
            self.worked(core, key, worked);
        }
    }

    /// Handles the result of a turn: the connection may close, or its second stream may have ended.
    #[cold]
    fn worked(&mut self, core: &mut Core, key: Key, worked: Result<(), WorkError>) {
        match worked {
            Ok(()) => self.go_on_closing(core, key),
            Err(WorkError::Ended) => {
                if let Some(conn) = self.conns.established_mut(key) {
                    self.transfers.stream_ended(&self.shared, core, conn);
                }
                self.go_on_closing(core, key);
            }
            //= wire.md R-TCP-1
            Err(WorkError::Fault(fault)) => self.fault(core, key, fault),
        }
    }

    /// Takes memory from a connection for others that wait.
    fn retire_for_space(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.established_mut(key) else { return };
        if let Err(fault) = self.transfers.retire_for_space(core, conn) {
            self.fault(core, key, fault);
        }
    }

    /// Ends connections whose operations are overdue, and those that hold memory which others wait for.
    fn look_at_transfers(&mut self, core: &mut Core) {
        let mut at = 0;
        while let Some(&key) = self.transfers.schedule.active().get(at) {
            let verdict = match self.conns.established_mut(key) {
                Some(conn) => self.transfers.look_at(&self.shared, core, conn),
                None => Verdict::Idle,
            };
            if verdict == Verdict::Keep {
                at += 1;
                continue;
            }
            self.transfers.schedule.take_active(at);
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

    /// The latest time at which something must be done.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.shared.sends_due_ns.min(self.deadlines.first_ns()).min(self.shared.streams.unfinished_due_ns)
    }

    /// Does what is due on established connections.
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

    /// Ends overdue sends of all connections, and ends connections whose peers do not answer.
    fn time_out_sends(&mut self, core: &mut Core) {
        self.flush_unwritten(core);
        let mut next_ns = u64::MAX;
        for index in 0..self.conns.end() {
            let Some(key) = self.conns.key_at(index) else { continue };
            if self.conns.established(key).is_some_and(|conn| conn.out.sends() > 0) {
                next_ns = next_ns.min(self.time_out_sends_of(core, key));
            }
        }
        self.shared.sends_due_ns = next_ns;
    }

    /// Ends overdue sends of one connection, and returns when the next one is due.
    fn time_out_sends_of(&mut self, core: &mut Core, key: Key) -> u64 {
        let Some(conn) = self.conns.established_mut(key) else { return u64::MAX };
        match conn.time_out_sends(&mut self.shared, core) {
            Due::At(due_ns) => return due_ns,
            Due::Over => self.end(core, key, DisconnectReason::TimedOut),
            Due::Never => self.go_on_closing(core, key),
        }
        u64::MAX
    }

    /// Replaces the endpoint's send timeout for one connection.
    pub fn change_send_timeout(&mut self, key: Key, timeout_ns: u64) {
        let now_ns = clock::now_ns();
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.base_mut().send_timeout_ns = timeout_ns;
        let Some(conn) = conn.established_mut() else { return };
        // A send under way must not outlive a later one: the completions of a connection stay in order.
        let limit_ns = now_ns.saturating_add(timeout_ns);
        conn.out.bring_forward(&mut self.shared.sends, limit_ns);
        self.shared.sends_due_ns = self.shared.sends_due_ns.min(limit_ns);
        conn.bound_silence();
        self.transfers.timeout_changed();
    }

    /// Replaces the endpoint's keepalive for one connection; 0 switches it off.
    pub fn change_keepalive(&mut self, key: Key, timeout_ns: u64) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.base_mut().keepalive_ns = timeout_ns;
        // Nobody is asked before the connection is made. Then silence counts from that moment.
        let Some(conn) = conn.established_mut() else { return };
        self.shared.now_ns = clock::now_ns();
        conn.heard_ns = self.shared.now_ns;
        self.deadlines.let_be(key);
        if timeout_ns != 0 {
            self.deadlines.keep_alive(key);
        }
    }

    /// Reads a connection in every poll from now on, in place of the one that was idle longest.
    pub fn activate(&mut self, core: &Core, key: Key) {
        let lives = |key| self.conns.get(key).is_some();
        if let Some(idle) = self.shared.streams.activate(key, lives) {
            self.watch_again(core, idle);
        }
    }

    /// Has the kernel report a connection again that polls have read directly.
    pub fn watch_again(&mut self, core: &Core, key: Key) {
        if let Some(conn) = self.conns.established_mut(key) {
            conn.active_reads = 0;
            if !conn.input.is_holding() {
                conn.watch(core);
            }
        }
    }

    /// Ends connections on which a record was not completed in time.
    #[cold]
    fn time_out_unfinished(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let (mut at, mut next_ns) = (0, u64::MAX);
        while let Some(&key) = self.shared.streams.unfinished().get(at) {
            match self.conns.established(key).and_then(|conn| conn.record_due_ns(now_ns)) {
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
            if let Some(conn) = self.conns.established_mut(key) {
                conn.base.listed.abandoned_unfinished();
            }
        }
        self.shared.streams.unfinished_due_ns = next_ns;
    }
}
