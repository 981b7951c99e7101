//! The launcher's side of a whole job: what its ranks exchange, put and get, whichever hosts they are on.

use crate::limits::VALUES_PER_RANK_MAX;
use crate::relayed::{FromHost, News, ToHost};
use crate::status::RankStatus;
use crate::wire::{FromLauncher, FromRank};
use std::collections::HashMap;
use std::num::NonZeroU8;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a launcher learns of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A rank has joined the job.
    Joined {
        /// Which one.
        rank: u32,
    },
    /// A rank wants the job to end.
    Abort {
        /// Which one.
        rank: u32,
        /// What the job shall end with; not 0.
        code: NonZeroU8,
        /// Why, for people.
        reason: String,
    },
}

/// Answers the ranks of one job, which the [`crate::server::RankServer`] of each host takes in.
pub struct Coordinator {
    table: Mutex<Table>,
    on_notice: Box<dyn Fn(Notice) + Send + Sync>,
}

type Answers = Box<dyn Fn(ToHost) + Send + Sync>;

struct Table {
    ranks: Vec<RankState>,
    hosts: Vec<Answers>,
    /// Which rank was the first to go, if one is.
    gone: Option<u32>,
}

#[derive(Default)]
struct RankState {
    /// Its host's place in the table.
    host: usize,
    /// What it gives to the exchange under way.
    exchanged: Option<Vec<u8>>,
    values: HashMap<String, Vec<u8>>,
    /// It has asked to go on when another rank dies.
    survives: bool,
    /// It has closed its connection with the launcher.
    has_left: bool,
    /// How its process has ended.
    end: Option<RankStatus>,
}

impl Coordinator {
    /// For a job, of whose ranks those of `hosts` are some: each entry has the number of that host's ranks, which follow
    /// those of the host before it, and where answers to them go. `on_notice` is called by whoever calls
    /// [`Coordinator::received`].
    pub fn new(
        hosts: Vec<(u32, Answers)>,
        on_notice: impl Fn(Notice) + Send + Sync + 'static,
    ) -> Coordinator {
        let of_host = |(host, (ranks, _)): (usize, &(u32, Answers))| {
            (0..*ranks).map(move |_| RankState { host, ..RankState::default() })
        };
        let ranks = hosts.iter().enumerate().flat_map(of_host).collect();
        let hosts = hosts.into_iter().map(|(_, answers)| answers).collect();
        let table = Mutex::new(Table { ranks, hosts, gone: None });
        Coordinator { table, on_notice: Box::new(on_notice) }
    }

    /// Ranks that others wait for: some have called an exchange or a barrier, or are joining, and these have not.
    pub fn waited_for(&self) -> Vec<u32> {
        let table = self.table();
        if table.ranks.iter().all(|state| state.exchanged.is_none()) {
            return Vec::new();
        }
        (0..).zip(&table.ranks).filter(|(_, state)| state.exchanged.is_none()).map(|(rank, _)| rank).collect()
    }

    /// The process of this rank has ended in this way: nobody waits for it from now on, and the ranks of all hosts can see it.
    pub fn rank_ended(&self, rank: u32, status: RankStatus) {
        let mut table = self.table();
        if let Some(state) = table.ranks.get_mut(rank as usize) {
            state.end = Some(status);
            for say in &table.hosts {
                say(ToHost::Ended { rank, has_died: status.is_death() });
            }
        }
        table.rank_is_gone(rank);
    }

    /// Whether all ranks whose processes have not ended survive the death of another one.
    pub fn living_survive(&self) -> bool {
        self.table().ranks.iter().all(|state| state.survives || state.end.is_some())
    }

    /// Takes what the server of a host says of one of its ranks. What is said of a rank that does not exist is ignored.
    pub fn received(&self, said: FromHost) {
        let FromHost { rank, what } = said;
        match what {
            News::Joined => (self.on_notice)(Notice::Joined { rank }),
            News::Asks(FromRank::Abort { code, reason }) => {
                (self.on_notice)(Notice::Abort { rank, code, reason });
            }
            News::Asks(asked) => self.table().answer(rank, asked),
            News::Left => self.table().left(rank),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that holds it panics.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn answer(&mut self, rank: u32, asked: FromRank) {
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        let answer = match asked {
            FromRank::Exchange { value } => {
                self.exchange(rank, value);
                return;
            }
            FromRank::Put { key, value } => state.put(rank, key, value),
            FromRank::Survive => {
                state.survives = true;
                FromLauncher::Done
            }
            FromRank::Get { rank: of, key } => {
                let value = self.ranks.get(of as usize).and_then(|state| state.values.get(&key)).cloned();
                FromLauncher::Value { value }
            }
            FromRank::Status { rank: of } => match self.ranks.get(of as usize) {
                Some(state) => FromLauncher::Status { status: state.status() },
                None => FromLauncher::Failed { reason: format!("there is no rank {of}") },
            },
            // Neither comes so far: a server admits ranks, and an abort is a notice.
            FromRank::Hello { .. } | FromRank::Abort { .. } => return,
        };
        self.say(rank, answer);
    }

    fn exchange(&mut self, rank: u32, value: Vec<u8>) {
        if let Some(rank_gone) = self.gone {
            return self.say(rank, FromLauncher::Gone { rank: rank_gone });
        }
        let Some(state) = self.ranks.get_mut(rank as usize) else { return };
        if state.exchanged.is_some() {
            let reason = format!("rank {rank} takes part in two exchanges at once");
            return self.say(rank, FromLauncher::Failed { reason });
        }
        state.exchanged = Some(value);
        if self.ranks.iter().any(|state| state.exchanged.is_none()) {
            return;
        }
        let values = self.ranks.iter_mut().filter_map(|state| state.exchanged.take()).collect();
        let answer = FromLauncher::Exchanged { values };
        for say in &self.hosts {
            say(ToHost::Answer { rank: None, answer: answer.clone() });
        }
    }

    /// A rank has closed its connection with the launcher.
    fn left(&mut self, rank: u32) {
        if let Some(state) = self.ranks.get_mut(rank as usize) {
            state.has_left = true;
        }
        self.rank_is_gone(rank);
    }

    /// Nobody waits any more for a rank that is gone.
    fn rank_is_gone(&mut self, rank: u32) {
        let rank_gone = *self.gone.get_or_insert(rank);
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].exchanged.take().is_some() {
                self.say(rank as u32, FromLauncher::Gone { rank: rank_gone });
            }
        }
    }

    fn say(&self, rank: u32, answer: FromLauncher) {
        let Some(say) = self.ranks.get(rank as usize).and_then(|state| self.hosts.get(state.host)) else {
            return;
        };
        say(ToHost::Answer { rank: Some(rank), answer });
    }
}

impl RankState {
    fn status(&self) -> RankStatus {
        self.end.unwrap_or(if self.has_left { RankStatus::Left } else { RankStatus::Running })
    }

    fn put(&mut self, rank: u32, key: String, value: Vec<u8>) -> FromLauncher {
        if self.values.contains_key(&key) {
            return FromLauncher::Failed { reason: format!("rank {rank} has put the key {key:?} already") };
        }
        if self.values.len() >= VALUES_PER_RANK_MAX {
            return FromLauncher::Failed { reason: format!("a rank puts up to {VALUES_PER_RANK_MAX} keys") };
        }
        self.values.insert(key, value);
        FromLauncher::Done
    }
}
