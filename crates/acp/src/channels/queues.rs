//! Queues of what waits on ends of channels. An end has a queue only while something waits, so that one that is idle takes no memory for it.

use crate::limits::{SPARE_QUEUE_LEN_MAX, SPARE_QUEUES_MAX};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// Which queue an end has: its index plus 1. None: nothing waits.
#[derive(Default)]
pub(super) struct Place(Option<NonZeroU32>);

/// All queues of one kind.
pub(super) struct Queues<T> {
    queues: Vec<VecDeque<T>>,
    /// Those that no end has. They are empty, and the first few of them have their space.
    free: Vec<u32>,
}

impl Place {
    /// Whether something waits.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    #[inline]
    fn index(&self) -> Option<usize> {
        Some(self.0?.get() as usize - 1)
    }
}

impl<T> Default for Queues<T> {
    fn default() -> Queues<T> {
        Queues { queues: Vec::new(), free: Vec::new() }
    }
}

impl<T> Queues<T> {
    /// Puts something behind what waits at an end.
    #[inline]
    pub fn push(&mut self, place: &mut Place, item: T) {
        if place.0.is_none() {
            let index = self.free.pop().unwrap_or(self.queues.len() as u32);
            if index as usize == self.queues.len() {
                self.queues.push(VecDeque::new());
            }
            place.0 = NonZeroU32::new(index + 1);
        }
        if let Some(queue) = place.index().and_then(|index| self.queues.get_mut(index)) {
            queue.push_back(item);
        }
    }

    /// What waits first at an end.
    #[inline]
    pub fn front_mut(&mut self, place: &Place) -> Option<&mut T> {
        self.queues.get_mut(place.index()?)?.front_mut()
    }

    /// Drops what waits first at an end.
    #[inline]
    pub fn pop(&mut self, place: &mut Place) {
        let Some(index) = place.index() else { return };
        let Some(queue) = self.queues.get_mut(index) else { return };
        queue.pop_front();
        if queue.is_empty() {
            if queue.capacity() > SPARE_QUEUE_LEN_MAX || self.free.len() >= SPARE_QUEUES_MAX {
                release(queue);
            }
            self.free.push(index as u32);
            place.0 = None;
        }
    }
}

/// Gives the space of an empty queue back.
#[cold]
fn release<T>(queue: &mut VecDeque<T>) {
    *queue = VecDeque::new();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_queues_of_their_own_and_give_them_back() {
        let mut queues = Queues::default();
        let mut places: Vec<Place> = (0..100).map(|_| Place::default()).collect();
        for turn in 0..3 {
            for (end, place) in places.iter_mut().enumerate() {
                assert!(!place.is_taken() && queues.front_mut(place).is_none());
                (0..=end % 3).for_each(|item| queues.push(place, 100 * end + item + turn));
            }
            for (end, place) in places.iter_mut().enumerate() {
                for item in 0..=end % 3 {
                    assert!(place.is_taken());
                    assert_eq!(queues.front_mut(place), Some(&mut (100 * end + item + turn)));
                    queues.pop(place);
                }
                queues.pop(place);
            }
            assert_eq!((queues.queues.len(), queues.free.len()), (100, 100));
            let with_space = queues.queues.iter().filter(|queue| queue.capacity() > 0);
            assert!(with_space.count() <= SPARE_QUEUES_MAX);
        }
    }

    #[test]
    fn a_long_queue_does_not_keep_its_space() {
        let (mut queues, mut place) = (Queues::default(), Place::default());
        (0..10 * SPARE_QUEUE_LEN_MAX).for_each(|item| queues.push(&mut place, item));
        (0..10 * SPARE_QUEUE_LEN_MAX).for_each(|_| queues.pop(&mut place));
        assert!(!place.is_taken() && queues.queues[0].capacity() == 0);
    }
}
