//! The process that the user started: it passes signals on to the launcher, and cleans up where that is killed.

use super::relay;
use super::{descendants, verdict::Ending};
use crate::failure::{Failure, Outcome};
use rustix::process::{Pid, WaitOptions, wait};
use std::env;
use std::process::{Command, ExitCode};

/// Runs the launcher and ends as it does.
pub fn run() -> Outcome<ExitCode> {
    descendants::adopt()?;
    let program =
        env::current_exe().map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
    // The same arguments: the name of the subcommand is the first of them.
    let launcher = Command::new(program)
        .args(["run", "--guard", &std::process::id().to_string()])
        .args(env::args_os().skip(2))
        .spawn()
        .map_err(|error| Failure::new(format!("starting the launcher: {error}")))?;
    let launcher = Pid::from_child(&launcher);
    relay::catch(move |relayed| {
        if !relayed.by_terminal {
            relay::send(launcher, relayed.signal);
        }
    })?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == launcher => {
                let ending = Ending::of(status);
                if let Some(signal) = ending.signal() {
                    descendants::end()?;
                    eprintln!("cci run: the launcher was ended by {signal}, and the job with it");
                }
                return Ok(ending.code());
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new(format!("waiting for the launcher: {error}"))),
        }
    }
}
