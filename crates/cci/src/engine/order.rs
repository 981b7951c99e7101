//! Completions in the order of issue, on reliable ordered connections (CCI-028).
//!
//! A transport completes the messages of such a connection in order, but knows no order between them and the RMA
//! operations, which complete when their answers come. While a connection has operations in progress, it has a *gate*
//! here: what was issued stands in line, and its completion is told when everything before it is complete.

use crate::event::Status;
use std::collections::{HashMap, VecDeque};

/// What is told at last: to whom, and how it ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub context: u64,
    pub silent: bool,
    pub status: Status,
}

#[derive(Copy, Clone)]
struct Entry {
    context: u64,
    silent: bool,
    is_send: bool,
    status: Option<Status>,
}

#[derive(Default)]
struct Gate {
    line: VecDeque<Entry>,
    /// The number of the entry at the head of the line; they count up.
    first: u64,
    /// Sends that were under way when the first operation came: they come before everything in the line.
    earlier: u32,
    /// Entries that are sends and have not completed begin here, at the earliest.
    sends_from: u64,
}

/// The gates of an endpoint. See the module.
#[derive(Default)]
pub(crate) struct Order {
    /// By the connection's place.
    gates: HashMap<u32, Gate>,
    /// Empty ones, for the next connections.
    spare: Vec<Gate>,
    /// Entries in all lines.
    waiting: usize,
}

impl Order {
    /// True while no connection has operations in progress: nothing needs to be looked at.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// How many stand in line. They may be complete and only behind one that is not, so nothing else bounds them.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// True if the connection has a gate: its sends must be entered.
    #[inline]
    pub fn holds(&self, conn: u32) -> bool {
        !self.gates.is_empty() && self.gates.contains_key(&conn)
    }

    /// Enters an operation; `earlier_sends` is asked only where there is no gate yet: sends in progress that will be told
    /// (not the silent ones). Returns its number.
    pub fn enter_operation(
        &mut self,
        conn: u32,
        context: u64,
        silent: bool,
        earlier_sends: impl FnOnce() -> u32,
    ) -> u64 {
        let spare = &mut self.spare;
        let gate = self.gates.entry(conn).or_insert_with(|| {
            let mut gate = spare.pop().unwrap_or_default();
            gate.earlier = earlier_sends();
            gate
        });
        gate.line.push_back(Entry { context, silent, is_send: false, status: None });
        self.waiting += 1;
        gate.first + gate.line.len() as u64 - 1
    }

    /// Takes back the operation entered last: it was not taken by the transport.
    pub fn take_back(&mut self, conn: u32) {
        if let Some(gate) = self.gates.get_mut(&conn)
            && gate.line.pop_back().is_some()
        {
            self.waiting -= 1;
        }
        self.drop_if_empty(conn);
    }

    /// Enters a send that is not silent, on a connection with a gate.
    pub fn enter_send(&mut self, conn: u32, context: u64) {
        if let Some(gate) = self.gates.get_mut(&conn) {
            gate.line.push_back(Entry { context, silent: false, is_send: true, status: None });
            self.waiting += 1;
        }
    }

    /// A send that is not silent completed. False: it is to be told at once. Otherwise [`Order::next_told`] tells it.
    pub fn send_done(&mut self, conn: u32, status: Status) -> bool {
        let Some(gate) = self.gates.get_mut(&conn) else { return false };
        if gate.earlier > 0 {
            gate.earlier -= 1;
            return false;
        }
        let from = gate.sends_from.saturating_sub(gate.first) as usize;
        let mut open = gate.line.iter_mut().enumerate().skip(from);
        let Some((at, entry)) = open.find(|(_, entry)| entry.is_send && entry.status.is_none()) else {
            return false;
        };
        entry.status = Some(status);
        gate.sends_from = gate.first + at as u64 + 1;
        true
    }

    /// Operation `number` completed.
    pub fn operation_done(&mut self, conn: u32, number: u64, status: Status) {
        if let Some(gate) = self.gates.get_mut(&conn)
            && let Some(at) = number.checked_sub(gate.first)
            && let Some(entry) = gate.line.get_mut(at as usize)
        {
            entry.status = Some(status);
        }
    }

    /// The completion whose turn it is, if it is known.
    pub fn next_told(&mut self, conn: u32) -> Option<Told> {
        let gate = self.gates.get_mut(&conn)?;
        let told = gate.line.front().filter(|_| gate.earlier == 0).and_then(|entry| {
            let status = entry.status?;
            Some(Told { context: entry.context, silent: entry.silent, status })
        });
        if told.is_some() {
            gate.line.pop_front();
            gate.first += 1;
            self.waiting -= 1;
        }
        self.drop_if_empty(conn);
        told
    }

    /// A gate is there as long as something stands in line.
    fn drop_if_empty(&mut self, conn: u32) {
        if self.gates.get(&conn).is_some_and(|gate| gate.line.is_empty())
            && let Some(mut gate) = self.gates.remove(&conn)
        {
            gate.earlier = 0;
            self.spare.push(gate);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let lines =
            self.gates.values().chain(&self.spare).map(|gate| gate.line.capacity() * size_of::<Entry>());
        (lines.sum::<usize>() + self.gates.capacity() * size_of::<(u32, Gate)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(order: &mut Order) -> Vec<(u64, Status)> {
        std::iter::from_fn(|| order.next_told(7)).map(|told| (told.context, told.status)).collect()
    }

    #[test]
    fn completions_come_in_the_order_of_issue() {
        let mut order = Order::default();
        let first = order.enter_operation(7, 10, false, || 2);
        order.enter_send(7, 11);
        let second = order.enter_operation(7, 12, true, || unreachable!("there is a gate"));
        order.operation_done(7, second, Status::Success);
        order.operation_done(7, first, Status::RmaHandle);
        assert_eq!(told(&mut order), [], "two sends come before");
        assert!(!order.send_done(7, Status::Success), "an earlier one: told at once");
        assert!(!order.send_done(7, Status::Success));
        assert_eq!(told(&mut order), [(10, Status::RmaHandle)]);
        assert!(order.send_done(7, Status::Success));
        assert_eq!(told(&mut order), [(11, Status::Success), (12, Status::Success)]);
        assert!(order.is_empty() && order.waiting() == 0);
        assert!(!order.send_done(7, Status::Success), "no gate");
    }

    #[test]
    fn what_was_not_taken_leaves_no_gate() {
        let mut order = Order::default();
        order.enter_operation(7, 1, false, || 0);
        order.take_back(7);
        assert!(order.is_empty());
        let number = order.enter_operation(7, 2, false, || 0);
        order.operation_done(7, number, Status::TimedOut);
        assert_eq!(told(&mut order), [(2, Status::TimedOut)]);
    }

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

    proptest! {
        #[test]
        fn whatever_completes_first_is_told_in_its_turn(
            steps in proptest::collection::vec(
                prop_oneof![
                    2 => Just(Step::Send),
                    2 => Just(Step::Operate),
                    3 => Just(Step::SendDone),
                    3 => any::<usize>().prop_map(Step::OperationDone),
                    1 => Just(Step::Refused),
                ],
                1..80,
            )
        ) {
            let mut order = Order::default();
            let (mut sends, mut operations) = (VecDeque::new(), Vec::new());
            let (mut issued, mut tell) = (0_u64, Vec::new());
            let rest = std::iter::repeat_n([Step::SendDone, Step::OperationDone(0)], steps.len());
            for step in steps.iter().copied().chain(rest.flatten()) {
                match step {
                    Step::Send => {
                        // As the endpoint does it.
                        if order.holds(7) {
                            order.enter_send(7, issued);
                        }
                        sends.push_back(issued);
                        issued += 1;
                    }
                    Step::Operate => {
                        let earlier = sends.len() as u32;
                        operations.push((issued, order.enter_operation(7, issued, false, || earlier)));
                        issued += 1;
                    }
                    Step::Refused => {
                        let earlier = sends.len() as u32;
                        order.enter_operation(7, u64::MAX, false, || earlier);
                        order.take_back(7);
                    }
                    Step::SendDone => {
                        if let Some(context) = sends.pop_front()
                            && !order.send_done(7, Status::Success)
                        {
                            tell.push(context);
                        }
                    }
                    Step::OperationDone(at) if !operations.is_empty() => {
                        let (_, number) = operations.swap_remove(at % operations.len());
                        order.operation_done(7, number, Status::Success);
                    }
                    Step::OperationDone(_) => {}
                }
                tell.extend(told(&mut order).into_iter().map(|(context, _)| context));
            }
            prop_assert_eq!(tell, (0..issued).collect::<Vec<_>>());
            prop_assert!(order.is_empty() && order.waiting() == 0);
        }
    }
}
