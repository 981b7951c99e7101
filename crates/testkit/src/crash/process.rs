//! A process of a campaign, as the harness sees it.

use cci_sys::net::namespace::Namespace;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Environment of every process of a campaign: how to be.
pub const NAME: &str = "CCI_DEATHS_NAME";
pub const DEVICE: &str = "CCI_DEATHS_DEVICE";
pub const TIMEOUT_MS: &str = "CCI_DEATHS_TIMEOUT_MS";
pub const TEMPER: &str = "CCI_DEATHS_TEMPER";

/// The hub's name, and the bystander's. Victims have greater numbers.
pub const HUB: u32 = 0;
pub const BYSTANDER: u32 = 1;

/// How a process behaves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Closes connections now and then, and connects anew.
    Restless,
    /// Keeps its connections.
    Steady,
}

/// Killed and reaped when dropped.
pub struct Process {
    pub name: u32,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// Where it listens, once it has said so.
    uri: Option<String>,
}

impl Process {
    /// Starts this very program, running only its test `victim`, in another namespace if one is given.
    pub fn start(
        name: u32,
        device: &str,
        inside: Option<&Namespace>,
        send_timeout: Duration,
        temper: Temper,
    ) -> Process {
        let _inside = inside.map(|inside| inside.enter().expect("as root"));
        let program = std::env::current_exe().expect("our own path");
        let mut child = Command::new(program)
            .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
            .env(NAME, name.to_string())
            .env(DEVICE, device)
            .env(TIMEOUT_MS, send_timeout.as_millis().to_string())
            .env(TEMPER, if temper == Temper::Restless { "restless" } else { "steady" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let (command, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if command.send(line).is_err() {
                    break;
                }
            }
        });
        Process { name, child, input, lines, uri: None }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says something to it; the dead do not mind.
    pub fn command(&mut self, line: &str) {
        let _ = self.input.write_all(format!("{line}\n").as_bytes());
    }

    /// What it says next that begins so, without that.
    pub fn hear(&mut self, begin: &str, patience: Duration) -> Result<String, String> {
        loop {
            match self.lines.recv_timeout(patience) {
                Ok(line) => {
                    if let Some(rest) = line.strip_prefix(begin) {
                        return Ok(rest.to_owned());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("process {} does not say {begin:?} within {patience:?}", self.name));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = self.child.wait();
                    return Err(format!("process {} ended by itself: {ended:?}", self.name));
                }
            }
        }
    }

    /// Where it listens.
    pub fn uri(&mut self, patience: Duration) -> String {
        if self.uri.is_none() {
            self.uri = Some(self.hear("URI ", patience).unwrap_or_else(|why| panic!("{why}")));
        }
        self.uri.clone().unwrap_or_default()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process number");
        kill_process(pid, signal).expect("our own child, not reaped yet, takes signals");
    }

    /// Waits for its end, which was brought about before. Says by which signal it came.
    pub fn bury(mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.child.wait().expect("our own child").signal()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Reaped already, or not: both are fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
