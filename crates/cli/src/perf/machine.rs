//! Where it was measured, and how.

use super::plan::Plan;
use cci_measure::cores::Cores;
use cci_measure::machine;
use serde::Serialize;
use std::time::SystemTime;

/// See the module.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Version of this program.
    pub version: &'static str,
    /// Start of the run, UTC.
    pub date: String,
    /// Model of the processor.
    pub processor: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Kernel name and version.
    pub kernel: String,
    /// The clock that times come from.
    pub clock: &'static str,
    /// How both processes wait, and on which cores they are.
    pub method: String,
    /// How long was measured.
    pub budget: String,
}

/// This machine, now.
pub fn describe(cores: &Cores, plan: &Plan) -> Machine {
    let waiting = if cores.can_spin { "polling" } else { "waiting (one core only)" };
    let placed = match (cores.mine, cores.theirs) {
        (Some(mine), Some(theirs)) => format!("client on core {mine}, server on core {theirs}"),
        (Some(mine), None) => format!("client on core {mine}"),
        (None, _) => "not pinned".to_owned(),
    };
    Machine {
        version: env!("CARGO_PKG_VERSION"),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        processor: machine::processor(),
        cores: cores.available,
        kernel: machine::kernel(),
        clock: "CLOCK_MONOTONIC",
        method: format!("{waiting}, {placed}"),
        budget: plan.describe(),
    }
}
