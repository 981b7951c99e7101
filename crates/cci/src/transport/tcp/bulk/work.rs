//! Moving: what came on a second stream, and what there is room for.

use super::super::Tcp;
use super::super::conn::State;
use super::super::counts::Fault;
use super::super::second_stream::Bulk;
use super::places::Turn;
use super::{Bulks, Wire};
use crate::engine::core::Core;
use crate::transport::ordered_rma::Turn as Done;
use crate::transport::ordered_rma::stream::{Came, Intake, Over, StreamChannel};
use cci_memory::slab::Key;

/// Bytes read, and bytes written, for one connection in one poll, before messages and the program have their turn.
const TURN_BYTES: u64 = 256 << 10;
/// The same while messages come and go: this is what they wait behind.
const SHORT_TURN_BYTES: u64 = 32 << 10;
/// How long the last message counts.
const MESSAGES_NS: u64 = 1_000_000;
/// Connections that have their turn in one poll.
const TURNS_MAX: usize = 8;

impl Tcp {
    /// Gives connections with something under way their turn. Called in every poll while there are any.
    #[inline]
    pub(in crate::transport::tcp) fn bulk_turn(&mut self, core: &mut Core) {
        if !self.bulks.active.is_empty() || !self.bulks.waiting.is_empty() {
            self.turn_active(core);
        }
    }

    fn turn_active(&mut self, core: &mut Core) {
        self.bulks.at_once = false;
        let messages = core.counters.messages_received.wrapping_add(core.counters.messages_sent);
        if messages != self.bulks.messages {
            (self.bulks.messages, self.bulks.messages_ns) = (messages, self.shared.now_ns);
        }
        for _ in 0..self.bulks.active.len().min(TURNS_MAX) {
            let Some(key) = self.bulks.active.first().copied() else { break };
            self.bulks.active.rotate_left(1);
            self.bulks.still_turns = self.bulks.still_turns.saturating_add(1);
            let turn = self.next_turn(key);
            self.work_bulk(core, key, turn);
            self.give_way(core, key);
        }
        self.admit_waiting(core);
        // Some have had no turn since something last moved.
        let active = self.bulks.active.len();
        self.bulks.at_once |= active > TURNS_MAX && self.bulks.still_turns < active;
        self.care_for_bulk(core);
    }

    /// Reads what came on a connection's second stream, and writes what there is room for.
    pub(super) fn work_bulk(&mut self, core: &mut Core, key: Key, turn: Turn) {
        match self.try_work(core, key, turn) {
            Ok(()) => self.go_on_closing(core, key),
            Err(None) => self.bulk_ended(core, key),
            //= wire.md R-TCP-1
            Err(Some(fault)) => self.fault(core, key, fault),
        }
    }

    /// An error: the stream has ended, or why it has to.
    fn try_work(&mut self, core: &mut Core, key: Key, turn: Turn) -> Result<(), Option<Fault>> {
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.get_mut(key) else { return Ok(()) };
        let delivers = conn.takes_messages();
        let taken = conn.messages_sent.saturating_sub(u64::from(conn.out.sends()));
        let connection = conn.connection;
        if matches!(conn.state, State::Gone | State::Lingering) {
            return Ok(());
        }
        let Some(bulk) = conn.bulk.as_mut() else { return Ok(()) };
        let clock_ns = self.bulks.clock_ns(now_ns);
        if bulk.stream.is_none() || !bulk.lend(&mut self.bulks.flows, connection, clock_ns) {
            // Where there is no room for a flow, what came waits in the kernel.
            return Ok(());
        }
        let Bulk { stream: Some(stream), flow, writer, reader, record_ns, .. } = &mut **bulk else {
            return Ok(());
        };
        let Bulks { flows, scratch, message_bytes_max, counts, at_once, messages_ns, still_turns, .. } =
            &mut self.bulks;
        let is_short = now_ns < messages_ns.saturating_add(MESSAGES_NS);
        let turn_bytes = if is_short { SHORT_TURN_BYTES } else { TURN_BYTES };
        let Some((flow, ops)) = flows.get_mut(*flow) else { return Ok(()) };
        // What was sealed waits for room, and all that is behind it.
        let has_room = stream.flush().map_err(|_| None)?;
        let mut wire = Wire { stream, forged: false };
        let (mut came, mut moved) = (Came::default(), false);
        if turn == Turn::Whole {
            let message_bytes_max = *message_bytes_max;
            let mut intake = Intake { flow, ops, core, message_bytes_max, delivers };
            let read = reader.poll(&mut wire, scratch, &mut intake, &mut { turn_bytes });
            //= wire.md R-SEC-14
            came = read.map_err(|over| match over {
                Over::Ended if wire.forged => Some(Fault::Forged),
                Over::Ended => None,
                Over::Fault => Some(Fault::Record),
            })?;
            counts.reads += std::mem::take(&mut reader.reads);
            counts.bytes_read += std::mem::take(&mut reader.bytes);
            counts.bytes_placed += std::mem::take(&mut reader.placed_bytes);
            *at_once |= came.more;
            let has_ended = reader.take_ended();
            if reader.is_between_records() && !wire.stream.has_part() {
                *record_ns = None;
            } else if has_ended || record_ns.is_none() {
                *record_ns = Some(now_ns);
            }
        }
        if came.bytes > 0 {
            conn.heard_ns = now_ns;
        }
        if has_room && writer.may_try(turn_bytes as usize) && (flow.wants_turn() || !writer.is_empty()) {
            let mut done = Done::default();
            if turn != Turn::Flush {
                let mut channel = StreamChannel { stream: &mut wire, writer, taken };
                done = flow.turn(ops, core, &mut channel, &mut { turn_bytes });
            }
            if done.broken {
                return Err(None);
            }
            let all = writer.flush(&mut wire).map_err(|_| None)?;
            *at_once |= if all { done.at_once } else { !writer.is_full() };
            counts.writes += std::mem::take(&mut writer.writes);
            let written = std::mem::take(&mut writer.bytes);
            counts.bytes_written += written;
            counts.bytes_copied += std::mem::take(&mut writer.copied_bytes);
            moved = done.moved || written > 0;
        }
        let has_part = record_ns.is_some();
        bulk.has_moved = came.bytes > 0 || moved;
        if bulk.has_moved {
            flow.moved = true;
            bulk.moved_ns = now_ns;
            *still_turns = 0;
        }
        if has_part {
            conn.await_rest(&mut self.shared);
        }
        Ok(())
    }
}
