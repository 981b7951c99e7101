//! A job on several hosts, by an agent on each.

use super::args::RunArgs;
use super::job::{Event, Job, Places, Running, guard_was_killed};
use super::placement::Share;
use super::remote::{News, Remote, ToHost};
use super::wire::{CHUNK_BYTES_MAX, FromAgent, Start, ToAgent};
use super::{descendants, verdict::Ending};
use crate::failure::{Failure, Outcome};
use cci_job::JobKey;
use cci_job::coordinator::Coordinator;
use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::io::{Read, stdin};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Hosts that can be reached answer long before.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Agents have ended what ran there long before, and themselves.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Runs the job and returns when nothing of it runs any more.
pub fn run(
    args: &RunArgs,
    shares: Vec<Share>,
    sender: &Sender<Event>,
    events: &Receiver<Event>,
) -> Outcome<ExitCode> {
    let began = Instant::now();
    let size = shares.last().map_or(0, |share| share.ranks.end);
    let start = start_for(args, size)?;
    let lines: Vec<_> = shares.iter().map(|_| ToHost::new()).collect();
    let answers = shares.iter().zip(&lines).map(|(share, (to_host, _))| {
        let to_host = to_host.clone();
        let answer = move |said| to_host.say(&ToAgent::Answer(said));
        (share.ranks.len() as u32, Box::new(answer) as Box<dyn Fn(cci_job::ToHost) + Send + Sync>)
    });
    let to_job = sender.clone();
    let on_notice = move |notice| drop(to_job.send(Event::Notice(notice)));
    let coordinator = Arc::new(Coordinator::new(answers.collect(), on_notice));

    let mut there = There { remotes: Vec::new(), is_open: Vec::new(), input: None };
    let over = there
        .reach(args, shares, lines, &coordinator, sender)
        .and_then(|()| there.start(args, &start, events, began))
        .and_then(|(running, backlog)| {
            there.input = there.remotes.first().map(|remote| read_input(remote.to_host()));
            Job::new(args, &coordinator, &mut there, running, began).watch(events, backlog)
        });
    let closed = there.close(events);
    descendants::end()?;
    there.remotes.iter_mut().for_each(Remote::finish_output);
    over.and_then(|code| closed.map(|()| code))
}

/// What all agents shall start; each gets its own ranks.
fn start_for(args: &RunArgs, size: u32) -> Outcome<Start> {
    let folder = env::current_dir().map_err(|error| Failure::new(format!("the folder here: {error}")))?;
    let key = JobKey::random().map_err(|error| Failure::new(format!("preparing the job: {error}")))?;
    let start = Start {
        ranks: 0..size,
        size,
        key: key.to_hex(),
        bind: args.bind,
        label: args.label,
        folder: folder.into_os_string(),
        program: args.program.clone(),
        environment: env::vars_os().flat_map(|(name, value)| [name, value]).collect(),
    };
    if start.fits() { Ok(start) } else { Err(Failure::usage("arguments and environment are too long")) }
}

/// All hosts of the job.
struct There {
    remotes: Vec<Remote>,
    /// Which of them have a connection.
    is_open: Vec<bool>,
    /// Tells the thread that reads the standard input whether rank 0 takes more.
    input: Option<Sender<bool>>,
}

impl There {
    fn reach(
        &mut self,
        args: &RunArgs,
        shares: Vec<Share>,
        lines: Vec<(ToHost, Receiver<Vec<u8>>)>,
        coordinator: &Arc<Coordinator>,
        sender: &Sender<Event>,
    ) -> Outcome {
        for (host, (share, line)) in shares.into_iter().zip(lines).enumerate() {
            let to_job = sender.clone();
            let report = move |news| drop(to_job.send(Event::Remote(host, news)));
            self.remotes.push(Remote::reach(share, args.ssh.as_deref(), line, coordinator.clone(), report)?);
            self.is_open.push(true);
        }
        Ok(())
    }

    /// Starts all ranks once all hosts answer; also returns what came meanwhile.
    fn start(
        &mut self,
        args: &RunArgs,
        start: &Start,
        events: &Receiver<Event>,
        began: Instant,
    ) -> Outcome<(BTreeMap<u32, Running>, VecDeque<Event>)> {
        let limit = args.timeout.map_or(START_LIMIT, |timeout| START_LIMIT.min(*timeout));
        let (mut greeted, mut started) = (vec![false; self.remotes.len()], vec![false; self.remotes.len()]);
        let (mut running, mut backlog) = (BTreeMap::new(), VecDeque::new());
        while started.contains(&false) {
            match events.recv_timeout((began + limit).saturating_duration_since(Instant::now())) {
                Ok(Event::Remote(host, News::Greeted)) => {
                    greeted[host] = true;
                    if !greeted.contains(&false) {
                        for remote in &self.remotes {
                            let ranks = remote.share.ranks.clone();
                            remote.say(&ToAgent::Start(Start { ranks, ..start.clone() }));
                        }
                    }
                }
                Ok(Event::Remote(host, News::Said(FromAgent::Started(pids)))) => {
                    let ranks = self.remotes[host].share.ranks.clone();
                    if pids.len() != ranks.len() {
                        return Err(Failure::new("cci there says what no agent says").of(&self.name(host)));
                    }
                    started[host] = true;
                    running.extend(ranks.zip(pids).map(|(rank, pid)| (rank, Running { pid, host })));
                }
                Ok(Event::Remote(host, News::Said(FromAgent::Failed(reason)))) => {
                    return Err(Failure::new(reason).of(&self.name(host)));
                }
                Ok(Event::Remote(host, News::Closed { why, ending })) => {
                    self.is_open[host] = false;
                    return Err(could_not_start(&self.name(host), &why, ending));
                }
                Ok(Event::GuardGone) => return Err(guard_was_killed()),
                Ok(Event::Signal(relayed)) if relayed.asks_to_end() => return Err(Failure::interrupted()),
                // From a rank of a host where all run, or a signal for the ranks.
                Ok(event) => backlog.push_back(event),
                Err(RecvTimeoutError::Timeout) => {
                    let silent = (0..greeted.len()).filter(|&host| !greeted[host] || !started[host]);
                    let names: Vec<String> = silent.map(|host| self.name(host)).collect();
                    return Err(Failure::new(format!(
                        "no answer from {} within {} s",
                        names.join(", "),
                        limit.as_secs_f64()
                    ))
                    .remedy("ssh to that host, as `cci run` does: it must not ask anything"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::new("the launcher hears nothing"));
                }
            }
        }
        Ok((running, backlog))
    }

    /// Lets all agents end what is left, and waits until they have.
    fn close(&mut self, events: &Receiver<Event>) -> Outcome {
        self.remotes.iter().for_each(Remote::close);
        let deadline = Instant::now() + END_LIMIT;
        let mut unsure = Vec::new();
        while self.is_open.contains(&true) {
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Remote(host, News::Closed { ending, .. })) => {
                    self.is_open[host] = false;
                    if !ending.is_some_and(Ending::is_success) {
                        unsure.push(self.name(host));
                    }
                }
                Ok(Event::Remote(host, News::Said(FromAgent::Failed(reason)))) => {
                    return Err(Failure::new(reason).of(&self.name(host)));
                }
                Ok(_) => {}
                Err(_) => {
                    unsure.extend(
                        (0..self.remotes.len())
                            .filter(|&host| self.is_open[host])
                            .map(|host| self.name(host)),
                    );
                    break;
                }
            }
        }
        if unsure.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!("{} did not confirm that nothing of the job runs there", unsure.join(", "))))
    }
}

impl Places for &mut There {
    fn signal(&self, signal: i32, _by_terminal: bool) {
        self.remotes.iter().for_each(|remote| remote.say(&ToAgent::Signal(signal)));
    }

    fn kill(&self) -> Outcome {
        self.remotes.iter().for_each(|remote| remote.say(&ToAgent::Kill));
        Ok(())
    }

    fn name(&self, host: usize) -> String {
        There::name(self, host)
    }

    fn closed(&mut self, host: usize) {
        self.is_open[host] = false;
    }

    fn input_taken(&mut self, takes_more: bool) {
        if let Some(input) = &self.input {
            // Its thread has ended with the input.
            let _ = input.send(takes_more);
        }
    }
}

impl There {
    fn name(&self, host: usize) -> String {
        self.remotes.get(host).map(|remote| remote.share.host.clone()).unwrap_or_default()
    }
}

fn could_not_start(host: &str, why: &str, ending: Option<Ending>) -> Failure {
    let how = ending.map(|ending| format!("; what should reach it {ending}")).unwrap_or_default();
    let failure = Failure::new(format!("{host}: {why}{how}"));
    match ending {
        Some(Ending::Exit(126 | 127)) => {
            let path = env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
            failure.remedy(format!("cci there under the same path: {path}"))
        }
        _ => failure,
    }
}

/// Reads the standard input for rank 0 on a thread: as much at a time as rank 0 has taken.
fn read_input(to_host: ToHost) -> Sender<bool> {
    let (sender, taken) = mpsc::channel();
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_BYTES_MAX];
        loop {
            let len = match stdin().read(&mut chunk) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                // What can't be read is at its end.
                read => read.unwrap_or(0),
            };
            to_host.say(&ToAgent::Input(chunk[..len].to_vec()));
            if len == 0 || !taken.recv().unwrap_or(false) {
                return;
            }
        }
    });
    sender
}
