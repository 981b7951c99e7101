//! The steps of collectives: what a member of a team sends to which member, and takes from which, in order.
//!
//! A buffer contains everything that a collective uses. Plans depend on the size of the team and on lengths only, so all members
//! agree: the n-th message of one member to another is the n-th that the other one takes from it.

use std::ops::Range;

/// Longer data are scattered and gathered instead of being sent whole.
const LONG_BYTES: usize = 64 << 10;
/// Longer data are reduced in as many pieces as there are members.
const LONG_REDUCTION_BYTES: usize = 16 << 10;
/// Up to this much in total is gathered in few steps, in which data that were gathered before are sent again.
const SHORT_GATHER_BYTES: usize = 32 << 10;
/// On one host, data of up to this length, of up to this many members, go to the first member and back.
const CENTRAL_BYTES: usize = 1 << 10;
const CENTRAL_MEMBERS: std::ops::RangeInclusive<usize> = 3..=16;

/// What is done with data that have come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    Store,
    /// They are the left operands of a reduction.
    ReduceLeft,
    /// They are the right operands.
    ReduceRight,
}

/// A message to a member, and one from a member. The step ends when both are done. The data to send are those at its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Step {
    pub send: Option<(usize, Range<usize>)>,
    pub take: Option<(usize, Range<usize>, Take)>,
}

impl Step {
    /// Whether the data that come change the data that are sent.
    pub fn overlaps(&self) -> bool {
        let (Some((_, out)), Some((_, into, _))) = (&self.send, &self.take) else { return false };
        out.start < into.end && into.start < out.end
    }
}

/// The place of a member in its team.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Place {
    pub me: usize,
    pub size: usize,
    /// Whether all members are on one host.
    pub is_one_host: bool,
}

fn send(to: usize, range: Range<usize>) -> Step {
    Step { send: Some((to, range)), take: None }
}

fn take(from: usize, range: Range<usize>, take: Take) -> Step {
    Step { send: None, take: Some((from, range, take)) }
}

fn both(to: usize, out: Range<usize>, from: usize, into: Range<usize>, take: Take) -> Step {
    Step { send: Some((to, out)), take: Some((from, into, take)) }
}

impl Place {
    fn ahead(self, by: usize) -> usize {
        (self.me + by) % self.size
    }

    fn behind(self, by: usize) -> usize {
        (self.me + self.size - by % self.size) % self.size
    }

    /// Distances of 1, 2, 4 and so on, below the size.
    fn distances(self) -> impl DoubleEndedIterator<Item = usize> {
        let count = usize::BITS - self.size.saturating_sub(1).leading_zeros();
        (0..count).map(|bit| 1 << bit)
    }

    /// A barrier by dissemination (Hensgen, Finkel and Manber, 1988), or through the first member.
    pub fn barrier(self) -> Vec<Step> {
        if self.is_central(0) {
            return self.central(0, Take::Store);
        }
        self.distances().map(|far| both(self.ahead(far), 0..0, self.behind(far), 0..0, Take::Store)).collect()
    }

    /// Sends the buffer from `root` to all: by a tree, or scattered and gathered (van de Geijn) if it is long.
    pub fn broadcast(self, root: usize, len: usize) -> Vec<Step> {
        let relative = self.behind(root);
        if len <= LONG_BYTES || self.size <= 2 {
            return self.tree(root, relative, |_| 0..len);
        }
        let size = self.size;
        let bound = move |at: usize| (len as u128 * at.min(size) as u128 / size as u128) as usize;
        // The tree passes on what the receiver and all below it need.
        let mut steps = self.tree(root, relative, |(first, count)| bound(first)..bound(first + count));
        let chunk = |at: usize| bound(at % size)..bound(at % size + 1);
        for step in 0..size - 1 {
            let (out, into) = (chunk(relative + size - step), chunk(relative + 2 * size - step - 1));
            steps.push(both(self.ahead(1), out, self.behind(1), into, Take::Store));
        }
        steps
    }

    /// A binomial tree from `root`. `range` gives the bytes for a member and those below it, by the number of the first of them,
    /// relative to the root, and their count.
    fn tree(self, root: usize, relative: usize, range: impl Fn((usize, usize)) -> Range<usize>) -> Vec<Step> {
        let member = |relative: usize| (relative + root) % self.size;
        let mut steps = Vec::new();
        let below = if relative == 0 { self.size.next_power_of_two() } else { lowest_bit(relative) };
        if relative > 0 {
            steps.push(take(member(relative - below), range((relative, below)), Take::Store));
        }
        for far in self.distances().rev().filter(|&far| far < below && relative + far < self.size) {
            steps.push(send(member(relative + far), range((relative + far, far))));
        }
        steps
    }

    /// Reduces the buffer to `root`, by a tree.
    pub fn reduce(self, root: usize, len: usize) -> Vec<Step> {
        let relative = self.behind(root);
        let member = |relative: usize| (relative + root) % self.size;
        let mut steps = Vec::new();
        for far in self.distances() {
            if relative & far != 0 {
                steps.push(send(member(relative - far), 0..len));
                break;
            }
            if relative + far < self.size {
                steps.push(take(member(relative + far), 0..len, Take::ReduceRight));
            }
        }
        steps
    }

    /// Reduces the buffer to all. Each piece is reduced in one order, so that all get the same bits.
    pub fn allreduce(self, len: usize, element: usize) -> Vec<Step> {
        if self.is_central(len) {
            self.central(len, Take::ReduceRight)
        } else if len > LONG_REDUCTION_BYTES && self.size > 1 {
            self.ring(len, element)
        } else {
            self.doubling(len)
        }
    }

    /// Whether everything goes to the first member and back. If members share cores, each of them then has one turn instead of
    /// one for each step of a tree.
    fn is_central(self, len: usize) -> bool {
        self.is_one_host && len <= CENTRAL_BYTES && CENTRAL_MEMBERS.contains(&self.size)
    }

    /// The first member takes the data of all in the order of members, and sends the result to all.
    fn central(self, len: usize, how: Take) -> Vec<Step> {
        if self.me > 0 {
            return vec![send(0, 0..len), take(0, 0..len, Take::Store)];
        }
        let takes = (1..self.size).map(|from| take(from, 0..len, how));
        takes.chain((1..self.size).map(|to| send(to, 0..len))).collect()
    }

    /// Reduces by recursive doubling (Thakur, Rabenseifner and Gropp, 2005). Neighbours come first, which are usually on one
    /// host.
    fn doubling(self, len: usize) -> Vec<Step> {
        let power = if self.size.is_power_of_two() { self.size } else { self.size.next_power_of_two() / 2 };
        let extra = self.size - power;
        let mut steps = Vec::new();
        if self.me < 2 * extra && self.me % 2 == 1 {
            return vec![send(self.me - 1, 0..len), take(self.me - 1, 0..len, Take::Store)];
        }
        if self.me < 2 * extra {
            steps.push(take(self.me + 1, 0..len, Take::ReduceRight));
        }
        let number = if self.me < 2 * extra { self.me / 2 } else { self.me - extra };
        for far in (Place { me: 0, size: power, ..self }).distances() {
            let other = number ^ far;
            let member = if other < extra { 2 * other } else { other + extra };
            let side = if member < self.me { Take::ReduceLeft } else { Take::ReduceRight };
            steps.push(both(member, 0..len, member, 0..len, side));
        }
        if self.me < 2 * extra {
            steps.push(send(self.me + 1, 0..len));
        }
        steps
    }

    /// A piece for each member goes round a ring and is reduced, and then goes round again.
    fn ring(self, len: usize, element: usize) -> Vec<Step> {
        let count = len / element;
        let bound = |at: usize| (count as u128 * at as u128 / self.size as u128) as usize * element;
        let piece = |at: usize| bound(at % self.size)..bound(at % self.size + 1);
        let (next, last) = (self.ahead(1), self.behind(1));
        let mut steps = Vec::new();
        for step in 0..self.size - 1 {
            let (out, into) = (piece(self.behind(step)), piece(self.behind(step + 1)));
            steps.push(both(next, out, last, into, Take::ReduceLeft));
        }
        for step in 0..self.size - 1 {
            let (out, into) = (piece(self.behind(step) + 1), piece(self.behind(step)));
            steps.push(both(next, out, last, into, Take::Store));
        }
        steps
    }

    /// Reduces the data of each member and those before it (Hillis and Steele, 1986).
    pub fn scan(self, len: usize) -> Vec<Step> {
        let step = |far: usize| Step {
            send: (self.me + far < self.size).then(|| (self.me + far, 0..len)),
            take: (self.me >= far).then(|| (self.me - far, 0..len, Take::ReduceLeft)),
        };
        self.distances().map(step).collect()
    }

    /// Gathers to the root, which has a place of `len` bytes for each member, with its own filled. Others have only theirs.
    pub fn gather(self, root: usize, len: usize) -> Vec<Step> {
        if self.me != root {
            return vec![send(root, 0..len)];
        }
        (1..self.size)
            .map(|far| self.ahead(far))
            .map(|from| take(from, from * len..(from + 1) * len, Take::Store))
            .collect()
    }

    /// Scatters from the root, which is the reverse of gathering.
    pub fn scatter(self, root: usize, len: usize) -> Vec<Step> {
        if self.me != root {
            return vec![take(root, 0..len, Take::Store)];
        }
        (1..self.size).map(|far| self.ahead(far)).map(|to| send(to, to * len..(to + 1) * len)).collect()
    }

    /// Whether places are gathered in few steps. Then a member's own one is the first, and those of the others follow in turn.
    pub fn gathers_in_turn(self, len: usize) -> bool {
        len.saturating_mul(self.size) <= SHORT_GATHER_BYTES
    }

    /// Gathers to all. Each member has a place of `len` bytes for each member, with its own filled: by Bruck's algorithm, or
    /// round a ring.
    pub fn allgather(self, len: usize) -> Vec<Step> {
        if self.gathers_in_turn(len) {
            let step = |far: usize| {
                let count = far.min(self.size - far);
                let into = far * len..(far + count) * len;
                both(self.behind(far), 0..count * len, self.ahead(far), into, Take::Store)
            };
            return self.distances().map(step).collect();
        }
        let place = |at: usize| at * len..(at + 1) * len;
        let step = |step: usize| {
            let (out, into) = (place(self.behind(step)), place(self.behind(step + 1)));
            both(self.ahead(1), out, self.behind(1), into, Take::Store)
        };
        (0..self.size - 1).map(step).collect()
    }

    /// Exchanges a piece with each member. `out` and `into` give their places. The caller copies this member's own piece.
    pub fn alltoall(
        self,
        out: impl Fn(usize) -> Range<usize>,
        into: impl Fn(usize) -> Range<usize>,
    ) -> Vec<Step> {
        let step = |far: usize| {
            let (to, from) = (self.ahead(far), self.behind(far));
            both(to, out(to), from, into(from), Take::Store)
        };
        (1..self.size).map(step).collect()
    }
}

/// The lowest bit that is set.
fn lowest_bit(number: usize) -> usize {
    1 << number.trailing_zeros()
}
