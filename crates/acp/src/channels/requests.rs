//! What was started on channels and was not waited for yet.

use crate::error::{AcpError, Result};

/// Requests by their numbers: a place in the table, and how often that was used. A place is free again when its request was waited for.
#[derive(Default)]
pub(super) struct Requests {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

struct Entry {
    /// From 1, so that no number is 0.
    generation: u32,
    state: State,
}

enum State {
    Free,
    UnderWay,
    Ended(usize),
    /// What is rare is kept elsewhere, so that what comes by the million moves no space for it.
    Failed(Box<AcpError>),
}

impl State {
    #[inline]
    fn of(result: Result<usize>) -> State {
        match result {
            Ok(len_bytes) => State::Ended(len_bytes),
            Err(error) => State::Failed(Box::new(error)),
        }
    }
}

impl Requests {
    /// A request that is under way.
    pub fn start(&mut self) -> u64 {
        self.enter(State::UnderWay)
    }

    /// A request that has ended as it was started.
    #[inline]
    pub fn start_ended(&mut self, result: Result<usize>) -> u64 {
        self.enter(State::of(result))
    }

    #[inline]
    fn enter(&mut self, state: State) -> u64 {
        let index = self.free.pop().unwrap_or(self.entries.len() as u32);
        let generation = match self.entries.get_mut(index as usize) {
            Some(entry) => {
                entry.state = state;
                entry.generation
            }
            None => {
                self.entries.push(Entry { generation: 1, state });
                1
            }
        };
        u64::from(generation) << 32 | u64::from(index)
    }

    #[inline]
    fn entry(&mut self, request: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(request as u32 as usize)?;
        (u64::from(entry.generation) == request >> 32).then_some(entry)
    }

    /// A request has ended, unless it is none any more.
    #[inline]
    pub fn end(&mut self, request: u64, result: Result<usize>) {
        if let Some(entry) = self.entry(request) {
            entry.state = State::of(result);
        }
    }

    /// A request has ended well, and has come to this length.
    #[inline]
    pub fn end_well(&mut self, request: u64, len_bytes: usize) {
        if let Some(entry) = self.entry(request) {
            entry.state = State::Ended(len_bytes);
        }
    }

    #[inline]
    pub fn has_ended(&self, request: u64) -> bool {
        let entry = self.entries.get(request as u32 as usize);
        let entry = entry.filter(|entry| u64::from(entry.generation) == request >> 32);
        entry.is_none_or(|entry| !matches!(entry.state, State::UnderWay))
    }

    /// The length that a request has come to, which is forgotten. None: it is under way, or [`Requests::take`] has more to say.
    #[inline]
    pub fn take_well(&mut self, request: u64) -> Option<usize> {
        let entry = self.entry(request)?;
        let State::Ended(len_bytes) = entry.state else { return None };
        entry.release();
        self.free.push(request as u32);
        Some(len_bytes)
    }

    /// The result of a request, which is forgotten. None: it is under way.
    pub fn take(&mut self, request: u64) -> Option<Result<usize>> {
        let Some(entry) = self.entry(request) else {
            return Some(Err(AcpError::Argument(
                "this request was waited for before, or a reset has ended it",
            )));
        };
        if matches!(entry.state, State::UnderWay) {
            return None;
        }
        let state = entry.release();
        self.free.push(request as u32);
        match state {
            State::Ended(len_bytes) => Some(Ok(len_bytes)),
            State::Failed(error) => Some(Err(*error)),
            // A free place has no request.
            State::UnderWay | State::Free => None,
        }
    }

    /// Forgets all requests. Their numbers do not come again.
    pub fn clear(&mut self) {
        for (index, entry) in (0..).zip(&mut self.entries) {
            if !matches!(entry.state, State::Free) {
                entry.release();
                self.free.push(index);
            }
        }
    }
}

impl Entry {
    /// Frees the place for another request.
    #[inline]
    fn release(&mut self) -> State {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        std::mem::replace(&mut self.state, State::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_taken_once_and_its_place_is_used_again() {
        let mut requests = Requests::default();
        let [first, second] = [requests.start(), requests.start_ended(Ok(7))];
        assert!(first != 0 && second != 0 && first != second);
        assert!(!requests.has_ended(first) && requests.has_ended(second));
        assert!(requests.take(first).is_none(), "it is under way");
        assert!(matches!(requests.take(second), Some(Ok(7))));
        assert!(matches!(requests.take(second), Some(Err(AcpError::Argument(_)))), "twice");
        let third = requests.start();
        assert!(third != second && requests.entries.len() == 2);
        requests.end(second, Ok(1));
        assert!(!requests.has_ended(third), "another one's end is not this one's");
        requests.end(first, Err(AcpError::Argument("for the test")));
        assert_eq!(requests.take_well(first), None, "it has not ended well");
        assert!(matches!(requests.take(first), Some(Err(AcpError::Argument("for the test")))));
        requests.end(third, Ok(5));
        assert_eq!((requests.take_well(third), requests.take_well(third)), (Some(5), None), "once");
        let third = requests.start();
        assert_eq!(requests.take_well(third), None, "it is under way");
        requests.clear();
        assert!(matches!(requests.take(third), Some(Err(AcpError::Argument(_)))), "a reset has ended it");
        let numbers: Vec<u64> = (0..3).map(|_| requests.start()).collect();
        assert!(numbers.iter().all(|number| ![first, second, third].contains(number)), "{numbers:?}");
        assert_eq!((requests.entries.len(), requests.free.len()), (3, 0));
    }
}
