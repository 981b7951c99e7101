//! Teams and collectives: what all members of a team do together.
//!
//! A collective is a list of steps over a buffer ([`plan`]). Its records do not wait for messages, and run no handlers. Members
//! start the collectives of a team in the same order, so a number identifies each. A member gets one record from each other
//! member for a collective that it has not started. The number of records of all collectives that may wait at a member is bounded
//! as well.

mod operation;
mod plan;
mod team;
#[cfg(test)]
pub(in crate::process) mod tests;

pub use team::Team;

use super::counted::Counted;
use super::counted::collective::{CountedCollective, Kind};
use super::links::Links;
use crate::arithmetic::{Number, Reduction};
use crate::error::{AmError, Result};
use crate::limits::COLLECTIVES_MAX;
use crate::wire::Collected;
use operation::Operation;
use plan::Place;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use team::Teams;

/// A collective of the members of a team. Data are packed bytes. Lengths are the same at all members, except where it is said.
#[derive(Clone, Debug)]
pub enum Collective {
    /// No member continues before all have come.
    Barrier,
    /// All get what the root has. The data of the others have the same length.
    Broadcast {
        /// The number of the member that has the data.
        root: u32,
        /// The data, or a buffer of the same length.
        data: Vec<u8>,
    },
    /// The root gets the data of all, by their numbers in the team; the others get nothing.
    Gather {
        /// The number of the member that gets them.
        root: u32,
        /// This member's data.
        data: Vec<u8>,
    },
    /// Each gets its part of what the root has.
    Scatter {
        /// The number of the member that has the data.
        root: u32,
        /// At the root, the parts of all, by their numbers.
        data: Vec<u8>,
        /// The length of each part.
        len_bytes: usize,
    },
    /// All get the data of all, by their numbers.
    Allgather {
        /// This member's data.
        data: Vec<u8>,
    },
    /// Each member gets from each member what that one has for it.
    Alltoall {
        /// For each member, by their numbers: the range in `data` of the bytes for it, and the range in the result of the bytes
        /// from it. Members may differ.
        parts: Vec<(Range<usize>, Range<usize>)>,
        /// The data that this member sends.
        data: Vec<u8>,
        /// The buffer for the result, with its content before anything has come.
        result: Vec<u8>,
    },
    /// The root gets the reduction of all data, element by element; the others get nothing.
    Reduce {
        /// The number of the member that gets it.
        root: u32,
        /// This member's data.
        data: Vec<u8>,
        /// The elements and the operation.
        with: (Number, Reduction),
    },
    /// All members get the reduction of all data, with the same bits.
    Allreduce {
        /// This member's data.
        data: Vec<u8>,
        /// The elements and the operation.
        with: (Number, Reduction),
    },
    /// Each gets the reduction of its own data and those of all before it.
    Scan {
        /// This member's data.
        data: Vec<u8>,
        /// The elements and the operation.
        with: (Number, Reduction),
    },
}

impl Collective {
    /// The kind of a collective that can be counted: no member's part may end before all have come. `None` if it is never
    /// counted.
    fn countable(&self) -> Option<Kind> {
        match *self {
            Collective::Barrier => Some(Kind::Barrier),
            Collective::Allgather { .. } => Some(Kind::Allgather),
            Collective::Allreduce { with: (number, reduction), .. } => {
                Some(Kind::Allreduce(number, reduction))
            }
            _ => None,
        }
    }

    /// The data of a collective that is counted.
    fn into_data(self) -> Result<Vec<u8>> {
        match self {
            Collective::Allreduce { data, with } => check_numbers(&data, with).map(|()| data),
            Collective::Allgather { data } => Ok(data),
            _ => Ok(Vec::new()),
        }
    }

    /// The collective of a kind that was to be counted.
    fn of(kind: Kind, data: Vec<u8>) -> Collective {
        match kind {
            Kind::Barrier => Collective::Barrier,
            Kind::Allgather => Collective::Allgather { data },
            Kind::Allreduce(number, reduction) => Collective::Allreduce { data, with: (number, reduction) },
        }
    }
}

/// Identifies a collective: the number of its team, which all members know, and how many were started there before.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub team: u32,
    pub number: u32,
}

/// The records of a member for a collective, in order, each with whether more follow.
type Records = VecDeque<(bool, Box<[u8]>)>;

pub(crate) struct Collectives {
    teams: Teams,
    under_way: BTreeMap<Name, Operation>,
    /// Records that no step has taken yet.
    arrived: HashMap<(u32, Name), Records>,
    /// How many of these each rank has sent.
    kept: HashMap<u32, u32>,
    /// Ranks whose first record of a collective was taken, so that more may follow.
    open: HashMap<Name, Vec<u32>>,
    ended: VecDeque<(u64, Result<Vec<u8>>)>,
    /// Ranks that this one, or a member of a team, has lost, and the reason.
    gone: BTreeMap<u32, String>,
}

impl Collectives {
    /// `hosts` has a number for each rank's host.
    pub fn new(rank: u32, hosts: &[u32]) -> Collectives {
        Collectives {
            teams: Teams::new(rank, hosts),
            under_way: BTreeMap::new(),
            arrived: HashMap::new(),
            kept: HashMap::new(),
            open: HashMap::new(),
            ended: VecDeque::new(),
            gone: BTreeMap::new(),
        }
    }

    pub fn teams(&mut self) -> &mut Teams {
        &mut self.teams
    }

    /// Starts a collective. [`Collectives::next_ended`] reports its end once.
    pub fn start(
        &mut self,
        links: &mut Links,
        counted: &mut Counted,
        team: Team,
        collective: Collective,
        cookie: u64,
    ) -> Result<()> {
        if self.under_way.len() + counted.collecting() + self.ended.len() >= COLLECTIVES_MAX {
            return Err(AmError::WouldBlock);
        }
        if team == Team::WORLD
            && !self.has_lost()
            && counted.takes(self.teams.next_of_world())
            && let Some(kind) = collective.countable()
        {
            let data = collective.into_data()?;
            counted.collect(self.teams.take_number(team), kind, data, cookie);
            return Ok(());
        }
        let (ranks, place) = self.teams.find(team)?;
        let operation = prepare(Arc::clone(&ranks), place, collective, cookie)?;
        let name = Name { team: team.number(), number: self.teams.take_number(team) };
        let gone = self.gone.iter().find(|(rank, _)| ranks.contains(rank));
        let known = gone.map(|(rank, why)| (*rank, why.clone()));
        if let Some((rank, why)) = known.or_else(|| links.first_gone(&ranks)) {
            // The others may not know, and would wait for this rank.
            Collectives::report_lost(links, name, &ranks, rank);
            return Err(AmError::Gone { rank, why });
        }
        self.under_way.insert(name, operation);
        self.advance(links, name);
        Ok(())
    }

    /// Starts a collective by records that was to be counted.
    pub fn begin_by_records(&mut self, links: &mut Links, counted: CountedCollective) {
        let CountedCollective { number, kind, data, cookie, .. } = counted;
        let name = Name { team: Team::WORLD.number(), number };
        let prepared = self
            .teams
            .find(Team::WORLD)
            .and_then(|(ranks, place)| prepare(ranks, place, Collective::of(kind, data), cookie));
        match prepared {
            Ok(operation) => {
                self.under_way.insert(name, operation);
                self.advance(links, name);
            }
            Err(error) => self.ended.push_back((cookie, Err(error))),
        }
    }

    /// Ends a collective that is counted.
    pub fn end_counted(&mut self, cookie: u64, result: Result<Vec<u8>>) {
        self.ended.push_back((cookie, result));
    }

    /// Ends a collective that is counted, or may be, since a rank is gone. The others may not know that.
    pub fn lose_counted(&mut self, links: &mut Links, counted: &CountedCollective) {
        let Some((&rank, why)) = self.gone.first_key_value() else { return };
        let error = AmError::Gone { rank, why: why.clone() };
        self.ended.push_back((counted.cookie, Err(error)));
        if let Ok((ranks, _)) = self.teams.find(Team::WORLD) {
            let name = Name { team: Team::WORLD.number(), number: counted.number };
            Collectives::report_lost(links, name, &ranks, rank);
        }
    }

    /// Whether a rank is gone, so that no collective of all ranks is possible.
    pub fn has_lost(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The number of the next collective of all ranks.
    pub fn next_of_world(&self) -> u32 {
        self.teams.next_of_world()
    }

    /// Handles a record of a rank. Returns false if the rank may not send it.
    pub fn hear(&mut self, links: &mut Links, rank: u32, collected: Collected) -> bool {
        match collected {
            Collected::Data { team, number, follows, data } => {
                let (name, most) = (Name { team, number }, links.collective_records_max());
                if self.take_at_once(links, rank, name, follows, &data) {
                    return true;
                }
                let kept = self.kept.entry(rank).or_default();
                *kept += 1;
                // If a path has become narrower meanwhile, parts are divided once more.
                if *kept > 2 * most {
                    return false;
                }
                self.arrived.entry((rank, name)).or_default().push_back((follows, data));
                self.advance(links, name);
            }
            Collected::Follow { team, number } => {
                let name = Name { team, number };
                if self.under_way.contains_key(&name) {
                    self.open.entry(name).or_default().push(rank);
                    self.advance(links, name);
                }
            }
            Collected::Lost { rank: lost, .. } => {
                if lost != links.rank() && lost < links.size() {
                    self.lose_here(links, lost, "another member has lost it");
                }
            }
        }
        true
    }

    /// Continues all collectives that are under way, as far as possible.
    pub fn advance_all(&mut self, links: &mut Links) {
        let names: Vec<Name> = self.under_way.keys().copied().collect();
        for name in names {
            self.advance(links, name);
        }
    }

    /// Whether nothing that this process has started is under way.
    pub fn are_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    fn advance(&mut self, links: &mut Links, name: Name) {
        let Some(mut operation) = self.under_way.remove(&name) else { return };
        loop {
            if !operation.begin_step() {
                self.under_way.insert(name, operation);
                return self.finish(links, name);
            }
            self.send(links, name, &mut operation);
            if let Err(error) = self.take(links, name, &mut operation) {
                self.under_way.insert(name, operation);
                return self.end(links, name, Err(error));
            }
            if !operation.end_step() {
                self.under_way.insert(name, operation);
                return;
            }
        }
    }

    fn send(&mut self, links: &mut Links, name: Name, operation: &mut Operation) {
        let Some(rank) = operation.receiver() else { return };
        while operation.sent.is_some() {
            let Some(max) = links.collective_bytes_max(rank) else { return };
            // The first record of a collective may come before its receiver has started the collective. The others may not.
            let is_open = self.open.get(&name).is_some_and(|open| open.contains(&rank));
            let Some((bytes, follows)) = operation.next_bytes(max) else { return };
            if operation.sent_to.contains(&rank) && !is_open {
                return;
            }
            let Name { team, number } = name;
            let len = bytes.len();
            let head = Collected::encode_data_head(team, number, follows);
            if !links.say_collected_data(rank, &head, bytes) {
                return;
            }
            if !is_open {
                operation.sent_to.push(rank);
            }
            operation.advance_bytes(len);
        }
    }

    /// Takes a record that a step waits for, and continues. Returns false if the step waits for something else.
    fn take_at_once(
        &mut self,
        links: &mut Links,
        rank: u32,
        name: Name,
        follows: bool,
        record: &[u8],
    ) -> bool {
        let Some(operation) = self.under_way.get_mut(&name) else { return false };
        // Earlier records must be taken first. All of them were taken when the step began to wait.
        if operation.taken.is_none() || operation.sender() != Some(rank) || !self.arrived.is_empty() {
            return false;
        }
        let taken = Collectives::take_record(links, name, operation, (rank, follows), record);
        match taken {
            Ok(()) => self.advance(links, name),
            Err(error) => self.end(links, name, Err(error)),
        }
        true
    }

    fn take_record(
        links: &mut Links,
        name: Name,
        operation: &mut Operation,
        (rank, follows): (u32, bool),
        record: &[u8],
    ) -> Result<()> {
        if follows && !operation.opened.contains(&rank) {
            operation.opened.push(rank);
            let Name { team, number } = name;
            links.say_collected(rank, &Collected::Follow { team, number });
        }
        links.collected_one(rank);
        Ok(operation.take(record)?)
    }

    fn take(&mut self, links: &mut Links, name: Name, operation: &mut Operation) -> Result<()> {
        let Some(rank) = operation.sender() else { return Ok(()) };
        while operation.taken.is_some() {
            let Some(records) = self.arrived.get_mut(&(rank, name)) else { return Ok(()) };
            let Some((follows, record)) = records.pop_front() else { return Ok(()) };
            if records.is_empty() {
                self.arrived.remove(&(rank, name));
            }
            if let Some(kept) = self.kept.get_mut(&rank) {
                *kept = kept.saturating_sub(1);
            }
            Collectives::take_record(links, name, operation, (rank, follows), &record)?;
        }
        Ok(())
    }

    fn finish(&mut self, links: &mut Links, name: Name) {
        if let Some(operation) = self.under_way.remove(&name) {
            self.forget(links, name, &operation.ranks);
            self.ended.push_back((operation.cookie, Ok(operation.into_result())));
        }
    }

    fn end(&mut self, links: &mut Links, name: Name, result: Result<Vec<u8>>) {
        if let Some(operation) = self.under_way.remove(&name) {
            self.forget(links, name, &operation.ranks);
            self.ended.push_back((operation.cookie, result));
        }
    }

    /// Discards the records of a collective that has ended.
    fn forget(&mut self, links: &mut Links, name: Name, ranks: &[u32]) {
        self.open.remove(&name);
        for &rank in ranks {
            for _ in self.arrived.remove(&(rank, name)).unwrap_or_default() {
                if let Some(kept) = self.kept.get_mut(&rank) {
                    *kept = kept.saturating_sub(1);
                }
                links.collected_one(rank);
            }
        }
    }

    /// Handles the loss of a rank: collectives with it end here, and the other members are informed.
    pub fn lose(&mut self, links: &mut Links, lost: u32, why: &str) {
        self.arrived.retain(|(rank, _), _| *rank != lost);
        self.kept.remove(&lost);
        for (name, ranks) in self.lose_here(links, lost, why) {
            Collectives::report_lost(links, name, &ranks, lost);
        }
    }

    /// Handles the loss of a rank that another rank has reported to all.
    pub fn lose_elsewhere(&mut self, links: &mut Links, lost: u32, why: &str) {
        self.lose_here(links, lost, why);
    }

    fn lose_here(&mut self, links: &mut Links, lost: u32, why: &str) -> Vec<(Name, Arc<[u32]>)> {
        self.gone.entry(lost).or_insert_with(|| why.to_owned());
        let with = |(name, operation): (&Name, &Operation)| {
            operation.ranks.contains(&lost).then(|| (*name, Arc::clone(&operation.ranks)))
        };
        let all: Vec<(Name, Arc<[u32]>)> = self.under_way.iter().filter_map(with).collect();
        for (name, _) in &all {
            self.end(links, *name, Err(AmError::Gone { rank: lost, why: why.to_owned() }));
        }
        all
    }

    fn report_lost(links: &mut Links, name: Name, ranks: &[u32], lost: u32) {
        let Name { team, number } = name;
        let me = links.rank();
        for &rank in ranks.iter().filter(|&&rank| rank != lost && rank != me) {
            links.say_collected(rank, &Collected::Lost { team, number, rank: lost });
        }
    }

    pub fn next_ended(&mut self) -> Option<(u64, Result<Vec<u8>>)> {
        self.ended.pop_front()
    }

    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

fn check_numbers(data: &[u8], (number, reduction): (Number, Reduction)) -> Result<()> {
    if !number.can(reduction) {
        return Err(AmError::NO_BITS);
    }
    if !data.len().is_multiple_of(number.len_bytes()) {
        return Err(AmError::Argument("the data of a reduction is a whole number of elements"));
    }
    Ok(())
}

/// Checks the arguments of a program, and prepares the buffer and the steps.
fn prepare(ranks: Arc<[u32]>, place: Place, collective: Collective, cookie: u64) -> Result<Operation> {
    let size = place.size;
    let check_root = |root: u32| {
        let root = root as usize;
        if root < size { Ok(root) } else { Err(AmError::Range("there is no such member in this team")) }
    };
    let all_bytes = |len: usize| {
        let all = len.checked_mul(size).filter(|&all| isize::try_from(all).is_ok());
        all.ok_or(AmError::Argument("the data of all members exceed the address space"))
    };
    // Makes a place for each member, of which one is filled.
    let places = |data: &[u8], at: usize| {
        let mut buffer = vec![0; all_bytes(data.len())?];
        if let Some(mine) = buffer.get_mut(at * data.len()..(at + 1) * data.len()) {
            mine.copy_from_slice(data);
        }
        Ok::<_, AmError>(buffer)
    };
    let (mut turned_bytes, mut arithmetic) = (0, None);
    let (steps, buffer, result) = match collective {
        Collective::Barrier => (place.barrier(), Vec::new(), 0..0),
        Collective::Broadcast { root, data } => {
            let len = data.len();
            (place.broadcast(check_root(root)?, len), data, 0..len)
        }
        Collective::Gather { root, data } => {
            let (root, len) = (check_root(root)?, data.len());
            let all = all_bytes(len)?;
            if place.me == root {
                (place.gather(root, len), places(&data, root)?, 0..all)
            } else {
                (place.gather(root, len), data, 0..0)
            }
        }
        Collective::Scatter { root, data, len_bytes } => {
            let (root, all) = (check_root(root)?, all_bytes(len_bytes)?);
            let steps = place.scatter(root, len_bytes);
            if place.me != root {
                (steps, vec![0; len_bytes], 0..len_bytes)
            } else if data.len() == all {
                (steps, data, root * len_bytes..(root + 1) * len_bytes)
            } else {
                return Err(AmError::Argument("what is scattered has a part for each member"));
            }
        }
        Collective::Allgather { data } => {
            let len = data.len();
            let at = if place.gathers_in_turn(len) {
                turned_bytes = place.me * len;
                0
            } else {
                place.me
            };
            let buffer = places(&data, at)?;
            let all = buffer.len();
            (place.allgather(len), buffer, 0..all)
        }
        Collective::Alltoall { parts, data, result } => exchange(place, &parts, data, &result)?,
        Collective::Reduce { root, data, with } => {
            let root = check_root(root)?;
            check_numbers(&data, with)?;
            arithmetic = Some(with);
            let len = data.len();
            (place.reduce(root, len), data, 0..if place.me == root { len } else { 0 })
        }
        Collective::Allreduce { data, with } => {
            check_numbers(&data, with)?;
            arithmetic = Some(with);
            let len = data.len();
            (place.allreduce(len, with.0.len_bytes()), data, 0..len)
        }
        Collective::Scan { data, with } => {
            check_numbers(&data, with)?;
            arithmetic = Some(with);
            let len = data.len();
            (place.scan(len), data, 0..len)
        }
    };
    Ok(Operation {
        ranks,
        steps: steps.into_iter().rev().collect(),
        buffer,
        result,
        turned_bytes,
        arithmetic,
        sent: None,
        kept: None,
        taken: None,
        has_begun: false,
        sent_to: Vec::new(),
        opened: Vec::new(),
        cookie,
    })
}

/// The buffer contains the data to send, and the received data behind them.
fn exchange(
    place: Place,
    parts: &[(Range<usize>, Range<usize>)],
    data: Vec<u8>,
    result: &[u8],
) -> Result<(Vec<plan::Step>, Vec<u8>, Range<usize>)> {
    let (sent, got) = (data.len(), result.len());
    let is_good = |(out, into): &(Range<usize>, Range<usize>)| {
        out.start <= out.end && out.end <= sent && into.start <= into.end && into.end <= got
    };
    if parts.len() != place.size || !parts.iter().all(is_good) {
        return Err(AmError::Argument(
            "give one part for each member of the team, within the data that is sent and the space for what comes",
        ));
    }
    let mut buffer = data;
    buffer.extend_from_slice(result);
    let part = |member: usize| parts.get(member).cloned().unwrap_or_default();
    let behind = |range: Range<usize>| sent + range.start..sent + range.end;
    let (out, into) = part(place.me);
    if out.len() != into.len() {
        return Err(AmError::Argument(
            "the part that a member sends to itself must be as long as the part that it receives from itself",
        ));
    }
    buffer.copy_within(out, sent + into.start);
    let steps = place.alltoall(|to| part(to).0, |from| behind(part(from).1));
    Ok((steps, buffer, sent..sent + got))
}
