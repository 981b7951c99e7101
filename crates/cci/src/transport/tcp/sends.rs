//! Sends that have not completed. The endpoint has one table, which is allocated when it is opened, so that a send allocates
//! nothing. Each connection has a first-in-first-out list in it. Messages of a burst that have the same length share an entry.

use crate::engine::core::SendOp;

pub(super) const NIL: u32 = u32::MAX;

/// A run of sends under way that differ only in their place: one message, or several of a burst.
#[derive(Copy, Clone)]
pub(super) struct Send {
    context: u64,
    pub deadline_ns: u64,
    /// Length of each record, with its header.
    pub record_bytes: u32,
    /// Number of sends; at least one.
    pub count: u32,
    /// The next run.
    pub next: u32,
    silent: bool,
}

const _: () = assert!(size_of::<Send>() <= 32, "a send in progress is counted in bytes");

impl Send {
    pub fn op(&self) -> SendOp {
        SendOp { context: self.context, silent: self.silent }
    }

    /// Bytes of all its records.
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::from(self.record_bytes) * u64::from(self.count)
    }
}

/// The sends of one connection, oldest first.
#[derive(Debug)]
pub(super) struct Fifo {
    first: u32,
    last: u32,
    /// Number of messages, not of runs.
    len: u32,
}

impl Fifo {
    pub const fn new() -> Fifo {
        Fifo { first: NIL, last: NIL, len: 0 }
    }

    #[inline]
    pub fn first(&self) -> u32 {
        self.first
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// The table.
pub(super) struct Sends {
    all: Vec<Send>,
    free: u32,
    max: u32,
    /// Number of messages, not of runs: limits count each message as a send.
    in_use: u32,
}

impl Sends {
    /// Allocates a table with space for `max` sends. Returns `None` if the system has not enough memory.
    pub fn new(max: u32) -> Option<Sends> {
        let mut all = Vec::new();
        all.try_reserve_exact(max as usize).ok()?;
        Some(Sends { all, free: NIL, max, in_use: 0 })
    }

    /// Whether one more fits behind those of `fifo`. Unless it `is_alone`, a connection may have at most as many as are left for
    /// all others (ADR 19). So a peer that takes nothing keeps nobody else from sending.
    #[inline]
    pub fn has_space_for(&self, fifo: &Fifo, is_alone: bool) -> bool {
        let remaining = self.max - self.in_use;
        fifo.len < remaining || is_alone && remaining > 0
    }

    /// How many more fit, by the rule of [`Sends::has_space_for`] for each.
    pub fn space_for(&self, fifo: &Fifo, is_alone: bool) -> u32 {
        let remaining = self.max - self.in_use;
        if is_alone { remaining } else { remaining.saturating_sub(fifo.len).div_ceil(2) }
    }

    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    pub fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Send>()
    }

    #[inline]
    pub fn get(&self, at: u32) -> Option<&Send> {
        self.all.get(at as usize)
    }

    /// The oldest send of a connection.
    #[inline]
    pub fn oldest(&self, fifo: &Fifo) -> Option<&Send> {
        self.get(fifo.first)
    }

    /// Appends a run of `count` sends, at least one; the caller has seen that the table has space for each. Returns its place.
    // Always: it is in the way of every message, and has two callers.
    #[inline(always)]
    pub fn push(
        &mut self,
        fifo: &mut Fifo,
        op: SendOp,
        (record_bytes, count): (u32, u32),
        deadline_ns: u64,
    ) -> u32 {
        let SendOp { context, silent } = op;
        let send = Send { context, deadline_ns, record_bytes, count, next: NIL, silent };
        let at = if let Some(entry) = self.all.get_mut(self.free as usize) {
            let at = self.free;
            self.free = entry.next;
            *entry = send;
            at
        } else {
            debug_assert!(self.all.len() < self.max as usize, "looked at before");
            self.all.push(send);
            self.all.len() as u32 - 1
        };
        match self.all.get_mut(fifo.last as usize) {
            Some(last) => last.next = at,
            None => fifo.first = at,
        }
        fifo.last = at;
        fifo.len += count;
        self.in_use += count;
        at
    }

    /// Removes the oldest send, with at most `max` of its run, as one. `max` is at least one.
    #[inline]
    pub fn pop(&mut self, fifo: &mut Fifo, max: u32) -> Option<Send> {
        let at = fifo.first;
        let entry = self.all.get_mut(at as usize)?;
        let mut send = *entry;
        if max < send.count {
            entry.count -= max;
            send.count = max;
        } else {
            entry.next = self.free;
            self.free = at;
            fifo.first = send.next;
            if fifo.first == NIL {
                fifo.last = NIL;
            }
        }
        fifo.len -= send.count;
        self.in_use -= send.count;
        Some(send)
    }

    /// Lowers the deadlines of a connection's sends to this one.
    pub fn bring_forward(&mut self, fifo: &Fifo, deadline_ns: u64) {
        let mut at = fifo.first;
        while let Some(send) = self.all.get_mut(at as usize) {
            send.deadline_ns = send.deadline_ns.min(deadline_ns);
            at = send.next;
        }
    }
}
