//! The example programs work as they say, and the documents show them as they are.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A client that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_readmes_program_answers_itself() {
    let server = Server::start("readme", &[]);
    assert_eq!(server.client("readme", &[]), "pong");
}

/// Only the URI changes: the client learns nothing else.
#[test]
fn the_readmes_programs_take_uris_of_every_device() {
    for (device, scheme) in [("udp-lo", "udp://"), ("tcp-lo", "tcp://"), ("any", "any://")] {
        let server = Server::start("readme", &[device]);
        assert!(server.uri.starts_with(scheme), "{}", server.uri);
        assert_eq!(server.client("readme", &[]), "pong", "{device}");
    }
    for device in ["udp-lo", "tcp-lo", "any"] {
        let server = Server::start("remote_memory", &[device]);
        assert_eq!(server.client("remote_memory", &[]), "success", "{device}");
    }
}

#[test]
fn endpoints_work_in_a_tokio_program() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let server = Server::start("tokio_echo", &[device]);
        // One after the other: the server's descriptor becomes readable for each.
        for _ in 0..3 {
            assert_eq!(server.client("tokio_echo", &[]), "pong", "{device}");
        }
    }
}

#[test]
fn the_readmes_memory_is_written() {
    let mut server = Server::start("remote_memory", &[]);
    assert_eq!(server.client("remote_memory", &[]), "success");
    // The server says what was written, and ends.
    let mut printed = String::new();
    server.stdout.read_line(&mut printed).unwrap();
    assert_eq!(printed, "hello\n");
}

#[test]
fn messages_of_any_length_arrive() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let configured = [("shm", "shm"), ("udp-lo", "udp"), ("tcp-lo", "tcp")].map(|(name, transport)| {
            format!(
                "[{name}]\ntransport = {transport}\n{}",
                if name == "shm" { "" } else { "ip = 127.0.0.1\n" }
            )
        });
        let file = std::env::temp_dir().join(format!("any_length-{device}-{}.ini", std::process::id()));
        std::fs::write(
            &file,
            configured.concat().replace(&format!("[{device}]\n"), &format!("[{device}]\ndefault = 1\n")),
        )
        .unwrap();
        let server = Server::start_configured("any_length", &[], &file);
        for length in ["1", "8185", "1000000", "10000000"] {
            assert_eq!(server.client("any_length", &[length]), "it began with 7", "{device}: {length}");
        }
        assert_eq!(
            server.client("any_length", &["17000000"]),
            "refused by the receiver's program with code 413"
        );
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn three_clients_keep_their_values() {
    let output = Command::new(example("kv")).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["ann: Ok(\"here\")", "bob: Ok(\"here\")", "cy: Ok(\"here\")"], "{output:?}");
    // A newcomer reads all of it.
    let source =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kv.rs")).unwrap();
    let is_program = |line: &&str| !line.trim().is_empty() && !line.starts_with("//");
    assert!(source.lines().filter(is_program).count() < 45);
}

#[test]
fn echo_server_and_client_over_each_device() {
    for device in ["shm", "udp-lo"] {
        let server = Server::start("echo_server", &[device]);
        let printed = server.client("echo_client", &[device, "500"]);
        assert!(printed.starts_with("500 messages echoed"), "{device}: {printed}");
    }
}

#[test]
fn the_broker_hands_connections_to_workers() {
    let server = Server::start("broker", &["2"]);
    for _ in 0..3 {
        let printed = server.client("echo_client", &["shm", "100"]);
        assert!(printed.starts_with("100 messages echoed"), "{printed}");
    }
}

#[test]
fn requests_are_answered_in_an_event_loop() {
    let server = Server::start("request_response_epoll", &[]);
    let printed = server.client("request_response_epoll", &["300"]);
    assert_eq!(printed, "300 requests answered");
}

#[test]
fn prices_reach_everyone_who_watches() {
    let group = format!("udp://239.192.78.{}:4793", std::process::id() % 256);
    let mut watchers = [(); 3].map(|()| Server::start("ticker", &["watch", "udp-lo", &group]));
    assert!(watchers.iter().all(|watcher| watcher.uri == group));
    assert_eq!(client("ticker", &["publish", "udp-lo", &group, "200"]), "800 ticks published");
    for watcher in &mut watchers {
        let mut printed = String::new();
        watcher.stdout.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "AAAA 101.99\nBBBB 201.99\nCCCC 301.99\nDDDD 401.99\n800 ticks\n");
    }
}

#[test]
fn a_feed_arrives_whole_and_in_order() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut listener = Server::start("feed", &["listen", device]);
        assert_eq!(client("feed", &["send", &listener.uri, "10001"]), "40004 quotes sent", "{device}");
        let mut printed = String::new();
        listener.stdout.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, "AAAA 200.00\nBBBB 300.00\nCCCC 400.00\nDDDD 500.00\n40004 quotes\n", "{device}");
    }
}

#[test]
fn frames_are_handed_over_where_processes_share_memory() {
    for (device, how) in [("shm", "some where they were made"), ("udp-lo", "all copied")] {
        let mut watcher = Server::start("frames", &["watch", device]);
        assert_eq!(client("frames", &["produce", &watcher.uri, "500"]), "500 frames made", "{device}");
        let mut printed = String::new();
        watcher.stdout.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, format!("500 frames\n{how}\n"), "{device}");
    }
}

#[test]
fn clients_count_in_one_table_at_once() {
    for device in ["shm", "udp-lo"] {
        let server = Server::start("kv_table", &["serve", device]);
        let adders = [2, 3].map(|threads| {
            let (uri, threads) = (server.uri.clone(), threads.to_string());
            std::thread::spawn(move || client("kv_table", &["add", &uri, &threads, "400"]))
        });
        for adder in adders {
            let printed = adder.join().unwrap();
            assert!(printed.ends_with("additions done"), "{device}: {printed}");
        }
        let listed = client("kv_table", &["list", &server.uri]);
        let counters: Vec<(&str, u64)> = listed
            .lines()
            .map(|line| line.split_once(' ').map(|(key, value)| (key, value.parse().unwrap())).unwrap())
            .collect();
        // Five threads of two processes: each counted its own, and an eighth of it in each of the common ones.
        assert_eq!(counters.len(), 8 + 5, "{device}: {listed}");
        for (key, value) in counters {
            let wanted = if key.contains('.') { 400 } else { 5 * 400 / 8 };
            assert_eq!(value, wanted, "{device}: {key}");
        }
    }
}

#[test]
fn files_are_copied_by_remote_memory() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rma-copy-{}", std::process::id()));
    for device in ["shm", "udp-lo"] {
        let to = folder.join(device);
        std::fs::create_dir_all(&to).unwrap();
        let server = Server::start("rma_copy", &["receive", to.to_str().unwrap(), device]);
        // Nothing, a byte, a piece and one more, and more pieces than are under way at once.
        for len in [0, 1, 1 << 20, (1 << 20) + 1, 21_000_003] {
            let from = folder.join(format!("{len}.bin"));
            let bytes: Vec<u8> = (0..len).map(|at: usize| (at * 31 + at / 977) as u8).collect();
            std::fs::write(&from, &bytes).unwrap();
            let printed = client("rma_copy", &["send", from.to_str().unwrap(), &server.uri]);
            assert!(printed.contains(&format!("{len} bytes, crc32 ")), "{device}: {printed}");
            assert!(std::fs::read(to.join(format!("{len}.bin"))).unwrap() == bytes, "{device}: {len}");
        }
        let mut again = Command::new(example("rma_copy"));
        again.args(["send", folder.join("1.bin").to_str().unwrap(), &server.uri]).env_remove("CCI_CONFIG");
        let refused = within_patience(again);
        let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && stderr.contains("there already"), "{device}: {stderr}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_documents_show_the_examples_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shown = [
        ("README.md", 1, "readme"),
        ("README.md", 2, "remote_memory"),
        ("docs/guide.md", 1, "counter"),
        ("docs/guide.md", 2, "counter_client"),
        ("docs/guide.md", 3, "any_length"),
        ("docs/guide.md", 4, "kv"),
    ];
    for (document, nth, example) in shown {
        let text = std::fs::read_to_string(root.join(document)).unwrap();
        let shown = text.split("```rust\n").nth(nth).and_then(|rest| rest.split("```").next()).unwrap();
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
    stdout: BufReader<ChildStdout>,
    uri: String,
}

impl Server {
    fn start(name: &str, arguments: &[&str]) -> Server {
        Server::run(Command::new(example(name)).args(arguments).env_remove("CCI_CONFIG"))
    }

    /// Starts it with a configuration file.
    fn start_configured(name: &str, arguments: &[&str], config: &Path) -> Server {
        Server::run(Command::new(example(name)).args(arguments).env("CCI_CONFIG", config))
    }

    fn run(command: &mut Command) -> Server {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut uri = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut uri).unwrap();
        Server { child, stdout, uri: uri.trim().to_owned() }
    }

    /// Runs a client against it; what it printed.
    fn client(&self, name: &str, arguments: &[&str]) -> String {
        client(name, &[&[self.uri.as_str()], arguments].concat())
    }
}

/// Runs a program that must succeed; what it printed.
fn client(name: &str, arguments: &[&str]) -> String {
    let mut client = Command::new(example(name));
    client.args(arguments).env_remove("CCI_CONFIG").stdin(Stdio::null());
    let output = within_patience(client);
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{name}: {printed} {}", String::from_utf8_lossy(&output.stderr));
    printed
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
