//! Callbacks of operations.

use super::Runtime;
use crate::error::Result;
use cci_job::numbered::Numbered;

/// Initial space for callbacks of operations that had ended when they were started.
const FIRST_SPACE: usize = 64;

/// Called when an operation has ended.
pub(super) type Callback = Box<dyn Ending>;

/// A closure that is called once. Most operations have ended well when they are started. For that case there is a function of its
/// own, into which the closure is compiled with a result that the compiler knows.
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

/// Callbacks that have not run yet.
#[derive(Default)]
pub(super) struct Callbacks {
    /// Callbacks of operations under way, by number.
    kept: Numbered<u64, Callback>,
    numbers: u64,
    /// Callbacks of operations that had ended when they were started, with the values that these found.
    ended: Ended,
}

impl Callbacks {
    /// A number that no other callback has had.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Keeps the callback of an operation that is under way.
    pub fn keep(&mut self, number: u64, callback: Callback) {
        self.kept.insert(number, callback);
    }

    pub fn take(&mut self, number: u64) -> Option<Callback> {
        self.kept.remove(&number)
    }

    /// Keeps the callback of an operation that has ended well, with this value.
    #[inline(always)]
    pub fn push_ended(&mut self, callback: Callback, value: u64) {
        self.ended.push(callback, value);
    }

    #[inline(always)]
    pub fn next_ended(&mut self) -> Option<(Callback, u64)> {
        self.ended.pop()
    }

    #[inline(always)]
    pub fn ended(&self) -> usize {
        self.ended.len()
    }
}

/// A queue of callbacks whose operations had ended when they were started, with the values that these found. It is not a
/// `VecDeque`, since the compiler might not inline adding to that into a put, which is short.
#[derive(Default)]
pub(super) struct Ended {
    /// The number of places is a power of two, or 0.
    places: Box<[Option<(Callback, u64)>]>,
    first: usize,
    len: usize,
}

impl Ended {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub fn push(&mut self, callback: Callback, value: u64) {
        if self.len == self.places.len() {
            self.grow();
        }
        let at = self.first.wrapping_add(self.len) & (self.places.len() - 1);
        if let Some(place) = self.places.get_mut(at) {
            *place = Some((callback, value));
            self.len += 1;
        }
    }

    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Callback, u64)> {
        if self.len == 0 {
            return None;
        }
        let next = self.places.get_mut(self.first)?.take();
        self.first = self.first.wrapping_add(1) & (self.places.len() - 1);
        self.len -= 1;
        next
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let space = (2 * self.places.len()).max(FIRST_SPACE);
        let mut places = Vec::with_capacity(space);
        let (behind, before) = self.places.split_at_mut(self.first);
        places.extend(before.iter_mut().chain(behind).map(Option::take));
        places.resize_with(space, || None);
        self.places = places.into_boxed_slice();
        self.first = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_in_the_order_in_which_they_went_however_many() {
        let mut ended = Ended::default();
        let (mut pushed, mut popped) = (0, 0);
        // Each round leaves more, beginning at another place.
        for round in 0..40 {
            for _ in 0..7 * round {
                ended.push(Box::new(Done(|_: &mut Runtime, _: Result<()>| {})), pushed);
                pushed += 1;
            }
            for _ in 0..5 * round {
                assert_eq!(ended.pop().map(|(_, value)| value), Some(popped));
                popped += 1;
            }
            assert_eq!(ended.len() as u64, pushed - popped);
        }
        assert!(ended.len() > 4 * FIRST_SPACE);
        while let Some((_, value)) = ended.pop() {
            assert_eq!(value, popped);
            popped += 1;
        }
        assert_eq!((pushed, ended.len()), (popped, 0));
    }
}
