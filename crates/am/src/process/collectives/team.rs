//! Teams: some of the ranks of a job, in their own order.

use super::plan::Place;
use crate::error::{AmError, Result};
use crate::limits::TEAMS_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identifies a team. All its members know it by the same number.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Team(u32);

impl Team {
    /// All ranks of the job.
    pub const WORLD: Team = Team(0);
    /// The ranks of this host.
    pub const NODE: Team = Team(1);

    /// The team's number, which no other team of this process has or had.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The team of a number. If there is none, calls refuse it.
    pub fn from_number(number: u32) -> Team {
        Team(number)
    }
}

pub(crate) struct Teams {
    all: BTreeMap<u32, Entry>,
    rank: u32,
    /// A number for each rank's host.
    hosts: Box<[u32]>,
    /// The lowest number that no team of this process has had.
    next_id: u32,
}

struct Entry {
    ranks: Arc<[u32]>,
    me: usize,
    is_one_host: bool,
    /// How many collectives were started there.
    started: u32,
}

/// The contribution of a member to a split of a team.
struct Card {
    color: i32,
    key: i32,
    next_id: u32,
}

impl Card {
    const BYTES: usize = 12;

    fn encode(&self) -> Vec<u8> {
        [self.color.to_le_bytes(), self.key.to_le_bytes(), self.next_id.to_le_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Card> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let [color, key, next_id] = *words else { return None };
        let next_id = u32::from_le_bytes(next_id);
        Some(Card { color: i32::from_le_bytes(color), key: i32::from_le_bytes(key), next_id })
    }
}

impl Teams {
    pub fn new(rank: u32, hosts: &[u32]) -> Teams {
        let mine = hosts.get(rank as usize);
        let world: Arc<[u32]> = (0..hosts.len() as u32).collect();
        let node: Arc<[u32]> =
            (0..).zip(hosts).filter_map(|(rank, host)| (Some(host) == mine).then_some(rank)).collect();
        let entry = |ranks: Arc<[u32]>| {
            let me = ranks.iter().position(|&other| other == rank).unwrap_or_default();
            let is_one_host = are_on_one_host(&ranks, hosts);
            Entry { ranks, me, is_one_host, started: 0 }
        };
        Teams {
            all: BTreeMap::from([(0, entry(world)), (1, entry(node))]),
            rank,
            hosts: hosts.into(),
            next_id: 2,
        }
    }

    fn entry(&self, team: Team) -> Result<&Entry> {
        self.all.get(&team.0).ok_or(AmError::Argument("there is no such team, or it was freed"))
    }

    /// The members of a team, and the place of this one.
    pub fn find(&self, team: Team) -> Result<(Arc<[u32]>, Place)> {
        let entry = self.entry(team)?;
        let (size, is_one_host) = (entry.ranks.len(), entry.is_one_host);
        Ok((Arc::clone(&entry.ranks), Place { me: entry.me, size, is_one_host }))
    }

    /// The number of the next collective of all ranks.
    pub fn next_of_world(&self) -> u32 {
        let started = self.all.get(&Team::WORLD.0).map(|entry| entry.started);
        started.unwrap_or_default().wrapping_add(1)
    }

    /// The number of the next collective of a team.
    pub fn take_number(&mut self, team: Team) -> u32 {
        let Some(entry) = self.all.get_mut(&team.0) else { return 0 };
        entry.started = entry.started.wrapping_add(1);
        entry.started
    }

    /// The contribution of this member to the split of a team.
    pub fn card(&self, color: i32, key: i32) -> Vec<u8> {
        Card { color, key, next_id: self.next_id }.encode()
    }

    /// Makes the team of those members of `parent` that have this color, by the contributions of all members, in the order of
    /// their keys and then of their numbers.
    pub fn split(&mut self, parent: Team, cards: &[u8], color: i32) -> Result<Team> {
        const BAD: AmError = AmError::Argument("the members of a team differ in which collective they call");
        if self.all.len() >= TEAMS_MAX {
            return Err(AmError::Full("a process has up to 4,096 teams"));
        }
        let ranks = Arc::clone(&self.entry(parent)?.ranks);
        let cards = cards.chunks(Card::BYTES).map(Card::decode).collect::<Option<Vec<_>>>().ok_or(BAD)?;
        if cards.len() != ranks.len() {
            return Err(BAD);
        }
        let id = cards.iter().map(|card| card.next_id).max().unwrap_or(self.next_id);
        let mut members: Vec<(i32, u32)> = cards
            .iter()
            .zip(ranks.iter())
            .filter(|(card, _)| card.color == color)
            .map(|(card, &rank)| (card.key, rank))
            .collect();
        members.sort_by_key(|&(key, _)| key);
        let ranks: Arc<[u32]> = members.into_iter().map(|(_, rank)| rank).collect();
        let me = ranks.iter().position(|&rank| rank == self.rank).ok_or(BAD)?;
        self.next_id = id.checked_add(1).ok_or(AmError::Full("there are no more numbers for teams"))?;
        let is_one_host = are_on_one_host(&ranks, &self.hosts);
        self.all.insert(id, Entry { ranks, me, is_one_host, started: 0 });
        Ok(Team(id))
    }

    /// Removes a team. What is under way in it continues.
    pub fn free(&mut self, team: Team) -> Result<()> {
        if team == Team::WORLD || team == Team::NODE {
            return Err(AmError::Argument("the teams that exist from the start are not freed"));
        }
        self.entry(team)?;
        self.all.remove(&team.0);
        Ok(())
    }
}

fn are_on_one_host(ranks: &[u32], hosts: &[u32]) -> bool {
    let host = |rank: &u32| hosts.get(*rank as usize);
    ranks.windows(2).all(|two| two.iter().map(host).is_sorted_by(|one, other| one == other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_are_split_by_color_and_ordered_by_key() {
        let hosts = [0, 0, 1, 1, 0];
        let mut all: Vec<Teams> = (0..5).map(|rank| Teams::new(rank, &hosts)).collect();
        assert_eq!(*all[1].find(Team::NODE).unwrap().0, [0, 1, 4]);
        assert_eq!(all[4].find(Team::NODE).unwrap().1.me, 2);
        let is_one_host = |teams: &Teams, team| teams.find(team).unwrap().1.is_one_host;
        assert!(is_one_host(&all[4], Team::NODE) && !is_one_host(&all[4], Team::WORLD));
        // Rank 3 has had a team of its own.
        let card = all[3].card(0, 0);
        let alone = Teams::new(3, &hosts).split(Team::WORLD, &card, 0);
        assert!(alone.is_err(), "one card of five");
        all[3].next_id = 7;
        let colors = [1, 2, 1, 2, 1];
        let keys = [5, 0, -5, 0, 5];
        let cards: Vec<u8> = all
            .iter()
            .zip(colors.iter().zip(keys))
            .flat_map(|(teams, (&color, key))| teams.card(color, key))
            .collect();
        let teams: Vec<Team> = all
            .iter_mut()
            .zip(colors)
            .map(|(teams, color)| teams.split(Team::WORLD, &cards, color).unwrap())
            .collect();
        for (rank, (expected, me)) in
            [(&[2, 0, 4][..], 1), (&[1, 3], 0), (&[2, 0, 4], 0), (&[1, 3], 1), (&[2, 0, 4], 2)]
                .iter()
                .enumerate()
        {
            let (ranks, place) = all[rank].find(teams[rank]).unwrap();
            assert_eq!((teams[rank].number(), &*ranks, place.me), (7, *expected, *me), "rank {rank}");
        }
        all[0].free(teams[0]).unwrap();
        assert!(
            all[0].find(teams[0]).is_err()
                && all[0].free(teams[0]).is_err()
                && all[0].free(Team::NODE).is_err()
        );
        assert!(
            all[0].split(Team::WORLD, &cards[1..], 1).is_err()
                && all[0].split(Team::WORLD, &cards, 9).is_err()
        );
    }
}
