//! Where it was measured, and how.

use super::cores::Cores;
use super::plan::Plan;
use serde::Serialize;
use std::fs;
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
        processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: cores.available,
        kernel: kernel(),
        clock: "CLOCK_MONOTONIC",
        method: format!("{waiting}, {placed}"),
        budget: plan.describe(),
    }
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}
