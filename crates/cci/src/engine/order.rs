//! Completions in the order of issue, on reliable ordered connections (CCI-028).
//!
//! A transport completes the messages of such a connection in order, but knows no order between them and the RMA
//! operations, which complete when their answers come. So a connection with operations in progress has a queue: it holds
//! what was issued, and a completion is reported once everything before it is complete.
//!
//! The entries of all queues are in one table, which grows with use and is kept. The engine limits how many of them a
//! connection may have ([`Order::held_by`]).

use crate::connection::Status;
use std::collections::HashMap;

/// A completion that may be reported now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub context: u64,
    pub silent: bool,
    pub status: Status,
}

/// Names the entry of an operation for as long as the operation is in progress.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

/// Names the entry of a send for as long as the transport has not taken it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendEntry {
    at: u32,
    /// The open send before it, if there is one.
    before: u32,
}

/// No entry.
const NIL: u32 = u32::MAX;

/// A send or an operation in the queue, or a free slot of the table.
#[derive(Copy, Clone)]
struct Entry {
    context: u64,
    /// The entry behind it in the queue, or the next free slot.
    next: u32,
    /// The entry before it in the queue.
    previous: u32,
    /// The next send behind this entry, if it is a send.
    next_send: u32,
    silent: bool,
    status: Option<Status>,
}

const _: () = assert!(size_of::<Entry>() <= 24, "tens of thousands may be held");

/// What one connection has issued since its first operation that has not been reported, oldest first.
struct CompletionQueue {
    first: u32,
    last: u32,
    len: u32,
    /// Sends that were in progress when the first operation came: they come before everything in the queue.
    earlier: u32,
    /// The oldest send in the queue that has not completed, and the newest; sends complete in order.
    open_send: u32,
    last_send: u32,
}

const EMPTY: CompletionQueue =
    CompletionQueue { first: NIL, last: NIL, len: 0, earlier: 0, open_send: NIL, last_send: NIL };

/// The queues of an endpoint's completions.
pub(crate) struct Order {
    /// By the connection's index.
    queues: HashMap<u32, CompletionQueue>,
    entries: Vec<Entry>,
    free: u32,
    /// Entries in all queues.
    held: usize,
}

impl Default for Order {
    fn default() -> Order {
        Order { queues: HashMap::new(), entries: Vec::new(), free: NIL, held: 0 }
    }
}

impl Order {
    /// True while no connection has operations in progress: nothing needs to be looked at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// How many entries are in all queues. They may be complete and only behind one that is not.
    #[inline]
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many entries this connection has.
    pub fn held_by(&self, conn: u32) -> usize {
        self.queues.get(&conn).map_or(0, |queue| queue.len as usize)
    }

    /// True if the connection has a queue: its sends must be entered.
    #[inline]
    pub fn holds(&self, conn: u32) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&conn)
    }

    /// Makes sure that one more send can be entered. False: there is no memory.
    #[inline]
    pub fn reserve(&mut self) -> bool {
        self.free != NIL || self.grow()
    }

    /// Makes sure that one more operation can be entered. False: there is no memory.
    #[inline]
    pub fn reserve_operation(&mut self) -> bool {
        self.reserve() && self.queues.try_reserve(1).is_ok()
    }

    #[cold]
    fn grow(&mut self) -> bool {
        let at = self.entries.len();
        if at >= NIL as usize || self.entries.try_reserve(1).is_err() {
            return false;
        }
        self.entries.push(Entry {
            context: 0,
            next: NIL,
            previous: NIL,
            next_send: NIL,
            silent: false,
            status: None,
        });
        self.free = at as u32;
        true
    }

    fn entry(&mut self, at: u32) -> Option<&mut Entry> {
        self.entries.get_mut(at as usize)
    }

    /// Enters an operation; `earlier_sends` is asked only where there is no queue yet: how many sends in progress will be
    /// reported (the silent ones will not). None: there is no memory, which [`Order::reserve_operation`] would have said.
    pub fn enter_operation(
        &mut self,
        conn: u32,
        context: u64,
        silent: bool,
        earlier_sends: impl FnOnce() -> u32,
    ) -> Option<EntryId> {
        if !self.reserve_operation() {
            return None;
        }
        self.queues.entry(conn).or_insert_with(|| CompletionQueue { earlier: earlier_sends(), ..EMPTY });
        self.enter(conn, context, silent).map(EntryId)
    }

    /// Enters a send that is not silent, on a connection with a queue. None: there is no queue, or no memory, which
    /// [`Order::reserve`] would have said.
    pub fn enter_send(&mut self, conn: u32, context: u64) -> Option<SendEntry> {
        if !self.holds(conn) {
            return None;
        }
        let at = self.enter(conn, context, false)?;
        let Order { queues, entries, .. } = self;
        let queue = queues.get_mut(&conn)?;
        let before = if queue.open_send == NIL { NIL } else { queue.last_send };
        match entries.get_mut(before as usize) {
            Some(before) => before.next_send = at,
            None => queue.open_send = at,
        }
        queue.last_send = at;
        Some(SendEntry { at, before })
    }

    /// Removes the send entered last, which the transport has not taken.
    #[cold]
    pub fn take_send_back(&mut self, conn: u32, SendEntry { at, before }: SendEntry) {
        let Order { queues, entries, .. } = self;
        let Some(queue) = queues.get_mut(&conn) else { return };
        if queue.open_send == at {
            queue.open_send = NIL;
        } else if let Some(entry) = entries.get_mut(before as usize) {
            (entry.next_send, queue.last_send) = (NIL, before);
        }
        self.take_back(conn, EntryId(at));
    }

    /// Puts an entry at the end of a queue that is there.
    fn enter(&mut self, conn: u32, context: u64, silent: bool) -> Option<u32> {
        if !self.reserve() {
            return None;
        }
        let Order { queues, entries, free, held } = self;
        let (at, queue) = (*free, queues.get_mut(&conn)?);
        let entry = entries.get_mut(at as usize)?;
        *free = entry.next;
        *entry = Entry { context, next: NIL, previous: queue.last, next_send: NIL, silent, status: None };
        match entries.get_mut(queue.last as usize) {
            Some(before) => before.next = at,
            None => queue.first = at,
        }
        queue.last = at;
        queue.len += 1;
        *held += 1;
        Some(at)
    }

    /// Removes what was entered last, which the transport has not taken.
    pub fn take_back(&mut self, conn: u32, EntryId(at): EntryId) {
        let Order { queues, entries, .. } = self;
        let Some(queue) = queues.get_mut(&conn).filter(|queue| queue.last == at) else { return };
        let Some(previous) = entries.get(at as usize).map(|entry| entry.previous) else { return };
        match entries.get_mut(previous as usize) {
            Some(before) => before.next = NIL,
            None => queue.first = NIL,
        }
        queue.last = previous;
        self.free_entry(conn, at);
    }

    /// Frees an entry that is in no queue any more.
    fn free_entry(&mut self, conn: u32, at: u32) {
        let free = self.free;
        if let Some(entry) = self.entry(at) {
            entry.next = free;
            self.free = at;
            self.held -= 1;
        }
        // A queue is there as long as something stands in it.
        if let Some(queue) = self.queues.get_mut(&conn) {
            queue.len -= 1;
            if queue.len == 0 {
                self.queues.remove(&conn);
            }
        }
    }

    /// Notes that a send that is not silent has completed. False: report it at once. Otherwise [`Order::next_due`] returns it later.
    pub fn send_done(&mut self, conn: u32, status: Status) -> bool {
        let Order { queues, entries, .. } = self;
        let Some(queue) = queues.get_mut(&conn) else { return false };
        if queue.earlier > 0 {
            queue.earlier -= 1;
            return false;
        }
        let Some(entry) = entries.get_mut(queue.open_send as usize) else { return false };
        entry.status = Some(status);
        queue.open_send = entry.next_send;
        true
    }

    /// Notes that the operation of this entry has completed.
    pub fn operation_done(&mut self, id: EntryId, status: Status) {
        if let Some(entry) = self.entry(id.0) {
            entry.status = Some(status);
        }
    }

    /// The completion whose turn it is, if it is complete.
    pub fn next_due(&mut self, conn: u32) -> Option<Due> {
        let Order { queues, entries, .. } = self;
        let queue = queues.get_mut(&conn).filter(|queue| queue.earlier == 0)?;
        let at = queue.first;
        let Entry { context, silent, status, next, .. } = *entries.get(at as usize)?;
        let status = status?;
        queue.first = next;
        match entries.get_mut(next as usize) {
            Some(behind) => behind.previous = NIL,
            None => queue.last = NIL,
        }
        self.free_entry(conn, at);
        Some(Due { context, silent, status })
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>()
            + self.queues.capacity() * size_of::<(u32, CompletionQueue)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn due(order: &mut Order, conn: u32) -> Vec<(u64, Status)> {
        std::iter::from_fn(|| order.next_due(conn)).map(|due| (due.context, due.status)).collect()
    }

    #[test]
    fn completions_come_in_the_order_of_issue() {
        let mut order = Order::default();
        let first = order.enter_operation(7, 10, false, || 2).unwrap();
        assert!(order.enter_send(7, 11).is_some());
        let second = order.enter_operation(7, 12, true, || unreachable!("there is a queue")).unwrap();
        assert_eq!((order.held(), order.held_by(7), order.held_by(8)), (3, 3, 0));
        order.operation_done(second, Status::Success);
        order.operation_done(first, Status::RmaHandle);
        assert_eq!(due(&mut order, 7), [], "two sends come before");
        assert!(!order.send_done(7, Status::Success), "an earlier one: reported at once");
        assert!(!order.send_done(7, Status::Success));
        assert_eq!(due(&mut order, 7), [(10, Status::RmaHandle)]);
        assert!(order.send_done(7, Status::Success));
        assert_eq!(due(&mut order, 7), [(11, Status::Success), (12, Status::Success)]);
        assert!(order.is_empty() && order.held() == 0);
        assert!(!order.send_done(7, Status::Success), "no queue");
    }

    #[test]
    fn what_was_not_taken_leaves_no_line() {
        let mut order = Order::default();
        let entry = order.enter_operation(7, 1, false, || 0).unwrap();
        order.take_back(7, entry);
        assert!(order.is_empty() && order.held() == 0);
        let entry = order.enter_operation(7, 2, false, || 0).unwrap();
        order.operation_done(entry, Status::TimedOut);
        assert_eq!(due(&mut order, 7), [(2, Status::TimedOut)]);
        let operation = order.enter_operation(7, 3, false, || 0).unwrap();
        for others in 0..2 {
            let entry = order.enter_send(7, 4).unwrap();
            order.take_send_back(7, entry);
            assert_eq!(order.held_by(7), 1 + others);
            assert!(order.enter_send(7, 5).is_some());
        }
        order.operation_done(operation, Status::Success);
        assert!(order.send_done(7, Status::Success) && order.send_done(7, Status::TimedOut));
        let done = [(3, Status::Success), (5, Status::Success), (5, Status::TimedOut)];
        assert_eq!(due(&mut order, 7), done);
        assert!(order.is_empty());
    }

    #[test]
    fn the_table_grows_with_what_is_held_at_once_only() {
        let mut order = Order::default();
        let mut bytes = 0;
        for round in 0..100 {
            for conn in 0..10 {
                let entry = order.enter_operation(conn, 0, false, || 0).unwrap();
                (0..20).for_each(|context| assert!(order.enter_send(conn, context).is_some()));
                order.operation_done(entry, Status::Success);
            }
            for conn in 0..10 {
                (0..20).for_each(|_| assert!(order.send_done(conn, Status::Success)));
                assert_eq!(due(&mut order, conn).len(), 21);
            }
            assert!(round == 0 || order.bytes() == bytes, "round {round}");
            bytes = order.bytes();
        }
    }

    /// What happens to one of a few connections.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Send,
        Operate,
        /// The oldest send is done: the transport completes them in order.
        SendDone,
        /// Some operation is.
        OperationDone(usize),
        /// An operation that the transport does not take.
        Refused,
    }

    #[derive(Default)]
    struct Model {
        sends: VecDeque<u64>,
        operations: Vec<(u64, EntryId)>,
        issued: u64,
        due: Vec<u64>,
    }

    const CONNECTIONS: usize = 3;

    proptest! {
        #[test]
        fn whatever_completes_first_is_told_in_its_turn(
            steps in proptest::collection::vec(
                (
                    0..CONNECTIONS,
                    prop_oneof![
                        2 => Just(Step::Send),
                        2 => Just(Step::Operate),
                        3 => Just(Step::SendDone),
                        3 => any::<usize>().prop_map(Step::OperationDone),
                        1 => Just(Step::Refused),
                    ],
                ),
                1..200,
            )
        ) {
            let mut order = Order::default();
            let mut models: [Model; CONNECTIONS] = Default::default();
            let remaining = (0..steps.len()).flat_map(|_| {
                (0..CONNECTIONS).flat_map(|conn| [(conn, Step::SendDone), (conn, Step::OperationDone(0))])
            });
            for (index, step) in steps.iter().copied().chain(remaining) {
                let (conn, model) = (index as u32, &mut models[index]);
                match step {
                    Step::Send => {
                        // This is what the endpoint does.
                        if order.holds(conn) {
                            prop_assert!(order.enter_send(conn, model.issued).is_some());
                        }
                        model.sends.push_back(model.issued);
                        model.issued += 1;
                    }
                    Step::Operate => {
                        let earlier = model.sends.len() as u32;
                        let entry = order.enter_operation(conn, model.issued, false, || earlier);
                        model.operations.push((model.issued, entry.unwrap()));
                        model.issued += 1;
                    }
                    Step::Refused => {
                        let earlier = model.sends.len() as u32;
                        let entry = order.enter_operation(conn, u64::MAX, false, || earlier);
                        order.take_back(conn, entry.unwrap());
                    }
                    Step::SendDone => {
                        if let Some(context) = model.sends.pop_front()
                            && !order.send_done(conn, Status::Success)
                        {
                            model.due.push(context);
                        }
                    }
                    Step::OperationDone(at) if !model.operations.is_empty() => {
                        let (_, entry) = model.operations.swap_remove(at % model.operations.len());
                        order.operation_done(entry, Status::Success);
                    }
                    Step::OperationDone(_) => {}
                }
                model.due.extend(due(&mut order, conn).into_iter().map(|(context, _)| context));
                let held: usize = (0..CONNECTIONS).map(|conn| order.held_by(conn as u32)).sum();
                prop_assert_eq!(held, order.held());
            }
            for model in models {
                prop_assert_eq!(model.due, (0..model.issued).collect::<Vec<_>>());
            }
            prop_assert!(order.is_empty() && order.held() == 0);
        }
    }
}
