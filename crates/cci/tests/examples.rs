//! The example programs work as they say, and the documents show them as they are.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A client that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_readmes_program_answers_itself() {
    let server = Server::start("readme", &[]);
    assert_eq!(server.client("readme", &[]), "pong");
}

#[test]
fn echo_server_and_client_over_each_device() {
    for device in ["shm", "udp-lo"] {
        let server = Server::start("echo_server", &[device]);
        let said = server.client("echo_client", &[device, "500"]);
        assert!(said.starts_with("500 messages echoed"), "{device}: {said}");
    }
}

#[test]
fn the_broker_hands_connections_to_workers() {
    let server = Server::start("broker", &["2"]);
    for _ in 0..3 {
        let said = server.client("echo_client", &["shm", "100"]);
        assert!(said.starts_with("100 messages echoed"), "{said}");
    }
}

#[test]
fn requests_are_answered_in_an_event_loop() {
    let server = Server::start("request_response_epoll", &[]);
    let said = server.client("request_response_epoll", &["300"]);
    assert_eq!(said, "300 requests answered");
}

#[test]
fn the_documents_show_the_examples_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (document, example) in [("README.md", "readme"), ("docs/guide.md", "counter")] {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let shown = text.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let path = root.join("crates/cci/examples").join(example).with_extension("rs");
        let source = std::fs::read_to_string(path).unwrap();
        let (_, program) = source.split_once("\n\n").unwrap();
        assert_eq!(shown, program, "{document} and examples/{example}.rs");
    }
}

/// An example as built beside this test; cargo builds them for `cargo test`, and is asked to where it did not.
fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let profile = this.parent().and_then(Path::parent).unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "cci", "--examples"]).status().unwrap();
        assert!(built.success());
    }
    path
}

struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(name: &str, arguments: &[&str]) -> Server {
        let mut child = Command::new(example(name))
            .args(arguments)
            .env_remove("CCI_CONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut uri).unwrap();
        Server { child, uri: uri.trim().to_owned() }
    }

    /// Runs a client against it; what it printed.
    fn client(&self, name: &str, arguments: &[&str]) -> String {
        let mut client = Command::new(example(name));
        client.arg(&self.uri).args(arguments).env_remove("CCI_CONFIG").stdin(Stdio::null());
        let output = within_patience(client);
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{name}: {said} {}", String::from_utf8_lossy(&output.stderr));
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a program that is not given for ever.
fn within_patience(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    ended.recv_timeout(PATIENCE).map(Result::unwrap).unwrap_or_else(|_| {
        let _ = Command::new("kill").arg(&pid).status();
        panic!("process {pid} did not end: {command:?}");
    })
}
