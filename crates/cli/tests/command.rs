//! Every subcommand as a user runs it: real processes, exit codes, what is printed.

mod common;

use common::*;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The processor time that the command takes, by the account of the shell that starts it.
fn processor_seconds(args: &[&str]) -> f64 {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" > /dev/null; times", "sh", env!("CARGO_BIN_EXE_cci")]).args(args);
    let printed = succeeded(&shell.env_remove("CCI_CONFIG").output().expect("a shell"));
    // Its own time first, then that of its children: each in user mode and in the kernel, such as "0m0.012s 0m0.004s".
    let of_children = printed.lines().nth(1).expect("two lines");
    let seconds = |time: &str| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    of_children.split_whitespace().map(|time| seconds(time).expect("a time")).sum()
}

#[test]
fn info_lists_devices_and_limits_quickly() {
    let info = json(&cci(&["info", "--json"]));
    let took = processor_seconds(&["info", "--json"]);
    assert!(took < 1.0, "{took} s");
    let devices = info["devices"].as_array().expect("devices");
    let of = |transport: &str| devices.iter().filter(|device| device["transport"] == transport).count();
    assert_eq!(of("shm"), 1);
    if Path::new("/sys/class/net/lo").exists() {
        assert!(of("udp") >= 1, "{info}");
    }
    assert_eq!(devices.iter().filter(|device| device["default"] == true).count(), 1);
    for device in devices {
        assert!(device["max_send_size_bytes"].as_u64() > Some(0), "{device}");
        assert!(device["remote_memory"].as_array().is_some_and(|paths| !paths.is_empty()), "{device}");
        for missing in device["unavailable"].as_array().expect("a list") {
            assert!(missing["reason"].is_string() && missing["remedy"].is_string(), "{missing}");
        }
    }
    assert_eq!(info["limits"]["request_bytes_max"], 1024);

    let text = succeeded(&cci(&["info"]));
    for device in devices {
        assert!(text.contains(device["name"].as_str().expect("a name")), "{text}");
    }
    for expected in ["longest message", "descriptors", "remote memory", "mapped", "datagrams"] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
}

#[test]
fn info_takes_its_devices_from_a_file_and_names_the_wrong_line() {
    let folder = folder("config");
    let (good, bad) = (folder.join("good.ini"), folder.join("bad.ini"));
    std::fs::write(&good, "[mine]\ntransport = sm\npriority = 90\nmss = 256\n").expect("written");
    std::fs::write(&bad, "[mine]\ntransport = pigeon\n").expect("written");
    let with = |path: &Path| {
        Command::new(env!("CARGO_BIN_EXE_cci")).args(["info"]).env("CCI_CONFIG", path).output().expect("runs")
    };
    let text = succeeded(&with(&good));
    assert!(text.contains("mine") && text.contains("line 4 ([mine]): mss has no effect: "), "{text}");
    let output = with(&bad);
    assert_eq!(output.status.code(), EXIT_FAILED);
    assert!(stderr(&output).contains("bad.ini:2:"), "{}", stderr(&output));
    std::fs::write(&bad, "[mine]\ntransport = udp\nallow_conect = node1\n").expect("written");
    let output = with(&bad);
    assert_eq!(output.status.code(), EXIT_FAILED);
    let printed = stderr(&output);
    assert!(printed.contains("bad.ini:3:") && printed.contains("did you mean allow_connect?"), "{printed}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn ping_gets_echoes_on_every_device_and_type() {
    for device in devices() {
        let server = Server::start(&device);
        for kind in ["ro", "RU", "uu"] {
            let ping = json(&cci(&[
                "ping",
                &server.uri,
                "--type",
                kind,
                "-c",
                "50",
                "-i",
                "0s",
                "-s",
                "900",
                "--json",
            ]));
            assert_eq!(ping["sent"], 50, "{ping}");
            assert_eq!(ping["received"], 50, "{ping}");
            assert_eq!(ping["device"], device.as_str());
            let rtt = &ping["round_trip_ns"];
            assert!(rtt["min"].as_u64() > Some(0) && rtt["min"].as_u64() <= rtt["p50"].as_u64(), "{ping}");
            assert!(!ping["explanation"]["paths"].as_array().expect("paths").is_empty(), "{ping}");
        }
        let text = succeeded(&cci(&["ping", &server.uri, "-c", "2", "-i", "1ms", "--explain"]));
        assert!(text.contains("2 sent, 2 came back, 0 lost") && text.contains("uses"), "{text}");
    }
}

#[test]
fn ping_says_what_is_wrong_and_what_to_do() {
    for (uri, code, printed) in [
        ("nonsense", EXIT_USAGE, "such as udp://"),
        ("http://127.0.0.1:5", EXIT_USAGE, "does not begin with"),
        ("shm://nobody-listens-here-4711", EXIT_FAILED, "refused"),
    ] {
        let output = cci(&["ping", uri]);
        assert_eq!(output.status.code(), code, "{uri}: {}", stderr(&output));
        assert!(stderr(&output).contains(printed) && stderr(&output).contains("try:"), "{}", stderr(&output));
    }
    let output = cci(&["ping", "shm://x", "--device", "shmm"]);
    assert_eq!(output.status.code(), EXIT_USAGE);
    assert!(stderr(&output).contains("one of: shm"), "{}", stderr(&output));
    assert_eq!(cci(&["ping"]).status.code(), EXIT_USAGE);
    assert_eq!(cci(&["no-such-thing"]).status.code(), EXIT_USAGE);
}

#[test]
fn ping_fails_when_the_server_goes_away() {
    let mut server = Server::start("shm");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(["ping", &server.uri, "-c", "100000", "-i", "10ms"]);
    let mut ping = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(ping.stdout.take().expect("a pipe")).lines();
    assert!(lines.next().expect("a line").expect("read").contains("seq=0"));
    server.process.kill().expect("killed");
    let output = {
        // Its remaining lines, then its end: bounded by the connection's own failure.
        for _ in lines {}
        ping.wait_with_output().expect("ends")
    };
    assert_eq!(output.status.code(), EXIT_FAILED);
    assert!(stderr(&output).contains("try:"), "{}", stderr(&output));
}

#[test]
fn the_server_ends_with_its_parent_and_serves_every_device() {
    let mut server = Server::start("shm");
    drop(server.process.stdin.take());
    let until = Instant::now() + Duration::from_secs(5);
    while server.process.try_wait().expect("asked").is_none() {
        assert!(Instant::now() < until, "the server outlives its parent");
        std::thread::sleep(Duration::from_millis(5));
    }

    // Standard input is closed from the beginning: it says where it listens, and ends.
    let printed = succeeded(&cci(&["serve", "--json", "--lifeline"]));
    let served: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for device in devices() {
        assert!(served.iter().any(|line| line["device"] == device.as_str()), "{device}: {printed}");
    }
}

/// Processes that `pid` started and that still run.
fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < until, "{what}: not after 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_is_left_when_perf_is_killed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(["perf", "--device", "shm", "--seconds", "30", "--no-html"]).stdout(Stdio::null());
    let mut perf = command.stderr(Stdio::null()).spawn().expect("starts");
    let mut child = 0;
    wait_until("the second process", || {
        child = children_of(perf.id()).first().copied().unwrap_or(0);
        child != 0
    });
    std::thread::sleep(Duration::from_millis(300));
    perf.kill().expect("killed");
    perf.wait().expect("ended");
    // A process that has ended and whose parent is gone too is collected by init, sooner or later.
    let is_gone = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z ")
    };
    wait_until("the end of the second process", is_gone);
}

#[test]
fn perf_measures_and_verifies_every_device_type_and_size() {
    let folder = folder("perf");
    let page = folder.join("page.html");
    let names = devices();
    let mut args = vec!["perf", "--quick", "--json", "--only", "messages", "--type", "ro,ru,uu"];
    args.extend(["--sizes", "0,8,64,512,1024,4096,max"]);
    args.extend(["--html", page.to_str().expect("UTF-8")]);
    for name in &names {
        args.extend(["--device", name]);
    }
    let results = json(&cci(&args));
    let targets = results["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), names.len());
    for target in targets {
        assert_eq!(target["failure"], Value::Null, "{target}");
        let cells = target["cells"].as_array().expect("cells");
        // Loopback and shared memory take 8 KiB: 0, 8, 64, 512, 1024, 4096 and that.
        assert_eq!(cells.len(), 3 * 7, "{target}");
        for cell in cells {
            let (latency, rate) = (&cell["latency"], &cell["rate"]);
            assert_eq!((&latency["wrong"], &rate["wrong"]), (&Value::Null, &Value::Null), "{cell}");
            assert!(rate["received"].as_u64() > Some(0), "{cell}");
            assert_eq!(rate["verified"], rate["received"], "{cell}");
            if cell["type"] != "UU" {
                assert!(latency["samples"].as_u64() > Some(0), "{cell}");
                assert_eq!(latency["verified"], latency["sent"], "{cell}");
                assert_eq!(rate["received"], rate["sent"], "{cell}");
            }
        }
    }
    assert_eq!(charts(&page), 3);
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Charts of a page, which needs nothing from elsewhere.
fn charts(page: &Path) -> usize {
    let page = std::fs::read_to_string(page).expect("the page");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "the page needs something else: {outside}");
    }
    page.matches("viewBox=\"0 0 720").count()
}

#[test]
fn perf_measures_and_verifies_remote_memory() {
    let folder = folder("perf-rma");
    let page = folder.join("page.html");
    for device in devices() {
        let common = ["perf", "--quick", "--json", "--device", &device];
        let only = ["--only", "rma,atomics", "--sizes", "8,4096,1000000"];
        let results =
            json(&cci(&[&common[..], &only[..], &["--html", page.to_str().expect("UTF-8")]].concat()));
        let target = &results["targets"][0];
        assert_eq!(target["failure"], Value::Null, "{target}");
        assert_eq!(target["cells"].as_array().map(Vec::len), Some(0), "{target}");
        let rma = target["rma"].as_array().expect("cells");
        let kinds = if device == "shm" { 2 } else { 1 };
        assert_eq!(rma.len(), kinds * 2 * 3, "{target}");
        for cell in rma {
            assert_eq!(cell["wrong"], Value::Null, "{cell}");
            assert!(cell["transfers"].as_u64() > Some(0), "{cell}");
            assert_eq!(cell["verified"], cell["transfers"], "{cell}");
            assert!(cell["bytes_per_s"].as_f64() > Some(0.0) && cell["rounds"].as_u64() >= Some(3), "{cell}");
            let may_be_forbidden = cell["plain"].is_null() && cell["memory"] == "foreign";
            assert!(may_be_forbidden || cell["plain"]["times_as_fast"].as_f64() > Some(0.0), "{cell}");
        }
        let atomics = target["atomics"].as_array().expect("cells");
        assert_eq!(atomics.len(), 2, "{target}");
        for cell in atomics {
            assert_eq!(cell["wrong"], Value::Null, "{cell}");
            assert!(cell["operations"].as_u64() > Some(0), "{cell}");
            assert_eq!(cell["verified"], cell["operations"], "{cell}");
        }
        assert_eq!(charts(&page), 3);
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn perf_measures_remote_memory_of_a_server_elsewhere() {
    for device in devices() {
        let server = Server::start(&device);
        let common = ["--only", "rma", "--sizes", "64,100000", "--iterations", "500", "--no-html"];
        let mut clients = Vec::new();
        // Several at once: each has memory of its own.
        for _ in 0..2 {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
            command.args(["perf", &server.uri]).args(common).env_remove("CCI_CONFIG");
            clients.push(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts"));
        }
        for client in clients {
            let text = succeeded(&client.wait_with_output().expect("ends"));
            assert!(text.contains("write") && text.contains("operations on memory verified"), "{text}");
        }
    }
}

#[test]
fn perf_prints_a_table_and_measures_against_a_server_elsewhere() {
    let server = Server::start("shm");
    let common =
        ["--only", "messages", "--type", "ro", "--sizes", "8,max", "--iterations", "300", "--no-html"];
    let text = succeeded(&cci(&[&["perf", server.uri.as_str()], &common[..]].concat()));
    for expected in ["RO", "8 B", "8192 B", "latency p50", "p99.9", "messages/s", "noise:", "CLOCK_MONOTONIC"]
    {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    let refused = cci(&["perf", "shm://nobody-listens-here-4711", "--no-html"]);
    assert_eq!(refused.status.code(), EXIT_FAILED);
    assert!(stderr(&refused).contains("refused"), "{}", stderr(&refused));
    assert_eq!(cci(&["perf", "--device", "shmm", "--no-html"]).status.code(), EXIT_USAGE);
    let too_long = cci(&["perf", "--device", "shm", "--sizes", "100000", "--only", "messages", "--no-html"]);
    assert_eq!(too_long.status.code(), EXIT_FAILED, "{}", stderr(&too_long));
}

#[test]
fn completions_manual_and_help_are_there() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeeded(&cci(&["completions", shell]));
        assert!(script.contains("cci") && script.contains("perf"), "{shell}");
    }
    assert!(succeeded(&cci(&["man"])).contains(".TH cci"));
    assert!(succeeded(&cci(&["man", "perf"])).contains("verified"));
    for subcommand in ["info", "ping", "perf", "serve"] {
        let help = succeeded(&cci(&[subcommand, "--help"]));
        assert!(help.contains("Examples:"), "{help}");
    }
    assert!(succeeded(&cci(&["--help"])).contains("Exit codes:"));
}

#[test]
fn perf_across_a_pair_of_interfaces() {
    let args = ["perf", "--veth", "--quick", "--type", "ro", "--sizes", "8", "--json"];
    let output = cci(&args);
    if !output.status.success() {
        let printed = stderr(&output);
        // A namespace of one's own needs root, and the pair iproute2.
        assert!(printed.contains("namespace") || printed.contains("ip:"), "{printed}");
        println!("skipped: {printed}");
        return;
    }
    let perf = json(&output);
    let targets = perf["targets"].as_array().expect("targets");
    assert!(targets.iter().any(|target| target["transport"] == "udp"), "{perf}");
    for target in targets {
        assert_eq!(target["across_a_pair"], true, "{target}");
        let cell = &target["cells"][0];
        assert_eq!(cell["rate"]["wrong"], serde_json::Value::Null, "{cell}");
        // Of what `any` takes there is the device itself.
        if target["transport"] != "any" {
            assert!(cell["plain"]["latency_times_as_fast"].as_f64() > Some(0.0), "{cell}");
        }
    }
}
