//! The Java process, one for all cases of this process, and lines to it, one for each endpoint.

use crate::frame::{Reply, Request};
use cci_testkit::conformance::{Refusal, config_of};
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The command that starts the Java side, a line for each word.
const COMMAND: &str = "CCI_CONFORMANCE_AGENT";
/// Sections of the suite's configuration that need nothing that a machine may not have.
const SECTIONS: &[&str] = &["shm", "udp4", "udp4-small", "tcp4"];

/// The Java process. It ends when its standard input does: with this process.
struct Agent {
    socket: PathBuf,
    _process: Child,
}

fn agent() -> &'static Path {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    &AGENT.get_or_init(Agent::start).socket
}

impl Agent {
    fn start() -> Agent {
        let folder = folder();
        std::fs::create_dir_all(&folder).expect("a folder for a socket");
        let (socket, config) = (folder.join("agent"), folder.join("conformance.ini"));
        let _ = std::fs::remove_file(&socket);
        let sections: String = SECTIONS.iter().map(|section| config_of(section) + "\n").collect();
        std::fs::write(&config, sections).expect("a file");
        let command =
            std::env::var(COMMAND).unwrap_or_else(|_| panic!("{COMMAND} has the command that starts Java"));
        let mut words = command.lines();
        let mut process = Command::new(words.next().expect("a command"))
            .args(words)
            .arg(&socket)
            .env("CCI_CONFIG", &config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Java starts");
        let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"), "what the agent says first");
        std::thread::spawn(move || lines.for_each(|line| eprintln!("agent: {line}")));
        // It has read the one, and listens on the other. Its folder goes when the socket was connected to last, which nobody knows.
        Agent { socket, _process: process }
    }
}

/// What this process has in the file system. Children have theirs in that of their parent, which so removes what killed ones leave.
fn folder() -> PathBuf {
    let of = |process: u32| std::env::temp_dir().join(format!("cci-java-{process}"));
    let own = std::process::id();
    if crate::is_child() { of(std::os::unix::process::parent_id()).join(own.to_string()) } else { of(own) }
}

/// Removes what the process and its children have left in the file system.
pub fn clean() {
    let _ = std::fs::remove_dir_all(folder());
}

/// A line to the agent: calls go one way, what they came to the other.
#[derive(Debug)]
pub struct Line(Mutex<UnixStream>);

/// A reply, by its kind.
pub enum Answer {
    Done(Reply),
    Refused(Refusal),
    /// A handler is called with a message.
    Message(Reply),
    /// A handler is called with an event.
    Event(Reply),
    /// A handler has thrown, and the call with it.
    Thrown,
}

impl Line {
    pub fn open() -> Line {
        Line(Mutex::new(UnixStream::connect(agent()).expect("the agent listens")))
    }

    /// Makes a call.
    pub fn ask(&self, request: Request) -> Result<Reply, Refusal> {
        let mut line = self.lock();
        request.send(&mut line);
        match next(&mut line) {
            Answer::Done(reply) => Ok(reply),
            Answer::Refused(refusal) => Err(refusal),
            _ => panic!("a call that has no handler calls one"),
        }
    }

    /// Makes a call that must succeed.
    pub fn do_it(&self, request: Request) -> Reply {
        self.ask(request).unwrap_or_else(|refusal| panic!("{refusal:?}"))
    }

    /// Makes a call that may call back. `None`: a handler has thrown, and the call with it.
    pub fn ask_with(
        &self,
        request: Request,
        mut called: impl FnMut(Answer, &mut UnixStream),
    ) -> Option<Reply> {
        let mut line = self.lock();
        request.send(&mut line);
        loop {
            match next(&mut line) {
                Answer::Done(reply) => return Some(reply),
                Answer::Thrown => return None,
                Answer::Refused(refusal) => panic!("{refusal:?}"),
                called_with => called(called_with, &mut line),
            }
        }
    }

    /// Makes a call that must succeed, as a value is dropped: fails nothing if the case has failed already.
    pub fn end(&self, request: Request, check: impl FnOnce(Reply)) {
        let end = || check(self.do_it(request));
        if std::thread::panicking() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(end));
        } else {
            end();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, UnixStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next(line: &mut UnixStream) -> Answer {
    let mut reply = Reply::receive(line);
    match reply.u8() {
        0 => Answer::Done(reply),
        1 => {
            let why = reply.u8();
            let text = reply.text();
            if std::env::var_os("CCI_CONFORMANCE_VERBOSE").is_some() {
                eprintln!("{}: {text}", std::thread::current().name().unwrap_or_default());
            }
            Answer::Refused(match why {
                0 => Refusal::TooLong,
                1 => Refusal::WouldBlock,
                2 => Refusal::Closed,
                3 => Refusal::BadArgument,
                _ => Refusal::Other(text),
            })
        }
        2 => panic!("Java: {}", reply.text()),
        3 => Answer::Message(reply),
        4 => Answer::Event(reply),
        5 => Answer::Thrown,
        other => panic!("a reply of the kind {other}"),
    }
}
