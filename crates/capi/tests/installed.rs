//! What `cargo xtask install` puts down, used as a stranger would: with pkg-config, make and the examples.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Chooses how it is built. In the short form of the tests, that is as everything else is.
const PROFILE: &str = "CCI_INSTALL_PROFILE";
/// The profile of the tests.
const BUILT: &str = "dev";

/// Installs, once.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = common::scratch().join("prefix");
        let _ = fs::remove_dir_all(&prefix);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        let profile = std::env::var(PROFILE).unwrap_or_else(|_| BUILT.to_owned());
        let mut install = match common::xtask_that_built() {
            Some(xtask) => Command::new(xtask),
            None => {
                let mut run = common::cargo();
                run.args(["run", "--quiet", "--locked", "-p", "xtask", "--"]);
                run
            }
        };
        install.args(["install", "--profile", &profile, "--prefix"]).arg(&prefix);
        if common::xtask_that_built().is_some() && profile == BUILT {
            install.arg("--built");
        }
        common::succeed(install.current_dir(common::package_folder()).env("CARGO_TARGET_DIR", target));
        prefix
    })
}

/// The examples' folder, built there.
fn examples() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let folder = common::scratch().join("examples");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for entry in fs::read_dir(common::package_folder().join("examples")).expect("the examples").flatten()
        {
            fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
        }
        let mut make = Command::new("make");
        make.current_dir(&folder).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        make.env("CFLAGS", "-O1 -g -Werror");
        common::succeed(&mut make);
        folder
    })
}

fn command(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(arguments);
    command.env("LD_LIBRARY_PATH", prefix().join("lib")).env("CCI_CONFIG", common::config());
    command
}

/// A server that prints its URI; killed in the end.
struct Server {
    child: Child,
    uri: String,
    output: BufReader<ChildStdout>,
}

impl Server {
    fn start(program: &str, arguments: &[&str]) -> Server {
        let mut command = command(examples().join(program), arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut uri = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        output.read_line(&mut uri).expect("its URI");
        Server { child, uri: uri.trim().to_owned(), output }
    }

    /// Ends its standard input, and it with that; gives what else it said.
    fn end(&mut self) -> String {
        drop(self.child.stdin.take());
        let in_time = common::wait(&mut self.child, Duration::from_secs(20));
        let mut printed = String::new();
        self.output.read_to_string(&mut printed).expect("text");
        assert!(in_time && self.child.wait().expect("it ended").success(), "{in_time}: {printed}");
        printed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client to its end, with its patience and ours.
fn client(program: &str, arguments: &[&str]) -> String {
    common::finish(&mut command(examples().join(program), arguments))
}

#[test]
fn everything_is_there() {
    for file in [
        "lib/libcci.so",
        "lib/libcci.so.2",
        "lib/libcci.a",
        "include/acp.h",
        "include/cci.h",
        "include/cci_job.h",
        "include/cci_messenger.h",
        "include/ccs.h",
        "include/ripc.h",
        "lib/pkgconfig/acp.pc",
        "lib/pkgconfig/cci.pc",
        "lib/pkgconfig/ccs.pc",
        "lib/pkgconfig/ripc.pc",
        "bin/cci",
    ] {
        assert!(prefix().join(file).exists(), "{file} is installed");
    }
    let link = fs::read_link(prefix().join("lib/libcci.so")).expect("a link");
    assert_eq!(link, Path::new("libcci.so.2"));
}

#[test]
fn echo_over_each_device() {
    for device in ["shm", "udp"] {
        let server = Server::start("echo_server", &[device]);
        assert!(server.uri.starts_with(device), "{}", server.uri);
        let printed = client("echo_client", &[&server.uri, device, "2000"]);
        assert!(printed.starts_with("2000 messages echoed"), "{printed}");
    }
}

#[test]
fn requests_and_responses_with_epoll() {
    let mut server = Server::start("request_response", &[]);
    let printed = client("request_response", &[&server.uri, "500"]);
    assert_eq!(printed, "500 requests answered\n");
    // It watches its standard input too, and ends with it.
    server.end();
}

#[test]
fn broker_hands_connections_to_workers() {
    let server = Server::start("broker", &["3"]);
    for _ in 0..5 {
        let printed = client("echo_client", &[&server.uri, "shm", "200"]);
        assert!(printed.starts_with("200 messages echoed"), "{printed}");
    }
}

#[test]
fn prices_by_multicast() {
    let group = format!("udp://239.192.79.{}:4793", std::process::id() % 256);
    let mut watchers = [(); 2].map(|()| Server::start("ticker", &["watch", "udp", &group]));
    assert_eq!(client("ticker", &["publish", "udp", &group, "200"]), "800 ticks published\n");
    for watcher in &mut watchers {
        assert_eq!(watcher.end(), "AAAA 101.99\nBBBB 201.99\nCCCC 301.99\nDDDD 401.99\n800 ticks\n");
    }
}

#[test]
fn a_feed_by_bursts_and_a_handler() {
    for device in ["shm", "udp"] {
        let mut listener = Server::start("feed", &["listen", device]);
        assert_eq!(client("feed", &["send", &listener.uri, "10001"]), "40004 quotes sent\n", "{device}");
        assert_eq!(listener.end(), "AAAA 200.00\nBBBB 300.00\nCCCC 400.00\nDDDD 500.00\n40004 quotes\n");
    }
}

#[test]
fn frames_that_are_lent() {
    for device in ["shm", "udp"] {
        let mut watcher = Server::start("frames", &["watch", device]);
        assert_eq!(client("frames", &["produce", &watcher.uri, "500"]), "500 frames made\n", "{device}");
        assert_eq!(watcher.end(), "500 frames\n", "{device}");
    }
}

/// Three clients at once on one table; the server finds it consistent at the end.
#[test]
fn key_value_table_by_atomics() {
    for device in ["shm", "udp"] {
        let mut server = Server::start("kv_server", &[device]);
        let program = examples().join("kv_client");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let client = || common::finish(&mut command(&program, &[&server.uri, device, "1500"]));
                scope.spawn(move || assert!(client().contains("1500 updates"), "{device}"));
            }
        });
        let printed = server.end();
        assert_eq!(printed, "3 clients, 40 keys, 4500 updates: consistent\n", "{device}");
    }
}

/// Values of any length, and several clients; one uses libuv's loop.
#[test]
fn keys_and_values_by_calls() {
    let mut server = Server::start("messenger_kv", &[]);
    let long = format!("long={}", "x".repeat(100_000));
    let printed = client("messenger_kv", &[&server.uri, "a=1", "b=two", "a", "c", &long]);
    let first_words: Vec<_> = printed.lines().map(|line| line.get(..10).unwrap_or(line)).collect();
    assert_eq!(first_words, ["a=1: 1", "b=two: two", "a: 1", "c: no such", "long=xxxxx"]);
    assert_eq!(client("messenger_kv", &[&server.uri, "b"]), "b: two\n");
    if examples().join("messenger_uv").exists() {
        assert_eq!(client("messenger_uv", &[&server.uri, "a", "50"]), "50 answers\n");
        assert_eq!(client("messenger_uv", &[&server.uri, "none", "20"]), "20 answers\n");
    } else {
        eprintln!("skipped: no libuv on this machine");
    }
    server.end();
}

#[test]
fn a_file_is_copied_by_rma() {
    let (from, to) = (common::scratch().join("original"), common::scratch().join("copy"));
    let (from_name, to_name) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
    for device in ["shm", "udp"] {
        for length in [0_u32, 1, 300_000, 40_000_001] {
            let bytes: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            fs::write(&from, &bytes).expect("a file");
            let mut receiver = Server::start("rma_file_copy", &["receive", to_name, device]);
            let printed = client("rma_file_copy", &["send", from_name, &receiver.uri, device]);
            assert!(printed.contains(&format!("sent {length} bytes")), "{device}: {printed}");
            assert!(printed.contains("arrived as sent"), "{device}: {printed}");
            let printed = receiver.end();
            assert!(printed.contains(&format!("received {length} bytes")), "{device}: {printed}");
            assert!(fs::read(&to).expect("the copy") == bytes, "{device}: {length} bytes, and all the same");
        }
    }
}

/// A program for CCS is linked as its description says, and is a job of one where no launcher starts it.
#[test]
fn ccs_by_pkg_config() {
    let program = common::scratch().join("ccs_figure1");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "--libs", "ccs"]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = common::succeed(&mut pkg_config).stdout;
    let flags = String::from_utf8(flags).expect("UTF-8");
    let mut cc = Command::new("cc");
    cc.arg(common::package_folder().join("tests/c/ccs_figure1.c")).arg("-o").arg(&program);
    common::succeed(cc.args(flags.split_whitespace()));
    let mut run = command(&program, &[]);
    assert!(common::finish(run.env_remove("CCI_CONFIG")).contains("rank 0 has read rank 0's buffer"));
}

/// A program in C as the ranks of a job that the installed command starts.
#[test]
fn jobs_by_the_command() {
    let program = common::scratch().join("job");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(["--cflags", "--libs", "cci"]).env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let flags = String::from_utf8(common::succeed(&mut pkg_config).stdout).expect("UTF-8");
    let mut cc = Command::new("cc");
    cc.arg(common::package_folder().join("tests/c/job.c")).arg("-o").arg(&program);
    common::succeed(cc.args(flags.split_whitespace()).arg("-lpthread"));
    let (program, go) = (program.to_str().expect("UTF-8"), common::scratch().join("go"));
    let _ = fs::remove_file(&go);
    let run = |arguments: &[&str]| {
        let mut run = command(prefix().join("bin/cci"), &["run", "-n", "3", "--timeout", "60s", program]);
        run.args(arguments).env("JOB_GO", &go).output().expect("it starts")
    };
    let output = run(&["ranks"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.matches("job: all well").count() == 3, "{output:?}");
    let _ = fs::remove_file(&go);
    let output = run(&["deaths"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(137) && said.matches("job: all well").count() == 2, "{output:?}");
    let output = run(&["abort"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(17) && said.contains("rank 1") && said.contains("for a test"),
        "{output:?}"
    );
}

/// The client in C of the README, as it is written there.
#[test]
fn the_readmes_program_works() {
    let readme = fs::read_to_string(common::package_folder().join("../../README.md")).expect("the README");
    let (_, rest) = readme.split_once("```c\n").expect("a program in C");
    let (source, _) = rest.split_once("```").expect("its end");
    assert!(source.lines().count() < 40, "short");
    let (file, program) = (common::scratch().join("readme.c"), common::scratch().join("readme"));
    fs::write(&file, source).expect("a file");
    let mut cc = Command::new("cc");
    cc.arg("-Wall").arg("-Werror").arg("-I").arg(prefix().join("include")).arg(&file);
    cc.arg("-L").arg(prefix().join("lib")).arg("-lcci").arg("-o").arg(&program);
    common::succeed(&mut cc);
    let server = Server::start("echo_server", &[]);
    let output = common::succeed(&mut command(&program, &[&server.uri]));
    assert_eq!(output.stdout, b"ping\n");
}
