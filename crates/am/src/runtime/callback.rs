//! Callbacks of operations.

use super::Runtime;
use crate::error::Result;
use cci_job::numbered::Numbered;
use std::collections::VecDeque;

/// What is called when an operation has ended.
pub(super) type Callback = Box<dyn Ending>;

/// A closure that is called once. Most operations have ended well when they were started: such an end has a function of its own, into which the
/// closure is compiled with a result that the compiler knows.
pub(super) trait Ending {
    /// The operation has ended well, with the value that it found.
    fn ended_well(self: Box<Self>, runtime: &mut Runtime, value: u64);

    /// The operation has ended.
    fn ended(self: Box<Self>, runtime: &mut Runtime, result: Result<u64>);
}

/// The closure of an operation that finds no value.
pub(super) struct Done<F>(pub F);

impl<F: FnOnce(&mut Runtime, Result<()>)> Ending for Done<F> {
    fn ended_well(self: Box<Self>, runtime: &mut Runtime, _: u64) {
        (self.0)(runtime, Ok(()));
    }

    fn ended(self: Box<Self>, runtime: &mut Runtime, result: Result<u64>) {
        (self.0)(runtime, result.map(drop));
    }
}

/// The closure of an operation that finds a value.
pub(super) struct Found<F>(pub F);

impl<F: FnOnce(&mut Runtime, Result<u64>)> Ending for Found<F> {
    fn ended_well(self: Box<Self>, runtime: &mut Runtime, value: u64) {
        (self.0)(runtime, Ok(value));
    }

    fn ended(self: Box<Self>, runtime: &mut Runtime, result: Result<u64>) {
        (self.0)(runtime, result);
    }
}

/// Callbacks that have not run.
#[derive(Default)]
pub(super) struct Callbacks {
    /// What their numbers stand for, for operations that go on.
    kept: Numbered<u64, Callback>,
    numbers: u64,
    /// Those of operations that had ended when they were started, with the values that these found.
    ended: VecDeque<(Callback, u64)>,
}

impl Callbacks {
    /// A number that no other callback has had.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Keeps the callback of an operation that goes on.
    pub fn keep(&mut self, number: u64, callback: Callback) {
        self.kept.insert(number, callback);
    }

    pub fn take(&mut self, number: u64) -> Option<Callback> {
        self.kept.remove(&number)
    }

    /// Keeps the callback of an operation that has ended well, with this value.
    #[inline(always)]
    pub fn push_ended(&mut self, callback: Callback, value: u64) {
        self.ended.push_back((callback, value));
    }

    #[inline(always)]
    pub fn next_ended(&mut self) -> Option<(Callback, u64)> {
        self.ended.pop_front()
    }

    #[inline(always)]
    pub fn ended(&self) -> usize {
        self.ended.len()
    }
}
