//! A job that runs: what happens when ranks end, signals come, or time is over.

use super::args::RunArgs;
use super::progress;
use super::relay::Relayed;
use super::remote::News;
use super::verdict::Ending;
use super::wire::FromAgent;
use crate::failure::{Failure, Outcome};
use cci_job::RankStatus;
use cci_job::coordinator::{Coordinator, Notice};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeMap, VecDeque};
use std::io::{Write, stderr};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What `timeout` of the shell ends with, too.
const EXIT_TIMEOUT: u8 = 124;
/// Ranks that are asked to end (SIGTERM) get so long before they are killed.
const GRACE: Duration = Duration::from_secs(3);
/// Whoever was killed has ended long before, and its agent has said so.
const KILL_LIMIT: Duration = Duration::from_secs(15);

/// What comes to the launcher.
pub enum Event {
    Signal(Relayed),
    /// A rank of this host has ended.
    Ended(u32, Ending),
    GuardGone,
    Notice(Notice),
    /// From the agent of a host, by its number.
    Remote(usize, News),
}

/// Where ranks run: on this host, or on others.
pub trait Places {
    /// Sends a signal to all ranks. One that came by a key of the terminal has reached those of this host.
    fn signal(&self, signal: i32, by_terminal: bool);
    /// Kills all ranks, and what they have started.
    ///
    /// # Errors
    /// Something here does not end.
    fn kill(&self) -> Outcome;
    /// The name of a host.
    fn name(&self, host: usize) -> String;
    /// A host has no connection any more.
    fn closed(&mut self, host: usize);
    /// Rank 0 has taken its input, and maybe takes more.
    fn input_taken(&mut self, takes_more: bool);
}

/// A rank that runs.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub pid: u32,
    /// The number of its host.
    pub host: usize,
}

/// A job that has started.
pub struct Job<'a, P: Places> {
    args: &'a RunArgs,
    coordinator: &'a Coordinator,
    places: P,
    running: BTreeMap<u32, Running>,
    size: u32,
    /// How many ranks have joined; those of programs that do not use CCI never do.
    joined: u32,
    first_failure: Option<Ending>,
    interrupts: u32,
    /// Ranks were asked to end: how they do is no news.
    ends: bool,
    /// When the user wants it ended.
    timeout: Option<Instant>,
    /// When ranks that were asked to end are killed.
    kill_at: Option<Instant>,
    /// When nobody waits any more for ranks that were killed.
    give_up_at: Option<Instant>,
    timed_out: bool,
}

impl<'a, P: Places> Job<'a, P> {
    /// One that began when `--timeout` began to count.
    pub fn new(
        args: &'a RunArgs,
        coordinator: &'a Coordinator,
        places: P,
        running: BTreeMap<u32, Running>,
        began: Instant,
    ) -> Job<'a, P> {
        Job {
            args,
            coordinator,
            places,
            size: running.len() as u32,
            joined: 0,
            running,
            first_failure: None,
            interrupts: 0,
            ends: false,
            timeout: args.timeout.map(|timeout| began + *timeout),
            kill_at: None,
            give_up_at: None,
            timed_out: false,
        }
    }

    /// Until no rank runs any more. `backlog` has what came before.
    pub fn watch(&mut self, events: &Receiver<Event>, mut backlog: VecDeque<Event>) -> Outcome<ExitCode> {
        while !self.running.is_empty() {
            let deadline = [self.timeout, self.kill_at, self.give_up_at].into_iter().flatten().min();
            let event = match (backlog.pop_front(), deadline) {
                (Some(event), _) => Ok(event),
                (None, None) => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, Some(at)) => events.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Signal(relayed)) => self.relay(relayed)?,
                Ok(Event::Ended(rank, ending)) => self.ended(rank, ending),
                Ok(Event::GuardGone) => {
                    self.places.kill()?;
                    return Err(guard_was_killed());
                }
                Ok(Event::Notice(Notice::Abort { rank, code, reason })) => {
                    self.aborted(rank, code.get(), &reason);
                }
                Ok(Event::Notice(Notice::Joined { .. })) => {
                    self.joined += 1;
                    progress::show(self.joined, self.size, "joined");
                }
                Ok(Event::Remote(host, news)) => self.heard(host, news)?,
                Err(RecvTimeoutError::Timeout) => self.deadline_passed()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the launcher can't wait for its ranks"));
                }
            }
        }
        if (1..self.size).contains(&self.joined) {
            progress::clear();
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
                return self.kill();
            }
        }
        self.places.signal(relayed.signal, relayed.by_terminal);
        Ok(())
    }

    fn kill(&mut self) -> Outcome {
        self.kill_at = None;
        self.give_up_at.get_or_insert(Instant::now() + KILL_LIMIT);
        self.places.kill()
    }

    fn ended(&mut self, rank: u32, ending: Ending) {
        let Some(Running { pid, host }) = self.running.remove(&rank) else { return };
        self.coordinator.rank_ended(rank, ending.status());
        if !ending.is_success() && !self.ends {
            let host = self.places.name(host);
            self.failed(&format!("rank {rank} (process {pid} on {host}) {ending}"), ending);
        }
    }

    /// Says what has failed, and ends the rest unless the user wants it to go on.
    fn failed(&mut self, what: &str, ending: Ending) {
        let has_rest = !self.args.keep_going && !self.running.is_empty() && !self.ends;
        let survives = self.coordinator.living_survive();
        let ends_the_rest = has_rest && !survives;
        let rest = match (has_rest, survives) {
            (false, _) => "",
            (true, true) => "; the other ranks go on",
            (true, false) => "; the other ranks are ended",
        };
        say(&format!("{what}{rest}"));
        self.first_failure.get_or_insert(ending);
        if ends_the_rest {
            self.end_ranks();
        }
    }

    fn aborted(&mut self, rank: u32, code: u8, reason: &str) {
        if self.ends {
            return;
        }
        let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let host = self.running.get(&rank).map_or(0, |running| running.host);
        let host = self.places.name(host);
        say(&format!("rank {rank} on {host} ends the job with code {code}: {reason}"));
        self.first_failure.get_or_insert(Ending::Exit(code));
        self.end_ranks();
    }

    fn heard(&mut self, host: usize, news: News) -> Outcome {
        match news {
            News::Said(FromAgent::Ended { rank, ending }) => self.ended(rank, ending),
            News::Said(FromAgent::InputTaken { takes_more }) => self.places.input_taken(takes_more),
            News::Said(FromAgent::Failed(reason)) => {
                return Err(Failure::new(reason).of(&self.places.name(host)));
            }
            News::Closed { why, ending } => {
                self.places.closed(host);
                self.lost(host, &why, ending);
            }
            News::Greeted | News::Said(_) => {}
        }
        Ok(())
    }

    /// Ranks of a host without a connection have ended, as far as the job goes: their agent ends them.
    fn lost(&mut self, host: usize, why: &str, ending: Option<Ending>) {
        let lost: Vec<u32> =
            self.running.iter().filter(|(_, running)| running.host == host).map(|(&rank, _)| rank).collect();
        for &rank in &lost {
            self.running.remove(&rank);
            self.coordinator.rank_ended(rank, RankStatus::Lost);
        }
        if !lost.is_empty() {
            let how = ending.map(|ending| format!(" (what reached it {ending})")).unwrap_or_default();
            let (name, ranks) = (self.places.name(host), listed(&lost));
            self.failed(&format!("{name}, with {ranks}, is lost: {why}{how}"), Ending::Exit(1));
        }
    }

    /// Asks the ranks to end, and kills them when they have not.
    fn end_ranks(&mut self) {
        self.ends = true;
        self.places.signal(SIGTERM, false);
        self.kill_at = Some(Instant::now() + GRACE);
    }

    fn deadline_passed(&mut self) -> Outcome {
        let has_passed = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= Instant::now());
        if has_passed(self.give_up_at) {
            let ranks: Vec<u32> = self.running.keys().copied().collect();
            return Err(Failure::new(format!(
                "{} were killed, and nobody says that they have ended",
                listed(&ranks)
            )));
        }
        if has_passed(self.kill_at) {
            self.kill()?;
        }
        if let Some(timeout) = self.args.timeout.filter(|_| has_passed(self.timeout)) {
            self.timeout = None;
            self.timed_out = true;
            let missing = match self.coordinator.waited_for() {
                missing if missing.is_empty() => String::new(),
                missing => format!("; the others wait for {}", listed(&missing)),
            };
            say(&format!("the job has not ended within {timeout} (--timeout), and is ended{missing}"));
            if !self.ends {
                self.end_ranks();
            }
        }
        Ok(())
    }
}

/// `rank 3`, or `ranks 1, 3`.
fn listed(ranks: &[u32]) -> String {
    let numbers: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, numbers.join(", "))
}

/// What the launcher ends with.
pub fn guard_was_killed() -> Failure {
    Failure::new("the process that started the job was killed, and the job with it")
}

/// One line to standard error, in one call, so that no rank's output comes between.
pub fn say(text: &str) {
    let _ = stderr().write_all(format!("cci run: {text}\n").as_bytes());
}
