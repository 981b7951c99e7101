//! A second process: the test program starts itself once more, to run only the child's part.

use crate::conformance::{Driver, Environment, Side, conformance_timeout};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Set in the child.
pub(super) const CHILD: &str = "CCI_CONFORMANCE_CHILD";
/// What the child prints before its URI.
pub(super) const URI_MARK: &str = "conformance-uri=";

/// A child process and the URI it listens at. Killed when dropped.
pub(super) struct Peer {
    pub(super) child: Child,
    pub(super) uri: String,
}

impl Peer {
    pub(super) fn start<D: Driver>(env: &Environment<D>) -> Peer {
        // The path of a test has no crate in front.
        let (_, test) = env.child_test.split_once("::").expect("a test lives in a module");
        let program = std::env::current_exe().expect("the test program");
        // It is a server: it begins where this thread is.
        let _inside = env.far.as_ref().map(|far| far.enter().expect("who made it may enter it"));
        let mut child = Command::new(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, env.about.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program starts once more");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let uri = lines.find_map(|line| line.strip_prefix(URI_MARK).map(str::to_owned));
        // Its further output must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Peer { child, uri: uri.expect("the child prints its URI") }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls one side, whose peer lives in another process, until `done`.
pub(super) fn poll_until<D: Driver>(side: &mut Side<D>, what: &str, done: impl Fn(&Side<D>) -> bool) {
    let patience = Instant::now() + conformance_timeout();
    while !done(side) {
        assert!(Instant::now() < patience, "waited too long for {what}");
        side.poll();
    }
}
