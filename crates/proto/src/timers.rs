//! Deadlines of connections: an indexed heap over those that have one, so idle connections cost nothing.
//!
//! The slots have no generations, and are no `cci_memory::slab::Slab`: a slot belongs to an active state, which gives it back
//! itself, so nobody ever names one that is gone.

use crate::Time;

/// A connection's entry. Borrowed with its active state.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimerId(u32);

const NOT_SET: u32 = u32::MAX;

struct Slot {
    conn: u32,
    position: u32,
}

/// All deadlines of an endpoint.
pub(crate) struct Timers {
    /// Earliest first: a binary heap of (when, slot).
    heap: Vec<(Time, u32)>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Timers {
    pub const COST_BYTES: u64 = (size_of::<(Time, u32)>() + size_of::<Slot>() + size_of::<u32>()) as u64;

    pub fn new() -> Timers {
        Timers { heap: Vec::new(), slots: Vec::new(), free: Vec::new() }
    }

    /// Reserves memory for `all` entries. False: there is none.
    pub fn reserve(&mut self, all: usize) -> bool {
        self.slots.try_reserve(all.saturating_sub(self.slots.len())).is_ok()
            && self.heap.try_reserve(all.saturating_sub(self.heap.len())).is_ok()
            && self.free.try_reserve(all.saturating_sub(self.free.len())).is_ok()
    }

    /// An entry for this connection, with no deadline yet.
    pub fn add(&mut self, conn: u32) -> TimerId {
        let slot = Slot { conn, position: NOT_SET };
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            return TimerId(id);
        }
        self.slots.push(slot);
        // Setting a deadline must not allocate later.
        self.heap.reserve(self.slots.len() - self.heap.len());
        self.free.reserve(self.slots.len() - self.free.len());
        TimerId(self.slots.len() as u32 - 1)
    }

    pub fn remove(&mut self, id: TimerId) {
        self.clear(id);
        self.free.push(id.0);
    }

    pub fn next(&self) -> Option<Time> {
        self.heap.first().map(|&(when, _)| when)
    }

    /// Makes the deadline no later than `when`. One that is earlier stays: it costs one needless look, where moving it
    /// would cost something with every packet.
    #[inline]
    pub fn at_most(&mut self, id: TimerId, when: Time) {
        let position = self.slots[id.0 as usize].position;
        // The usual case: it is looked at sooner in any case. (An entry that is not set is at no position.)
        if self.heap.get(position as usize).is_some_and(|&(set, _)| set <= when) {
            return;
        }
        self.make_earlier(id, when);
    }

    /// Sets a deadline that is not set, or is later.
    #[inline(never)]
    fn make_earlier(&mut self, id: TimerId, when: Time) {
        let position = self.slots[id.0 as usize].position;
        if position != NOT_SET {
            self.heap[position as usize].0 = when;
            self.rise(position as usize);
        } else if when < Time::FAR {
            self.heap.push((when, id.0));
            self.rise(self.heap.len() - 1);
        }
    }

    /// Takes out one deadline that has passed; returns its connection.
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        let &(when, id) = self.heap.first()?;
        if when > now {
            return None;
        }
        self.clear(TimerId(id));
        Some(self.slots[id as usize].conn)
    }

    fn clear(&mut self, id: TimerId) {
        let position = self.slots[id.0 as usize].position;
        if position == NOT_SET {
            return;
        }
        self.slots[id.0 as usize].position = NOT_SET;
        let position = position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.rise(position);
            self.sink(self.slots[self.heap[position].1 as usize].position as usize);
        }
    }

    fn rise(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].0 <= self.heap[position].0 {
                break;
            }
            self.heap.swap(parent, position);
            self.note(position);
            position = parent;
        }
        self.note(position);
    }

    fn sink(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            let Some(&(left_when, _)) = self.heap.get(left) else { break };
            let right_when = self.heap.get(left + 1).map_or(Time::FAR, |&(when, _)| when);
            let child = if right_when < left_when { left + 1 } else { left };
            if self.heap[position].0 <= self.heap[child].0 {
                break;
            }
            self.heap.swap(position, child);
            self.note(position);
            position = child;
        }
        self.note(position);
    }

    fn note(&mut self, position: usize) {
        self.slots[self.heap[position].1 as usize].position = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn deadlines_come_in_order(times in prop::collection::vec((0u64..50, 0usize..20), 1..200)) {
            let mut timers = Timers::new();
            let ids: Vec<TimerId> = (0..20).map(|conn| timers.add(conn)).collect();
            let mut due = [u64::MAX; 20];
            for (when, conn) in times {
                timers.at_most(ids[conn], Time(when));
                due[conn] = due[conn].min(when);
                if when % 7 == 0 {
                    timers.clear(ids[conn]);
                    due[conn] = u64::MAX;
                }
                prop_assert_eq!(timers.next().map_or(u64::MAX, |time| time.0), *due.iter().min().unwrap());
            }
            let mut last = 0;
            while let Some(next) = timers.next() {
                prop_assert!(next.0 >= last);
                last = next.0;
                let conn = timers.pop_due(next).unwrap() as usize;
                prop_assert_eq!(due[conn], next.0);
                due[conn] = u64::MAX;
            }
            prop_assert!(due.iter().all(|&when| when == u64::MAX));
        }
    }

    #[test]
    fn an_earlier_deadline_stays() {
        let mut timers = Timers::new();
        let id = timers.add(5);
        timers.at_most(id, Time(10));
        timers.at_most(id, Time(20));
        assert_eq!(timers.next(), Some(Time(10)));
        assert_eq!(timers.pop_due(Time(9)), None);
        assert_eq!(timers.pop_due(Time(10)), Some(5));
        assert_eq!(timers.next(), None);
    }
}
