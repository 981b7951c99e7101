//! A barrier over connections. Ranks form a tree: those of a host below its first rank, and the first ranks of hosts below rank 0's. A rank
//! that has called, and whose children have arrived, reports to its parent; the root releases all. So each connection carries two messages
//! a barrier, and hosts speak once with each other. Two ranks report to each other at once, which halves the time.
//!
//! **Invariant:** every barrier that was started ends once: when all ranks have called it, or with a rank that is gone.

use crate::limits::BARRIER_BRANCHES;
use std::collections::VecDeque;

/// What ranks say to each other in barriers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A child and all below it have called the barrier, or the other one of two ranks has.
    Arrived,
    /// All ranks have called it.
    Released,
    /// This rank has ended or left: no barrier will ever end well again.
    Gone(u32),
}

/// Bytes of the longest message.
pub const SAID_BYTES: usize = 5;

impl Said {
    /// Writes it to `bytes` and returns the part that was written: every barrier sends some, so that they are not allocated.
    pub fn encode(self, bytes: &mut [u8; SAID_BYTES]) -> &[u8] {
        let [kind, rank_bytes @ ..] = bytes;
        let len = match self {
            Said::Arrived => {
                *kind = 1;
                1
            }
            Said::Released => {
                *kind = 2;
                1
            }
            Said::Gone(rank) => {
                *kind = 3;
                *rank_bytes = rank.to_le_bytes();
                SAID_BYTES
            }
        };
        &bytes[..len]
    }

    pub fn decode(bytes: &[u8]) -> Option<Said> {
        match bytes {
            [1] => Some(Said::Arrived),
            [2] => Some(Said::Released),
            [3, rank @ ..] => Some(Said::Gone(u32::from_le_bytes(rank.try_into().ok()?))),
            _ => None,
        }
    }
}

/// What this rank is doing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// It has not called the next barrier.
    Outside,
    /// It has called, and some of its children have not arrived.
    Gathering,
    /// It has reported to its parent.
    Reported,
}

/// A rank's part in barriers, without its connections.
pub struct Barrier {
    parent: Option<u32>,
    /// With each, whether it has arrived at the barrier that this rank is in, or will call next. Of two ranks, each is the other's child.
    children: Vec<(u32, bool)>,
    /// How many ranks there are.
    size: u32,
    phase: Phase,
    gone: Option<u32>,
    /// Two messages for each neighbour at most: its next one is due after an answer, and `Gone` is said once.
    outbox: VecDeque<(u32, Said)>,
    ended: Option<Result<(), u32>>,
}

impl Barrier {
    /// Of a rank, with every rank's host.
    pub fn new(rank: u32, hosts: &[u32]) -> Barrier {
        let size = hosts.len() as u32;
        let (parent, children) = match rank {
            0 | 1 if size == 2 => (None, vec![1 - rank]),
            _ => neighbours(rank, hosts),
        };
        let children: Vec<_> = children.into_iter().map(|child| (child, false)).collect();
        let outbox = VecDeque::with_capacity(2 * (children.len() + 1));
        Barrier { parent, children, size, phase: Phase::Outside, gone: None, outbox, ended: None }
    }

    /// Whom this rank speaks with.
    pub fn neighbours(&self) -> impl Iterator<Item = u32> {
        self.children.iter().map(|&(child, _)| child).chain(self.parent)
    }

    /// How many these are.
    pub fn neighbour_count(&self) -> usize {
        self.children.len() + usize::from(self.parent.is_some())
    }

    pub fn is_neighbour(&self, rank: u32) -> bool {
        self.neighbours().any(|neighbour| neighbour == rank)
    }

    /// True from a start until its end was taken.
    pub fn is_running(&self) -> bool {
        self.phase != Phase::Outside || self.ended.is_some()
    }

    /// A rank that is gone, so that barriers can't be started any more.
    pub fn gone(&self) -> Option<u32> {
        self.gone
    }

    /// This rank calls the barrier. Only if none is running and no rank is gone.
    pub fn start(&mut self) {
        self.phase = Phase::Gathering;
        if self.size == 2 {
            self.notify_children(Said::Arrived);
        }
        self.gather();
    }

    /// Whether there is something to take of how the barrier has ended.
    #[inline]
    pub fn has_end(&self) -> bool {
        self.ended.is_some()
    }

    /// How the barrier has ended, once: well, or because of a rank.
    pub fn take_end(&mut self) -> Option<Result<(), u32>> {
        self.ended.take()
    }

    /// What a neighbour has said, or none where that is nonsense. Whoever says what can't be now counts as gone.
    pub fn on_said(&mut self, from: u32, said: Option<Said>) {
        let arrived = self.children.iter_mut().find(|(child, _)| *child == from).map(|(_, arrived)| arrived);
        match (said, arrived) {
            (Some(Said::Arrived), Some(arrived @ false)) => {
                *arrived = true;
                self.gather();
            }
            (Some(Said::Released), _) if self.parent == Some(from) && self.phase == Phase::Reported => {
                self.release();
            }
            (Some(Said::Gone(rank)), _) if rank < self.size => self.on_gone(rank),
            // Neighbours that know of a loss still say what they have said before it.
            _ if self.gone.is_some() => {}
            _ => self.on_gone(from),
        }
    }

    /// A rank has ended, left, or can't be reached. The first one ends the barrier and all later ones.
    pub fn on_gone(&mut self, rank: u32) {
        self.outbox.retain(|&(to, _)| to != rank);
        if self.gone.is_some() {
            return;
        }
        self.gone = Some(rank);
        let others = self.children.iter().map(|&(child, _)| child).chain(self.parent);
        self.outbox.extend(others.filter(|&to| to != rank).map(|to| (to, Said::Gone(rank))));
        if self.phase != Phase::Outside {
            self.phase = Phase::Outside;
            self.ended = Some(Err(rank));
        }
    }

    /// Gives what is to be said to `send`, in order, and keeps what could not be sent. What only misses its connection goes out when that
    /// opens.
    pub fn say(&mut self, mut send: impl FnMut(u32, Said) -> Sent) -> Spoken {
        let (mut is_full, mut has_sent) = (false, false);
        // Once around, so that what stays keeps its order.
        for _ in 0..self.outbox.len() {
            let Some((to, said)) = self.outbox.pop_front() else { break };
            let sent = if is_full { Sent::Full } else { send(to, said) };
            is_full |= matches!(sent, Sent::Full);
            has_sent |= matches!(sent, Sent::Done);
            if !matches!(sent, Sent::Done) {
                self.outbox.push_back((to, said));
            }
        }
        Spoken { has_sent, is_full }
    }

    fn notify_children(&mut self, said: Said) {
        self.outbox.extend(self.children.iter().map(|&(child, _)| (child, said)));
    }

    fn gather(&mut self) {
        if self.phase != Phase::Gathering || self.children.iter().any(|&(_, arrived)| !arrived) {
            return;
        }
        match self.parent {
            Some(parent) => {
                self.phase = Phase::Reported;
                self.outbox.push_back((parent, Said::Arrived));
            }
            None => self.release(),
        }
    }

    fn release(&mut self) {
        for (_, arrived) in &mut self.children {
            *arrived = false;
        }
        // Two ranks have sent each other everything.
        if self.size != 2 {
            self.notify_children(Said::Released);
        }
        self.phase = Phase::Outside;
        self.ended = Some(Ok(()));
    }
}

/// What [`Barrier::say`] has done.
#[derive(Copy, Clone)]
pub struct Spoken {
    /// A message is on its way.
    pub has_sent: bool,
    /// Some found no space and have to be tried again.
    pub is_full: bool,
}

/// What became of a message.
pub enum Sent {
    Done,
    /// Its connection is not there yet.
    NotConnected,
    /// No message goes out at this moment.
    Full,
}

/// A rank's parent and its children: those on its host, then the first ranks of other hosts.
fn neighbours(rank: u32, hosts: &[u32]) -> (Option<u32>, Vec<u32>) {
    let ranks = 0..hosts.len() as u32;
    let host = hosts.get(rank as usize);
    let here: Vec<u32> =
        ranks.clone().zip(hosts).filter(|&(_, at)| Some(at) == host).map(|(r, _)| r).collect();
    let (parent, mut children) = in_tree(rank, &here);
    if here.first() != Some(&rank) {
        return (parent, children);
    }
    // Hosts are numbered in the order of their first ranks.
    let mut firsts = Vec::new();
    for (rank, &host) in ranks.zip(hosts) {
        if host as usize == firsts.len() {
            firsts.push(rank);
        }
    }
    let (parent, of_hosts) = in_tree(rank, &firsts);
    children.extend(of_hosts);
    (parent, children)
}

/// The parent and the children of one of `members`, of which the first is the root.
fn in_tree(rank: u32, members: &[u32]) -> (Option<u32>, Vec<u32>) {
    let Ok(at) = members.binary_search(&rank) else { return (None, Vec::new()) };
    let parent = at.checked_sub(1).and_then(|before| members.get(before / BARRIER_BRANCHES)).copied();
    let first = at * BARRIER_BRANCHES + 1;
    (parent, members.iter().skip(first).take(BARRIER_BRANCHES).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// Barriers that one run passes.
    const TURNS: u32 = 5;

    /// Numbers from a seed (xorshift, Marsaglia 2003).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end as u64) as usize
        }
    }

    #[derive(Default)]
    struct Tally {
        called: u32,
        passed: u32,
        lost: Option<u32>,
    }

    /// Ranks whose messages travel as the seed decides, in order on each connection. One may die.
    fn simulate(seed: u64) {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let size = 1 + numbers.below(24);
        let mut hosts: Vec<u32> = vec![0];
        while hosts.len() < size {
            let known = hosts.iter().max().unwrap() + 1;
            hosts.push(numbers.below(known as usize + 1) as u32);
        }
        let mut ranks: Vec<Option<Barrier>> =
            (0..size as u32).map(|rank| Some(Barrier::new(rank, &hosts))).collect();
        let mut tallies: Vec<Tally> = (0..size).map(|_| Tally::default()).collect();
        // None is the end of the connection.
        let mut wires: HashMap<(u32, u32), VecDeque<Option<Said>>> = HashMap::new();
        let mut connected = HashSet::new();
        let dies = (numbers.below(2) == 0).then(|| (numbers.below(size), numbers.below(40 * size)));

        for step in 0..4000 * size {
            if let Some((dead, _)) = dies.filter(|&(_, at)| at == step) {
                let was = ranks[dead].take().unwrap();
                for neighbour in was.neighbours() {
                    wires.entry((dead as u32, neighbour)).or_default().push_back(None);
                }
            }
            let at = numbers.below(size);
            let Some(rank) = &mut ranks[at] else { continue };
            let neighbours: Vec<u32> = rank.neighbours().collect();
            match numbers.below(4) {
                0 if !rank.is_running() && rank.gone().is_none() && tallies[at].called < TURNS => {
                    tallies[at].called += 1;
                    rank.start();
                }
                1 => {
                    let full = numbers.below(8);
                    let mut sent = 0;
                    rank.say(|to, said| {
                        sent += 1;
                        if sent > full {
                            return Sent::Full;
                        }
                        assert!(neighbours.contains(&to));
                        if !connected.contains(&(at, to)) {
                            connected.insert((at, to));
                            return Sent::NotConnected;
                        }
                        wires.entry((at as u32, to)).or_default().push_back(Some(said));
                        Sent::Done
                    });
                }
                _ if neighbours.is_empty() => {}
                _ => {
                    let from = neighbours[numbers.below(neighbours.len())];
                    match wires.entry((from, at as u32)).or_default().pop_front() {
                        Some(Some(said)) => {
                            rank.on_said(from, Said::decode(said.encode(&mut [0; SAID_BYTES])))
                        }
                        Some(None) => rank.on_gone(from),
                        None => {}
                    }
                }
            }
            assert!(rank.outbox.len() <= 2 * neighbours.len(), "seed {seed}");
            match rank.take_end() {
                Some(Ok(())) => {
                    tallies[at].passed += 1;
                    let passed = tallies[at].passed;
                    assert!(tallies.iter().all(|tally| tally.called >= passed), "seed {seed}: too early");
                }
                Some(Err(lost)) => {
                    assert_eq!(tallies[at].lost.replace(lost), None, "seed {seed}: lost once");
                }
                None => {}
            }
        }
        let dead = dies.map(|(dead, _)| dead);
        for (at, tally) in tallies.iter().enumerate().filter(|&(at, _)| ranks[at].is_some()) {
            assert!(!ranks[at].as_ref().unwrap().is_running(), "seed {seed}: rank {at} of {size} waits");
            match tally.lost {
                Some(lost) => assert_eq!((Some(lost as usize), tally.called), (dead, tally.passed + 1)),
                None => assert_eq!(tally.called, tally.passed, "seed {seed}"),
            }
            if dead.is_none() {
                assert_eq!(tally.passed, TURNS, "seed {seed}");
            }
        }
    }

    #[test]
    fn each_barrier_ends_once_and_never_early() {
        (1..=400).for_each(simulate);
    }

    #[test]
    fn all_ranks_are_in_one_tree_and_hosts_speak_once() {
        for hosts in [vec![0], vec![0; 64], vec![0, 1, 0, 1, 2, 2, 2, 3, 1, 0, 4, 5, 6], (0..70).collect()] {
            let mut across = 0;
            for rank in 0..hosts.len() as u32 {
                let (parent, children) = neighbours(rank, &hosts);
                assert_eq!(parent.is_none(), rank == 0, "one root");
                assert!(
                    children.iter().all(|&child| child > rank && neighbours(child, &hosts).0 == Some(rank))
                );
                across +=
                    children.iter().filter(|&&c| hosts[c as usize] != hosts[rank as usize]).count() as u32;
                // Parents are lower, so that there is no circle.
                assert!(parent.is_none_or(|parent| neighbours(parent, &hosts).1.contains(&rank)));
            }
            assert_eq!(across, *hosts.iter().max().unwrap());
        }
    }

    /// What two ranks say crosses on its way, so that a barrier takes as long as one message.
    #[test]
    fn two_ranks_tell_each_other_at_once() {
        let mut both = [0, 1].map(|rank| Barrier::new(rank, &[0, 1]));
        for _ in 0..TURNS {
            for (barrier, other) in both.iter_mut().zip([1, 0]) {
                barrier.start();
                let mut said = Vec::new();
                barrier.say(|to, what| {
                    said.push((to, what));
                    Sent::Done
                });
                assert_eq!(said, [(other, Said::Arrived)], "before anything was heard");
            }
            for (barrier, other) in both.iter_mut().zip([1, 0]) {
                assert_eq!(barrier.take_end(), None);
                barrier.on_said(other, Some(Said::Arrived));
                assert_eq!(barrier.take_end(), Some(Ok(())));
                barrier.say(|_, said| panic!("{said:?} is needless"));
            }
        }
    }

    #[test]
    fn whoever_talks_nonsense_counts_as_gone() {
        let root = || Barrier::new(0, &[0, 0, 0]);
        for said in [None, Some(Said::Released), Some(Said::Gone(3))] {
            let mut barrier = root();
            barrier.start();
            barrier.on_said(1, said);
            assert_eq!(barrier.take_end(), Some(Err(1)), "{said:?}");
        }
        let mut one_of_two = Barrier::new(1, &[0, 0]);
        one_of_two.on_said(0, Some(Said::Released));
        assert_eq!(one_of_two.gone(), Some(0), "none of two releases the other");
        let mut twice = root();
        twice.on_said(2, Some(Said::Arrived));
        twice.on_said(2, Some(Said::Arrived));
        assert_eq!((twice.gone(), twice.take_end()), (Some(2), None));
        for bytes in [&b""[..], &[0], &[1, 1], &[2, 0], &[3], &[3, 0, 0, 0], &[3, 0, 0, 0, 0, 0], &[4]] {
            assert_eq!(Said::decode(bytes), None);
        }
    }
}
