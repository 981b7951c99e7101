//! Who takes part in a row.

use crate::args::By;
use crate::child;
use crate::reading::Reading;
use crate::work::{Placement, Work};
use cci_measure::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::Command;

/// What a contestant is in the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The exchange in plain code, with nothing above the primitive.
    Baseline,
    /// CCI.
    Ours,
    /// What people would use instead.
    Peer,
}

/// Does a piece of work, a turn at a time, in processes of its own that are gone when the turn is over.
pub trait Contestant {
    /// As in the tables, such as `UCX` or `cci shm`.
    fn name(&self) -> String;

    /// See [`Role`].
    fn role(&self) -> Role;

    /// What exactly was measured: version and how it was set up. An error says what is missing and how to install it;
    /// the row then goes without it, and says so.
    fn about(&self) -> Outcome<String>;

    /// Does the work `count` times after a warm-up of its own, one side on each of the two cores.
    ///
    /// # Errors
    /// It failed, took longer than [`child::TURN_LIMIT`], or printed something that is no reading.
    fn turn(&self, work: Work, count: u64) -> Outcome<Reading>;
}

/// This program as a process of its own: baseline and CCI.
pub struct Worker {
    by: By,
    placement: Placement,
    name: &'static str,
    role: Role,
    /// Its own work instead of the row's, where a row compares several kinds of work.
    work: Option<Work>,
}

impl Worker {
    /// The baseline.
    pub const fn baseline(name: &'static str, by: By, placement: Placement) -> Worker {
        Worker { by, placement, name, role: Role::Baseline, work: None }
    }

    /// CCI.
    pub const fn ours(name: &'static str, by: By, placement: Placement) -> Worker {
        Worker { by, placement, name, role: Role::Ours, work: None }
    }

    /// It does this, whatever the row's work is.
    pub const fn doing(self, work: Work) -> Worker {
        Worker { work: Some(work), ..self }
    }
}

impl Contestant for Worker {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn role(&self) -> Role {
        self.role
    }

    fn about(&self) -> Outcome<String> {
        Ok(if self.by.is_baseline() {
            "baseline (bench/src/worker/baseline)".to_owned()
        } else {
            format!("cci {}", env!("CARGO_PKG_VERSION"))
        })
    }

    fn turn(&self, work: Work, count: u64) -> Outcome<Reading> {
        let work = self.work.unwrap_or(work);
        let mut command = Command::new(this_program()?);
        command.args(["work", "--by", &self.by.word(), "--work", &work.to_string()]);
        command.args(["--count", &count.to_string(), "--placement", &self.placement.word()]);
        child::reading(command)
    }
}

/// The path of this program.
pub fn this_program() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| Failure::new(format!("the path of this program: {error}")))
}
