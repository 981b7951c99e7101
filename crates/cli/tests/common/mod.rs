//! What the tests of the command share: starting it, and reading what it says.
#![allow(dead_code, reason = "each test program uses some of it")]

mod marked;
pub mod slurm;
pub mod ssh;

pub use marked::marked;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const EXIT_FAILED: Option<i32> = Some(1);
pub const EXIT_USAGE: Option<i32> = Some(2);

/// Nothing in these tests takes nearly so long; ranks that should be ended sleep for longer.
const LIMIT: Duration = Duration::from_secs(60);

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(pid: i32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
}

pub fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

pub fn cci(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(args).env_remove("CCI_CONFIG").stdin(Stdio::null());
    command.output().expect("the command starts")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}\n{}", output.status, stdout(output), stderr(output));
    stdout(output)
}

pub fn json(output: &Output) -> Value {
    serde_json::from_str(&succeeded(output)).expect("JSON")
}

/// A folder of the test's own below cargo's, so that nothing is left elsewhere.
pub fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

/// `cci serve` on one device; ends with the test, however that ends.
pub struct Server {
    pub process: Child,
    pub uri: String,
}

impl Server {
    pub fn start(device: &str) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        command.args(["serve", "--json", "--lifeline", "--device", device]).env_remove("CCI_CONFIG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let printed: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{device}: {line:?}"));
        assert_eq!(printed["device"], device);
        Server { process, uri: printed["uri"].as_str().expect("a URI").to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Devices that are up here: shm always, and UDP on loopback where there is one.
pub fn devices() -> Vec<String> {
    let info = json(&cci(&["info", "--json"]));
    let up = info["devices"].as_array().expect("devices").iter().filter(|device| device["up"] == true);
    let names = up.map(|device| device["name"].as_str().expect("a name").to_owned());
    names.filter(|name| name == "shm" || name == "udp-lo").collect()
}
