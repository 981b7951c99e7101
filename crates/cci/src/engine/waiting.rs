//! Sends for which the transport has no space. They wait in the endpoint's send buffers, and are handed to the transport in
//! order once it has space. So a program can start as many sends as it asked for, whatever the ring, the window or the
//! socket takes at a time.
//!
//! Each connection with such sends has a queue: heads and messages, one behind the other, in chunks of memory that are
//! borrowed from what the transport may use of the endpoint's memory cap. This module keeps the queues;
//! `endpoint/waiting.rs` decides how many sends and how much memory a connection may have.

use super::chunks::{CHUNK_BYTES, Chunks, Queue};
use crate::connection::{Connection, Status};
use crate::limits;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Bytes that describe a send; they are stored before its message.
const HEAD_BYTES: usize = 32;
/// Chunks that are borrowed at once, and kept for the next time, where there are plenty.
const LOT_CHUNKS: u32 = 16;
/// Where memory is scarce, no more than one part in so many of it is borrowed at once, and none is kept.
const LOT_SHARE: u64 = 8;
/// Chunks that one more send takes at most.
const CHUNKS_PER_SEND: u32 = 2;
/// Memory that a chunk costs, with its part of the tables.
const CHUNK_COST_BYTES: u64 = CHUNK_BYTES as u64 + 64;

const _: () = assert!(
    HEAD_BYTES + limits::MESSAGE_BYTES_MAX as usize <= CHUNK_BYTES,
    "a send crosses one chunk's end at most, as does its message"
);

/// What is known of a send that waits.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// What the program gave, returned unchanged with the completion.
    pub context: u64,
    /// Raises no event on success.
    pub silent: bool,
    pub len_bytes: u32,
    /// When its send timeout ends.
    deadline_ns: u64,
    /// Until when it may wait while the peer goes on taking sends: later than `deadline_ns` by the time for what waited before it.
    limit_ns: u64,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let words = [
            self.context,
            self.deadline_ns,
            self.limit_ns,
            u64::from(self.len_bytes) << 1 | u64::from(self.silent),
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; HEAD_BYTES]) -> Head {
        let (words, _) = bytes.as_chunks();
        let [context, deadline_ns, limit_ns, last] =
            [0, 1, 2, 3].map(|at: usize| words.get(at).map_or(0, |word: &[u8; 8]| u64::from_ne_bytes(*word)));
        Head { context, silent: last & 1 != 0, len_bytes: (last >> 1) as u32, deadline_ns, limit_ns }
    }
}

/// The sends of one connection that wait, oldest first.
pub(crate) struct SendQueue {
    pub connection: Connection,
    stored: Queue,
    len: u32,
    /// How many of them are not silent.
    unreported: u32,
    timeout_ns: u64,
    /// When the transport last took one of them, or the first of them came.
    moved_ns: u64,
    /// How the last of the connection's sends that failed has ended.
    pub failed: Option<Status>,
    /// The program has disconnected. The transport is asked to disconnect once the queue is empty.
    pub is_closing: bool,
}

impl SendQueue {
    const fn new(connection: Connection) -> SendQueue {
        SendQueue {
            connection,
            stored: Queue::new(),
            len: 0,
            unreported: 0,
            timeout_ns: 0,
            moved_ns: 0,
            failed: None,
            is_closing: false,
        }
    }

    /// The oldest send.
    pub fn head(&self) -> Option<Head> {
        if self.len == 0 { None } else { self.head_at(self.stored.head()) }
    }

    fn head_at(&self, at: u64) -> Option<Head> {
        let mut bytes = [0; HEAD_BYTES];
        self.stored.copy_out(at, &mut bytes).then(|| Head::from_bytes(bytes))
    }

    /// The message of the oldest send, in two parts.
    pub fn message(&self, head: &Head) -> [&[u8]; 2] {
        let begin = self.stored.head() + HEAD_BYTES as u64;
        let end = begin + u64::from(head.len_bytes);
        let first = self.stored.run(begin, end);
        [first, self.stored.run(begin + first.len() as u64, end)]
    }

    /// Whether the oldest has waited for too long: the send timeout, unless the peer goes on taking sends and has not used up
    /// the time that those before it may take.
    pub fn is_overdue(&self, head: &Head, now_ns: u64) -> bool {
        now_ns >= self.due_ns(head)
    }

    fn due_ns(&self, head: &Head) -> u64 {
        let patience_ns = self.moved_ns.saturating_add(self.timeout_ns).min(head.limit_ns);
        head.deadline_ns.max(patience_ns)
    }

    /// The transport takes sends again.
    pub fn moves(&mut self, now_ns: u64) {
        self.moved_ns = now_ns;
    }

    fn drop_head(&mut self, chunks: &mut Chunks) -> Option<Head> {
        let head = self.head()?;
        let end = self.stored.head() + HEAD_BYTES as u64 + u64::from(head.len_bytes);
        self.stored.release(chunks, end);
        self.len -= 1;
        self.unreported -= u32::from(!head.silent);
        Some(head)
    }

    /// Changes the send timeout. No send is to end later than it would if it had come now.
    fn change_timeout(&mut self, now_ns: u64, timeout_ns: u64) {
        self.timeout_ns = timeout_ns;
        let latest_ns = now_ns.saturating_add(timeout_ns);
        let mut at = self.stored.head();
        for _ in 0..self.len {
            let Some(mut head) = self.head_at(at) else { return };
            let sooner_ns = head.deadline_ns.saturating_sub(latest_ns);
            head.deadline_ns -= sooner_ns;
            head.limit_ns -= sooner_ns;
            self.stored.copy_in(at, &head.to_bytes());
            at += HEAD_BYTES as u64 + u64::from(head.len_bytes);
        }
    }
}

/// What a new send needs to wait.
pub(crate) struct Arrival<'a> {
    pub connection: Connection,
    pub segments: &'a [&'a [u8]],
    pub len_bytes: usize,
    pub context: u64,
    pub silent: bool,
    pub now_ns: u64,
    pub timeout_ns: u64,
    /// No other connection is open: this one may use all the memory.
    pub is_alone: bool,
}

/// All sends of an endpoint that wait for the transport to have space, by connection.
pub(crate) struct Waiting {
    /// By the connection's index, which this endpoint gives.
    queues: FxHashMap<u32, SendQueue>,
    /// Indices of the connections that have a queue, in the order of their next turn.
    turns: VecDeque<u32>,
    chunks: Chunks,
    /// Chunks that the transport could lend beside those lent, as of the last time.
    spare_chunks: u64,
    /// Chunks that are kept once nothing waits.
    kept_chunks: u32,
    /// Sends in all queues.
    len: u32,
    /// Lines of connections that the program has closed.
    closing: u32,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            queues: FxHashMap::default(),
            turns: VecDeque::new(),
            chunks: Chunks::none(),
            spare_chunks: 0,
            kept_chunks: 0,
            len: 0,
            closing: 0,
        }
    }
}

impl Waiting {
    /// True while no connection has a queue: nothing needs to be looked at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// True while sends of a connection wait that the program has closed.
    #[inline]
    pub fn has_closing(&self) -> bool {
        self.closing != 0
    }

    /// Sends that wait, of all connections.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Connections that have a queue.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    fn queue(&self, connection: Connection) -> Option<&SendQueue> {
        self.queues.get(&connection.index).filter(|queue| queue.connection == connection)
    }

    fn queue_mut(&mut self, connection: Connection) -> Option<&mut SendQueue> {
        self.queues.get_mut(&connection.index).filter(|queue| queue.connection == connection)
    }

    /// Whether sends of this connection wait, which later ones have to stay behind.
    pub fn holds(&self, connection: Connection) -> bool {
        self.queue(connection).is_some()
    }

    /// Whether the transport took sends of a connection since then, or none of it wait.
    pub fn moved_since(&self, connection: Connection, since_ns: u64) -> bool {
        self.queue(connection).is_none_or(|queue| queue.moved_ns >= since_ns)
    }

    /// How many sends of a connection wait.
    pub fn len_of(&self, connection: Connection) -> u32 {
        self.queue(connection).map_or(0, |queue| queue.len)
    }

    /// How many of these are not silent.
    pub fn unreported(&self, connection: Connection) -> u32 {
        self.queue(connection).map_or(0, |queue| queue.unreported)
    }

    /// Whether one more send may need memory that was not borrowed yet.
    pub fn lacks_memory(&self) -> bool {
        self.chunks.unused() < CHUNKS_PER_SEND
    }

    /// Borrows some of the bytes that the transport can spare, for sends that wait.
    pub fn borrow(&mut self, spare_bytes: u64) {
        let spare_chunks = spare_bytes / CHUNK_COST_BYTES;
        let share = spare_chunks / LOT_SHARE;
        let lot = share.clamp(CHUNKS_PER_SEND.into(), LOT_CHUNKS.into()).min(spare_chunks);
        self.kept_chunks = if share < LOT_CHUNKS.into() { 0 } else { LOT_CHUNKS };
        self.spare_chunks = spare_chunks - lot;
        self.chunks.allow(lot as u32);
    }

    /// Once nothing waits, gives back all but what is kept for the next time. True: there was some to give back.
    pub fn settle(&mut self) -> bool {
        self.queues.is_empty() && self.chunks.shrink(self.kept_chunks)
    }

    /// Memory borrowed, bytes.
    pub fn borrowed_bytes(&self) -> u64 {
        u64::from(self.chunks.max()) * CHUNK_COST_BYTES
    }

    /// Appends a send to its connection's queue. False: there is no memory, or none within this connection's quota, which is
    /// as much as remains for all others (ADR 19).
    pub fn push(&mut self, arrival: &Arrival<'_>) -> bool {
        let Arrival { connection, len_bytes, context, silent, now_ns, timeout_ns, .. } = *arrival;
        let (Ok(len), bytes) = (u32::try_from(len_bytes), HEAD_BYTES + len_bytes) else { return false };
        let has_queue = self.queues.contains_key(&connection.index);
        let more = if has_queue { 0 } else { 1 };
        if self.queues.try_reserve(more).is_err() || self.turns.try_reserve(more).is_err() {
            return false;
        }
        let unused = u64::from(self.chunks.unused()) + self.spare_chunks;
        let mut made = SendQueue::new(connection);
        let queue = self.queues.get_mut(&connection.index).unwrap_or(&mut made);
        let held = queue.stored.chunk_count();
        let chunks_max = if arrival.is_alone || u64::from(held) < unused { u32::MAX } else { held };
        if !queue.stored.reserve(&mut self.chunks, bytes, chunks_max) {
            return false;
        }
        if queue.len == 0 {
            queue.moved_ns = now_ns;
        }
        queue.timeout_ns = timeout_ns;
        let deadline_ns = now_ns.saturating_add(timeout_ns);
        let before_bytes = queue.stored.tail() - queue.stored.head();
        let limit_ns = deadline_ns.saturating_add(limits::progress_ns(before_bytes));
        queue.stored.push(&Head { context, silent, len_bytes: len, deadline_ns, limit_ns }.to_bytes());
        arrival.segments.iter().for_each(|segment| queue.stored.push(segment));
        queue.len += 1;
        queue.unreported += u32::from(!silent);
        self.len += 1;
        if !has_queue {
            self.queues.insert(connection.index, made);
            self.turns.push_back(connection.index);
        }
        true
    }

    /// The connection whose turn it is. It goes to the end of the order of turns.
    pub fn next_turn(&mut self) -> Option<u32> {
        let index = self.turns.pop_front()?;
        self.turns.push_back(index);
        Some(index)
    }

    /// Takes a queue out of the table, to work on it. [`Waiting::put_back`] puts it back.
    pub fn take_out(&mut self, index: u32) -> Option<SendQueue> {
        let queue = self.queues.get_mut(&index)?;
        let stand_in = SendQueue {
            failed: queue.failed,
            is_closing: queue.is_closing,
            ..SendQueue::new(queue.connection)
        };
        Some(std::mem::replace(queue, stand_in))
    }

    /// Puts a queue back. False: it was empty, and has been removed.
    pub fn put_back(&mut self, queue: SendQueue) -> bool {
        let index = queue.connection.index;
        if queue.len == 0 {
            self.queues.remove(&index);
            self.turns.retain(|turn| *turn != index);
            self.closing -= u32::from(queue.is_closing);
            return false;
        }
        if let Some(stand_in) = self.queues.get_mut(&index) {
            let failed = stand_in.failed;
            *stand_in = SendQueue { failed, ..queue };
        }
        true
    }

    /// Takes the oldest send out of a queue.
    pub fn drop_head(&mut self, queue: &mut SendQueue) -> Option<Head> {
        let head = queue.drop_head(&mut self.chunks)?;
        self.len -= 1;
        Some(head)
    }

    /// Takes the oldest send of a connection out, to end it: the connection is over.
    pub fn end_one(&mut self, connection: Connection) -> Option<(Head, Status)> {
        let queue = self.queues.get_mut(&connection.index).filter(|queue| queue.connection == connection)?;
        let head = queue.drop_head(&mut self.chunks)?;
        self.len -= 1;
        Some((head, queue.status_at_end()))
    }

    /// Removes the queue of a connection that is no longer in the table. The queue is empty.
    pub fn forget(&mut self, connection: Connection) {
        if let Some(queue) = self.take_out(connection.index).filter(|queue| queue.connection == connection) {
            self.put_back(queue);
        }
    }

    /// Notes that a send of this connection has failed.
    pub fn note_failure(&mut self, connection: Connection, status: Status) {
        if let Some(queue) = self.queue_mut(connection) {
            queue.failed = Some(status);
        }
    }

    /// Marks a connection as closed by the program. True: the transport must not disconnect it before its queue is empty.
    pub fn close(&mut self, connection: Connection) -> bool {
        let Some(queue) = self.queue_mut(connection) else { return false };
        queue.is_closing = true;
        self.closing += 1;
        true
    }

    /// Changes the send timeout of a connection.
    pub fn change_timeout(&mut self, connection: Connection, now_ns: u64, timeout_ns: u64) {
        if let Some(queue) = self.queue_mut(connection) {
            queue.change_timeout(now_ns, timeout_ns);
        }
    }

    /// When the first send that is not overdue at `now_ns` may become so.
    pub fn next_due_ns(&self, now_ns: u64) -> Option<u64> {
        let due = self.queues.values().filter_map(|queue| queue.head().map(|head| queue.due_ns(&head)));
        due.filter(|due_ns| *due_ns > now_ns).min()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let queues = self.queues.capacity() * size_of::<(u32, SendQueue)>();
        let turns = self.turns.capacity() * size_of::<u32>();
        let of_queues: usize = self.queues.values().map(|queue| queue.stored.bytes()).sum();
        self.chunks.bytes() + (queues + turns + of_queues) as u64
    }
}

impl SendQueue {
    /// How its sends end if the connection is over.
    pub fn status_at_end(&self) -> Status {
        match self.failed {
            Some(Status::TimedOut) => Status::TimedOut,
            _ => Status::Disconnected,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn connection(index: u32) -> Connection {
        Connection { index, generation: 1 }
    }

    fn push(waiting: &mut Waiting, index: u32, context: u64, len: usize, now_ns: u64) -> bool {
        let message: Vec<u8> = (0..len).map(|at| (at as u64 + context) as u8).collect();
        let (first, remainder) = message.split_at(len / 3);
        waiting.push(&Arrival {
            connection: connection(index),
            segments: &[first, remainder],
            len_bytes: len,
            context,
            silent: context.is_multiple_of(3),
            now_ns,
            timeout_ns: 10 * SECOND,
            is_alone: false,
        })
    }

    #[test]
    fn sends_come_out_in_order_and_memory_goes_back() {
        let mut waiting = Waiting::default();
        assert!(!push(&mut waiting, 1, 0, 8, 0), "nothing was borrowed");
        assert!(waiting.is_empty());
        waiting.borrow(u64::MAX);
        const SENDS: u64 = 120;
        let lens = [0, 1, 100, 8192, 8191, 5000];
        for context in 0..SENDS {
            assert!(push(&mut waiting, 1, context, lens[context as usize % lens.len()], context));
            if waiting.lacks_memory() {
                waiting.borrow(u64::MAX);
            }
        }
        let mine = connection(1);
        assert_eq!((waiting.len(), waiting.len_of(mine), waiting.unreported(mine)), (120, 120, 80));
        let bytes = waiting.bytes();
        assert!(bytes <= waiting.borrowed_bytes() + 10_000, "{bytes} of {}", waiting.borrowed_bytes());
        let index = waiting.next_turn().unwrap();
        let mut queue = waiting.take_out(index).unwrap();
        for context in 0..SENDS {
            let head = queue.head().unwrap();
            let message = queue.message(&head).concat();
            let len = lens[context as usize % lens.len()];
            assert_eq!((head.context, head.silent, message.len()), (context, context.is_multiple_of(3), len));
            assert!(message.iter().zip(0..).all(|(byte, at): (&u8, u64)| *byte == (at + context) as u8));
            waiting.drop_head(&mut queue).unwrap();
        }
        assert!(queue.head().is_none());
        assert!(!waiting.put_back(queue), "an empty queue is none");
        assert!(waiting.is_empty() && waiting.next_turn().is_none() && waiting.settle());
        assert_eq!(waiting.borrowed_bytes(), u64::from(LOT_CHUNKS) * CHUNK_COST_BYTES);
        assert!(!waiting.settle());
        // Where there is little, all of it goes back.
        waiting.borrow(100_000);
        assert!(waiting.settle() && waiting.borrowed_bytes() == 0);
    }

    #[test]
    fn one_that_hogs_the_memory_leaves_half() {
        let mut waiting = Waiting::default();
        waiting.chunks.allow(LOT_CHUNKS);
        let fill =
            |waiting: &mut Waiting, index| (0..).take_while(|at| push(waiting, index, *at, 8192, 0)).count();
        let first = fill(&mut waiting, 1);
        assert_eq!(first, 15, "eight of sixteen chunks");
        assert!(fill(&mut waiting, 2) >= 7);
        assert!(fill(&mut waiting, 3) >= 3);
    }

    #[test]
    fn a_send_is_overdue_once_the_peer_takes_nothing_and_never_waits_without_end() {
        let mut waiting = Waiting::default();
        waiting.borrow(u64::MAX);
        for context in 0..16 {
            assert!(push(&mut waiting, 1, context, 8192, 0));
        }
        assert_eq!(waiting.next_due_ns(0), Some(10 * SECOND));
        let mut queue = waiting.take_out(1).unwrap();
        let first = queue.head().unwrap();
        assert!(!queue.is_overdue(&first, 10 * SECOND - 1) && queue.is_overdue(&first, 10 * SECOND));
        for _ in 0..15 {
            waiting.drop_head(&mut queue);
        }
        // Behind 120 KiB it may wait for two seconds more, if others leave meanwhile.
        queue.moves(9 * SECOND);
        let last = queue.head().unwrap();
        assert!(!queue.is_overdue(&last, 11 * SECOND) && queue.is_overdue(&last, 12 * SECOND));
        waiting.put_back(queue);
        waiting.change_timeout(connection(1), SECOND, 2 * SECOND);
        let queue = waiting.take_out(1).unwrap();
        let last = queue.head().unwrap();
        assert!(!queue.is_overdue(&last, 4 * SECOND) && queue.is_overdue(&last, 5 * SECOND));
        waiting.put_back(queue);
    }

    #[test]
    fn the_end_of_a_connection_ends_its_sends() {
        let mut waiting = Waiting::default();
        waiting.borrow(u64::MAX);
        assert!(
            push(&mut waiting, 1, 1, 10, 0)
                && push(&mut waiting, 1, 2, 10, 0)
                && push(&mut waiting, 2, 3, 10, 0)
        );
        assert!(waiting.close(connection(1)) && !waiting.close(connection(7)) && waiting.has_closing());
        waiting.note_failure(connection(1), Status::TimedOut);
        let ended = std::iter::from_fn(|| waiting.end_one(connection(1)));
        let ended: Vec<_> = ended.map(|(head, status)| (head.context, status)).collect();
        assert_eq!(ended, [(1, Status::TimedOut), (2, Status::TimedOut)]);
        assert_eq!(waiting.end_one(Connection { index: 2, generation: 9 }), None, "another one's");
        waiting.forget(connection(1));
        assert!(!waiting.has_closing() && !waiting.holds(connection(1)) && waiting.holds(connection(2)));
        assert_eq!(waiting.len(), 1);
    }
}
