//! What ranks have begun and what may come of it: the oracle.

use super::super::contents;
use super::plan::Together;
use cci_am::AmError;

/// More messages of one rank to another are never under way: each has a credit of one of the two.
const UNDER_WAY_MAX: u64 = 512;
/// Places in the memory of each rank, bytes from its beginning.
pub(super) const SHARED_AT: usize = 0;
pub(super) const COUNTER_AT: usize = 8;
pub(super) const POINTER_AT: usize = 16;
pub(super) const CONSTANT_AT: usize = 64;
pub(super) const CONSTANT_BYTES: usize = 64;
pub(super) const OWN_WORDS_AT: usize = 256;
pub(super) const SLOTS_AT: usize = 2 << 10;
/// A slot has 8 words with gaps of a word between them.
pub(super) const SLOT_BYTES: usize = 128;
pub(super) const PUT_BYTES: usize = 64;
pub(super) const LOG_AT: usize = 16 << 10;
pub(super) const MEMORY_BYTES: usize = 2 << 20;
/// What contents are for.
const MESSAGE: u32 = 1;
const LOGGED: u32 = 2;
const SLOT: u32 = 3;
const CONSTANT: u32 = 4;
const COLLECTED: u32 = 16;

/// What changes or reads memory of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Accumulate,
    FetchAdd,
    IndexedPut { len: usize },
    Put { has_gaps: bool },
    Get,
}

struct Message {
    from: usize,
    to: usize,
    len: usize,
    is_handled: bool,
}

struct Operation {
    kind: Kind,
    from: usize,
    to: usize,
    /// Whether it has ended well, with this value.
    ended: Option<Option<u64>>,
}

/// A collective, as one member has started it.
struct Part {
    rank: usize,
    act: usize,
    members: Vec<usize>,
    is_ended: bool,
}

/// A pair of ranks.
#[derive(Clone, Default)]
struct Pair {
    /// Messages that were sent, by their order.
    sent: Vec<usize>,
    handled: usize,
}

pub(super) struct Model {
    ranks: usize,
    dead: Option<usize>,
    messages: Vec<Message>,
    /// By sender and receiver.
    pairs: Vec<Vec<Pair>>,
    operations: Vec<Operation>,
    parts: Vec<Part>,
    /// For each barrier, how many have come, and how many messages there were when the last one had.
    barriers: Vec<(usize, usize)>,
    /// Who has heard that the dead rank is gone.
    has_heard: Vec<bool>,
}

impl Model {
    pub fn new(ranks: usize) -> Model {
        Model {
            ranks,
            dead: None,
            messages: Vec::new(),
            pairs: vec![vec![Pair::default(); ranks]; ranks],
            operations: Vec::new(),
            parts: Vec::new(),
            barriers: Vec::new(),
            has_heard: vec![false; ranks],
        }
    }

    pub fn dies(&mut self, rank: usize) {
        self.dead = Some(rank);
    }

    pub fn is_dead(&self, rank: usize) -> bool {
        self.dead == Some(rank)
    }

    /// The number that the next message will have, and its data.
    pub fn next_message(&self, len: usize) -> (usize, Vec<u8>) {
        (self.messages.len(), filled(MESSAGE, self.messages.len(), len))
    }

    pub fn sent(&mut self, from: usize, to: usize, len: usize) -> Result<(), String> {
        let pair = &mut self.pairs[from][to];
        pair.sent.push(self.messages.len());
        self.messages.push(Message { from, to, len, is_handled: false });
        let under_way = (pair.sent.len() - pair.handled) as u64;
        if under_way > UNDER_WAY_MAX && !self.is_dead(to) {
            return Err(format!("{under_way} messages from {from} to {to} are under way"));
        }
        Ok(())
    }

    pub fn handled(&mut self, rank: usize, sender: usize, id: i64, data: &[u8]) -> Result<(), String> {
        let message = usize::try_from(id).ok().and_then(|id| self.messages.get_mut(id));
        let message = message.ok_or(format!("message {id} was never sent"))?;
        if (message.from, message.to) != (sender, rank) || data != filled(MESSAGE, id as usize, message.len) {
            return Err(format!("message {id} came to {rank} from {sender} as another one"));
        }
        message.is_handled = true;
        let pair = &mut self.pairs[sender][rank];
        let next = pair.sent.get(pair.handled).copied();
        pair.handled += 1;
        if next != Some(id as usize) {
            return Err(format!("message {id} from {sender} came to {rank} where {next:?} should"));
        }
        Ok(())
    }

    /// An operation begins. Returns its number, which is its cookie, and what it writes, if it writes bytes.
    pub fn begin(&mut self, from: usize, to: usize, kind: Kind) -> (usize, Vec<u8>) {
        let id = self.operations.len();
        self.operations.push(Operation { kind, from, to, ended: None });
        let data = match kind {
            Kind::IndexedPut { len } => filled(LOGGED, id, len),
            Kind::Put { .. } => filled(SLOT, id, PUT_BYTES),
            _ => Vec::new(),
        };
        (id, data)
    }

    /// It could not be begun.
    pub fn take_back(&mut self) {
        self.operations.pop();
    }

    pub fn constant(rank: usize) -> Vec<u8> {
        filled(CONSTANT, rank, CONSTANT_BYTES)
    }

    /// An operation has ended. `read` is what was read, of those that read bytes.
    pub fn done(
        &mut self,
        rank: usize,
        cookie: u64,
        result: &Result<u64, AmError>,
        read: Option<&[u8]>,
    ) -> Result<(), String> {
        let dead = self.dead;
        let operation = self.operations.get_mut(cookie as usize).ok_or("an end of nothing")?;
        if operation.from != rank || operation.ended.replace(result.as_ref().ok().copied()).is_some() {
            return Err(format!("operation {cookie} ended twice, or elsewhere"));
        }
        match result {
            Err(AmError::Gone { rank, .. })
                if dead == Some(operation.to) && *rank as usize == operation.to => {}
            Err(error) => return Err(format!("operation {cookie} ended for no reason: {error}")),
            Ok(_) if operation.kind == Kind::Get && read != Some(&Model::constant(operation.to)[..]) => {
                return Err(format!("get {cookie} got something else"));
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// A rank heard that another one is gone.
    pub fn gone(&mut self, rank: usize, other: usize, why: &str) -> Result<(), String> {
        if self.dead != Some(other) || std::mem::replace(&mut self.has_heard[rank], true) {
            return Err(format!(
                "rank {rank} heard that {other} is gone ({why}), which is not so, or heard it twice"
            ));
        }
        Ok(())
    }

    /// A member starts a collective. Returns what is its cookie.
    pub fn starts(&mut self, rank: usize, act: usize, members: &[usize]) -> usize {
        self.parts.push(Part { rank, act, members: members.to_vec(), is_ended: false });
        self.parts.len() - 1
    }

    /// A collective has ended for a member.
    pub fn collected(
        &mut self,
        rank: usize,
        cookie: u64,
        (together, root, len): (Together, u32, usize),
        result: Result<&[u8], &AmError>,
    ) -> Result<(), String> {
        let part = self.parts.get_mut(cookie as usize).ok_or("an end of no collective")?;
        if part.rank != rank || std::mem::replace(&mut part.is_ended, true) {
            return Err(format!("collective {} ended twice at {rank}", part.act));
        }
        match result {
            Err(AmError::Gone { .. }) if self.dead.is_some_and(|dead| part.members.contains(&dead)) => Ok(()),
            Err(error) => Err(format!("collective {} failed at {rank} for no reason: {error}", part.act)),
            Ok(bytes) if bytes == result_of(together, root, len, part.act, &part.members, rank) => Ok(()),
            Ok(_) => Err(format!("collective {} gave {rank} something else", part.act)),
        }
    }

    /// The act of a collective by its cookie.
    pub fn act_of(&self, cookie: u64) -> Option<usize> {
        self.parts.get(cookie as usize).map(|part| part.act)
    }

    /// A rank comes to its barrier of this number.
    pub fn comes(&mut self, number: usize) {
        if self.barriers.len() <= number {
            self.barriers.resize(number + 1, (0, 0));
        }
        let messages = self.messages.len();
        let (come, mark) = &mut self.barriers[number];
        (*come, *mark) = (*come + 1, messages);
    }

    /// A rank goes on behind it. `is_idle`: it says that nothing was under way anywhere.
    pub fn passes(&self, rank: usize, number: usize, is_idle: bool) -> Result<(), String> {
        let (come, mark) = self.barriers.get(number).copied().unwrap_or_default();
        if come < self.ranks {
            return Err(format!("rank {rank} left barrier {number} when {come} had come"));
        }
        let left = self.messages[..mark].iter().position(|message| !message.is_handled);
        match left.filter(|_| is_idle && self.dead.is_none()) {
            Some(id) => Err(format!("rank {rank} found all idle with message {id} under way")),
            None => Ok(()),
        }
    }

    /// Everything of those who live has ended.
    pub fn check_all_ended(&self) -> Result<(), String> {
        let lives = |rank: usize| self.dead != Some(rank);
        for (id, message) in self.messages.iter().enumerate() {
            if lives(message.from) && lives(message.to) && !message.is_handled {
                return Err(format!("message {id} from {} to {} never came", message.from, message.to));
            }
        }
        for (id, operation) in self.operations.iter().enumerate() {
            if lives(operation.from) && operation.ended.is_none() {
                return Err(format!(
                    "operation {id} of {}, {:?}, never ended",
                    operation.from, operation.kind
                ));
            }
        }
        let part = self.parts.iter().find(|part| lives(part.rank) && !part.is_ended);
        part.map_or(Ok(()), |part| Err(format!("collective {} never ended at {}", part.act, part.rank)))
    }

    /// What a rank's memory holds is what the operations have made of it, each once; `log_at` is the log's address.
    pub fn check_memory(&self, rank: usize, memory: &[u8], log_at: u64) -> Result<(), String> {
        let word = |at: usize| {
            let bytes = memory.get(at..).and_then(|rest| rest.first_chunk());
            u64::from_ne_bytes(bytes.copied().unwrap_or_default())
        };
        let (mut added, mut found, mut puts) = (0, Vec::new(), Vec::new());
        for (id, operation) in self.operations.iter().enumerate().filter(|(_, one)| one.to == rank) {
            let is_done = matches!(operation.ended, Some(Some(_)));
            let fail = |what: &str| Err(format!("operation {id} of {}: {what}", operation.from));
            match operation.kind {
                Kind::Accumulate => {
                    let own = word(OWN_WORDS_AT + 8 * id);
                    added += own;
                    if own > 1 || is_done && own == 0 {
                        return fail(&format!("was made {own} times"));
                    }
                }
                Kind::FetchAdd => found.extend(operation.ended.flatten()),
                Kind::IndexedPut { .. } => puts.push((id, is_done)),
                Kind::Put { has_gaps } if is_done => {
                    let slot = &memory[SLOTS_AT + SLOT_BYTES * id..][..SLOT_BYTES];
                    let (bytes, gaps) = if has_gaps {
                        (every_second(slot, 0), every_second(slot, 8))
                    } else {
                        let (bytes, gaps) = slot.split_at(PUT_BYTES);
                        (bytes.to_vec(), gaps.to_vec())
                    };
                    if bytes != filled(SLOT, id, PUT_BYTES) || gaps.iter().any(|&byte| byte != 0) {
                        return fail("is not in its place");
                    }
                }
                Kind::Put { .. } | Kind::Get => {}
            }
        }
        if word(SHARED_AT) != added {
            return Err(format!("{} was added at {rank} in pairs of {added}", word(SHARED_AT)));
        }
        found.sort_unstable();
        found.dedup();
        let counted = |one: &&Operation| one.to == rank && one.kind == Kind::FetchAdd;
        let (begun, done) = self.operations.iter().filter(counted).fold((0, 0), |(begun, done), one| {
            (begun + 1, done + u64::from(matches!(one.ended, Some(Some(_)))))
        });
        let counter = word(COUNTER_AT);
        if found.len() as u64 != done || !(done..=begun).contains(&counter) || found.last() >= Some(&counter)
        {
            return Err(format!(
                "rank {rank} counted to {counter} by {done} to {begun} additions: {found:?}"
            ));
        }
        self.check_log(rank, memory, word(POINTER_AT).wrapping_sub(log_at), puts)
    }

    /// What was appended is there whole and once.
    fn check_log(
        &self,
        rank: usize,
        memory: &[u8],
        end: u64,
        mut puts: Vec<(usize, bool)>,
    ) -> Result<(), String> {
        let log = memory[LOG_AT..].get(..end as usize).ok_or(format!("the log of {rank} ends at {end}"))?;
        let mut rest = log;
        while let Some(name) = rest.first_chunk() {
            let id = u64::from_le_bytes(*name) as u32 as usize;
            let at = puts.iter().position(|(put, _)| *put == id);
            let at = at.ok_or(format!("operation {id} is in the log of {rank} again, or from nobody"))?;
            puts.swap_remove(at);
            let Kind::IndexedPut { len } = self.operations[id].kind else { return Err("no put".into()) };
            let entry = rest.split_off(..len).ok_or(format!("operation {id} is cut at {rank}"))?;
            let wanted = filled(LOGGED, id, len);
            if let Some(at) = (0..len).find(|&at| entry[at] != wanted[at]) {
                let from = self.operations[id].from;
                return Err(format!(
                    "byte {at} of {len} of operation {id} of {from} is wrong in the log of {rank}"
                ));
            }
        }
        match puts.iter().find(|(_, is_done)| *is_done) {
            Some((id, _)) => Err(format!("operation {id} is not in the log of {rank}")),
            None if rest.is_empty() => Ok(()),
            None => Err(format!("the log of {rank} ends in the middle")),
        }
    }

    /// Messages, operations and collectives that ended well.
    pub fn counts(&self) -> [u64; 3] {
        [
            self.messages.iter().filter(|message| message.is_handled).count() as u64,
            self.operations.iter().filter(|one| matches!(one.ended, Some(Some(_)))).count() as u64,
            self.parts.iter().filter(|part| part.is_ended).count() as u64,
        ]
    }
}

fn filled(kind: u32, id: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    contents::fill(kind, id as u32, &mut bytes);
    bytes
}

fn every_second(slot: &[u8], first: usize) -> Vec<u8> {
    slot[first..].chunks(16).flat_map(|chunk| &chunk[..8]).copied().collect()
}

/// What a member of a team gives to a collective; where it has something for each, `for_member` distinguishes them.
pub(super) fn given(act: usize, rank: usize, for_member: usize, len: usize) -> Vec<u8> {
    filled(COLLECTED + rank as u32 + 8 * for_member as u32, act, len)
}

/// What it gets of it. Sums are those of 64-bit integers.
fn result_of(
    together: Together,
    root: u32,
    len: usize,
    act: usize,
    members: &[usize],
    rank: usize,
) -> Vec<u8> {
    let root = members[root as usize % members.len()];
    let me = members.iter().position(|&member| member == rank).unwrap_or_default();
    let sum = |of: &[usize]| {
        let mut sum = vec![0_u64; len / 8];
        for &member in of {
            for (to, from) in sum.iter_mut().zip(given(act, member, 0, len).as_chunks().0) {
                *to = to.wrapping_add(u64::from_ne_bytes(*from));
            }
        }
        sum.into_iter().flat_map(u64::to_ne_bytes).collect()
    };
    let all = || members.iter().flat_map(|&member| given(act, member, 0, len)).collect();
    let is_root = rank == root;
    match together {
        Together::Broadcast => given(act, root, 0, len),
        Together::Gather if is_root => all(),
        Together::Scatter => given(act, root, me, len),
        Together::Allgather => all(),
        Together::Alltoall => members.iter().flat_map(|&member| given(act, member, me, len)).collect(),
        Together::Reduce if is_root => sum(members),
        Together::Allreduce => sum(members),
        Together::Scan => sum(&members[..=me]),
        Together::Barrier | Together::Gather | Together::Reduce => Vec::new(),
    }
}
