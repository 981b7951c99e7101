//! CCI beside TCP on a network that loses packets: `cargo xtask netem`.

use crate::process::{cargo, run_tests};
use crate::workspace::Workspace;
use std::time::Duration;

/// Runs `crates/testkit/tests/netem` at length, and writes `docs/reliability/netem.md` from that.
pub fn run() -> Result<(), String> {
    let page = Workspace::load()?.root.join("docs/reliability/netem.md");
    let mut command = cargo(&["test", "-p", "cci-testkit", "--test", "netem"]);
    command.env("CCI_NETEM", "full").env("CCI_NETEM_TABLE", &page);
    command.args(["cci_beside_tcp", "--", "--nocapture"]);
    let tally = run_tests("CCI beside TCP", &mut command, Duration::from_secs(2 * 3_600));
    if tally.failed > 0 { Err(format!("netem: {tally}")) } else { Ok(()) }
}
