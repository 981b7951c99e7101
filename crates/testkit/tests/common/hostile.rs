//! What tests of hostile peers share: a device between processes, and peers that are killed in the end.
#![allow(dead_code, reason = "not every test that shares this file needs all of it")]

pub use cci_testkit::hostile::{Stage, device};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a child process is to do, in words, with its device in [`CONFIG`].
pub const ROLE: &str = "CCI_HOSTILE_ROLE";
pub const CONFIG: &str = "CCI_HOSTILE_CONFIG";
/// Long enough on the slowest machine; nothing is concluded from how long something takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `CCI_HOSTILE_MESSAGES`: what each honest peer has to get through.
pub fn messages() -> u64 {
    std::env::var("CCI_HOSTILE_MESSAGES").map_or(2_000, |text| text.parse().unwrap())
}

/// A device for the endpoint, and one for its peers.
pub struct Environment(pub Stage);

impl Environment {
    /// None: this machine can't, and it was said why.
    pub fn find(name: &str) -> Option<Environment> {
        Stage::find(name).map(Environment)
    }

    /// Starts the test `peer` of this program as a process of its own.
    pub fn start(&self, role: &str) -> Killed {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(CONFIG, &self.0.peers).stdout(Stdio::null());
        Killed(command.spawn().unwrap())
    }
}

/// A process that ends with this.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
