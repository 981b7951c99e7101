//! What is remembered of each send until it completes.

use crate::{ConnKey, Counters, Event, Sink, Status};

/// Names a send not yet completed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendId(u32);

impl SendId {
    pub const NONE: SendId = SendId(u32::MAX);
    const SILENT: u32 = 1 << 31;
}

#[derive(Copy, Clone)]
struct Node {
    context: u64,
    /// The next send of the same bundle, or free node.
    next: SendId,
    /// When it was queued, in ticks; the top bit is the silent mark.
    ticks_silent: u32,
}

/// A send, taken out to be completed.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Done {
    pub context: u64,
    pub silent: bool,
    pub next: SendId,
}

/// All sends of an endpoint that have not completed: a list per bundle through one array.
pub(crate) struct Sends {
    nodes: Vec<Node>,
    free: SendId,
    in_progress: u32,
}

impl Sends {
    pub const COST_BYTES: u64 = size_of::<Node>() as u64;

    /// `None`: there is no memory.
    pub fn new(count: u32) -> Option<Sends> {
        let node = |index| Node {
            context: 0,
            next: if index + 1 == count { SendId::NONE } else { SendId(index + 1) },
            ticks_silent: 0,
        };
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(count as usize).ok()?;
        nodes.extend((0..count).map(node));
        Some(Sends { nodes, free: SendId(0), in_progress: 0 })
    }

    pub fn in_progress(&self) -> u32 {
        self.in_progress
    }

    /// How many more there may be.
    #[inline]
    pub fn available(&self) -> u32 {
        self.nodes.len() as u32 - self.in_progress
    }

    pub fn is_full(&self) -> bool {
        self.free == SendId::NONE
    }

    /// Remembers one send, behind `tail` if there is one.
    #[inline]
    pub fn add(&mut self, tail: SendId, context: u64, silent: bool, now_ticks: u32) -> Option<SendId> {
        let id = self.free;
        let node = self.nodes.get_mut(id.0 as usize)?;
        self.free = node.next;
        self.in_progress += 1;
        let mark = if silent { SendId::SILENT } else { 0 };
        *node = Node { context, next: SendId::NONE, ticks_silent: now_ticks | mark };
        if let Some(before) = self.nodes.get_mut(tail.0 as usize) {
            before.next = id;
        }
        Some(id)
    }

    /// Forgets one send and returns what completes it.
    #[inline]
    pub fn take(&mut self, id: SendId) -> Option<Done> {
        let node = self.nodes.get_mut(id.0 as usize)?;
        let done =
            Done { context: node.context, silent: node.ticks_silent & SendId::SILENT != 0, next: node.next };
        node.next = self.free;
        self.free = id;
        self.in_progress -= 1;
        Some(done)
    }

    /// Completes a list of sends, each exactly once; answers how many they were.
    #[inline]
    pub fn complete(
        &mut self,
        counters: &mut Counters,
        first: SendId,
        status: Status,
        conn: ConnKey,
        token: u64,
        sink: &mut impl Sink,
    ) -> u32 {
        let (mut id, before) = (first, self.available());
        while let Some(done) = self.take(id) {
            report(counters, done.context, done.silent, status, conn, token, sink);
            id = done.next;
        }
        self.available() - before
    }

    /// How many sends follow from this one on, itself included.
    pub fn count(&self, first: SendId) -> u16 {
        let mut count = 0;
        let mut id = first;
        while let Some(node) = self.nodes.get(id.0 as usize) {
            count += 1;
            id = node.next;
        }
        count
    }

    /// How many of them are not silent.
    pub fn count_reported(&self, first: SendId) -> u32 {
        let mut count = 0;
        let mut id = first;
        while let Some(node) = self.nodes.get(id.0 as usize) {
            count += u32::from(node.ticks_silent & SendId::SILENT == 0);
            id = node.next;
        }
        count
    }

    /// When this send was queued; `None` for [`SendId::NONE`].
    pub fn queued_ticks(&self, id: SendId) -> Option<u32> {
        self.nodes.get(id.0 as usize).map(|node| node.ticks_silent & !SendId::SILENT)
    }
}

/// Raises the event that ends a send, unless it is silent.
#[inline]
pub(crate) fn report(
    counters: &mut Counters,
    context: u64,
    silent: bool,
    status: Status,
    conn: ConnKey,
    token: u64,
    sink: &mut impl Sink,
) {
    if status != Status::Success {
        counters.sends_failed += 1;
    }
    if !silent {
        sink.event(Event::Sent { conn, token, context, status });
    }
}

const _: () = assert!(size_of::<Node>() == 16, "sends_max is 2^20 at times");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_a_list() {
        let mut sends = Sends::new(2).unwrap();
        let first = sends.add(SendId::NONE, 10, false, 5).unwrap();
        let second = sends.add(first, 20, true, 6).unwrap();
        assert!(sends.is_full() && sends.add(second, 30, false, 0).is_none());
        assert_eq!(sends.queued_ticks(first), Some(5));
        let done = sends.take(first).unwrap();
        assert_eq!((done.context, done.silent, done.next), (10, false, second));
        let done = sends.take(second).unwrap();
        assert_eq!((done.context, done.silent, done.next), (20, true, SendId::NONE));
        assert!(sends.add(SendId::NONE, 1, false, 0).is_some());
    }
}
