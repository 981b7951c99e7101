//! Paths that carry less than the first link, and links that go away for a while. Each test has a network namespace of its own.

use super::*;
use crate::SendFlags;
use std::process::Command;

const INSIDE: &str = "CCI_TEST_IN_NAMESPACE";

/// Runs one test of this program once more, alone in a fresh network namespace. Returns true in that run.
fn in_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let name = format!("transport::datagram::tests::path::{test}");
    let program = std::env::current_exe().unwrap();
    let run = Command::new("unshare")
        .args(["-n", "sh", "-c", "ip link set lo up && exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(program)
        .arg(&name)
        .env(INSIDE, "1")
        .output();
    match run {
        Ok(output) if output.status.success() => {
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(shown.contains("1 passed"), "{shown}");
        }
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let missing = ["not permitted", "not found", "denied"].iter().any(|word| errors.contains(word));
            assert!(missing && !errors.contains("panicked"), "{errors}");
            println!("skipped: no network namespace here: {errors}");
        }
        Err(error) => println!("skipped: unshare: {error}"),
    }
    false
}

fn ip(line: &str) {
    let done = Command::new("ip").args(line.split(' ')).status().unwrap();
    assert!(done.success(), "ip {line}");
}

fn exchange(pair: &mut Pair, count: u64, len: usize) {
    let (to_server, mut sent, mut done, mut got) = (pair.to_server, 0, 0, 0);
    pair.run(|client, _, side, event| {
        while sent < count && client.send(to_server, &fill(sent, len), sent, SendFlags::NONE).is_ok() {
            sent += 1;
        }
        note(side, event, &mut got, &mut done);
        got == count && done == count
    });
}

#[test]
fn a_path_that_becomes_narrower_is_noticed_and_nothing_is_lost() {
    if !in_namespace("a_path_that_becomes_narrower_is_noticed_and_nothing_is_lost") {
        return;
    }
    let mut pair = Pair::on("127.0.0.1", Attribute::ReliableOrdered).unwrap();
    exchange(&mut pair, 20, 8000);
    // The MTU of the interface itself changes, as nobody believes what a route or an ICMP message says of the size.
    ip("link set lo mtu 1400");
    // The messages are bundled for the wide path, and sent on the narrow one.
    exchange(&mut pair, 200, 1000);
    // The longest message is as long as before, and travels in parts.
    exchange(&mut pair, 50, 8000);
    assert!(pair.client.max_send_size(pair.to_server).unwrap() > 8000);
    exchange(&mut pair, 50, 1300);
    let drops = pair.client.counters().drops;
    assert!(drops.iter().any(|drop| drop.name == "too-big-for-path"), "{drops:?}");
    // An endpoint that is opened now knows the size from the start.
    let later = Pair::on("127.0.0.1", Attribute::ReliableOrdered).unwrap();
    assert!(later.client.max_send_size(later.to_server).unwrap() < 1400);
}

#[test]
fn a_link_that_is_down_for_a_while_costs_only_time() {
    if !in_namespace("a_link_that_is_down_for_a_while_costs_only_time") {
        return;
    }
    let mut pair = Pair::on("127.0.0.1", Attribute::ReliableOrdered).unwrap();
    exchange(&mut pair, 20, 100);
    ip("link set lo down");
    let start = Instant::now();
    let to_server = pair.to_server;
    for number in 0..50 {
        pair.client.send(to_server, &fill(number, 100), number, SendFlags::NONE).unwrap();
    }
    pair.run(|_, _, _, event| {
        assert!(event.is_none(), "{event:?}");
        start.elapsed() > Duration::from_millis(500)
    });
    ip("link set lo up");
    let (mut done, mut got) = (0, 0);
    pair.run(|_, _, side, event| {
        note(side, event, &mut got, &mut done);
        got == 50 && done == 50
    });
}
