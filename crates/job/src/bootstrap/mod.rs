//! How a rank learns who it is, and reaches the others before any connection stands.

mod alone;
mod own;
mod pmi1;
mod pmix;

use crate::ended::Ended;
use crate::error::{JobError, Result};
use crate::key::JobKey;
use crate::status::RankStatus;
use std::env;
use std::num::NonZeroU8;

/// What a launcher does for a rank.
pub trait Bootstrap: Send {
    /// Keeps a value of this rank for whoever asks.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()>;
    /// What a rank has put before the last exchange that both took part in.
    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>>;
    /// Everybody's value, by rank; returns when all have given one.
    fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>>;
    /// Asks the launcher to end the job.
    fn abort(&mut self, code: NonZeroU8, reason: &str) -> Result<()>;
    /// Asks the launcher to let this rank go on when another one dies. Those that can't be asked refuse.
    fn survive(&mut self) -> Result<()> {
        let why = "this launcher can't be asked to go on without a rank: with `cci run` it can";
        Err(JobError::Refused(why.into()))
    }
    /// Asks the launcher what has become of a rank. Those that can't be asked refuse.
    fn status(&mut self, _rank: u32) -> Result<RankStatus> {
        let why = "this launcher can't be asked what has become of a rank: with `cci run` it can";
        Err(JobError::Refused(why.into()))
    }
}

/// A rank that its launcher has taken in.
pub struct Joined {
    pub bootstrap: Box<dyn Bootstrap>,
    pub rank: u32,
    pub size: u32,
    /// None where the launcher has given none: the ranks agree on one.
    pub key: Option<JobKey>,
    /// None where the launcher shows nobody which ranks have ended.
    pub ended: Option<Ended>,
}

/// By the launcher whose variables are in the environment.
pub fn join() -> Result<Joined> {
    if let Some(name) = variable("CCI_JOB_SOCKET")? {
        return own::join(&name);
    }
    if let Some(number) = variable("PMI_FD")? {
        return pmi1::join(&number);
    }
    if is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE") {
        return pmix::join();
    }
    let several = variable("SLURM_STEP_NUM_TASKS")?.and_then(|tasks| tasks.parse::<u32>().ok());
    if is_set("PMI_RANK") || several.is_some_and(|tasks| tasks > 1) {
        return Err(JobError::Launcher(
            "a launcher has started several ranks, and gives them no way to find each other: with Slurm, use `srun --mpi=pmi2` or `--mpi=pmix`"
                .into(),
        ));
    }
    Ok(alone::join())
}

fn is_set(name: &str) -> bool {
    env::var_os(name).is_some()
}

fn variable(name: &'static str) -> Result<Option<String>> {
    match env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(JobError::Launcher(format!("the variable {name} is no text")))
        }
    }
}

fn number(name: &'static str) -> Result<u32> {
    let value =
        variable(name)?.ok_or_else(|| JobError::Launcher(format!("the launcher has not set {name}")))?;
    value.parse().map_err(|_| JobError::Launcher(format!("{name} should be a number: {value:?}")))
}
