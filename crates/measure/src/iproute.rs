//! The commands of iproute2, `ip` and `tc`, which set up networks.

use std::fmt;
use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Why a command did not do what it was given.
#[derive(Debug)]
pub enum Refused {
    /// It can't be run.
    Missing(&'static str, io::Error),
    /// It, or the kernel, refuses: what it printed, in one line.
    Said(&'static str, String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Missing(tool, error) => write!(f, "the command {tool} (iproute2) can't be run: {error}"),
            Refused::Said(tool, printed) => write!(f, "{tool}: {printed}"),
        }
    }
}

/// Has `ip` carry out lines, such as `link set lo up`, one after the other until one fails, in the namespace of this thread.
///
/// # Errors
/// The command is not installed, or a line failed.
pub fn ip(lines: &str) -> Result<(), Refused> {
    batch("ip", lines)
}

/// Has `tc` carry out lines, such as `qdisc del dev lo root`, as [`ip`] does.
///
/// # Errors
/// The command is not installed, or a line failed.
pub fn tc(lines: &str) -> Result<(), Refused> {
    batch("tc", lines)
}

/// What `ip` prints of each interface of this thread's namespace, a line each.
///
/// # Errors
/// The command is not installed.
pub fn links() -> io::Result<Vec<String>> {
    let listed = Command::new("ip").args(["-o", "link"]).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
}

fn batch(tool: &'static str, lines: &str) -> Result<(), Refused> {
    let missing = |error| Refused::Missing(tool, error);
    let mut child = Command::new(tool)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    // Where it has ended already, its last words say why.
    let written = child.stdin.take().map(|mut input| input.write_all(lines.as_bytes()));
    let ended = child.wait_with_output().map_err(missing)?;
    if ended.status.success() && written.is_some_and(|written| written.is_ok()) {
        return Ok(());
    }
    Err(Refused::Said(tool, String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; ")))
}
