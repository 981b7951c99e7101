//! The ranks of this host: started, bound, signalled, and what they write.

use super::args::Bind;
use super::output::{Form, copy_lines};
use super::verdict::Ending;
use crate::failure::{Failure, Outcome};
use cci_job::JobKey;
use cci_sys::cpu;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitOptions, getrlimit, pidfd_open, pidfd_send_signal, wait,
};
use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};

/// Descriptors of a launcher beside those of ranks: its own streams, of signals, of the guard, of a start under way.
const DESCRIPTORS_OTHER: u64 = 32;
/// Two pipes, a socket twice, and the process.
const DESCRIPTORS_PER_RANK: u64 = 5;

/// What is to be started.
pub struct Plan<'a> {
    pub ranks: Range<u32>,
    /// Ranks of the whole job.
    pub size: u32,
    pub program: &'a [OsString],
    /// None: that of this process.
    pub environment: Option<&'a [OsString]>,
    pub socket_name: &'a str,
    pub key: &'a JobKey,
    pub bind: Option<Bind>,
    pub label: bool,
    /// Rank 0 reads what this process passes on; otherwise it has the standard input of this process.
    pub passes_input: bool,
}

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

/// Processes that were started.
#[derive(Default)]
pub struct Ranks {
    started: Vec<Started>,
    copiers: Vec<JoinHandle<()>>,
    /// Of rank 0, where this process passes it on.
    pub input: Option<ChildStdin>,
}

struct Started {
    rank: u32,
    pid: Pid,
    /// Names the process for good: its number may be another one's once it was waited for.
    process: OwnedFd,
}

impl Ranks {
    /// Starts the ranks of the plan, and calls `started` after each. Each call of `write_all` on what `sink` gives has whole
    /// lines. Where it fails, some run: the caller ends its descendants.
    pub fn start<W: Write + Send + 'static>(
        plan: &Plan,
        sink: impl Fn(Stream) -> W + Sync,
        started: impl Fn(u32) + Sync,
    ) -> Outcome<Ranks> {
        check_descriptors(plan.ranks.len() as u64)?;
        let cores = cores_for(plan)?;
        let mut ranks = Ranks::default();
        // A thread of its own is pinned for each start, because ranks inherit that.
        thread::scope(|scope| {
            let starting = scope.spawn(|| {
                for (at, rank) in plan.ranks.clone().enumerate() {
                    if let Some(core) = cores.as_ref().and_then(|cores| cores.get(at)) {
                        cpu::pin(*core)?;
                    }
                    ranks.start_rank(plan, rank, &sink)?;
                    started(rank);
                }
                Ok(())
            });
            starting.join().unwrap_or_else(|_| Err(Failure::new("starting the ranks failed")))
        })?;
        Ok(ranks)
    }

    fn start_rank<W: Write + Send + 'static>(
        &mut self,
        plan: &Plan,
        rank: u32,
        sink: impl Fn(Stream) -> W,
    ) -> Outcome {
        let (program, arguments) =
            plan.program.split_first().ok_or_else(|| Failure::usage("no program to run"))?;
        let mut command = Command::new(program);
        if let Some(environment) = plan.environment {
            command.env_clear().envs(environment.chunks_exact(2).map(|pair| (&pair[0], &pair[1])));
        }
        forget_package(&mut command);
        let mut child = command
            .args(arguments)
            .env("CCI_JOB_RANK", rank.to_string())
            .env("CCI_JOB_SIZE", plan.size.to_string())
            .env("CCI_JOB_SOCKET", plan.socket_name)
            .env("CCI_JOB_KEY", plan.key.to_hex())
            .stdin(match (rank, plan.passes_input) {
                (0, true) => Stdio::piped(),
                (0, false) => Stdio::inherit(),
                _ => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Failure::new(format!("starting rank {rank}, {}: {error}", program.display()))
                    .remedy("the path of a program that can be executed, such as ./program")
            })?;
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| Failure::new(format!("watching rank {rank}: {error}")))?;
        self.started.push(Started { rank, pid, process });
        self.input = self.input.take().or(child.stdin.take());
        self.copy(plan, rank, &mut child, sink)
    }

    fn copy<W: Write + Send + 'static>(
        &mut self,
        plan: &Plan,
        rank: u32,
        child: &mut Child,
        sink: impl Fn(Stream) -> W,
    ) -> Outcome {
        let form = || Form {
            label: plan.label.then(|| format!("{rank}: ")),
            completes_last: plan.label || plan.size > 1,
        };
        if let Some(from) = child.stdout.take() {
            let (to, form) = (sink(Stream::Output), form());
            self.spawn_copier(move || drop(copy_lines(from, to, &form)))?;
        }
        if let Some(from) = child.stderr.take() {
            let (to, form) = (sink(Stream::Error), form());
            self.spawn_copier(move || drop(copy_lines(from, to, &form)))?;
        }
        Ok(())
    }

    fn spawn_copier(&mut self, copy: impl FnOnce() + Send + 'static) -> Outcome {
        let spawned = thread::Builder::new().spawn(copy);
        self.copiers.push(spawned.map_err(|error| Failure::new(format!("a thread for output: {error}")))?);
        Ok(())
    }

    /// Their processes, in the order of ranks.
    pub fn pids(&self) -> Vec<u32> {
        self.started.iter().map(|started| started.pid.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// Which rank a process is.
    pub fn by_pid(&self) -> HashMap<Pid, u32> {
        self.started.iter().map(|started| (started.pid, started.rank)).collect()
    }

    /// Sends a signal to those that have not ended.
    pub fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for started in &self.started {
            // One that has ended is left alone.
            let _ = pidfd_send_signal(&started.process, signal);
        }
    }

    /// Waits until all that they wrote was copied. Nothing that could write runs any more.
    pub fn finish_output(&mut self) {
        for copier in self.copiers.drain(..) {
            // A copier does not panic.
            let _ = copier.join();
        }
    }
}

/// Waits for the children of this process until there are none, and says of each rank how it ended. Not before all are
/// started: starting a process waits for it where its program can't be executed.
pub fn report_ends(ranks: &HashMap<Pid, u32>, ended: impl Fn(u32, Ending)) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if let Some(&rank) = ranks.get(&pid) {
                    ended(rank, Ending::of(status));
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// A core for each rank, or none where they are not bound.
fn cores_for(plan: &Plan) -> Outcome<Option<Vec<usize>>> {
    let cores = cpu::allowed()?;
    let are_enough = plan.ranks.len() <= cores.len();
    match plan.bind {
        Some(Bind::Core) if !are_enough => Err(Failure::usage(format!(
            "{} ranks can't have a core each: there are {}",
            plan.ranks.len(),
            cores.len()
        ))
        .remedy("--bind none")),
        Some(Bind::Core) => Ok(Some(cores)),
        None if are_enough => Ok(Some(cores)),
        _ => Ok(None),
    }
}

/// Takes out of a rank's environment what cargo says there of the package that it runs, if that is this one. Build scripts watch these
/// variables: if a rank is a cargo command, half of the workspace would be compiled again for it, and then again for the next job.
fn forget_package(command: &mut Command) {
    let set = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned)));
    let all: Vec<_> = env::vars_os().map(|(name, value)| (name, Some(value))).chain(set).collect();
    let own = Some(OsStr::new(env!("CARGO_PKG_NAME")));
    if !all.iter().any(|(name, value)| name == "CARGO_PKG_NAME" && value.as_deref() == own) {
        return;
    }
    for (name, _) in all {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
}

fn check_descriptors(ranks: u64) -> Outcome {
    let needed = DESCRIPTORS_OTHER + DESCRIPTORS_PER_RANK * ranks;
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(Failure::new(format!("{ranks} ranks take {needed} descriptors, and the limit is {limit}"))
                .remedy(format!("ulimit -n {needed}")))
        }
        _ => Ok(()),
    }
}
