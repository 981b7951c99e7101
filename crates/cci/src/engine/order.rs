//! Completions in the order of issue, on reliable ordered connections (CCI-028).
//!
//! A transport completes the messages of such a connection in order, but knows no order between them and the RMA
//! operations, which complete when their answers come. While a connection has operations in progress, it has a *line*
//! here: what was issued stands in line, and its completion is told when everything before it is complete.
//!
//! The entries of all lines lie in one table, which grows with use and is kept. How many of them a connection may have is
//! the engine's to say ([`Order::held_by`]).

use crate::connection::Status;
use std::collections::HashMap;

/// What is told at last: to whom, and how it ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub context: u64,
    pub silent: bool,
    pub status: Status,
}

/// Names the entry of an operation for as long as the operation is in progress.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryId(u32);

/// No entry.
const NIL: u32 = u32::MAX;

/// A send or an operation in line, or a free place of the table.
#[derive(Copy, Clone)]
struct Entry {
    context: u64,
    /// The entry behind it in line, or the next free place.
    next: u32,
    /// The entry before it in line.
    previous: u32,
    /// Of a send: the send behind it.
    next_send: u32,
    silent: bool,
    status: Option<Status>,
}

const _: () = assert!(size_of::<Entry>() <= 24, "tens of thousands may be held");

/// What one connection has issued since its first operation that has not been told, oldest first.
struct Line {
    first: u32,
    last: u32,
    len: u32,
    /// Sends that were under way when the first operation came: they come before everything in the line.
    earlier: u32,
    /// The oldest send in line that has not completed, and the newest; sends complete in order.
    open_send: u32,
    last_send: u32,
}

const NO_LINE: Line = Line { first: NIL, last: NIL, len: 0, earlier: 0, open_send: NIL, last_send: NIL };

/// The lines of an endpoint. See the module.
pub(crate) struct Order {
    /// By the connection's place.
    lines: HashMap<u32, Line>,
    entries: Vec<Entry>,
    free: u32,
    /// Entries in all lines.
    held: usize,
}

impl Default for Order {
    fn default() -> Order {
        Order { lines: HashMap::new(), entries: Vec::new(), free: NIL, held: 0 }
    }
}

impl Order {
    /// True while no connection has operations in progress: nothing needs to be looked at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many entries stand in all lines. They may be complete and only behind one that is not.
    #[inline]
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many of them are this connection's.
    pub fn held_by(&self, conn: u32) -> usize {
        self.lines.get(&conn).map_or(0, |line| line.len as usize)
    }

    /// True if the connection has a line: its sends must be entered.
    #[inline]
    pub fn holds(&self, conn: u32) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&conn)
    }

    /// Makes sure that one more send can be entered. False: there is no memory.
    #[inline]
    pub fn reserve(&mut self) -> bool {
        self.free != NIL || self.grow()
    }

    /// Makes sure that one more operation can be entered. False: there is no memory.
    pub fn reserve_operation(&mut self) -> bool {
        self.reserve() && self.lines.try_reserve(1).is_ok()
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

    /// Enters an operation; `earlier_sends` is asked only where there is no line yet: sends in progress that will be told
    /// (not the silent ones). None: there is no memory, which [`Order::reserve_operation`] would have said.
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
        self.lines.entry(conn).or_insert_with(|| Line { earlier: earlier_sends(), ..NO_LINE });
        self.enter(conn, context, silent).map(EntryId)
    }

    /// Enters a send that is not silent, on a connection with a line. False: there is no line, or no memory, which
    /// [`Order::reserve`] would have said.
    pub fn enter_send(&mut self, conn: u32, context: u64) -> bool {
        if !self.holds(conn) {
            return false;
        }
        let Some(at) = self.enter(conn, context, false) else { return false };
        let Order { lines, entries, .. } = self;
        let Some(line) = lines.get_mut(&conn) else { return false };
        match entries.get_mut(line.last_send as usize).filter(|_| line.open_send != NIL) {
            Some(before) => before.next_send = at,
            None => line.open_send = at,
        }
        line.last_send = at;
        true
    }

    /// Puts an entry at the end of a line that is there.
    fn enter(&mut self, conn: u32, context: u64, silent: bool) -> Option<u32> {
        if !self.reserve() {
            return None;
        }
        let Order { lines, entries, free, held } = self;
        let (at, line) = (*free, lines.get_mut(&conn)?);
        let entry = entries.get_mut(at as usize)?;
        *free = entry.next;
        *entry = Entry { context, next: NIL, previous: line.last, next_send: NIL, silent, status: None };
        match entries.get_mut(line.last as usize) {
            Some(before) => before.next = at,
            None => line.first = at,
        }
        line.last = at;
        line.len += 1;
        *held += 1;
        Some(at)
    }

    /// Takes back the operation entered last: it was not taken by the transport.
    pub fn take_back(&mut self, conn: u32, EntryId(at): EntryId) {
        let Order { lines, entries, .. } = self;
        let Some(line) = lines.get_mut(&conn).filter(|line| line.last == at) else { return };
        let Some(previous) = entries.get(at as usize).map(|entry| entry.previous) else { return };
        match entries.get_mut(previous as usize) {
            Some(before) => before.next = NIL,
            None => line.first = NIL,
        }
        line.last = previous;
        self.free_entry(conn, at);
    }

    /// The entry is in no line any more.
    fn free_entry(&mut self, conn: u32, at: u32) {
        let free = self.free;
        if let Some(entry) = self.entry(at) {
            entry.next = free;
            self.free = at;
            self.held -= 1;
        }
        // A line is there as long as something stands in it.
        if let Some(line) = self.lines.get_mut(&conn) {
            line.len -= 1;
            if line.len == 0 {
                self.lines.remove(&conn);
            }
        }
    }

    /// A send that is not silent completed. False: it is to be told at once. Otherwise [`Order::next_due`] tells it.
    pub fn send_done(&mut self, conn: u32, status: Status) -> bool {
        let Order { lines, entries, .. } = self;
        let Some(line) = lines.get_mut(&conn) else { return false };
        if line.earlier > 0 {
            line.earlier -= 1;
            return false;
        }
        let Some(entry) = entries.get_mut(line.open_send as usize) else { return false };
        entry.status = Some(status);
        line.open_send = entry.next_send;
        true
    }

    /// The operation of this entry completed.
    pub fn operation_done(&mut self, id: EntryId, status: Status) {
        if let Some(entry) = self.entry(id.0) {
            entry.status = Some(status);
        }
    }

    /// The completion whose turn it is, if it is known.
    pub fn next_due(&mut self, conn: u32) -> Option<Due> {
        let Order { lines, entries, .. } = self;
        let line = lines.get_mut(&conn).filter(|line| line.earlier == 0)?;
        let at = line.first;
        let Entry { context, silent, status, next, .. } = *entries.get(at as usize)?;
        let status = status?;
        line.first = next;
        match entries.get_mut(next as usize) {
            Some(behind) => behind.previous = NIL,
            None => line.last = NIL,
        }
        self.free_entry(conn, at);
        Some(Due { context, silent, status })
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>() + self.lines.capacity() * size_of::<(u32, Line)>())
            as u64
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
        assert!(order.enter_send(7, 11));
        let second = order.enter_operation(7, 12, true, || unreachable!("there is a line")).unwrap();
        assert_eq!((order.held(), order.held_by(7), order.held_by(8)), (3, 3, 0));
        order.operation_done(second, Status::Success);
        order.operation_done(first, Status::RmaHandle);
        assert_eq!(due(&mut order, 7), [], "two sends come before");
        assert!(!order.send_done(7, Status::Success), "an earlier one: told at once");
        assert!(!order.send_done(7, Status::Success));
        assert_eq!(due(&mut order, 7), [(10, Status::RmaHandle)]);
        assert!(order.send_done(7, Status::Success));
        assert_eq!(due(&mut order, 7), [(11, Status::Success), (12, Status::Success)]);
        assert!(order.is_empty() && order.held() == 0);
        assert!(!order.send_done(7, Status::Success), "no line");
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
    }

    #[test]
    fn the_table_grows_with_what_is_held_at_once_only() {
        let mut order = Order::default();
        let mut bytes = 0;
        for round in 0..100 {
            for conn in 0..10 {
                let entry = order.enter_operation(conn, 0, false, || 0).unwrap();
                (0..20).for_each(|context| assert!(order.enter_send(conn, context)));
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
            let rest = (0..steps.len()).flat_map(|_| {
                (0..CONNECTIONS).flat_map(|conn| [(conn, Step::SendDone), (conn, Step::OperationDone(0))])
            });
            for (index, step) in steps.iter().copied().chain(rest) {
                let (conn, model) = (index as u32, &mut models[index]);
                match step {
                    Step::Send => {
                        // As the endpoint does it.
                        if order.holds(conn) {
                            prop_assert!(order.enter_send(conn, model.issued));
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
