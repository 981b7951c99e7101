//! The other process: this program once more, as the server.

use crate::failure::{Failure, Outcome};
use cci_measure::site::Site;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(10);
const END_LIMIT: Duration = Duration::from_secs(2);

/// A server of ours. It ends when its standard input closes, which the kernel sees to even if this process is killed.
pub struct Child {
    process: process::Child,
    uri: String,
}

impl Child {
    /// Starts a server on the device, at the other side of the site, on one core if one is given, and waits until it listens.
    pub fn start(device: &str, site: &Site, core: Option<usize>) -> Outcome<Child> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
        let mut command = Command::new(program);
        command.args(["serve", "--lifeline", "--json", "--device", device]);
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        // Ctrl-C is for this process, which ends the other one.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = site
            .in_peer_namespace(|| command.spawn())
            .map_err(|error| Failure::new(format!("starting the second process: {error}")))?;
        let mut child = Child { process, uri: String::new() };
        child.uri = child.read_uri()?;
        Ok(child)
    }

    /// Where it listens.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    fn read_uri(&mut self) -> Outcome<String> {
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = self.process.stdout.take() {
            thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // The receiver may have given up: then nobody needs the line.
                let _ = sender.send(read.map(|_| line));
            });
        }
        let line = match receiver.recv_timeout(START_LIMIT) {
            Ok(Ok(line)) => line,
            Ok(Err(error)) => return Err(Failure::new(format!("reading from the second process: {error}"))),
            Err(_) => return Err(Failure::new("the second process does not start to listen")),
        };
        let reason: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        match reason.get("uri").and_then(serde_json::Value::as_str) {
            Some(uri) => Ok(uri.to_owned()),
            None => Err(Failure::new(format!("the second process: {}", self.last_words()))),
        }
    }

    /// It has closed its output without a URI, so it is ending: what it said is there or comes at once.
    fn last_words(&mut self) -> String {
        drop(self.process.stdin.take());
        let mut words = String::new();
        if let Some(mut stderr) = self.process.stderr.take() {
            let _ = stderr.read_to_string(&mut words);
        }
        let words = words.trim().trim_start_matches("cci: ").replace('\n', ";");
        if words.is_empty() { "ended without a word".to_owned() } else { words }
    }

    /// Ends it.
    pub fn end(self) {
        drop(self);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let until = Instant::now() + END_LIMIT;
        while Instant::now() < until {
            match self.process.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // It does not end by itself; by its own id, so nothing else is hit.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
