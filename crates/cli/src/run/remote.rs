//! The launcher's side of another host: ssh, or a command like it, and the agent that it starts there.

use super::output::{Form, copy_lines};
use super::placement::Share;
use super::silence::Limited;
use super::verdict::Ending;
use super::wire::{ALIVE_EVERY, FromAgent, GREETING, GREETING_BYTES_MAX, SILENCE_LIMIT, ToAgent, VERSION};
use crate::failure::{Failure, Outcome};
use cci_job::coordinator::Coordinator;
use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write, stderr, stdout};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How hosts are reached where the user does not say. Nobody could answer a question: the streams are the agent's.
const SSH: &[&str] = &["ssh", "-T", "-o", "BatchMode=yes"];
/// ssh ends soon after its connection.
const SHELL_END_LIMIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

/// What the launcher learns of a host. Output and what ranks ask go where they belong without it.
#[derive(Debug)]
pub enum News {
    /// An agent of this version answers.
    Greeted,
    Said(FromAgent),
    /// The last one: why the connection has ended, and how what held it ended.
    Closed {
        why: String,
        ending: Option<Ending>,
    },
}

/// Frames for one agent, which a thread writes: nobody waits for another host.
#[derive(Clone)]
pub struct ToHost(Sender<Vec<u8>>);

/// A host, from the start of its ssh on.
pub struct Remote {
    pub share: Share,
    to_host: ToHost,
    threads: Vec<JoinHandle<()>>,
}

impl ToHost {
    /// For one host; the receiver is for [`Remote::reach`].
    pub fn new() -> (ToHost, Receiver<Vec<u8>>) {
        let (sender, frames) = mpsc::channel();
        (ToHost(sender), frames)
    }

    pub fn say(&self, what: &ToAgent) {
        // Its thread ends before the job does only where the connection is gone, which the other thread reports.
        let _ = self.0.send(what.encode());
    }

    /// Closes the connection once all is written.
    fn close(&self) {
        let _ = self.0.send(Vec::new());
    }
}

impl Remote {
    /// Starts ssh, or nothing but the agent where the name is that of this host.
    pub fn reach(
        share: Share,
        ssh: Option<&str>,
        (to_host, frames): (ToHost, Receiver<Vec<u8>>),
        coordinator: Arc<Coordinator>,
        report: impl Fn(News) + Send + 'static,
    ) -> Outcome<Remote> {
        let mut command = command(&share.host, ssh)?;
        let mut child = command
            // Keys of the terminal are for the launcher, which passes signals on: ssh would end by them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let program = command.get_program().display();
                Failure::new(format!("reaching {}: {program}: {error}", share.host))
                    .remedy("ssh, or --ssh with a command that takes a host and a command line")
            })?;
        let mut threads = Vec::new();
        let mut spawn = |what: Box<dyn FnOnce() + Send>| {
            let spawned = thread::Builder::new().spawn(what);
            spawned
                .map(|thread| threads.push(thread))
                .map_err(|error| Failure::new(format!("a thread for {}: {error}", share.host)))
        };
        if let Some(stdin) = child.stdin.take() {
            spawn(Box::new(move || write_frames(&frames, stdin)))?;
        }
        if let Some(stderr) = child.stderr.take() {
            let label = format!("{}: ", share.host);
            spawn(Box::new(move || copy_errors(stderr, label)))?;
        }
        if let Some(stdout) = child.stdout.take() {
            let share = share.clone();
            spawn(Box::new(move || {
                let why = follow(stdout, &share, &coordinator, &report);
                report(News::Closed { why, ending: end(&mut child) });
            }))?;
        }
        Ok(Remote { share, to_host, threads })
    }

    pub fn say(&self, what: &ToAgent) {
        self.to_host.say(what);
    }

    /// For frames from another thread.
    pub fn to_host(&self) -> ToHost {
        self.to_host.clone()
    }

    /// Lets the agent end what is left there, and itself.
    pub fn close(&self) {
        self.to_host.close();
    }

    /// Waits until all that came from there was copied. The connection is gone.
    pub fn finish_output(&mut self) {
        for thread in self.threads.drain(..) {
            // None of them panics.
            let _ = thread.join();
        }
    }
}

fn command(host: &str, ssh: Option<&str>) -> Outcome<Command> {
    let own =
        env::current_exe().map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
    if ssh.is_none() && (host == "localhost" || host == super::this_host()) {
        let mut command = Command::new(own);
        command.args(["run", "--agent"]);
        return Ok(without_job(command));
    }
    let words = match ssh {
        None => SSH.iter().map(|&word| word.to_owned()).collect(),
        Some(text) => shlex::split(text).unwrap_or_default(),
    };
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Failure::usage("--ssh has no command, or a quote that does not end"))?;
    // All else travels over the connection, so that no shell reads it.
    let path = shlex::bytes::try_quote(own.as_os_str().as_bytes())
        .map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
    let line = [b"exec ", &*path, b" run --agent"].concat();
    let mut command = Command::new(program);
    command.args(arguments).arg(host).arg(OsString::from_vec(line));
    Ok(without_job(command))
}

/// A job that runs in another one must not give that one's key away.
fn without_job(mut command: Command) -> Command {
    for name in ["CCI_JOB_KEY", "CCI_JOB_SOCKET", "CCI_JOB_RANK", "CCI_JOB_SIZE"] {
        command.env_remove(name);
    }
    command
}

fn write_frames(frames: &Receiver<Vec<u8>>, mut to: ChildStdin) {
    loop {
        let frame = match frames.recv_timeout(ALIVE_EVERY) {
            Ok(frame) if frame.is_empty() => return,
            Ok(frame) => frame,
            Err(RecvTimeoutError::Timeout) => ToAgent::Alive.encode(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if to.write_all(&frame).is_err() {
            return;
        }
    }
}

fn copy_errors(from: ChildStderr, label: String) {
    // Where nobody reads errors there is nobody to report to.
    let _ = copy_lines(from, stderr(), &Form { label: Some(label), completes_last: true });
}

/// Reads what comes from the agent until that ends, and says why it has.
fn follow(from: ChildStdout, share: &Share, coordinator: &Coordinator, report: &impl Fn(News)) -> String {
    let mut from = BufReader::new(Limited::new(from));
    if let Err(why) = greet(&mut from) {
        return why;
    }
    report(News::Greeted);
    loop {
        let said = match FromAgent::read(&mut from) {
            Ok(said) => said,
            Err(error) => return why_closed(&error),
        };
        match said {
            FromAgent::Alive => {}
            FromAgent::Output { is_error, bytes } => {
                // A standard stream takes its lock once a call, and a call has whole lines.
                // Where nobody reads, ranks go on, as they do on one host.
                let _ = if is_error { stderr().write_all(&bytes) } else { print(&bytes) };
            }
            FromAgent::Asked(asked) if share.ranks.contains(&asked.rank()) => coordinator.received(asked),
            FromAgent::Ended { rank, .. } if !share.ranks.contains(&rank) => return NONSENSE.into(),
            FromAgent::Asked(_) => return NONSENSE.into(),
            said => report(News::Said(said)),
        }
    }
}

const NONSENSE: &str = "cci there says what no agent says";

fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

fn greet(from: &mut impl BufRead) -> Result<(), String> {
    let mut line = Vec::new();
    from.take(GREETING_BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(|error| why_closed(&error))?;
    let line = String::from_utf8_lossy(&line);
    match line.strip_prefix(GREETING).map(str::trim_end) {
        Some(VERSION) => Ok(()),
        Some(version) => Err(format!("cci there has version {version}, and this one {VERSION}")),
        None if line.is_empty() => Err("the connection has ended before cci answered".into()),
        None => Err(format!(
            "{:?} came where cci should answer: commands there, and what shells there start with, must print nothing",
            line.trim_end()
        )),
    }
}

fn why_closed(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the connection has ended".into(),
        io::ErrorKind::TimedOut => format!("nothing has come from there for {} s", SILENCE_LIMIT.as_secs()),
        io::ErrorKind::InvalidData => NONSENSE.into(),
        _ => format!("reading from there: {error}"),
    }
}

/// Waits for ssh to end by itself, and kills it where it does not.
fn end(child: &mut Child) -> Option<Ending> {
    let deadline = Instant::now() + SHELL_END_LIMIT;
    while Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(Ending::from(status)),
            Ok(None) => thread::sleep(PAUSE),
            Err(_) => return None,
        }
    }
    let _ = child.kill();
    // The kernel ends what got SIGKILL.
    let _ = child.wait();
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_agents_of_this_version_are_taken() {
        assert_eq!(greet(&mut format!("{GREETING}{VERSION}\n").as_bytes()), Ok(()));
        for (line, why) in [
            (&b"CCI agent 9.1.0\n"[..], "version 9.1.0"),
            (b"Welcome!\nCCI agent", "\"Welcome!\" came"),
            (b"\xff\xff", "came"),
            (b"", "before cci answered"),
            (&[b'x'; 1000], "came"),
        ] {
            let said = greet(&mut &*line).unwrap_err();
            assert!(said.contains(why) && said.len() < 1000, "{said}");
        }
    }
}
