//! Decides which operations may start, and which have ended.
//!
//! Operations are numbered from 1. One counts as ended when it and all before it have ended. So every condition is one number:
//! *all up to this one have ended*. The order handles of the paper are implemented by that.

use std::collections::{BTreeMap, VecDeque};

/// Operations of this process, with their payload.
pub(crate) struct Orders<T> {
    /// All operations up to this one have ended.
    ended: u64,
    /// For each operation after that, whether it has ended.
    has_ended: VecDeque<bool>,
    /// Operations by the last one that they wait for.
    waiting: BTreeMap<u64, VecDeque<(u64, T)>>,
    ready: VecDeque<(u64, T)>,
    /// The first operation that has failed, and why.
    failed: Option<(u64, String)>,
}

/// What to do with an operation whose turn it is.
pub(crate) enum Turn<T> {
    /// It may start.
    Start(u64, T),
    /// Fail it, since one that it waited for has failed.
    Fail(u64),
}

impl<T> Default for Orders<T> {
    fn default() -> Orders<T> {
        Orders {
            ended: 0,
            has_ended: VecDeque::new(),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            failed: None,
        }
    }
}

impl<T> Orders<T> {
    /// The operation that was issued last; 0 before the first one.
    pub fn last(&self) -> u64 {
        self.ended + self.has_ended.len() as u64
    }

    /// All operations up to this one have ended.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Issues an operation that may start when all up to `after` have ended.
    pub fn issue(&mut self, after: u64, item: T) -> u64 {
        let after = after.min(self.last());
        self.has_ended.push_back(false);
        let number = self.last();
        // An operation does not overtake one with the same condition, even if the condition holds now.
        if self.waiting.is_empty() && after <= self.ended && !self.is_behind_failure(after) {
            self.ready.push_back((number, item));
        } else {
            self.waiting.entry(after).or_default().push_back((number, item));
        }
        number
    }

    /// Whether an operation with this condition could start now, and no other waits for its turn.
    #[inline]
    pub fn is_free(&self, after: u64) -> bool {
        after <= self.ended && self.waiting.is_empty() && self.ready.is_empty() && self.failed.is_none()
    }

    /// Whether no operation waits for its turn.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() & self.ready.is_empty()
    }

    /// Issues an operation that starts at once.
    #[inline]
    pub fn issue_started(&mut self) -> u64 {
        self.has_ended.push_back(false);
        self.last()
    }

    /// Issues an operation that has ended well at once.
    #[inline]
    pub fn issue_ended(&mut self) -> u64 {
        if self.has_ended.is_empty() {
            self.ended += 1;
        } else {
            self.has_ended.push_back(true);
        }
        self.last()
    }

    /// The next operation whose turn it is.
    pub fn next(&mut self) -> Option<Turn<T>> {
        if let Some((number, item)) = self.ready.pop_front() {
            return Some(Turn::Start(number, item));
        }
        let (&after, _) = self.waiting.first_key_value().filter(|&(&after, _)| after <= self.ended)?;
        let behind_failure = self.is_behind_failure(after);
        let mut first = self.waiting.first_entry()?;
        let next = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        let (number, item) = next?;
        Some(if behind_failure { Turn::Fail(number) } else { Turn::Start(number, item) })
    }

    fn is_behind_failure(&self, after: u64) -> bool {
        self.failed.as_ref().is_some_and(|&(failed, _)| failed <= after)
    }

    /// Notes that an operation has ended.
    pub fn end(&mut self, number: u64, result: Result<(), String>) {
        let at = number.checked_sub(self.ended + 1).map(|at| at as usize);
        let Some(has_ended) = at.and_then(|at| self.has_ended.get_mut(at)) else { return };
        *has_ended = true;
        if let Err(why) = result
            && self.failed.as_ref().is_none_or(|&(first, _)| number < first)
        {
            self.failed = Some((number, why));
        }
        while self.has_ended.front() == Some(&true) {
            self.has_ended.pop_front();
            self.ended += 1;
        }
    }

    /// The first operation up to this one that has failed, and why.
    pub fn failure(&self, up_to: u64) -> Option<(u64, &str)> {
        self.failed
            .as_ref()
            .filter(|&&(number, _)| number <= up_to)
            .map(|(number, why)| (*number, why.as_str()))
    }

    /// Takes the failure, when everything has ended.
    pub fn take_failure(&mut self) -> Option<(u64, String)> {
        self.failed.take_if(|_| self.has_ended.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Starts all whose turn it is.
    fn started(orders: &mut Orders<u64>) -> Vec<Result<u64, u64>> {
        let turn = |turn| match turn {
            Turn::Start(number, _) => Ok(number),
            Turn::Fail(number) => Err(number),
        };
        std::iter::from_fn(|| orders.next().map(turn)).collect()
    }

    proptest! {
        /// Compares with a list of all operations: one starts exactly when all that it waits for have ended.
        #[test]
        fn conditions_hold(steps in proptest::collection::vec((any::<bool>(), 0_u64..20), 1..200)) {
            let mut orders = Orders::default();
            let (mut after, mut running, mut ended) = (vec![], vec![], vec![]);
            for (issues, choice) in steps {
                if issues {
                    let number = orders.issue(choice, 0);
                    prop_assert_eq!(number, after.len() as u64 + 1);
                    after.push(choice.min(number - 1));
                    ended.push(false);
                } else if !running.is_empty() {
                    let number: u64 = running.swap_remove(choice as usize % running.len());
                    ended[number as usize - 1] = true;
                    orders.end(number, Ok(()));
                }
                running.extend(started(&mut orders).into_iter().map(Result::unwrap));
                let prefix = ended.iter().take_while(|&&ended| ended).count() as u64;
                prop_assert_eq!(orders.ended(), prefix);
                for (number, &after) in (1..).zip(&after) {
                    let has_started = running.contains(&number) || ended[number as usize - 1];
                    prop_assert_eq!(has_started, after <= prefix, "operation {} after {}", number, after);
                }
            }
        }
    }

    #[test]
    fn what_ends_at_once_ends_in_order() {
        let mut orders: Orders<()> = Orders::default();
        assert!(orders.is_free(0) && orders.issue_ended() == 1 && orders.ended() == 1);
        assert_eq!(orders.issue(0, ()), 2);
        assert!(!orders.is_free(0), "the second one has not had its turn");
        assert!(matches!(orders.next(), Some(Turn::Start(2, ()))));
        assert!(orders.is_free(1) && !orders.is_free(2));
        assert_eq!((orders.issue_ended(), orders.issue_started()), (3, 4));
        assert_eq!((orders.ended(), orders.last()), (1, 4));
        orders.end(2, Ok(()));
        assert_eq!(orders.ended(), 3);
        orders.end(4, Err("it was refused".into()));
        assert!(orders.ended() == 4 && !orders.is_free(0), "a failure is taken first");
    }

    #[test]
    fn what_is_behind_a_failure_is_not_started() {
        let mut orders = Orders::default();
        for after in [0, 1, 0, 2] {
            orders.issue(after, 0);
        }
        assert_eq!(started(&mut orders), [Ok(1), Ok(3)]);
        orders.end(1, Err("it was refused".into()));
        assert_eq!(started(&mut orders), [Err(2)], "the third one is independent");
        assert_eq!(orders.take_failure(), None, "not while others go on");
        orders.end(2, Err("behind the first".into()));
        assert_eq!(started(&mut orders), [Err(4)]);
        orders.end(3, Ok(()));
        orders.end(4, Err("behind the second".into()));
        assert_eq!((orders.failure(0), orders.failure(4)), (None, Some((1, "it was refused"))));
        orders.issue(4, 0);
        assert_eq!(started(&mut orders), [Err(5)], "one that is issued later");
        orders.end(5, Err("behind them".into()));
        assert_eq!(orders.take_failure(), Some((1, "it was refused".into())));
        assert_eq!((orders.take_failure(), orders.ended(), orders.last()), (None, 5, 5));
    }
}
