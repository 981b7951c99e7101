//! The calls of one service that have no answer yet.

use crate::content::{Kept, Part};
use crate::directory::Instance;
use crate::handles::{CallId, Partner};
use crate::limits::CALLS_MAX;
use std::collections::VecDeque;

/// The most numbers between the oldest call without an answer and the newest.
const SPAN_MAX: usize = 16 * CALLS_MAX;

/// A call without an answer.
pub struct Call {
    pub partner: Partner,
    pub request: Kept,
    pub context: u64,
    pub deadline_ns: u64,
    /// The instance that it was sent to.
    pub sent_to: Option<Instance>,
    /// When it was sent. If an answer is late, its service is looked for elsewhere.
    pub sent_ns: u64,
    /// When to send it again, to a partner that was too busy.
    pub again_ns: Option<u64>,
    /// Whether it may be carried out twice, by two instances of which the first one died.
    pub repeatable: bool,
}

/// Calls by their numbers, which are never reused.
pub struct Calls {
    calls: VecDeque<Option<Call>>,
    /// The number of the first call.
    first: u64,
    open: usize,
    /// No call is due before this time.
    next_due_ns: u64,
}

impl Calls {
    pub fn new() -> Calls {
        Calls { calls: VecDeque::new(), first: 1, open: 0, next_due_ns: u64::MAX }
    }

    /// Whether one more call may begin.
    pub fn has_space(&self) -> bool {
        self.open < CALLS_MAX && self.calls.len() < SPAN_MAX
    }

    /// The number of the next call, and the oldest without an answer.
    pub fn numbers(&self) -> (u64, u64) {
        (self.first + self.calls.len() as u64, self.first)
    }

    /// Adds a call, with the number that [`Calls::numbers`] gave.
    pub fn push(&mut self, call: Call) -> CallId {
        self.next_due_ns = self.next_due_ns.min(call.deadline_ns);
        self.open += 1;
        self.calls.push_back(Some(call));
        CallId(self.first + self.calls.len() as u64 - 1)
    }

    pub fn get_mut(&mut self, call: CallId) -> Option<&mut Call> {
        let index = call.0.checked_sub(self.first)?;
        self.calls.get_mut(usize::try_from(index).ok()?)?.as_mut()
    }

    /// Ends a call. Returns its context.
    pub fn remove(&mut self, call: CallId) -> Option<u64> {
        self.end(call, |_| true)
    }

    /// Ends a call, if it is one to this partner. Returns its context.
    #[inline]
    pub fn end_of(&mut self, call: CallId, partner: Partner) -> Option<u64> {
        self.end(call, |call| call.partner == partner)
    }

    #[inline]
    fn end(&mut self, call: CallId, is_meant: impl FnOnce(&Call) -> bool) -> Option<u64> {
        let index = usize::try_from(call.0.checked_sub(self.first)?).ok()?;
        let place = self.calls.get_mut(index)?;
        let ended = place.as_ref().filter(|call| is_meant(call))?;
        let context = ended.context;
        // It is not removed, since it is large.
        *place = None;
        self.open -= 1;
        while let Some(None) = self.calls.front() {
            self.calls.pop_front();
            self.first += 1;
        }
        Some(context)
    }

    /// Schedules a call to be sent again.
    pub fn again_at(&mut self, call: CallId, at_ns: u64) {
        if let Some(again) = self.get_mut(call) {
            again.again_ns = Some(at_ns);
            self.next_due_ns = self.next_due_ns.min(at_ns);
        }
    }

    /// Whether a request that may have to be sent again lends a byte of this memory.
    pub fn lends(&self, part: &Part) -> bool {
        self.calls.iter().flatten().any(|call| call.request.lends(part))
    }

    /// The calls to a partner, in order.
    pub fn of(&self, partner: Partner) -> Vec<CallId> {
        self.ids(|call| call.partner == partner)
    }

    /// The partners that had requests before `time_ns`, and have not answered.
    pub fn sent_before(&self, time_ns: u64) -> Vec<Partner> {
        let is_late = |call: &&Call| call.sent_to.is_some() && call.sent_ns <= time_ns;
        let mut partners: Vec<Partner> =
            self.calls.iter().flatten().filter(is_late).map(|call| call.partner).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    /// All calls, in order.
    #[cfg(test)]
    pub fn all(&self) -> Vec<CallId> {
        self.ids(|_| true)
    }

    fn ids(&self, is_meant: impl Fn(&Call) -> bool) -> Vec<CallId> {
        let meant = |(index, call): (usize, &Option<Call>)| {
            call.as_ref().filter(|call| is_meant(call)).map(|_| CallId(self.first + index as u64))
        };
        self.calls.iter().enumerate().filter_map(meant).collect()
    }

    /// The calls that are due now.
    pub fn due(&mut self, now_ns: u64) -> Vec<CallId> {
        if now_ns < self.next_due_ns {
            return Vec::new();
        }
        let time = |call: &Call| call.again_ns.unwrap_or(u64::MAX).min(call.deadline_ns);
        let later = self.calls.iter().flatten().map(time).filter(|&at_ns| at_ns > now_ns).min();
        self.next_due_ns = later.unwrap_or(u64::MAX);
        self.ids(|call| time(call) <= now_ns)
    }

    /// When something is due next.
    pub fn next_due_ns(&self) -> u64 {
        self.next_due_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Head, Kind};
    use proptest::prelude::*;

    fn call(deadline_ns: u64) -> Call {
        Call {
            partner: Partner::default(),
            request: Kept::bare(Head::bare(Kind::Request, 0)),
            context: deadline_ns,
            deadline_ns,
            sent_to: None,
            sent_ns: 0,
            again_ns: None,
            repeatable: true,
        }
    }

    proptest! {
        /// Compares with a plain list.
        #[test]
        fn calls_are_found_by_number(steps in prop::collection::vec((any::<bool>(), 0..40_usize), 1..200)) {
            let mut calls = Calls::new();
            let mut model: Vec<CallId> = Vec::new();
            for (begins, which) in steps {
                if begins && calls.has_space() {
                    let (number, oldest) = calls.numbers();
                    prop_assert!(model.first().is_none_or(|first| first.0 == oldest));
                    let id = calls.push(call(number));
                    prop_assert_eq!(id.0, number);
                    model.push(id);
                } else if let Some(&id) = model.get(which) {
                    prop_assert_eq!(calls.remove(id), Some(id.0));
                    prop_assert!(calls.remove(id).is_none(), "it ends once");
                    model.remove(which);
                }
                prop_assert_eq!(calls.all(), model.clone());
            }
        }
    }

    #[test]
    fn answers_are_late_some_time_after_their_requests_were_sent() {
        let mut calls = Calls::new();
        let ids =
            [10, 20, 30].map(|sent_ns| calls.push(Call { sent_to: Some(Instance(1)), sent_ns, ..call(99) }));
        calls.push(call(99));
        assert!(calls.sent_before(9).is_empty());
        assert_eq!(calls.sent_before(20), [Partner::default()], "one partner, whose answers are two");
        calls.remove(ids[0]);
        calls.remove(ids[1]);
        assert!(calls.sent_before(20).is_empty());
    }

    #[test]
    fn what_is_due_is_due_once_its_time_has_come() {
        let mut calls = Calls::new();
        let ids: Vec<CallId> = [30, 10, 20].into_iter().map(|at| calls.push(call(at))).collect();
        assert_eq!(calls.due(9), []);
        assert_eq!(calls.due(20), [ids[1], ids[2]]);
        calls.remove(ids[1]);
        calls.remove(ids[2]);
        assert_eq!(calls.next_due_ns(), 30);
        calls.again_at(ids[0], 25);
        assert_eq!(calls.due(25), [ids[0]]);
    }
}
