//! Sends that have not completed. One table for the endpoint, made when it is opened, so that a send allocates nothing;
//! one first-in-first-out list through it for each connection.

use crate::engine::core::SendOp;

pub(super) const NIL: u32 = u32::MAX;

/// A send under way.
#[derive(Copy, Clone)]
pub(super) struct Send {
    context: u64,
    pub deadline_ns: u64,
    /// Length of its record, with the header.
    pub record_bytes: u32,
    /// The one behind it.
    pub next: u32,
    silent: bool,
}

const _: () = assert!(size_of::<Send>() <= 32, "a send in progress is counted in bytes");

impl Send {
    pub fn op(&self) -> SendOp {
        SendOp { context: self.context, silent: self.silent }
    }
}

/// The sends of one connection, oldest first.
#[derive(Debug)]
pub(super) struct Fifo {
    first: u32,
    last: u32,
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
    in_use: u32,
}

impl Sends {
    /// A table with space for `max` sends, allocated now. `None`: the system has not so much memory.
    pub fn new(max: u32) -> Option<Sends> {
        let mut all = Vec::new();
        all.try_reserve_exact(max as usize).ok()?;
        Some(Sends { all, free: NIL, max, in_use: 0 })
    }

    /// Whether one more fits behind those of `fifo`, which must not be more than are left for all others unless it `is_alone`
    /// (ADR 19): a peer that takes nothing keeps nobody else from sending.
    #[inline]
    pub fn has_space_for(&self, fifo: &Fifo, is_alone: bool) -> bool {
        let remaining = self.max - self.in_use;
        fifo.len < remaining || is_alone && remaining > 0
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

    /// The oldest of a connection.
    #[inline]
    pub fn oldest(&self, fifo: &Fifo) -> Option<&Send> {
        self.get(fifo.first)
    }

    /// Appends a send; the caller has seen that the table is not full. Answers its place.
    #[inline]
    pub fn push(&mut self, fifo: &mut Fifo, op: SendOp, record_bytes: u32, deadline_ns: u64) -> u32 {
        let send = Send { context: op.context, deadline_ns, record_bytes, next: NIL, silent: op.silent };
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
        fifo.len += 1;
        self.in_use += 1;
        at
    }

    /// Takes the oldest out.
    #[inline]
    pub fn pop(&mut self, fifo: &mut Fifo) -> Option<Send> {
        let at = fifo.first;
        let entry = self.all.get_mut(at as usize)?;
        let send = *entry;
        entry.next = self.free;
        self.free = at;
        fifo.first = send.next;
        if fifo.first == NIL {
            fifo.last = NIL;
        }
        fifo.len -= 1;
        self.in_use -= 1;
        Some(send)
    }

    /// No send of a connection is to end later than this.
    pub fn bring_forward(&mut self, fifo: &Fifo, deadline_ns: u64) {
        let mut at = fifo.first;
        while let Some(send) = self.all.get_mut(at as usize) {
            send.deadline_ns = send.deadline_ns.min(deadline_ns);
            at = send.next;
        }
    }
}
