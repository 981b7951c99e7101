//! The launcher's agent on another host: starts the ranks there, and ends them when the launcher is gone.
//!
//! Its standard streams are those of ssh. Threads that copy output wait for the launcher to take it; the loop that ends
//! ranks never does.

use super::ranks::{Plan, Ranks, Stream, report_ends};
use super::relay::{self, Relayed};
use super::wire::{ALIVE_EVERY, FromAgent, GREETING, Start, ToAgent, VERSION};
use super::{descendants, guard, silence::Limited, verdict::Ending};
use crate::failure::{Failure, Outcome};
use cci_job::JobKey;
use cci_job::server::RankServer;
use std::fs::File;
use std::io::{self, BufReader, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::process::{ChildStdin, ExitCode};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// What was written is taken by the launcher, or the connection is gone.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

enum Event {
    Signal(Relayed),
    Ended(u32, Ending),
    GuardGone,
    Said(ToAgent),
    /// The launcher has closed the connection, is silent, or says nonsense.
    LauncherGone,
}

/// Does what the launcher says until it closes the connection.
pub fn run(guard: u32) -> Outcome<ExitCode> {
    descendants::adopt()?;
    let (sender, events) = mpsc::channel();
    let (to_signal, to_gone) = (sender.clone(), sender.clone());
    guard::watch(guard, move || drop(to_gone.send(Event::GuardGone)))?;
    relay::catch(move |relayed| drop(to_signal.send(Event::Signal(relayed))))?;
    stdout().write_all(format!("{GREETING}{VERSION}\n").as_bytes()).map_err(answering)?;
    stdout().flush().map_err(answering)?;
    let outbox = Outbox::start(sender.clone());
    let to_events = sender.clone();
    thread::spawn(move || read_launcher(&to_events));

    let start = loop {
        match events.recv() {
            Ok(Event::Said(ToAgent::Start(start))) => break start,
            Ok(Event::Said(ToAgent::Alive) | Event::Signal(_)) => {}
            _ => return Ok(ExitCode::SUCCESS),
        }
    };
    match Host::start(&start, &outbox, sender) {
        Ok(host) => host.serve(&events, &outbox),
        Err(failure) => {
            outbox.say(&FromAgent::Failed(failure.to_string()));
            descendants::end()?;
            outbox.flush(None);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn answering(error: io::Error) -> Failure {
    Failure::new(format!("answering the launcher: {error}"))
}

/// The ranks of this host.
struct Host {
    ranks: Ranks,
    server: Arc<RankServer>,
    input: Option<Sender<Vec<u8>>>,
}

impl Host {
    fn start(start: &Start, outbox: &Outbox, sender: Sender<Event>) -> Outcome<Host> {
        let folder = start.folder.display();
        std::env::set_current_dir(&start.folder)
            .map_err(|error| Failure::new(format!("the folder {folder}: {error}")))?;
        let failed = |error| Failure::new(format!("preparing the job: {error}"));
        let key = JobKey::from_hex(&start.key).map_err(failed)?;
        let to_launcher = outbox.sender.clone();
        let asked = move |asked| drop(to_launcher.send(FromAgent::Asked(asked).encode()));
        let server =
            RankServer::listen(start.ranks.clone(), start.size, key.clone(), asked).map_err(failed)?;
        let plan = Plan {
            ranks: start.ranks.clone(),
            size: start.size,
            program: &start.program,
            environment: Some(&start.environment),
            socket_name: server.socket_name(),
            key: &key,
            bind: start.bind,
            label: start.label,
            passes_input: true,
        };
        let mut ranks = {
            // Ranks' output, for which other threads take this lock, is to come behind what says that they have started.
            let mut out = stdout().lock();
            let ranks = Ranks::start(&plan, |stream| Framed { is_error: stream == Stream::Error }, |_| ())?;
            out.write_all(&FromAgent::Started(ranks.pids()).encode()).map_err(answering)?;
            out.flush().map_err(answering)?;
            ranks
        };
        let by_pid = ranks.by_pid();
        thread::spawn(move || {
            report_ends(&by_pid, |rank, ending| drop(sender.send(Event::Ended(rank, ending))));
        });
        let input = ranks.input.take().map(|input| pass_input(input, outbox.sender.clone()));
        Ok(Host { ranks, server: Arc::new(server), input })
    }

    /// Until the launcher is gone or has closed the connection.
    fn serve(self, events: &Receiver<Event>, outbox: &Outbox) -> Outcome<ExitCode> {
        // Answers to ranks wait for these to read; that must not hold signals up.
        let (to_ranks, answers) = mpsc::channel();
        let server = self.server.clone();
        thread::spawn(move || answers.into_iter().for_each(|answer| server.answer(&answer)));
        while let Ok(event) = events.recv() {
            match event {
                Event::Signal(relayed) => self.ranks.signal(relayed.signal),
                Event::Ended(rank, ending) => outbox.say(&FromAgent::Ended { rank, ending }),
                Event::Said(ToAgent::Answer(answer)) => drop(to_ranks.send(answer)),
                Event::Said(ToAgent::Signal(signal)) => self.ranks.signal(signal),
                Event::Said(ToAgent::Kill) => descendants::end()?,
                Event::Said(ToAgent::Input(bytes)) => {
                    if let Some(input) = &self.input {
                        // Its thread ends with the input.
                        let _ = input.send(bytes);
                    }
                }
                Event::Said(ToAgent::Alive) => {}
                Event::Said(ToAgent::Start(_)) | Event::GuardGone | Event::LauncherGone => break,
            }
        }
        let ended = descendants::end();
        if let Err(failure) = &ended {
            outbox.say(&FromAgent::Failed(failure.to_string()));
        }
        outbox.flush(Some(self.ranks));
        ended.map(|()| ExitCode::SUCCESS)
    }
}

/// Frames to the launcher that must not wait for it: a thread writes them.
struct Outbox {
    sender: Sender<Vec<u8>>,
    written: Receiver<()>,
}

impl Outbox {
    fn start(to_events: Sender<Event>) -> Outbox {
        let (sender, frames) = mpsc::channel::<Vec<u8>>();
        let (done, written) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let frame = match frames.recv_timeout(ALIVE_EVERY) {
                    // The last one.
                    Ok(frame) if frame.is_empty() => break,
                    Ok(frame) => frame,
                    Err(RecvTimeoutError::Timeout) => FromAgent::Alive.encode(),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                if write_frame(&frame).is_err() {
                    // Where only one direction is gone, reading does not show it.
                    let _ = to_events.send(Event::LauncherGone);
                    break;
                }
            }
            drop(done);
        });
        Outbox { sender, written }
    }

    fn say(&self, what: &FromAgent) {
        // The thread ends before this does only where the launcher is gone, which is seen elsewhere.
        let _ = self.sender.send(what.encode());
    }

    /// Waits until what ranks have written and what was said here is on its way, but not for a launcher that takes nothing.
    fn flush(&self, ranks: Option<Ranks>) {
        let sender = self.sender.clone();
        thread::spawn(move || {
            if let Some(mut ranks) = ranks {
                ranks.finish_output();
            }
            // Nobody listens where the launcher is gone.
            let _ = sender.send(Vec::new());
        });
        let _ = self.written.recv_timeout(FLUSH_LIMIT);
    }
}

/// A whole frame in one call, so that those of several threads do not mix.
fn write_frame(frame: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(frame)?;
    out.flush()
}

/// Output of a rank, as frames to the launcher.
struct Framed {
    is_error: bool,
}

impl Write for Framed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_frame(&FromAgent::Output { is_error: self.is_error, bytes: bytes.to_vec() }.encode())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives rank 0 its input on a thread, because it reads when it likes. The launcher sends more when it has taken what was
/// sent.
fn pass_input(input: ChildStdin, to_launcher: Sender<Vec<u8>>) -> Sender<Vec<u8>> {
    let (sender, chunks) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        let mut input = input;
        for chunk in chunks {
            let takes_more = !chunk.is_empty() && input.write_all(&chunk).is_ok();
            let _ = to_launcher.send(FromAgent::InputTaken { takes_more }.encode());
            if !takes_more {
                return;
            }
        }
    });
    sender
}

fn read_launcher(sender: &Sender<Event>) {
    // A descriptor of its own: what Rust has read ahead from its standard input could not be waited for.
    if let Ok(stdin) = stdin().as_fd().try_clone_to_owned() {
        let mut from = BufReader::new(Limited::new(File::from(stdin)));
        while let Ok(said) = ToAgent::read(&mut from) {
            if sender.send(Event::Said(said)).is_err() {
                return;
            }
        }
    }
    let _ = sender.send(Event::LauncherGone);
}
