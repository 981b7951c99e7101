//! `cci files` and `cci get`: files by the name of a service that is killed and started anew.

mod common;

use common::*;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

struct Service {
    process: Child,
}

impl Service {
    fn start(directory: &Path, folder: &Path, device: &str) -> Service {
        let mut command = cci(directory, device);
        command.args(["files", "--name", "test-files"]).arg(folder).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the command starts");
        let mut line = String::new();
        let stderr = process.stderr.take().expect("it is piped");
        BufReader::new(stderr).read_line(&mut line).expect("a line");
        assert!(line.contains("test-files"), "{line}");
        Service { process }
    }

    fn kill(mut self) {
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ended");
    }
}

fn cci(directory: &Path, device: &str) -> Command {
    let config = directory.join(format!("{device}.ini"));
    fs::write(&config, format!("[{device}]\ntransport = {device}\n")).expect("written");
    let services = directory.join("services");
    fs::create_dir_all(&services).expect("made");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.env("CCI_CONFIG", config).env("CCI_DIRECTORY", format!("host:{}", services.display()));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn get(directory: &Path, device: &str, what: &str, output: &Path) -> Child {
    let mut command = cci(directory, device);
    command.args(["get", what, "-o"]).arg(output).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

fn ended(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

#[test]
fn a_file_comes_whole_although_its_service_is_killed_and_started_anew() {
    for device in ["shm", "udp", "tcp", "any"] {
        let directory = tempfile::tempdir().expect("a folder");
        let folder = directory.path().join("files");
        fs::create_dir_all(folder.join("deep")).expect("made");
        let bytes: Vec<u8> =
            (0..200_000_000_u32 / 8).flat_map(|word| u64::from(word).to_le_bytes()).collect();
        fs::write(folder.join("deep/large.bin"), &bytes).expect("written");
        let output = directory.path().join("fetched.bin");
        // Nobody serves it yet.
        let client = get(directory.path(), device, "test-files/deep/large.bin", &output);
        let mut service = Service::start(directory.path(), &folder, device);
        let mut fetched_when_killed = Vec::new();
        for _ in 0..3 {
            // Killed when some more of it is there.
            let part = directory.path().join(".fetched.bin.part");
            let before = fetched_when_killed.last().copied().unwrap_or(0);
            let blocks = || fs::metadata(&part).map_or(0, |about| about.blocks());
            wait_until("more of the file is there", || blocks() > before || output.exists());
            fetched_when_killed.push(blocks());
            service.kill();
            service = Service::start(directory.path(), &folder, device);
        }
        let client = ended(client);
        assert!(client.status.success(), "{device}: {}", stderr(&client));
        assert!(fs::read(&output).expect("it is there") == bytes, "{device}: other bytes");
        service.kill();
    }
}

#[test]
fn what_is_wrong_is_said() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = directory.path().join("files");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("empty"), "").expect("written");
    let service = Service::start(directory.path(), &folder, "shm");
    let output = directory.path().join("out");
    for (what, reason) in [
        ("test-files/none", "No such file"),
        ("test-files/../shm.ini", "no such file here"),
        ("test-files", "names no file"),
        ("test-files/", "names no file"),
        (".x/y", "no name of a service"),
    ] {
        let client = ended(get(directory.path(), "shm", what, &output));
        assert!(!client.status.success() && stderr(&client).contains(reason), "{what}: {}", stderr(&client));
        assert!(!output.exists(), "{what}");
    }
    let client = ended(get(directory.path(), "shm", "test-files/empty", &output));
    assert!(client.status.success(), "{}", stderr(&client));
    assert_eq!(fs::read(&output).expect("it is there"), b"");
    // A second one of the same name.
    let mut second = cci(directory.path(), "shm");
    let second = second.args(["files", "--name", "test-files"]).arg(&folder).output().expect("it ends");
    assert!(stderr(&second).contains("taken"), "{}", stderr(&second));
    service.kill();
    let mut client = cci(directory.path(), "shm");
    let client = client.args(["get", "test-files/empty", "--timeout", "1"]).current_dir(directory.path());
    let client = client.stderr(Stdio::piped()).output().expect("it ends");
    assert!(stderr(&client).contains("no service test-files"), "{}", stderr(&client));
}

#[test]
fn a_client_says_what_it_waits_for() {
    let directory = tempfile::tempdir().expect("a folder");
    let folder = directory.path().join("files");
    fs::create_dir_all(&folder).expect("made");
    fs::write(folder.join("a.txt"), "text").expect("written");
    let output = directory.path().join("out");
    let mut client = get(directory.path(), "shm", "test-files/a.txt", &output);
    let mut lines = BufReader::new(client.stderr.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("a line").expect("text");
    let waits = line();
    assert!(waits.contains("no service test-files") && waits.contains("waiting for up to 60 s"), "{waits}");
    let waited_ms = waits.split_once("after ").and_then(|(_, rest)| rest.split_once(" ms"));
    let waited_ms: u64 = waited_ms.and_then(|(ms, _)| ms.parse().ok()).expect("how long it has waited");
    assert!(waited_ms >= 1000, "it speaks after a second: {waits}");
    let service = Service::start(directory.path(), &folder, "shm");
    assert_eq!(line(), "the service answers");
    assert!(ended(client).status.success());
    service.kill();
}
