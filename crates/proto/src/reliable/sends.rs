//! What is remembered of each send until it completes.

use crate::limits::{RECORDS_MAX, SENDS_MAX};
use crate::{ConnKey, Counters, Event, Sink, Status};

/// Names a run of sends not yet completed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendId(u32);

impl SendId {
    pub const NONE: SendId = SendId(SENDS_MAX);
}

/// The top bit of a node's ticks.
const SILENT: u32 = 1 << 31;

/// Sends that were queued together and complete alike: one message, or neighbours of a burst in one bundle. The list that they are in
/// is acknowledged as a whole, so a run never has to be split.
#[derive(Copy, Clone)]
struct Node {
    context: u64,
    /// In [`NEXT_BITS`]: the next run of the same bundle, or free node. Above them: how many sends the run has, less one.
    next_and_count: u32,
    /// When it was queued, in ticks; the top bit is the silent mark.
    ticks_silent: u32,
}

const NEXT_BITS: u32 = 24;
const _: () = assert!(SENDS_MAX == (1 << NEXT_BITS) - 1, "the number of a node has its bits");
const _: () = assert!(RECORDS_MAX as u32 <= 1 << (u32::BITS - NEXT_BITS), "so has the count of a run");

impl Node {
    #[inline]
    fn next(&self) -> SendId {
        SendId(self.next_and_count & SENDS_MAX)
    }

    #[inline]
    fn set_next(&mut self, next: SendId) {
        self.next_and_count = self.next_and_count & !SENDS_MAX | next.0;
    }

    #[inline]
    fn count(&self) -> u32 {
        (self.next_and_count >> NEXT_BITS) + 1
    }

    #[inline]
    fn is_silent(&self) -> bool {
        self.ticks_silent & SILENT != 0
    }
}

/// Sends that complete alike.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub context: u64,
    pub silent: bool,
    /// 1 to [`RECORDS_MAX`].
    pub count: u32,
}

/// All sends of an endpoint that have not completed: a list of runs for each bundle, through one array.
pub(crate) struct Sends {
    /// As many as there may be sends, so that there is one for each run.
    nodes: Vec<Node>,
    free: SendId,
    in_progress: u32,
}

impl Sends {
    pub const COST_BYTES: u64 = size_of::<Node>() as u64;

    /// For up to [`SENDS_MAX`] sends. `None`: there is no memory.
    pub fn new(count: u32) -> Option<Sends> {
        let node = |index| Node {
            context: 0,
            next_and_count: if index + 1 == count { SENDS_MAX } else { index + 1 },
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

    #[inline]
    pub fn is_full(&self) -> bool {
        self.available() == 0
    }

    /// Remembers a run of sends, behind `tail` if there is one. `None`: there may be no more so many.
    #[inline]
    pub fn add(&mut self, tail: SendId, run: Run, now_ticks: u32) -> Option<SendId> {
        debug_assert!((1..=u32::from(RECORDS_MAX)).contains(&run.count), "those of one bundle");
        if run.count > self.available() {
            return None;
        }
        let id = self.free;
        let node = self.nodes.get_mut(id.0 as usize)?;
        self.free = node.next();
        self.in_progress += run.count;
        let mark = if run.silent { SILENT } else { 0 };
        *node = Node {
            context: run.context,
            next_and_count: SENDS_MAX | (run.count - 1) << NEXT_BITS,
            ticks_silent: now_ticks | mark,
        };
        if let Some(before) = self.nodes.get_mut(tail.0 as usize) {
            before.set_next(id);
        }
        Some(id)
    }

    /// Forgets a run of sends and returns what completes them, and the next run.
    #[inline]
    pub fn take(&mut self, id: SendId) -> Option<(Run, SendId)> {
        let node = self.nodes.get_mut(id.0 as usize)?;
        let run = Run { context: node.context, silent: node.is_silent(), count: node.count() };
        let next = node.next();
        node.next_and_count = self.free.0;
        self.free = id;
        self.in_progress -= run.count;
        Some((run, next))
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
        while let Some((run, next)) = self.take(id) {
            report(counters, run, status, conn, token, sink);
            id = next;
        }
        self.available() - before
    }

    /// The runs from this one on.
    fn runs(&self, first: SendId) -> impl Iterator<Item = &Node> {
        let node = |id: SendId| self.nodes.get(id.0 as usize);
        std::iter::successors(node(first), move |before| node(before.next()))
    }

    /// How many sends follow from this run on, itself included.
    pub fn count(&self, first: SendId) -> u32 {
        self.runs(first).map(Node::count).sum()
    }

    /// How many of them are not silent.
    pub fn count_reported(&self, first: SendId) -> u32 {
        self.runs(first).filter(|run| !run.is_silent()).map(Node::count).sum()
    }

    /// When this run was queued; `None` for [`SendId::NONE`].
    pub fn queued_ticks(&self, id: SendId) -> Option<u32> {
        self.nodes.get(id.0 as usize).map(|node| node.ticks_silent & !SILENT)
    }
}

/// Raises the event that ends a run of sends, unless they are silent.
#[inline]
pub(crate) fn report(
    counters: &mut Counters,
    run: Run,
    status: Status,
    conn: ConnKey,
    token: u64,
    sink: &mut impl Sink,
) {
    if status != Status::Success {
        counters.sends_failed += u64::from(run.count);
    }
    if !run.silent {
        sink.event(Event::Sent { conn, token, context: run.context, status, count: run.count });
    }
}

const _: () = assert!(size_of::<Node>() == 16, "sends_max is 2^20 at times");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_a_list_of_runs() {
        let mut sends = Sends::new(5).unwrap();
        let one = Run { context: 10, silent: false, count: 1 };
        let three = Run { context: 20, silent: true, count: 3 };
        let first = sends.add(SendId::NONE, one, 5).unwrap();
        let second = sends.add(first, three, 6).unwrap();
        assert_eq!((sends.count(first), sends.count_reported(first), sends.available()), (4, 1, 1));
        assert!(sends.add(second, Run { count: 2, ..one }, 0).is_none(), "only one more fits");
        let third = sends.add(second, one, 7).unwrap();
        assert!(sends.is_full() && sends.add(third, one, 0).is_none());
        assert_eq!([first, second, SendId::NONE].map(|id| sends.queued_ticks(id)), [Some(5), Some(6), None]);
        assert_eq!(sends.take(first), Some((one, second)));
        assert_eq!((sends.count(second), sends.count_reported(second)), (4, 1));
        assert_eq!(sends.take(second), Some((three, third)));
        assert_eq!(sends.take(third), Some((one, SendId::NONE)));
        assert_eq!((sends.take(SendId::NONE), sends.in_progress()), (None, 0));
        let five = Run { context: 1, silent: false, count: 5 };
        assert!(sends.add(SendId::NONE, five, 0).is_some() && sends.is_full());
    }

    #[test]
    fn a_run_has_as_many_sends_as_a_bundle_has_records() {
        let all = u32::from(RECORDS_MAX);
        let mut sends = Sends::new(all).unwrap();
        let run = Run { context: u64::MAX, silent: false, count: all };
        let id = sends.add(SendId::NONE, run, u32::MAX >> 1).unwrap();
        assert_eq!((sends.count(id), sends.queued_ticks(id)), (all, Some(u32::MAX >> 1)));
        assert_eq!(sends.take(id), Some((run, SendId::NONE)));
    }
}
