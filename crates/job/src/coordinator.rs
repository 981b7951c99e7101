//! The launcher's side: takes ranks in, and answers what they ask.

use crate::error::{JobError, Result};
use crate::key::JobKey;
use crate::limits::VALUES_PER_RANK_MAX;
use crate::wire::{FromLauncher, FromRank, Say, VERSION};
use rustix::net::sockopt::socket_peercred;
use std::collections::HashMap;
use std::io::{self, BufReader};
use std::num::NonZeroU8;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Who connects says at once who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// A rank that asks reads the answer.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const RANK_STACK_BYTES: usize = 128 * 1024;

/// A rank wants the job to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Which one.
    pub rank: u32,
    /// What the job shall end with; not 0.
    pub code: NonZeroU8,
    /// Why, for people.
    pub reason: String,
}

/// Takes the ranks of one job in. For launchers, until their process ends: it has a thread that listens, and one for each
/// rank that has joined.
pub struct Coordinator {
    shared: Arc<Shared>,
    name: String,
}

struct Shared {
    size: u32,
    key: JobKey,
    table: Mutex<Table>,
    on_abort: Box<dyn Fn(Abort) + Send + Sync>,
}

#[derive(Default)]
struct Table {
    ranks: Vec<RankState>,
    /// Which rank was the first to go, if one is.
    gone: Option<u32>,
}

#[derive(Default)]
struct RankState {
    /// Where answers go; none before it has joined.
    answers: Option<UnixStream>,
    /// What it gives to the exchange under way.
    exchanged: Option<Vec<u8>>,
    values: HashMap<String, Vec<u8>>,
}

impl Coordinator {
    /// Listens for the `size` ranks of the job with that key. `on_abort` is called on threads of the coordinator.
    ///
    /// # Errors
    /// The system refuses the socket or the thread.
    pub fn listen(
        size: u32,
        key: JobKey,
        on_abort: impl Fn(Abort) + Send + Sync + 'static,
    ) -> Result<Coordinator> {
        let name = format!("cci-job-{:016x}", cci_sys::random::u64()?);
        let listener = SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(JobError::system("a socket for the ranks"))?;
        let ranks = (0..size).map(|_| RankState::default()).collect();
        let table = Mutex::new(Table { ranks, gone: None });
        let shared = Arc::new(Shared { size, key, table, on_abort: Box::new(on_abort) });
        let serving = shared.clone();
        thread::Builder::new()
            .spawn(move || serving.accept_all(&listener))
            .map_err(JobError::system("a thread for the ranks"))?;
        Ok(Coordinator { shared, name })
    }

    /// The name of its socket, for `CCI_JOB_SOCKET` in the environment of ranks.
    pub fn socket_name(&self) -> &str {
        &self.name
    }

    /// Ranks that others wait for: some have called an exchange or a barrier, or are joining, and these have not.
    pub fn waited_for(&self) -> Vec<u32> {
        let table = self.shared.table();
        if table.ranks.iter().all(|state| state.exchanged.is_none()) {
            return Vec::new();
        }
        (0..).zip(&table.ranks).filter(|(_, state)| state.exchanged.is_none()).map(|(rank, _)| rank).collect()
    }

    /// The process of this rank has ended: nobody waits for it from now on.
    pub fn rank_ended(&self, rank: u32) {
        self.shared.gone(rank);
    }
}

impl Shared {
    fn accept_all(self: Arc<Self>, listener: &UnixListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // No descriptor is left: a rank that ends gives some back.
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let serving = self.clone();
            // The stack of a rank's thread holds no frame: frames are on the heap.
            // Where there is none, the rank sees that its socket was closed.
            drop(thread::Builder::new().stack_size(RANK_STACK_BYTES).spawn(move || serving.serve(stream)));
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that holds it panics.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: UnixStream) {
        // The kernel's word: only the same user gets as far as the key.
        if socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw()) != Some(cci_sys::process::uid()) {
            return;
        }
        let limited = stream
            .set_read_timeout(Some(HELLO_LIMIT))
            .and_then(|()| stream.set_write_timeout(Some(WRITE_LIMIT)));
        let (Ok(()), Ok(answers)) = (limited, stream.try_clone()) else { return };
        let mut from = BufReader::new(stream);
        let Ok(hello) = FromRank::read(&mut from) else { return };
        let rank = match self.admit(hello, answers) {
            Ok(rank) => rank,
            Err(reason) => {
                // One that does not wait for its answer needs none.
                let _ = FromLauncher::Failed { reason }.write(from.get_mut());
                return;
            }
        };
        if from.get_ref().set_read_timeout(None).is_ok() {
            while let Ok(said) = FromRank::read(&mut from) {
                if self.answer(rank, said).is_err() {
                    break;
                }
            }
        }
        self.gone(rank);
    }

    fn admit(&self, hello: FromRank, answers: UnixStream) -> Result<u32, String> {
        let FromRank::Hello { version, key, rank } = hello else {
            return Err("the first frame of a rank says who it is".into());
        };
        if version != VERSION {
            return Err(format!(
                "the program has CCI {version}, and its launcher CCI {VERSION}: build both with one"
            ));
        }
        if !self.key.is(&key) {
            return Err("CCI_JOB_KEY is not the key of this job".into());
        }
        let mut table = self.table();
        let Some(state) = table.ranks.get_mut(rank as usize) else {
            return Err(format!("there is no rank {rank} in a job of {}", self.size));
        };
        if state.answers.is_some() {
            return Err(format!("rank {rank} has joined already: a rank joins once"));
        }
        let failed = |error: io::Error| format!("answering rank {rank}: {error}");
        FromLauncher::Welcome { size: self.size }.write(&mut &answers).map_err(failed)?;
        state.answers = Some(answers);
        Ok(rank)
    }

    /// Fails where the rank can't be answered, or says what no honest rank says.
    fn answer(&self, rank: u32, said: FromRank) -> io::Result<()> {
        let mut table = self.table();
        match said {
            FromRank::Hello { .. } => Err(io::ErrorKind::InvalidData.into()),
            FromRank::Exchange { value } => table.exchange(rank, value),
            FromRank::Put { key, value } => {
                let state = table.state(rank)?;
                let answer = if state.values.contains_key(&key) {
                    FromLauncher::Failed { reason: format!("rank {rank} has put the key {key:?} already") }
                } else if state.values.len() >= VALUES_PER_RANK_MAX {
                    FromLauncher::Failed { reason: format!("a rank puts up to {VALUES_PER_RANK_MAX} keys") }
                } else {
                    state.values.insert(key, value);
                    FromLauncher::Done
                };
                state.say(&answer)
            }
            FromRank::Get { rank: of, key } => {
                let value = table.ranks.get(of as usize).and_then(|state| state.values.get(&key)).cloned();
                table.state(rank)?.say(&FromLauncher::Value { value })
            }
            FromRank::Abort { code, reason } => {
                drop(table);
                (self.on_abort)(Abort { rank, code, reason });
                Ok(())
            }
        }
    }

    fn gone(&self, rank: u32) {
        let mut table = self.table();
        let first = *table.gone.get_or_insert(rank);
        table.fail_exchange(first);
    }
}

impl Table {
    fn state(&mut self, rank: u32) -> io::Result<&mut RankState> {
        self.ranks.get_mut(rank as usize).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn exchange(&mut self, rank: u32, value: Vec<u8>) -> io::Result<()> {
        let gone = self.gone;
        let state = self.state(rank)?;
        if state.exchanged.is_some() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if let Some(rank) = gone {
            return state.say(&FromLauncher::Gone { rank });
        }
        state.exchanged = Some(value);
        if self.ranks.iter().any(|state| state.exchanged.is_none()) {
            return Ok(());
        }
        let values = self.ranks.iter_mut().filter_map(|state| state.exchanged.take()).collect();
        let answer = FromLauncher::Exchanged { values };
        for state in &self.ranks {
            // One that can't be answered has gone, which its own thread sees.
            let _ = state.say(&answer);
        }
        Ok(())
    }

    /// Nobody waits any more for a rank that is gone.
    fn fail_exchange(&mut self, gone: u32) {
        for state in &mut self.ranks {
            if state.exchanged.take().is_some() {
                let _ = state.say(&FromLauncher::Gone { rank: gone });
            }
        }
    }
}

impl RankState {
    fn say(&self, what: &FromLauncher) -> io::Result<()> {
        let Some(mut answers) = self.answers.as_ref() else { return Err(io::ErrorKind::NotConnected.into()) };
        what.write(&mut answers)
    }
}
