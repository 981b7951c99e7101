//! Processes of the tests: this program again, running one test only, which does nothing in other runs.

use crate::stage::PATIENCE;
use cci_testkit::net::{End, Veth};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A child of this test, killed if it is left behind.
pub struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one at an end, to run the test of this name with these variables.
    pub fn start(veth: &Veth, end: End, test: &str, variables: &[(&str, &str)]) -> Process {
        let _inside = veth.enter(end);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Process { child, out }
    }

    /// What it prints behind this word, in the first line that has it.
    pub fn printed(&mut self, word: &str) -> String {
        let mut heard = String::new();
        loop {
            let before = heard.len();
            assert!(self.out.read_line(&mut heard).unwrap() > 0, "no {word}: {heard}");
            if let Some((_, after)) = heard[before..].split_once(word) {
                return after.trim().to_owned();
            }
        }
    }

    /// Closes its standard input, for which it may wait.
    pub fn go_on(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended, well.
    pub fn end(mut self) {
        let start = Instant::now();
        while start.elapsed() < 2 * PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("a child does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
