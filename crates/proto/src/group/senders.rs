//! What a receiver remembers of a group's senders: enough to recognise a repeat, and to know how much is missing.

use std::hash::BuildHasher;

use crate::Address;
use crate::limits::{GROUP_JUMP_MAX, GROUP_RESTART_MIN, GROUP_RUN_MAX, GROUP_SENDERS_MAX, GROUP_WINDOW};
use crate::secret::KeyedHash;

/// Senders with the same hash share this many entries. When all are taken, a sender of the host that has most of them is forgotten.
const SET_SENDERS: usize = 8;
const SETS: usize = GROUP_SENDERS_MAX / SET_SENDERS;

const _: () = {
    assert!(GROUP_SENDERS_MAX.is_multiple_of(SET_SENDERS) && SETS.is_power_of_two());
    assert!(GROUP_WINDOW == u64::BITS as u64, "`seen` has one bit for each");
};

/// What the number of a datagram says about it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is later than all that have come, and some between have not come.
    New {
        /// How many datagrams are missing between the latest one and this one.
        missing: u64,
    },
    /// It is earlier than one that has come, and has not come before.
    Late {
        /// It had been counted as missing.
        was_missing: bool,
    },
    /// It has come before, and is to be dropped.
    Repeat,
    /// It is so much earlier that it may be a repeat, and is to be dropped.
    TooLate,
    /// It is so much later than all that have come that it may be forged, and is to be dropped.
    TooEarly,
}

#[derive(Copy, Clone, Debug)]
struct Sender {
    /// When it last sent something, counted in datagrams of the group.
    heard: u64,
    source: Address,
    id: u64,
    /// The first number that came.
    first: u64,
    highest: u64,
    /// Bit `i` says that number `highest - i` has come.
    seen: u64,
    /// Datagrams that have come without a long gap between them, up to [`GROUP_RUN_MAX`].
    run: u32,
    /// Numbers that follow each other far from these: how many there were, and the last one. They are the sender's own if somebody
    /// else sent the highest in its name.
    others: u32,
    other: u64,
}

/// The senders of one group, a bounded number of them: see [`GROUP_SENDERS_MAX`].
#[derive(Debug)]
pub struct Senders {
    /// Sets of [`SET_SENDERS`] entries.
    table: Box<[Option<Sender>]>,
    hash: KeyedHash,
    clock: u64,
    /// Senders that were forgotten for the sake of others.
    forgotten: u64,
    /// Times that a sender's numbers began anew far from those before.
    restarted: u64,
    count: usize,
}

impl Senders {
    /// A table that knows no sender. `key` is secret, so that nobody can tell which senders share a set. `None`: there is no memory.
    #[must_use]
    pub fn new(key: u64) -> Option<Senders> {
        let mut table = Vec::new();
        table.try_reserve_exact(GROUP_SENDERS_MAX).ok()?;
        table.resize(GROUP_SENDERS_MAX, None);
        let (table, hash) = (table.into_boxed_slice(), KeyedHash::new(key, !key));
        Some(Senders { table, hash, clock: 0, forgotten: 0, restarted: 0, count: 0 })
    }

    /// Bytes of memory it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.table)
    }

    /// How many senders are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many were forgotten for the sake of others: what they send counts as a new sender's.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// How often a sender's numbers began anew, far from those before: what came of it before is no longer known.
    #[must_use]
    pub fn restarted(&self) -> u64 {
        self.restarted
    }

    /// Notes a datagram, and returns what its number says about it.
    //= wire.md R-MC-6
    pub fn note(&mut self, source: Address, id: u64, number: u64) -> Arrival {
        self.clock += 1;
        // Anybody can put any number into a datagram and, on some networks, any source address.
        let set = (self.hash.hash_one((source, id)) as usize & (SETS - 1)) * SET_SENDERS;
        let Some(slots) = self.table.get_mut(set..set + SET_SENDERS) else { return Arrival::TooLate };
        let known = slots.iter_mut().flatten().find(|sender| sender.id == id && sender.source == source);
        if let Some(sender) = known {
            sender.heard = self.clock;
            return sender.note(number, &mut self.restarted);
        }
        //= wire.md R-MC-7
        // A free entry is taken first. Otherwise the entry of the host that has most goes, and of those the sender that was silent longest;
        // among hosts that have equally many, the newcomer's own comes first.
        let own = source.host();
        let mut hosts = [None; SET_SENDERS];
        for (host, entry) in hosts.iter_mut().zip(slots.iter()) {
            *host = entry.map(|sender| sender.source.host());
        }
        let rank = |host: Option<Address>| {
            let count = hosts.iter().filter(|other| **other == host).count();
            (host.is_none(), count + usize::from(host == Some(own)), host == Some(own))
        };
        let entry = slots.iter_mut().max_by_key(|entry| {
            let host = entry.map(|sender| sender.source.host());
            (rank(host), std::cmp::Reverse(entry.map_or(0, |sender| sender.heard)))
        });
        if let Some(entry) = entry {
            match entry {
                Some(_) => self.forgotten += 1,
                None => self.count += 1,
            }
            *entry = Some(Sender::new(self.clock, source, id, number));
        }
        Arrival::New { missing: 0 }
    }
}

impl Sender {
    fn new(heard: u64, source: Address, id: u64, number: u64) -> Sender {
        Sender { heard, source, id, first: number, highest: number, seen: 1, run: 1, others: 0, other: 0 }
    }

    fn note(&mut self, number: u64, restarted: &mut u64) -> Arrival {
        let near =
            self.highest.saturating_sub(GROUP_WINDOW - 1)..=self.highest.saturating_add(GROUP_JUMP_MAX);
        if near.contains(&number) {
            return self.note_near(number);
        }
        //= wire.md R-MC-8
        let follows = self.others != 0 && number > self.other && number - self.other <= GROUP_WINDOW;
        self.others = if follows { self.others + 1 } else { 1 };
        self.other = number;
        if self.others > self.run.max(GROUP_RESTART_MIN) {
            let run = self.others.min(GROUP_RUN_MAX);
            *self = Sender { run, ..Sender::new(self.heard, self.source, self.id, number) };
            *restarted += 1;
            return Arrival::New { missing: 0 };
        }
        if number > self.highest { Arrival::TooEarly } else { Arrival::TooLate }
    }

    fn note_near(&mut self, number: u64) -> Arrival {
        if number > self.highest {
            let ahead = number - self.highest;
            self.highest = number;
            if ahead < GROUP_WINDOW {
                self.seen = self.seen << ahead | 1;
                self.run = (self.run + 1).min(GROUP_RUN_MAX);
            } else {
                // Nothing that came before makes this number likely.
                (self.seen, self.run) = (1, 1);
            }
            // The run goes on. Numbers far from it have to come more often than this one has.
            self.others = self.others.saturating_sub(1);
            return Arrival::New { missing: ahead - 1 };
        }
        let bit = 1 << (self.highest - number);
        if self.seen & bit != 0 {
            return Arrival::Repeat;
        }
        self.seen |= bit;
        Arrival::Late { was_missing: number > self.first }
    }
}
