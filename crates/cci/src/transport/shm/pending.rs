//! Reliable sends that the peer has not taken yet. An endpoint has one table for them, made when it is opened, so that a send
//! allocates nothing. Through the table runs one first-in-first-out list for each link.

use crate::engine::core::SendOp;
use cci_memory::ring::{CancelGuard, Span};

const NIL: u32 = u32::MAX;

/// Messages under way that were sent together: a single one, or those of a burst whose records lie one behind the other.
#[derive(Copy, Clone)]
pub(super) struct Send {
    /// Where the records lie in the ring. Those that have ended are taken out.
    run: Span,
    context: u64,
    /// When the messages time out; 0: it has no deadline yet, as the clock is not read for each send.
    deadline_ns: u64,
    /// The index of the connection, which outlives them.
    pub conn: u32,
    next: u32,
    silent: bool,
    /// The slot of the message, if it is a loan. What becomes of its record is not yet what becomes of the message.
    loan: Option<Slot>,
}

/// The number of a slot, below [`SLOTS_MAX`](cci_sys::shared_memory::SLOTS_MAX).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot(u8);

impl From<Slot> for u32 {
    fn from(slot: Slot) -> u32 {
        slot.0.into()
    }
}

const _: () = assert!(size_of::<Send>() <= 48, "a send in progress is counted in bytes");

impl Send {
    pub fn op(&self) -> SendOp {
        SendOp { context: self.context, silent: self.silent }
    }

    /// How far the peer has read once it has taken the messages.
    pub fn end_position(&self) -> u64 {
        self.run.end()
    }

    /// Ends all messages. Answers how many there were.
    pub fn end(&mut self) -> u32 {
        self.run.consume_to(u64::MAX)
    }

    /// Takes those back that the peer has not taken. Answers how many.
    pub fn take_back<M>(&mut self, guard: &mut CancelGuard<'_, M>) -> u32 {
        guard.void_run(&mut self.run)
    }

    pub fn is_due(&self, now_ns: u64) -> bool {
        self.deadline_ns != 0 && self.deadline_ns <= now_ns
    }
}

/// Messages that have ended in the same way.
pub(super) struct Ended {
    pub conn: u32,
    pub messages: u32,
    pub op: SendOp,
    pub loan: Option<Slot>,
}

/// The sends of all links.
pub(super) struct Sends {
    all: Vec<Send>,
    free: u32,
    max: u32,
    /// Messages.
    in_use: u32,
}

/// The sends of one link, oldest first.
#[derive(Debug)]
pub(super) struct Fifo {
    first: u32,
    last: u32,
    /// The first send without a deadline; none after it has one.
    unstamped: u32,
    /// Messages.
    len: u32,
}

impl Fifo {
    pub const fn new() -> Fifo {
        Fifo { first: NIL, last: NIL, unstamped: NIL, len: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.first == NIL
    }

    pub fn len(&self) -> u32 {
        self.len
    }
}

impl Sends {
    /// Allocates space for `max` sends. None: the system has not so much memory.
    pub fn new(max: u32) -> Option<Sends> {
        let mut all = Vec::new();
        all.try_reserve_exact(max as usize).ok()?;
        Some(Sends { all, free: NIL, max, in_use: 0 })
    }

    /// How many messages of a burst have space, as [`Sends::has_space_for`] says of each.
    #[inline]
    pub fn space_for(&self, fifo: &Fifo, is_alone: bool) -> u32 {
        let remaining = self.max - self.in_use;
        // Each message that is taken makes one more for the link, and leaves one less to the others.
        if is_alone { remaining } else { remaining.saturating_sub(fifo.len).div_ceil(2) }
    }

    /// Whether there is space for one more message of a link. Unless the link `is_alone`, it must not have more than it leaves to
    /// all others (ADR 19): so a peer that takes nothing keeps nobody else from sending.
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

    /// Appends messages that were sent together. The caller has seen that there is space for them. Messages that were sent in silence
    /// one behind the other are one entry, unless the first ones have their deadline already.
    #[inline(always)]
    pub fn push(&mut self, fifo: &mut Fifo, run: Span, conn: u32, op: SendOp) {
        let SendOp { context, silent } = op;
        if silent
            && let Some(last) = self.all.get_mut(fifo.last as usize)
            && last.silent
            && last.conn == conn
            && last.deadline_ns == 0
            && last.context == context
            && last.loan.is_none()
            && last.run.append(run)
        {
            fifo.len += run.records();
            self.in_use += run.records();
            return;
        }
        self.enter(fifo, Send { run, context, deadline_ns: 0, conn, next: NIL, silent, loan: None });
    }

    /// Appends the record of a message in a slot. It is silent: the message completes when the slot is returned.
    pub fn push_loan(&mut self, fifo: &mut Fifo, run: Span, conn: u32, slot: u32) {
        let loan = Some(Slot(slot as u8));
        self.enter(fifo, Send { run, context: 0, deadline_ns: 0, conn, next: NIL, silent: true, loan });
    }

    #[inline(always)]
    fn enter(&mut self, fifo: &mut Fifo, send: Send) {
        let messages = send.run.records();
        let at = if let Some(slot) = self.all.get_mut(self.free as usize) {
            let at = self.free;
            self.free = slot.next;
            *slot = send;
            at
        } else {
            debug_assert!(self.all.len() < self.max as usize, "looked at before the record was written");
            self.all.push(send);
            self.all.len() as u32 - 1
        };
        match self.all.get_mut(fifo.last as usize) {
            Some(last) => last.next = at,
            None => fifo.first = at,
        }
        fifo.last = at;
        if fifo.unstamped == NIL {
            fifo.unstamped = at;
        }
        fifo.len += messages;
        self.in_use += messages;
    }

    /// The oldest send, if it is a single message that the program wants to know of, and the peer has taken it.
    #[inline(always)]
    pub fn oldest_alone(&self, fifo: &Fifo, consumed: u64) -> Option<&Send> {
        let send = self.all.get(fifo.first as usize)?;
        (send.run.end() <= consumed && send.run.records() == 1 && !send.silent).then_some(send)
    }

    /// Takes out what [`Sends::oldest_alone`] has found.
    #[inline(always)]
    pub fn pop_alone(&mut self, fifo: &mut Fifo) {
        let at = fifo.first;
        let Some(send) = self.all.get_mut(at as usize) else { return };
        let next = std::mem::replace(&mut send.next, self.free);
        self.free = at;
        fifo.first = next;
        if next == NIL {
            fifo.last = NIL;
        }
        if fifo.unstamped == at {
            fifo.unstamped = next;
        }
        fifo.len -= 1;
        self.in_use -= 1;
    }

    /// Takes those of the oldest send out whose records end at `consumed` or before.
    #[inline]
    pub fn pop_consumed(&mut self, fifo: &mut Fifo, consumed: u64) -> Option<Ended> {
        let at = fifo.first;
        let send = self.all.get_mut(at as usize)?;
        if send.run.end() > consumed {
            return if send.run.records() == 1 { None } else { self.pop_part(fifo, consumed) };
        }
        let (messages, send) = (send.run.records(), *send);
        fifo.first = send.next;
        if fifo.first == NIL {
            fifo.last = NIL;
        }
        if fifo.unstamped == at {
            fifo.unstamped = send.next;
        }
        fifo.len -= messages;
        self.in_use -= messages;
        self.release(at);
        Some(Ended { conn: send.conn, messages, op: send.op(), loan: send.loan })
    }

    /// Takes those of the oldest burst out that the peer has taken; the others stay.
    #[cold]
    #[inline(never)]
    fn pop_part(&mut self, fifo: &mut Fifo, consumed: u64) -> Option<Ended> {
        let send = self.all.get_mut(fifo.first as usize)?;
        let messages = send.run.consume_to(consumed);
        fifo.len -= messages;
        self.in_use -= messages;
        (messages > 0).then(|| Ended { conn: send.conn, messages, op: send.op(), loan: send.loan })
    }

    #[inline]
    fn release(&mut self, at: u32) {
        if let Some(slot) = self.all.get_mut(at as usize) {
            slot.next = self.free;
            self.free = at;
        }
    }

    /// Gives each send without a deadline its deadline. Answers the earliest of these.
    pub fn stamp(&mut self, fifo: &mut Fifo, deadline_ns: impl Fn(u32) -> u64) -> u64 {
        let mut earliest_ns = u64::MAX;
        while let Some(send) = self.all.get_mut(fifo.unstamped as usize) {
            // 0 would mean unstamped.
            send.deadline_ns = deadline_ns(send.conn).max(1);
            earliest_ns = earliest_ns.min(send.deadline_ns);
            fifo.unstamped = send.next;
        }
        earliest_ns
    }

    /// Visits every send, oldest first. `end` takes messages out of it and answers how many; these are given to `ended`.
    pub fn end_some(
        &mut self,
        fifo: &mut Fifo,
        mut end: impl FnMut(&mut Send) -> u32,
        mut ended: impl FnMut(Ended),
    ) {
        let (mut at, mut before, mut unstamped) = (fifo.first, NIL, NIL);
        while let Some(send) = self.all.get_mut(at as usize) {
            let next = send.next;
            let messages = end(send);
            let send = *send;
            fifo.len -= messages;
            self.in_use -= messages;
            if send.run.records() == 0 {
                match self.all.get_mut(before as usize) {
                    Some(before) => before.next = next,
                    None => fifo.first = next,
                }
                self.release(at);
            } else {
                if send.deadline_ns == 0 && unstamped == NIL {
                    unstamped = at;
                }
                before = at;
            }
            if messages > 0 {
                ended(Ended { conn: send.conn, messages, op: send.op(), loan: send.loan });
            }
            at = next;
        }
        fifo.last = before;
        fifo.unstamped = unstamped;
    }

    /// The earliest deadline given so far, u64::MAX if none.
    pub fn earliest_ns(&self, fifo: &Fifo) -> u64 {
        let (mut at, mut earliest_ns) = (fifo.first, u64::MAX);
        while let Some(send) = self.all.get(at as usize) {
            if send.deadline_ns != 0 {
                earliest_ns = earliest_ns.min(send.deadline_ns);
            }
            at = send.next;
        }
        earliest_ns
    }
}

impl Send {
    /// Changes the deadline of a send that has one.
    pub fn set_deadline_ns(&mut self, deadline_ns: u64) {
        self.deadline_ns = deadline_ns.max(1);
    }

    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }
}
