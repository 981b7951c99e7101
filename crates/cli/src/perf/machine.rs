//! Where it was measured, and how.

use super::plan::{Budget, Plan};
use crate::text;
use cci_measure::cores::Cores;
use cci_measure::machine;
use serde::Serialize;
use std::time::SystemTime;

/// The machine on which a run was measured, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Version of this program.
    pub version: &'static str,
    /// Start of the run, UTC.
    pub date: String,
    /// Its processor and kernel.
    #[serde(flatten)]
    pub machine: machine::Machine,
    /// The clock that times come from.
    pub clock: &'static str,
    /// How both processes wait, and on which cores they are.
    pub method: String,
    /// How long each measurement lasted, nanoseconds; None where numbers of messages decided.
    pub measurement_ns: Option<u64>,
    /// Messages or operations in each measurement; None where a time decided.
    pub measurement_messages: Option<u64>,
}

/// This machine, now.
pub fn describe(cores: &Cores, plan: &Plan) -> Machine {
    let waiting = if cores.can_spin { "polling" } else { "waiting (one core only)" };
    let placed = match (cores.mine, cores.theirs) {
        (Some(mine), Some(theirs)) => format!("client on core {mine}, server on core {theirs}"),
        (Some(mine), None) => format!("client on core {mine}"),
        (None, _) => "not pinned".to_owned(),
    };
    let (measurement_ns, measurement_messages) = match plan.budget {
        Budget::Nanoseconds(ns) => (Some(ns), None),
        Budget::Messages(count) => (None, Some(count)),
    };
    Machine {
        version: env!("CARGO_PKG_VERSION"),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        machine: machine::Machine::here(cores.available),
        clock: "CLOCK_MONOTONIC",
        method: format!("{waiting}, {placed}"),
        measurement_ns,
        measurement_messages,
    }
}

impl Machine {
    /// How long was measured, in words.
    pub fn budget(&self) -> String {
        match (self.measurement_ns, self.measurement_messages) {
            (Some(ns), _) => format!("{} for each measurement", text::duration(ns as f64)),
            (None, count) => format!("{} messages for each measurement", count.unwrap_or(0)),
        }
    }
}
