//! What machine this is.

use serde::{Deserialize, Serialize};
use std::fs;

/// A machine on which something is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, or at least its architecture.
    pub processor: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Whether a hypervisor is below, as the processor says.
    pub virtual_machine: bool,
    /// Kernel name and version.
    pub kernel: String,
}

impl Machine {
    /// This one, of which so many cores may be used.
    pub fn here(cores: usize) -> Machine {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim())
        };
        let flags = value("flags").unwrap_or_default();
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: value("model name").unwrap_or(std::env::consts::ARCH).to_owned(),
            cores,
            virtual_machine: flags.split_whitespace().any(|flag| flag == "hypervisor"),
            kernel: format!("Linux {}", release.trim()),
        }
    }
}
