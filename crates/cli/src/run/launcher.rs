//! The process that starts the ranks of this host, and sees them to their end.

use super::args::RunArgs;
use super::job::{Event, Job, Places, Running};
use super::ranks::{Plan, Ranks, Stream, report_ends};
use super::{descendants, guard, hosts, placement, progress, relay};
use crate::failure::{Failure, Outcome};
use cci_job::coordinator::Coordinator;
use cci_job::server::RankServer;
use cci_job::{FromHost, JobError, JobKey, ToHost};
use std::collections::VecDeque;
use std::io::{self, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

/// Starts the job and returns when nothing of it runs any more.
pub fn run(args: &RunArgs, guard: u32) -> Outcome<ExitCode> {
    descendants::adopt()?;
    let (sender, events) = mpsc::channel();
    let (to_gone, to_job) = (sender.clone(), sender.clone());
    guard::watch(guard, move || drop(to_gone.send(Event::GuardGone)))?;
    // Nobody listens once the job is over.
    relay::catch(move |relayed| drop(to_job.send(Event::Signal(relayed))))?;
    match placement::of(args)? {
        Some(shares) => hosts::run(args, shares, &sender, &events),
        None => run_here(args, u32::from(args.ranks.unwrap_or(1)), sender, &events),
    }
}

fn run_here(args: &RunArgs, size: u32, sender: Sender<Event>, events: &Receiver<Event>) -> Outcome<ExitCode> {
    let failed = |error: JobError| Failure::new(format!("preparing the job: {error}"));
    let began = Instant::now();
    let key = JobKey::random().map_err(failed)?;
    let (coordinator, server) = meet(size, &key, sender.clone()).map_err(failed)?;
    let plan = Plan {
        ranks: 0..size,
        size,
        program: &args.program,
        environment: None,
        socket_name: server.socket_name(),
        key: &key,
        bind: args.bind,
        label: args.label,
        passes_input: false,
    };
    let ranks = match Ranks::start(&plan, Standard::new, |rank| progress::show(rank + 1, size, "started")) {
        Ok(ranks) => ranks,
        Err(failure) => {
            descendants::end()?;
            return Err(failure);
        }
    };
    let by_pid = ranks.by_pid();
    thread::spawn(move || {
        report_ends(&by_pid, |rank, ending| drop(sender.send(Event::Ended(rank, ending))));
    });
    let running = (0..).zip(ranks.pids()).map(|(rank, pid)| (rank, Running { pid, host: 0 })).collect();
    let mut here = Here { ranks };
    let over = Job::new(args, &coordinator, &mut here, running, began).watch(events, VecDeque::new());
    descendants::end()?;
    here.ranks.finish_output();
    over
}

/// A coordinator, and the server of the only host, in one process.
fn meet(
    size: u32,
    key: &JobKey,
    sender: Sender<Event>,
) -> Result<(Arc<Coordinator>, Arc<RankServer>), JobError> {
    let server: Arc<OnceLock<Arc<RankServer>>> = Arc::default();
    let answering = server.clone();
    // Nobody is answered before the server is there to ask.
    let answer = move |said: ToHost| {
        if let Some(server) = answering.get() {
            server.answer(&said);
        }
    };
    let on_notice = move |notice| drop(sender.send(Event::Notice(notice)));
    let coordinator = Arc::new(Coordinator::new(vec![(size, Box::new(answer))], on_notice));
    let asked = coordinator.clone();
    let made = RankServer::listen(0..size, size, key.clone(), move |said: FromHost| asked.received(said))?;
    let made = server.get_or_init(|| Arc::new(made)).clone();
    Ok((coordinator, made))
}

/// All ranks on this host.
struct Here {
    ranks: Ranks,
}

impl Places for &mut Here {
    fn signal(&self, signal: i32, by_terminal: bool) {
        if !by_terminal {
            self.ranks.signal(signal);
        }
    }

    fn kill(&self) -> Outcome {
        descendants::end()
    }

    fn name(&self, _host: usize) -> String {
        super::this_host()
    }

    fn closed(&mut self, _host: usize) {}

    fn input_taken(&mut self, _takes_more: bool) {}
}

/// A standard stream, which takes its lock once a call.
struct Standard(Stream);

impl Standard {
    const fn new(stream: Stream) -> Standard {
        Standard(stream)
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            Stream::Output => stdout().write_all(bytes)?,
            Stream::Error => stderr().write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {
            Stream::Output => stdout().flush(),
            Stream::Error => Ok(()),
        }
    }
}
