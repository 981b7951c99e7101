//! A peer process, from outside.

use super::talk::{Order, PeerMessage, Report, Setup};
use super::watch::Series;
use crate::failure::{Failure, Outcome};
use cci_measure::held::{Held, resident_bytes};
use cci_measure::site::Site;
use cci_sys::process::{self as system, Signal};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Of what it writes to standard error, so much is kept.
const LAST_WORDS_BYTES: usize = 4096;

/// A signal that has not ended it by then is followed by one that will.
const DEATH_LIMIT: Duration = Duration::from_secs(2);

/// One peer process of a soak, as the process that started it sees it.
pub struct Child {
    process: process::Child,
    input: Option<ChildStdin>,
    messages: Receiver<PeerMessage>,
    /// Reads what it writes to standard error, to the end of it.
    words: Option<JoinHandle<String>>,
    /// Its messages have all come: it has closed its standard output, which a peer does when it ends.
    pub drained: bool,
    /// Its answer to [`Order::Explain`].
    pub explained: Option<String>,
    /// The URI it listens at, once it has reported that.
    pub uri: Option<String>,
    /// The last one.
    pub report: Report,
    /// When that came, or the process was started or continued.
    pub heard: Instant,
    /// The progress it last reported, and when that last changed.
    pub progress: (u64, Instant),
    /// What it held while nobody worked, before any fault.
    pub before: Option<Held>,
    /// SIGSTOP was sent.
    pub stopped: bool,
    /// It has reported that it is done.
    pub done: bool,
    /// Resident memory, bytes.
    pub memory: Series,
    /// Open descriptors.
    pub descriptors: Series,
}

impl Child {
    /// Starts it on one side of the site.
    pub fn start(setup: &Setup, site: &Site, there: bool) -> Outcome<Child> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
        let mut command = Command::new(program);
        command.arg("soak-peer").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the conductor.
        command.process_group(0);
        let spawned = if there { site.in_peer_namespace(|| command.spawn()) } else { command.spawn() };
        let mut process =
            spawned.map_err(|error| Failure::new(format!("starting a peer process: {error}")))?;
        let (sender, messages) = mpsc::channel();
        if let Some(output) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Ok(message) = serde_json::from_str(&line) else { continue };
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        let words = process.stderr.take().map(|errors| {
            thread::spawn(move || {
                let mut words = String::new();
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    if words.len() < LAST_WORDS_BYTES {
                        words.push_str(&line);
                        words.push('\n');
                    }
                }
                words
            })
        });
        let now = Instant::now();
        let input = process.stdin.take();
        let mut child = Child {
            process,
            input,
            messages,
            words,
            drained: false,
            explained: None,
            uri: None,
            report: Report::default(),
            heard: now,
            progress: (0, now),
            before: None,
            stopped: false,
            done: false,
            memory: Series::new(),
            descriptors: Series::new(),
        };
        child.line(&serde_json::to_string(setup).unwrap_or_default());
        Ok(child)
    }

    fn line(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            // One that is dead does not listen; that it is shows elsewhere.
            let _ = input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n"));
        }
    }

    /// Says something to it.
    pub fn order(&mut self, order: &Order) {
        let line = serde_json::to_string(order).unwrap_or_default();
        self.line(&line);
    }

    /// Its next message, if one has come.
    pub fn listen(&mut self) -> Option<PeerMessage> {
        let message = match self.messages.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                self.drained = true;
                return None;
            }
        };
        if let PeerMessage::Report(report) | PeerMessage::Done(report) = &message {
            self.report = report.clone();
            self.heard = Instant::now();
            if report.progress() != self.progress.0 {
                self.progress = (report.progress(), self.heard);
            }
        }
        Some(message)
    }

    /// All its sessions have ended, as they reported.
    pub const fn has_ended_sessions(&self) -> bool {
        self.report.ending && self.report.sessions == 0
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends it a signal. It is not reaped before [`Child::ended`] or [`Child::kill`], so the number is its own.
    pub fn signal(&self, signal: Signal) {
        let _ = system::send_signal(self.pid(), signal);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// What it wrote to standard error. To be called once it has ended.
    pub fn words(&mut self) -> String {
        let words = self.words.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        words.trim().to_owned()
    }

    /// Waits for the messages of a process that was killed: what it found wrong before, if anything.
    pub fn last_finding(&mut self) -> Option<String> {
        let mut finding = None;
        while !self.drained {
            match self.listen() {
                Some(PeerMessage::Wrong(what)) => finding = Some(what),
                Some(_) => {}
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        finding
    }

    /// Ends it by a signal that ends it. The first SIGSEGV only makes the runtime's handler, which looks for a stack that
    /// is full, give way to the second.
    pub fn kill(&mut self, signal: Signal) {
        let until = Instant::now() + DEATH_LIMIT;
        while self.ended().is_none() {
            let late = Instant::now() > until;
            self.signal(if late { Signal::Kill } else { signal });
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Looks at it from outside. One that is about to end holds nothing any more.
    pub fn sample(&mut self) {
        if let Some(bytes) = resident_bytes(self.pid()) {
            self.memory.add(bytes);
            self.descriptors.add(self.held().descriptor_count() as u64);
        }
    }

    /// What it holds of the system.
    pub fn held(&self) -> Held {
        Held::by(self.pid())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // By its own id, and only if it still is.
        if self.ended().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
