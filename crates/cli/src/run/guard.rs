//! The process that the user started: it passes signals on to the launcher, and cleans up where that is killed.

use super::relay::{self, Relayed};
use super::{descendants, verdict::Ending};
use crate::failure::{Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, getppid, pidfd_open, wait};
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::{env, thread};

/// Runs the launcher and ends as it does.
pub fn run() -> Outcome<ExitCode> {
    descendants::adopt()?;
    // What comes before the launcher is there waits for it.
    let (to_launcher, signals) = mpsc::channel::<Relayed>();
    relay::catch(move |relayed| _ = to_launcher.send(relayed))?;
    let program =
        env::current_exe().map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
    // The same arguments: the name of the subcommand is the first of them.
    let launcher = Command::new(program)
        .args(["run", "--guard", &std::process::id().to_string()])
        .args(env::args_os().skip(2))
        .spawn()
        .map_err(|error| Failure::new(format!("starting the launcher: {error}")))?;
    let launcher = Pid::from_child(&launcher);
    thread::spawn(move || {
        for relayed in signals.iter().filter(|relayed| !relayed.by_terminal) {
            relay::send(launcher, relayed.signal);
        }
    });
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

/// Calls `gone` on a thread when the guard has ended.
pub fn watch(guard: u32, gone: impl FnOnce() + Send + 'static) -> Outcome {
    let no_guard = || Failure::usage("--guard is for `cci run` itself");
    let guard = i32::try_from(guard).ok().and_then(Pid::from_raw).ok_or_else(no_guard)?;
    let watched = pidfd_open(guard, PidfdFlags::empty())
        .map_err(|error| Failure::new(format!("watching the process that started the job: {error}")))?;
    // Now the number can't belong to another process: the parent was alive when the descriptor was opened.
    if getppid() != Some(guard) {
        return Err(no_guard());
    }
    thread::spawn(move || {
        while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&watched, PollFlags::IN)], None) {}
        gone();
    });
    Ok(())
}
