//! `cci soak`: short ones survive, with a verdict, and errors made on purpose are found.

use serde_json::Value;
use std::process::{Command, Output};

const EXIT_FAILED: i32 = 1;
const EXIT_USAGE: i32 = 2;

fn soak(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.arg("soak").args(args).env_remove("CCI_CONFIG");
    command.output().expect("it runs")
}

fn seconds() -> String {
    std::env::var("CCI_SOAK_TEST_SECONDS").unwrap_or_else(|_| "4".to_owned()) + "s"
}

/// Every device that can be had here, all at once, with every fault.
#[test]
fn every_device_survives_a_short_one() {
    let usual = ["--for", &seconds(), "--load", "15", "--fault-every", "400ms", "--seed", "6", "--json"];
    let output = soak(&usual);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&printed["survived"], &printed["seed"]), (&Value::Bool(true), &Value::from(6)));
    let devices = printed["devices"].as_array().expect("devices");
    assert!(devices.len() >= 4, "{printed}");
    for device in devices {
        assert_eq!(device["verdict"], "survived", "{device}");
        for count in ["messages", "transfers", "atomics", "clean"] {
            assert!(device["totals"][count].as_u64() > Some(10), "{count}: {device}");
        }
        let faults = device["faults"].as_object().expect("faults");
        assert!(faults.values().filter_map(Value::as_u64).sum::<u64>() > 0, "{device}");
    }
}

#[test]
fn it_ends_with_a_picture_and_a_verdict() {
    let file =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}.json", std::process::id()));
    let path = file.to_str().expect("UTF-8");
    let usual =
        ["--for", "2s", "--device", "shm", "--faults", "none", "--plain", "--every", "1s", "--seed", "7"];
    let output = soak(&[&usual[..], &["--json-file", path]].concat());
    let written: Value = serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    assert_eq!(written["survived"], true, "{written}");
    std::fs::remove_file(&file).expect("removed");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["running", "shm this machine, survived", "descriptors", "survived: 1 device,"] {
        assert!(stdout.contains(expected), "{expected} is missing in {stdout}");
    }
}

/// Each error of a peer is found. It is printed before what follows from it, with the seed.
#[test]
fn errors_made_on_purpose_are_found() {
    let planted = [
        ("corrupt", "differs at byte 20"),
        ("lose", "was due"),
        ("repeat", "was due"),
        ("memory", "of the memory is"),
    ];
    for (plant, expected) in planted {
        // It ends when the error is found. On a busy machine it takes a while until there is enough traffic to make one.
        let output = soak(&[
            "--for", "5m", "--device", "shm", "--faults", "none", "--plant", plant, "--seed", "11", "--plain",
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(EXIT_FAILED), "{plant}: {stderr}");
        assert!(stderr.contains("--seed 11") && stderr.contains("--device shm"), "{plant}: {stderr}");
        let first = stderr.lines().next().expect("an error");
        assert!(first.contains(expected), "{plant}: {expected:?} is not in {first:?} of {stderr}");
    }
}

#[test]
fn what_grows_is_found() {
    for (plant, expected) in [("leak", "its memory grew"), ("descriptors", "left behind")] {
        let output = soak(&[
            "--for", "10s", "--device", "shm", "--faults", "none", "--plant", plant, "--load", "5", "--seed",
            "12", "--plain",
        ]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(EXIT_FAILED), "{plant}: {stderr}");
        assert!(stderr.contains(expected), "{plant}: {stderr}");
    }
}

#[test]
fn what_makes_no_sense_is_told() {
    let wrong =
        [["--faults", "rain"], ["--peers", "1"], ["--for", "soon"], ["--for", "0s"], ["--device", "pigeon"]];
    for args in wrong {
        let output = soak(&[args[0], args[1], "--plain"]);
        assert_eq!(
            output.status.code(),
            Some(EXIT_USAGE),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
