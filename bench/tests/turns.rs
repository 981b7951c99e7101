//! Every piece of work of the baseline and of CCI, once, with tiny counts: the benchmark does not rot. That there is a
//! reading is asserted, never what it says.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No turn takes longer, however busy the machine.
const LIMIT: Duration = Duration::from_secs(60);

/// None: this machine does not have what it takes; that was printed.
fn turn(by: &str, work: &str, count: u32, placement: &str) -> Option<serde_json::Value> {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        println!("skipped: one core only");
        return None;
    }
    // To files: a partner that is still there must not keep us reading.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("turn-{by}-{}-{placement}", work.replace(':', "-"));
    let (out, err) = (folder.join(format!("{name}.out")), folder.join(format!("{name}.err")));
    let mut child = Command::new(env!("CARGO_BIN_EXE_cci-bench"))
        .args(["work", "--by", by, "--work", work, "--count", &count.to_string(), "--placement", placement])
        .env("CCI_BENCH_STARTED_NS", "1")
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{by} {work}: not done after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (out, err) = (std::fs::read_to_string(out).unwrap(), std::fs::read_to_string(err).unwrap());
    if !status.success() {
        if let Some(reason) = not_allowed(&err) {
            println!("skipped: {by} {work}: {reason}");
            return None;
        }
        panic!("{by} {work}: {status}\n{out}{err}");
    }
    Some(serde_json::from_str(&out).unwrap_or_else(|error| panic!("{by} {work}: {error}: {out}")))
}

/// What a machine may refuse: namespaces, raw sockets, other processes' memory.
fn not_allowed(printed: &str) -> Option<&str> {
    let reasons = ["not permitted", "Permission denied", "no eth device here", "as root", "install iproute2"];
    reasons.iter().any(|reason| printed.contains(reason)).then(|| printed.trim())
}

fn has_reading(by: &str, work: &str, count: u32) {
    has_reading_at(by, work, count, "same-host");
}

fn has_reading_at(by: &str, work: &str, count: u32, placement: &str) {
    if let Some(reading) = turn(by, work, count, placement) {
        assert!(reading["value"].as_f64().is_some_and(|value| value > 0.0), "{by} {work}: {reading}");
        let spread = reading["quantiles_ns"].as_array().map(Vec::len);
        assert_eq!(spread, work.starts_with("loaded").then_some(3), "{by} {work}: {reading}");
    }
}

#[test]
fn messages() {
    has_reading("cache-line", "half-trip:8", 20);
    for by in ["shm", "udp", "tcp", "any", "shm-locked", "udp-locked", "plain-udp", "plain-tcp"] {
        has_reading(by, "half-trip:8", 20);
        has_reading(by, "rate:8", 100);
    }
    for by in ["shm", "udp", "tcp"] {
        has_reading(by, "half-trip:1024", 20);
        has_reading(by, "handled:8", 100);
    }
    has_reading("shm", "half-trip:8192", 20);
    // Those of TCP are copied.
    has_reading("shm", "loan-trip:8192", 20);
    has_reading("tcp", "loan-trip:8192", 20);
}

#[test]
fn across_a_pair() {
    for by in ["eth", "udp", "tcp", "plain-udp", "plain-tcp", "plain-xdp"] {
        has_reading_at(by, "half-trip:64", 20, "virtual-pair");
        has_reading_at(by, "rate:64", 100, "virtual-pair");
    }
    has_reading_at("eth", "loaded:64:10", 1, "virtual-pair");
}

#[test]
fn remote_memory() {
    for by in ["memcpy", "process-vm", "shm", "shm-foreign", "plain-tcp", "udp", "tcp"] {
        for work in ["write:65536", "read:65536", "write:1048576"] {
            has_reading(by, work, 3);
        }
    }
    has_reading("shm", "write:8", 100);
    has_reading("shm", "read:16777216", 2);
}

#[test]
fn layers() {
    for by in ["shm", "udp", "tcp"] {
        has_reading(by, "long:65536", 20);
        has_reading(by, "call:8", 20);
        has_reading(by, "calls:8:4", 40);
    }
    has_reading("shm", "long:16777216", 2);
}

#[test]
fn ranks() {
    has_reading("job", "barrier:2", 20);
    for work in [
        "barrier:2",
        "half-trip:4",
        "put-fence-heap:8",
        "fetch-add",
        "fetch-add-all:2",
        "fetch-add-all:3",
        "write-strided:64:64",
        "pack:face",
        "unpack:struct",
    ] {
        has_reading("ranks", work, 20);
    }
    for work in [
        "half-trip:8",
        "rate:8",
        "long:65520",
        "put-fence:8",
        "get-fence:8",
        "fetch-add",
        "channel-life:4096",
        "map-find:3",
        "map-insert:3",
    ] {
        has_reading("acp", work, 20);
    }
    has_reading("acp-udp", "half-trip:8", 20);
    has_reading("pages", "channel-life:4096", 20);
    if std::path::Path::new(env!("CARGO_BIN_EXE_cci-bench")).with_file_name("cci").exists() {
        has_reading("job", "start:3", 1);
    } else {
        println!("skipped: cci is not built");
    }
}

#[test]
fn waiting() {
    for by in ["eventfd", "futex", "shm", "shm-handle", "plain-udp", "udp", "udp-handle", "plain-tcp", "tcp"]
    {
        has_reading(by, "blocking-trip:8", 20);
    }
    has_reading("tcp-handle", "blocking-trip:8", 20);
}

#[test]
fn connections() {
    for by in ["plain-tcp", "shm", "udp", "tcp"] {
        has_reading(by, "connect", 20);
    }
    for by in ["shm", "udp", "tcp"] {
        has_reading(by, "poll:20", 100);
        has_reading(by, "idle-memory:300", 1);
    }
}

#[test]
fn under_load() {
    for by in ["shm", "udp", "tcp", "plain-udp", "plain-tcp"] {
        has_reading(by, "loaded:64:10", 1);
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    for (by, work) in [("futex", "rate:8"), ("plain-udp", "poll:5"), ("memcpy", "connect")] {
        let output = Command::new(env!("CARGO_BIN_EXE_cci-bench"))
            .args(["work", "--by", by, "--work", work, "--count", "1"])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains("does not do"), "{printed}");
    }
}
