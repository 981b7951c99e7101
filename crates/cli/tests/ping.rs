//! `cci ping` that ends early: by Ctrl-C, by the death of the server, or for want of a message that can be sent.

mod common;

use common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A ping that goes on, once its first lines are there.
fn started(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.arg("ping").args(args).env_remove("CCI_CONFIG");
    let mut ping = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(ping.stdout.take().expect("a pipe"));
    for _ in 0..3 {
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        assert!(line.contains("seq="), "{line:?}");
    }
    (ping, lines)
}

/// What it still says, and how it ends.
fn ended(ping: Child, mut lines: BufReader<ChildStdout>) -> Output {
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut lines, &mut rest).expect("its output");
    let mut output = ping.wait_with_output().expect("it ends");
    output.stdout = rest;
    output
}

fn interrupt(process: &Child) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
}

#[test]
fn ctrl_c_ends_an_endless_ping_with_its_summary() {
    let server = Server::start("shm");
    let (ping, lines) = started(&[&server.uri, "--count", "0", "--interval", "5ms"]);
    interrupt(&ping);
    let output = ended(ping, lines);
    let printed = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", stderr(&output));
    assert!(printed.contains(" came back, 0 lost") && printed.contains("round trip: min"), "{printed}");
}

#[test]
fn the_summary_is_there_when_the_server_dies() {
    for device in devices() {
        let mut server = Server::start(&device);
        let (ping, lines) = started(&[&server.uri, "-c", "0", "-i", "5ms", "--timeout", "1s"]);
        server.process.kill().expect("killed");
        let output = ended(ping, lines);
        let printed = stdout(&output);
        assert_eq!(output.status.code(), EXIT_FAILED, "{device}: {printed}{}", stderr(&output));
        assert!(
            printed.contains(" came back, ") && printed.contains("round trip: min"),
            "{device}: {printed}"
        );
        assert!(stderr(&output).contains("try:"), "{device}: {}", stderr(&output));
    }
}

/// Nobody listens there, and that is not what is wrong with the call.
#[test]
fn a_size_that_no_connection_takes_is_refused_first() {
    let output = cci(&["ping", "shm://nobody-listens-here-4711", "--size", "100000"]);
    assert_eq!(output.status.code(), EXIT_USAGE, "{}", stderr(&output));
    assert!(stderr(&output).contains("--size 8192 or less"), "{}", stderr(&output));
}

#[test]
fn the_hint_is_about_the_transport_of_the_uri() {
    if !devices().iter().any(|name| name == "udp-lo") {
        return println!("skipped: no loopback interface is up here");
    }
    // A port that nobody listens on: it was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.expect("a port").port();
    for scheme in ["tcp", "udp"] {
        let output = cci(&["ping", &format!("{scheme}://127.0.0.1:{port}"), "--timeout", "300ms"]);
        assert_eq!(output.status.code(), EXIT_FAILED);
        let printed = stderr(&output);
        let other = if scheme == "tcp" { "udp-" } else { "tcp-" };
        assert!(printed.contains("try:") && !printed.contains(other), "{printed}");
    }
}

/// What a connection says of itself is for programs, too: numbers, with the unit in the name.
#[test]
fn the_facts_of_the_json_are_numbers() {
    for device in devices() {
        let server = Server::start(&device);
        let ping = json(&cci(&["ping", &server.uri, "-c", "3", "-i", "0s", "--json"]));
        let facts = ping["explanation"]["facts"].as_object().unwrap_or_else(|| panic!("{ping}"));
        let key = if device == "shm" { "ring_to_the_peer_bytes" } else { "largest_datagram_bytes" };
        assert!(facts.get(key).is_some_and(Value::is_u64), "{key}: {ping}");
        for (name, value) in facts {
            let begins_with_digit = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
            assert!(!value.as_str().is_some_and(begins_with_digit), "{name}: {value}");
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_plain), "{name}");
        }
    }
}

/// Host names are for people: the command looks them up, which the library does not.
#[test]
fn a_host_name_is_looked_up() {
    if !devices().iter().any(|name| name == "udp-lo") {
        return println!("skipped: no loopback interface is up here");
    }
    let server = Server::start("udp-lo");
    let uri = server.uri.replace("127.0.0.1", "localhost");
    assert!(uri.contains("localhost"), "{uri}");
    let ping = json(&cci(&["ping", &uri, "-c", "2", "-i", "0s", "--json"]));
    assert_eq!(ping["received"], 2, "{ping}");
    let output = cci(&["ping", "udp://no-such-host.invalid:7"]);
    assert_eq!(output.status.code(), EXIT_USAGE);
    assert!(stderr(&output).contains("no-such-host.invalid"), "{}", stderr(&output));
}
