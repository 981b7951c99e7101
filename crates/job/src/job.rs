//! A rank's view of its job.

use crate::bootstrap::{self, Bootstrap};
use crate::ended::Ended;
use crate::error::{JobError, Result};
use crate::key::JobKey;
use crate::limits::{
    JOB_KEY_BYTES, KEY_BYTES_MAX, REASON_BYTES_MAX, STATUS_PAUSE_MAX, STATUS_PAUSE_MIN, VALUE_BYTES_MAX,
};
use crate::status::RankStatus;
use crate::wire::VERSION;
use std::fs;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Distinguishes hosts where a launcher does not: it differs for each host, and for each start of it.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// This process as a rank of its job.
///
/// ```no_run
/// # fn main() -> Result<(), cci_job::JobError> {
/// let mut job = cci_job::Job::join()?;
/// let uris = job.exchange(b"what the others should know")?;
/// job.barrier()?;
/// println!("rank {} of {}", job.rank(), job.size());
/// # Ok(())
/// # }
/// ```
pub struct Job {
    bootstrap: Box<dyn Bootstrap>,
    rank: u32,
    size: u32,
    key: JobKey,
    /// For each rank, the number of its host.
    hosts: Arc<[u32]>,
    /// Which ranks have ended, where the launcher shows it.
    ended: Option<Arc<Ended>>,
}

impl Job {
    /// Joins the job that this process was started for, by the variables that its launcher has set: `cci run`, or one that
    /// speaks PMIx or PMI-1. Without any, it is a job of one. Returns when all ranks have joined. A process joins once.
    ///
    /// # Errors
    /// A launcher's variables are set, and it does not answer, answers nonsense or refuses; another rank has another
    /// version of CCI; a rank has ended before it joined.
    pub fn join() -> Result<Job> {
        let mut joined = bootstrap::join()?;
        let fresh = match joined.key {
            Some(_) => None,
            None => Some(JobKey::random()?),
        };
        let mine =
            Card { version: VERSION.into(), host: this_host()?, key: fresh.filter(|_| joined.rank == 0) };
        let cards = joined.bootstrap.exchange(&mine.encode())?;
        let cards: Vec<Card> =
            (0..).zip(&cards).map(|(rank, card)| Card::decode(rank, card)).collect::<Result<_>>()?;
        if cards.len() != joined.size as usize {
            return Err(JobError::Launcher(format!("{} of {} ranks have joined", cards.len(), joined.size)));
        }
        let key = joined.key.or_else(|| cards.first()?.key.clone());
        let key = key.ok_or_else(|| JobError::Launcher("rank 0 has given the job no key".into()))?;
        Ok(Job {
            bootstrap: joined.bootstrap,
            rank: joined.rank,
            size: joined.size,
            key,
            hosts: number_hosts(&cards).into(),
            ended: joined.ended.map(Arc::new),
        })
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of this host, from 0, in the order of their lowest ranks.
    pub fn host(&self) -> u32 {
        self.host_of(self.rank).unwrap_or_default()
    }

    /// The number of a rank's host; none where there is no such rank.
    pub fn host_of(&self, rank: u32) -> Option<u32> {
        self.hosts.get(rank as usize).copied()
    }

    /// For each rank, the number of its host.
    pub(crate) fn hosts(&self) -> Arc<[u32]> {
        self.hosts.clone()
    }

    /// Which ranks have ended, where the launcher shows it.
    pub(crate) fn ended(&self) -> Option<Arc<Ended>> {
        self.ended.clone()
    }

    /// The number of this rank among those of its host, from 0.
    pub fn local_rank(&self) -> u32 {
        self.count_here(self.rank)
    }

    /// How many ranks this host has.
    pub fn local_size(&self) -> u32 {
        self.count_here(self.size)
    }

    /// Ranks of this host below `end`.
    fn count_here(&self, end: u32) -> u32 {
        let here = self.host();
        self.hosts.iter().take(end as usize).filter(|&&host| host == here).count() as u32
    }

    /// Security by the job's key, for [`cci::Options::security`]: an endpoint that has it admits ranks of this job only.
    /// Shared memory has none: there the kernel's word on the user stands.
    ///
    /// # Errors
    /// CCI was built without its feature `sealing`.
    pub fn security(&self) -> Result<cci::Security> {
        let line = format!("job = {}\n", self.key.to_hex());
        cci::Security::psk(line.as_bytes()).map_err(|error| JobError::Argument(error.to_string()))
    }

    /// Keeps a value under a key for ranks that ask for it: up to 64 keys a rank, each once, of up to 64 bytes (16 with
    /// launchers that speak PMI-1), with values of up to 4,096 bytes.
    ///
    /// # Errors
    /// The key is empty or too long, the value is too long, or the key was put before: nothing has changed. The launcher is
    /// gone.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        self.bootstrap.put(key, value)
    }

    /// What a rank has put under a key, or none. It is certain to be there after a barrier that followed the
    /// [`Job::put`].
    ///
    /// # Errors
    /// There is no such rank, or the key is empty or too long. The launcher is gone.
    pub fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        self.check_rank(rank)?;
        self.bootstrap.get(rank, key)
    }

    /// Gives everybody this rank's value of up to 4,096 bytes, and returns everybody's by rank. All ranks call it, in the
    /// same order with [`Job::barrier`]; it blocks until all have.
    ///
    /// # Errors
    /// The value is too long: nothing was given. A rank has ended or left. The launcher is gone.
    pub fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        check_value(value)?;
        let values = self.bootstrap.exchange(value)?;
        if values.len() != self.size as usize {
            return Err(JobError::Launcher(format!("{} of {} values have come", values.len(), self.size)));
        }
        Ok(values)
    }

    /// Blocks until all ranks have called it.
    ///
    /// # Errors
    /// As of [`Job::exchange`].
    pub fn barrier(&mut self) -> Result<()> {
        self.exchange(&[]).map(drop)
    }

    /// Asks the launcher to end the whole job with this exit code, and to say why; this process goes on until it is ended.
    ///
    /// # Errors
    /// The code is 0, which means success, or the reason has more than 512 bytes: nothing was asked. The launcher is gone.
    pub fn abort(&mut self, code: u8, reason: &str) -> Result<()> {
        let code = NonZeroU8::new(code).ok_or_else(|| {
            JobError::Argument("a job that is aborted has not succeeded: give another code than 0".into())
        })?;
        if reason.len() > REASON_BYTES_MAX {
            return Err(JobError::Argument(format!("a reason has up to {REASON_BYTES_MAX} bytes")));
        }
        self.bootstrap.abort(code, reason)
    }

    /// Says that this rank goes on when another one dies. By default a death ends the job; once every living rank has said this, it
    /// does not. Exchanges and barriers then return [`JobError::Gone`], and connections with the dead rank end: over shared memory and TCP at
    /// once, and over datagrams, which do not show a death, some 2 s after the launcher has seen it. The launcher's exit code stays that of the
    /// first rank that failed.
    ///
    /// # Errors
    /// The launcher can't be asked ([`JobError::Refused`]): only `cci run` can. The launcher is gone.
    pub fn survive(&mut self) -> Result<()> {
        self.bootstrap.survive()?;
        if let Some(ended) = &self.ended {
            ended.want();
        }
        Ok(())
    }

    /// What has become of a rank: how its process ended, as far as the launcher knows. If it has not ended yet, waits for that for up to
    /// `timeout`. So a rank that learned of a death, by [`JobError::Gone`] or the end of a connection, learns its cause, which the launcher
    /// may see a little later.
    ///
    /// # Errors
    /// There is no such rank. The launcher can't be asked ([`JobError::Refused`]): only `cci run` can. The launcher is gone.
    pub fn status(&mut self, rank: u32, timeout: Duration) -> Result<RankStatus> {
        self.check_rank(rank)?;
        let began = Instant::now();
        let mut pause = STATUS_PAUSE_MIN;
        loop {
            let status = self.bootstrap.status(rank)?;
            let left = timeout.saturating_sub(began.elapsed());
            if status.is_final() || left.is_zero() {
                return Ok(status);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(STATUS_PAUSE_MAX);
        }
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        if rank >= self.size {
            return Err(JobError::Argument(format!("there is no rank {rank} in a job of {}", self.size)));
        }
        Ok(())
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(JobError::Argument(format!(
            "a key has 1 to {KEY_BYTES_MAX} bytes, and not {}",
            key.len()
        )));
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(JobError::Argument(format!(
            "a value has up to {VALUE_BYTES_MAX} bytes, and not {}: send more over a connection",
            value.len()
        )));
    }
    Ok(())
}

fn this_host() -> Result<String> {
    let boot_id =
        fs::read_to_string(BOOT_ID).map_err(JobError::system("the number of this start of the host"))?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // The name, too: containers of one machine share its number, and little else.
    Ok(format!("{} {name}", boot_id.trim()))
}

fn number_hosts(cards: &[Card]) -> Vec<u32> {
    let mut names: Vec<String> = Vec::new();
    let number = |card: &Card| {
        let known = names.iter().position(|name| *name == card.host);
        known.unwrap_or_else(|| {
            names.push(card.host.clone());
            names.len() - 1
        }) as u32
    };
    cards.iter().map(number).collect()
}

/// What every rank says of itself when it joins: lines of text.
struct Card {
    version: String,
    host: String,
    key: Option<JobKey>,
}

impl Card {
    fn encode(&self) -> Vec<u8> {
        let key = self.key.as_ref().map(JobKey::to_hex).unwrap_or_default();
        format!("CCI {}\n{}\n{key}\n", self.version, self.host).into_bytes()
    }

    fn decode(rank: u32, bytes: &[u8]) -> Result<Card> {
        let parse = || {
            let mut lines = std::str::from_utf8(bytes).ok()?.lines();
            Some((lines.next()?.strip_prefix("CCI ")?, lines.next(), lines.next()))
        };
        let nonsense = || JobError::Launcher(format!("rank {rank} says what no rank of CCI says"));
        let (version, host, key) = parse().ok_or_else(nonsense)?;
        if version != VERSION {
            return Err(JobError::Refused(format!(
                "rank {rank} has CCI {version}, and this one CCI {VERSION}: build all programs of a job with one"
            )));
        }
        let (host, key) = (host.ok_or_else(nonsense)?.to_owned(), key.ok_or_else(nonsense)?);
        let key = match key.len() {
            0 => None,
            len if len == 2 * JOB_KEY_BYTES => Some(JobKey::from_hex(key)?),
            _ => return Err(nonsense()),
        };
        Ok(Card { version: version.to_owned(), host, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(host: &str) -> Card {
        Card { version: VERSION.into(), host: host.into(), key: None }
    }

    #[test]
    fn hosts_are_numbered_by_their_lowest_rank() {
        assert_eq!(number_hosts(&["b", "b", "a", "b", "c", "a"].map(card)), [0, 0, 1, 0, 2, 1]);
    }

    #[test]
    fn ranks_of_another_version_are_refused_by_name_and_number() {
        let other = Card { version: "9.1.0".into(), ..card("h") }.encode();
        let refused = Card::decode(3, &other).err().unwrap().to_string();
        assert!(
            refused.contains("rank 3") && refused.contains("9.1.0") && refused.contains(VERSION),
            "{refused}"
        );
        for nonsense in [&b""[..], b"CCI", b"\xff", format!("CCI {VERSION}\n").as_bytes(), b"x\ny\nz\n"] {
            assert!(Card::decode(0, nonsense).is_err());
        }
    }
}
