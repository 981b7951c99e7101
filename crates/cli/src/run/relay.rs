//! Signals that a user sends to `cci run` and means for the job.

use crate::failure::{Failure, Outcome};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::thread;

/// One of the signals that are passed on.
#[derive(Clone, Copy, Debug)]
pub struct Relayed {
    /// Its number.
    pub signal: i32,
    /// A key of the terminal (Ctrl-C) sends it to each process of the job itself: it must not come twice.
    pub by_terminal: bool,
}

impl Relayed {
    /// It asks a program to end. What other signals mean is the program's to say.
    pub fn asks_to_end(self) -> bool {
        !matches!(self.signal, SIGUSR1 | SIGUSR2)
    }
}

/// From now on, each such signal goes to `receive`, which a thread of its own calls.
pub fn catch(mut receive: impl FnMut(Relayed) + Send + 'static) -> Outcome {
    let caught = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
    let mut signals = SignalsInfo::<WithOrigin>::new(caught)
        .map_err(|error| Failure::new(format!("catching signals: {error}")))?;
    thread::spawn(move || {
        for origin in &mut signals {
            receive(Relayed { signal: origin.signal, by_terminal: matches!(origin.cause, Cause::Kernel) });
        }
    });
    Ok(())
}

/// Sends a signal by its number to a process that was not waited for; one that has ended is left alone.
pub fn send(pid: rustix::process::Pid, signal: i32) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
