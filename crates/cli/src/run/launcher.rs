//! The process that starts the ranks, copies what they write, and decides when the job is over.

use super::args::{Bind, RunArgs};
use super::output::{Form, copy_lines};
use super::relay::{self, Relayed};
use super::{descendants, verdict::Ending};
use crate::failure::{Failure, Outcome};
use cci_job::JobKey;
use cci_job::coordinator::{Abort, Coordinator};
use cci_sys::cpu;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Resource, WaitOptions, getppid, getrlimit, pidfd_open, wait};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::HashMap;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What `timeout` of the shell ends with, too.
const EXIT_TIMEOUT: u8 = 124;
/// Ranks that are asked to end (SIGTERM) get so long before they are killed.
const GRACE: Duration = Duration::from_secs(3);
/// Descriptors of the launcher beside those of ranks: its own streams, of signals, of the guard, of a start under way.
const DESCRIPTORS_OTHER: u64 = 32;
/// Two pipes, and a socket twice.
const DESCRIPTORS_PER_RANK: u64 = 4;

enum Event {
    Signal(Relayed),
    /// A child has ended: a rank, or what one has left behind.
    Ended(Pid, Ending),
    GuardGone,
    /// A rank asks for the end of the job.
    Abort(Abort),
}

/// Starts the job and returns when nothing of it runs any more.
pub fn run(args: &RunArgs, guard: u32) -> Outcome<ExitCode> {
    descendants::adopt()?;
    let (sender, events) = mpsc::channel();
    watch_guard(guard, sender.clone())?;
    let to_job = sender.clone();
    // Nobody listens once the job is over.
    relay::catch(move |relayed| drop(to_job.send(Event::Signal(relayed))))?;
    check_descriptors(args.ranks)?;
    let coordination = Coordination::new(args, sender.clone())?;
    let mut ranks = Ranks::default();
    if let Err(failure) = ranks.start(args, &coordination) {
        descendants::end()?;
        return Err(failure);
    }
    // Not before: starting a process waits for it where its program can't be executed.
    thread::spawn(move || report_ends(&sender));
    let mut job = Job {
        args,
        coordinator: &coordination.coordinator,
        running: ranks.running,
        first_failure: None,
        interrupts: 0,
        timeout: args.timeout.map(|timeout| Instant::now() + *timeout),
        kill_at: None,
        timed_out: false,
    };
    let over = job.watch(&events);
    descendants::end()?;
    for copier in ranks.copiers {
        // Those of a rank have ended with the last process that could write. A copier does not panic.
        let _ = copier.join();
    }
    over
}

/// How ranks find each other.
struct Coordination {
    coordinator: Coordinator,
    key: JobKey,
}

impl Coordination {
    fn new(args: &RunArgs, sender: Sender<Event>) -> Outcome<Coordination> {
        let failure = |error| Failure::new(format!("preparing the job: {error}"));
        let key = JobKey::random().map_err(failure)?;
        let on_abort = move |abort| drop(sender.send(Event::Abort(abort)));
        let coordinator =
            Coordinator::listen(u32::from(args.ranks), key.clone(), on_abort).map_err(failure)?;
        Ok(Coordination { coordinator, key })
    }
}

/// The processes of a job while it starts.
#[derive(Default)]
struct Ranks {
    running: HashMap<Pid, u16>,
    copiers: Vec<JoinHandle<()>>,
}

impl Ranks {
    fn start(&mut self, args: &RunArgs, coordination: &Coordination) -> Outcome {
        let cores = cores_for(args)?;
        // A thread of its own is pinned for each start, because ranks inherit that.
        thread::scope(|scope| {
            let starting = scope.spawn(|| {
                for rank in 0..args.ranks {
                    if let Some(cores) = &cores {
                        cpu::pin(cores[usize::from(rank)])?;
                    }
                    self.start_rank(args, coordination, rank)?;
                    show_progress(rank + 1, args.ranks);
                }
                Ok(())
            });
            starting.join().unwrap_or_else(|_| Err(Failure::new("starting the ranks failed")))
        })
    }

    fn start_rank(&mut self, args: &RunArgs, coordination: &Coordination, rank: u16) -> Outcome {
        let (program, arguments) =
            args.program.split_first().ok_or_else(|| Failure::usage("no program to run"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .env("CCI_JOB_RANK", rank.to_string())
            .env("CCI_JOB_SIZE", args.ranks.to_string())
            .env("CCI_JOB_SOCKET", coordination.coordinator.socket_name())
            .env("CCI_JOB_KEY", coordination.key.to_hex())
            .stdin(if rank == 0 { Stdio::inherit() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Failure::new(format!("starting rank {rank}, {}: {error}", program.display()))
                    .remedy("the path of a program that can be executed, such as ./program")
            })?;
        self.running.insert(Pid::from_child(&child), rank);
        self.copy(args, rank, &mut child)
    }

    fn copy(&mut self, args: &RunArgs, rank: u16, child: &mut Child) -> Outcome {
        let form = || Form {
            label: args.label.then(|| format!("{rank}: ")),
            completes_last: args.label || args.ranks > 1,
        };
        // A standard stream takes its lock once a call, and a call has whole lines.
        if let Some(from) = child.stdout.take() {
            let form = form();
            self.spawn_copier(move || drop(copy_lines(from, stdout(), &form)))?;
        }
        if let Some(from) = child.stderr.take() {
            let form = form();
            self.spawn_copier(move || drop(copy_lines(from, stderr(), &form)))?;
        }
        Ok(())
    }

    fn spawn_copier(&mut self, copy: impl FnOnce() + Send + 'static) -> Outcome {
        let spawned = thread::Builder::new().spawn(copy);
        self.copiers.push(spawned.map_err(|error| Failure::new(format!("a thread for output: {error}")))?);
        Ok(())
    }
}

/// A job that has started.
struct Job<'a> {
    args: &'a RunArgs,
    coordinator: &'a Coordinator,
    running: HashMap<Pid, u16>,
    first_failure: Option<Ending>,
    interrupts: u32,
    /// When the user wants it ended.
    timeout: Option<Instant>,
    /// When ranks that were asked to end are killed.
    kill_at: Option<Instant>,
    timed_out: bool,
}

impl Job<'_> {
    /// Until no rank runs any more.
    fn watch(&mut self, events: &Receiver<Event>) -> Outcome<ExitCode> {
        while !self.running.is_empty() {
            let deadline = [self.timeout, self.kill_at].into_iter().flatten().min();
            let event = match deadline {
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Signal(relayed)) => self.relay(relayed)?,
                Ok(Event::Ended(pid, ending)) => self.ended(pid, ending),
                Ok(Event::GuardGone) => {
                    descendants::end()?;
                    return Err(Failure::new(
                        "the process that started the job was killed, and the job with it",
                    ));
                }
                Ok(Event::Abort(abort)) => self.aborted(&abort),
                Err(RecvTimeoutError::Timeout) => self.deadline_passed()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the launcher can't wait for its ranks"));
                }
            }
        }
        Ok(match (self.timed_out, self.first_failure) {
            (true, _) => ExitCode::from(EXIT_TIMEOUT),
            (false, None) => ExitCode::SUCCESS,
            (false, Some(ending)) => ending.code(),
        })
    }

    fn relay(&mut self, relayed: Relayed) -> Outcome {
        if relayed.signal == SIGINT {
            self.interrupts += 1;
            if self.interrupts > 1 {
                return descendants::end();
            }
        }
        if !relayed.by_terminal {
            self.send(relayed.signal);
        }
        Ok(())
    }

    fn send(&self, signal: i32) {
        for &pid in self.running.keys() {
            relay::send(pid, signal);
        }
    }

    fn ended(&mut self, pid: Pid, ending: Ending) {
        let Some(rank) = self.running.remove(&pid) else { return };
        self.coordinator.rank_ended(u32::from(rank));
        if ending.is_success() || self.kill_at.is_some() {
            return;
        }
        let ends_the_rest = !self.args.keep_going && !self.running.is_empty();
        let rest = if ends_the_rest { "; the other ranks are ended" } else { "" };
        let pid = pid.as_raw_nonzero();
        say(&format!("rank {rank} (process {pid} on {}) {ending}{rest}", host()));
        self.first_failure.get_or_insert(ending);
        if ends_the_rest {
            self.end_ranks();
        }
    }

    fn aborted(&mut self, abort: &Abort) {
        if self.kill_at.is_some() {
            return;
        }
        let Abort { rank, code, reason } = abort;
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        say(&format!("rank {rank} on {} ends the job with code {code}: {reason}", host()));
        self.first_failure.get_or_insert(Ending::Exit(code.get()));
        self.end_ranks();
    }

    /// Asks the ranks to end, and kills them when they have not.
    fn end_ranks(&mut self) {
        self.send(SIGTERM);
        self.kill_at = Some(Instant::now() + GRACE);
    }

    fn deadline_passed(&mut self) -> Outcome {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            return descendants::end();
        }
        if let Some(timeout) =
            self.args.timeout.filter(|_| self.timeout.is_some_and(|at| at <= Instant::now()))
        {
            self.timeout = None;
            self.timed_out = true;
            let missing: Vec<String> = self.coordinator.waited_for().iter().map(u32::to_string).collect();
            let missing = match missing.len() {
                0 => String::new(),
                1 => format!("; the others wait for rank {}", missing[0]),
                _ => format!("; the others wait for ranks {}", missing.join(", ")),
            };
            say(&format!("the job has not ended within {timeout} (--timeout), and is ended{missing}"));
            self.end_ranks();
        }
        Ok(())
    }
}

/// A core for each rank, or none where they are not bound.
fn cores_for(args: &RunArgs) -> Outcome<Option<Vec<usize>>> {
    let cores = cpu::allowed()?;
    let are_enough = usize::from(args.ranks) <= cores.len();
    match args.bind {
        Some(Bind::Core) if !are_enough => Err(Failure::usage(format!(
            "{} ranks can't have a core each: there are {}",
            args.ranks,
            cores.len()
        ))
        .remedy("--bind none")),
        Some(Bind::Core) => Ok(Some(cores)),
        None if are_enough => Ok(Some(cores)),
        _ => Ok(None),
    }
}

fn check_descriptors(ranks: u16) -> Outcome {
    let needed = DESCRIPTORS_OTHER + DESCRIPTORS_PER_RANK * u64::from(ranks);
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => {
            Err(Failure::new(format!("{ranks} ranks take {needed} descriptors, and the limit is {limit}"))
                .remedy(format!("ulimit -n {needed}")))
        }
        _ => Ok(()),
    }
}

/// Waits for the end of the guard, on a thread.
fn watch_guard(guard: u32, sender: Sender<Event>) -> Outcome {
    let gone = || Failure::usage("--guard is for `cci run` itself");
    let guard = i32::try_from(guard).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
    let watched = pidfd_open(guard, PidfdFlags::empty())
        .map_err(|error| Failure::new(format!("watching the process that started the job: {error}")))?;
    // Now the number can't belong to another process: the parent was alive when the descriptor was opened.
    if getppid() != Some(guard) {
        return Err(gone());
    }
    thread::spawn(move || {
        while let Err(rustix::io::Errno::INTR) = poll(&mut [PollFd::new(&watched, PollFlags::IN)], None) {}
        drop(sender.send(Event::GuardGone));
    });
    Ok(())
}

/// Says which children have ended, until there are none.
fn report_ends(sender: &Sender<Event>) {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if sender.send(Event::Ended(pid, Ending::of(status))).is_err() {
                    return;
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// For people who wait; nobody else reads it.
fn show_progress(started: u16, ranks: u16) {
    let mut terminal = stderr();
    if terminal.is_terminal() {
        let clear = if started == ranks { "\r\x1b[K" } else { "" };
        let _ = write!(terminal, "\rcci run: {started} of {ranks} ranks started{clear}");
        let _ = terminal.flush();
    }
}

/// One line to standard error, in one call, so that no rank's output comes between.
fn say(text: &str) {
    let _ = stderr().write_all(format!("cci run: {text}\n").as_bytes());
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
