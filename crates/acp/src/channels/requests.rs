//! What was started on channels and was not waited for yet.

use crate::error::{AcpError, Result};
use cci::Memory;

/// No place.
const NONE: u32 = u32::MAX;

/// Requests by their numbers: a place in the table, and how often that was used. A place is free again when its request was waited for.
pub(super) struct Requests {
    entries: Vec<Entry>,
    /// The first free place. Each has the next one.
    free: u32,
    /// How many requests wait for messages.
    awaited: usize,
}

/// Requests that wait for the messages of one channel, in their order.
pub(super) struct Waiting {
    first: u32,
    /// Of several: which one is last.
    last: u32,
}

/// A request that waits for the next message of a channel.
pub(super) struct First<'a> {
    entry: &'a mut Entry,
    awaited: &'a mut usize,
}

struct Entry {
    /// From 1, so that no number is 0.
    generation: u32,
    /// The next one that waits for a message of the channel, or the next free place.
    next: u32,
    state: State,
    /// The sender may write the message there that it waits for.
    is_shown: bool,
    /// What it has come to, if it has ended well.
    len_bytes: usize,
    /// Where the message goes that it waits for.
    into: Option<Memory>,
    failure: Option<Box<AcpError>>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum State {
    Free,
    UnderWay,
    Ended,
    Failed,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests { entries: Vec::new(), free: NONE, awaited: 0 }
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { first: NONE, last: NONE }
    }
}

impl Waiting {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

impl Requests {
    /// A request that is under way.
    pub fn start(&mut self) -> u64 {
        self.enter(State::UnderWay, 0)
    }

    /// A request that has ended well as it was started, and has come to this length.
    #[inline]
    pub fn start_ended_well(&mut self, len_bytes: usize) -> u64 {
        self.enter(State::Ended, len_bytes)
    }

    /// A request that has ended as it was started.
    pub fn start_ended(&mut self, result: Result<usize>) -> u64 {
        let request = self.start();
        self.end(request, result);
        request
    }

    /// A request that waits for a message of a channel, behind others.
    #[inline]
    pub fn start_waiting(&mut self, waiting: &mut Waiting, (into, is_shown): (Memory, bool)) -> u64 {
        let request = self.enter(State::UnderWay, 0);
        let place = request as u32;
        if waiting.is_empty() {
            waiting.first = place;
        } else if let Some(last) = self.entries.get_mut(waiting.last as usize) {
            last.next = place;
        }
        waiting.last = place;
        if let Some(entry) = self.entries.get_mut(place as usize) {
            entry.next = NONE;
            (entry.into, entry.is_shown) = (Some(into), is_shown);
            self.awaited += 1;
        }
        request
    }

    #[inline]
    fn enter(&mut self, state: State, len_bytes: usize) -> u64 {
        let place = self.free;
        let Some(entry) = self.entries.get_mut(place as usize) else {
            return self.enter_new(state, len_bytes);
        };
        self.free = entry.next;
        (entry.state, entry.len_bytes) = (state, len_bytes);
        number(entry.generation, place)
    }

    #[cold]
    fn enter_new(&mut self, state: State, len_bytes: usize) -> u64 {
        let place = self.entries.len() as u32;
        self.entries.push(Entry {
            generation: 1,
            next: NONE,
            state,
            is_shown: false,
            len_bytes,
            into: None,
            failure: None,
        });
        number(1, place)
    }

    #[inline]
    fn entry(&mut self, request: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(request as u32 as usize)?;
        (u64::from(entry.generation) == request >> 32).then_some(entry)
    }

    /// A request has ended, unless it is none any more. It waits for no message.
    pub fn end(&mut self, request: u64, result: Result<usize>) {
        if let Some(entry) = self.entry(request) {
            entry.end(result);
        }
    }

    /// How many requests wait for messages.
    #[inline]
    pub fn awaited(&self) -> usize {
        self.awaited
    }

    /// The first request that waits for a message of a channel. None: nobody waits for it.
    #[inline]
    pub fn first(&mut self, waiting: &Waiting) -> Option<First<'_>> {
        let Requests { entries, awaited, .. } = self;
        let entry = entries.get_mut(waiting.first as usize)?;
        Some(First { entry, awaited })
    }

    #[inline]
    pub fn has_ended(&self, request: u64) -> bool {
        let entry = self.entries.get(request as u32 as usize);
        let entry = entry.filter(|entry| u64::from(entry.generation) == request >> 32);
        entry.is_none_or(|entry| entry.state != State::UnderWay)
    }

    /// The length that a request has come to, which is forgotten. None: it is under way, or [`Requests::take`] has more to say.
    #[inline]
    pub fn take_well(&mut self, request: u64) -> Option<usize> {
        let free = self.free;
        let entry = self.entry(request)?;
        if entry.state != State::Ended {
            return None;
        }
        let len_bytes = entry.len_bytes;
        entry.release(free);
        self.free = request as u32;
        Some(len_bytes)
    }

    /// The result of a request, which is forgotten. None: it is under way.
    pub fn take(&mut self, request: u64) -> Option<Result<usize>> {
        let free = self.free;
        let Some(entry) = self.entry(request) else {
            return Some(Err(AcpError::Argument(
                "this request was waited for before, or a reset has ended it",
            )));
        };
        if entry.state == State::UnderWay {
            return None;
        }
        let result = match entry.failure.take() {
            Some(error) => Err(*error),
            None => Ok(entry.len_bytes),
        };
        entry.release(free);
        self.free = request as u32;
        Some(result)
    }

    /// Forgets all requests. Their numbers do not come again.
    pub fn clear(&mut self) {
        self.awaited = 0;
        for (place, entry) in (0..).zip(&mut self.entries) {
            if entry.state != State::Free {
                (entry.into, entry.failure) = (None, None);
                entry.release(self.free);
                self.free = place;
            }
        }
    }
}

impl First<'_> {
    /// Where the message goes. None: the request waits for none, which no request in a queue does.
    #[inline]
    pub fn target(&self) -> Option<&Memory> {
        self.entry.into.as_ref()
    }

    /// Whether the sender may have written the message there.
    #[inline]
    pub fn is_shown(&self) -> bool {
        self.entry.is_shown
    }

    /// It has ended, and waits no more.
    pub fn end(self, waiting: &mut Waiting, result: Result<usize>) {
        self.entry.end(result);
        waiting.first = self.entry.next;
        *self.awaited -= 1;
    }

    /// It has ended well, has come to this length, and waits no more.
    #[inline(always)]
    pub fn end_well(self, waiting: &mut Waiting, len_bytes: usize) {
        waiting.first = self.entry.next;
        (self.entry.state, self.entry.len_bytes, self.entry.into) = (State::Ended, len_bytes, None);
        *self.awaited -= 1;
    }
}

impl Entry {
    fn end(&mut self, result: Result<usize>) {
        self.into = None;
        match result {
            Ok(len_bytes) => (self.state, self.len_bytes) = (State::Ended, len_bytes),
            Err(error) => (self.state, self.failure) = (State::Failed, Some(Box::new(error))),
        }
    }

    /// Frees the place for another request.
    #[inline]
    fn release(&mut self, free: u32) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        (self.state, self.next) = (State::Free, free);
    }
}

#[inline]
fn number(generation: u32, place: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::Foreign;

    fn free_places(requests: &Requests) -> usize {
        let next = |place: &u32| requests.entries.get(*place as usize).map(|entry| entry.next);
        std::iter::successors(Some(requests.free), next).filter(|place| *place != NONE).count()
    }

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
        assert_eq!((requests.entries.len(), free_places(&requests)), (3, 0));
        let ended = requests.start_ended_well(9);
        assert_eq!((requests.take_well(ended), free_places(&requests)), (Some(9), 1));
    }

    #[test]
    fn those_that_wait_end_in_their_order_and_let_their_memory_go() {
        let mut requests = Requests::default();
        let mut channels = [Waiting::default(), Waiting::default()];
        for round in 0..3 {
            let memory = Memory::foreign(Foreign::owned(vec![0; 8].into_boxed_slice()));
            let numbers: Vec<u64> = (0..6)
                .map(|at| requests.start_waiting(&mut channels[at % 2], (memory.clone(), at == 3)))
                .collect();
            assert_eq!(requests.awaited(), 6);
            for (at, number) in numbers.iter().enumerate() {
                let waiting = &mut channels[at % 2];
                assert!(!requests.has_ended(*number));
                let first = requests.first(waiting).unwrap();
                assert_eq!(first.is_shown(), at == 3);
                assert!(first.target().is_some_and(|into| into.as_ptr() == memory.as_ptr()));
                if at == 2 {
                    first.end(waiting, Err(AcpError::Argument("for the test")));
                    assert!(matches!(requests.take(*number), Some(Err(AcpError::Argument(_)))));
                } else {
                    first.end_well(waiting, at);
                    assert_eq!(requests.take_well(*number), Some(at));
                }
            }
            assert_eq!((requests.awaited(), requests.entries.len(), free_places(&requests)), (0, 6, 6));
            assert!(channels.iter().all(Waiting::is_empty), "round {round}");
            assert!(memory.into_owned().is_some(), "nobody else has a handle of it");
        }
        let memory = Memory::foreign(Foreign::owned(vec![0; 8].into_boxed_slice()));
        requests.start_waiting(&mut channels[0], (memory.clone(), false));
        requests.clear();
        assert!(memory.into_owned().is_some() && requests.awaited() == 0);
    }
}
