//! A server that damages messages must be found out: exit code 1, and what differed.

use cci::{Access, Context, Endpoint, Event, Options, SendFlags};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What becomes of an echo.
type Damage = fn(&mut Vec<u8>);

/// Speaks the protocol of `cci perf` and echoes each message with `damage` done to it.
fn serve_damaged(endpoint: &mut Endpoint, stop: &AtomicBool, damage: Damage) {
    let mut is_control = HashMap::new();
    while !stop.load(Ordering::Relaxed) {
        match endpoint.wait(Some(Duration::from_millis(5))).expect("waits") {
            Some(Event::ConnectRequest(request)) => {
                let hello: Value = serde_json::from_slice(request.data()).expect("a hello");
                endpoint.accept(request, u64::from(hello["role"] == "control")).expect("accepted");
            }
            Some(Event::Accept { context, result }) => {
                is_control.insert(result.expect("accepted"), context == 1);
            }
            Some(Event::Recv(message)) => {
                let answer = if is_control.get(&message.connection()) == Some(&true) {
                    answer(endpoint, &message)
                } else {
                    let mut echo = message.to_vec();
                    damage(&mut echo);
                    echo
                };
                // The client may be gone: it has seen enough.
                let _ = endpoint.send(message.connection(), &answer, 0, SendFlags::SILENT);
            }
            _ => {}
        }
    }
}

/// Says that all is well; the memory it lends is never filled.
fn answer(endpoint: &mut Endpoint, order: &[u8]) -> Vec<u8> {
    let order: Value = serde_json::from_slice(order).expect("an order");
    let answer = match (order["finish"]["sent"].as_u64(), order["memory"]["len"].as_u64()) {
        (Some(sent), _) => {
            json!({ "report": { "received": sent, "verified": sent, "elapsed_ns": 1000, "first_wrong": null } })
        }
        (None, Some(len @ 1..)) => {
            let memory = endpoint.allocate(len as usize).expect("memory");
            let handle = endpoint.register(&memory, Access::ALL).expect("registered");
            json!({ "memory": { "handle": handle.to_bytes(), "own": null } })
        }
        _ => json!("ready"),
    };
    answer.to_string().into_bytes()
}

fn perf_against(damage: Damage, only: &str) -> Output {
    let context = Context::new().expect("devices");
    let shm = context.device("shm").expect("shared memory");
    let mut endpoint = Endpoint::create(shm, Options::default()).expect("an endpoint");
    let uri = endpoint.uri().to_owned();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve_damaged(&mut endpoint, &stop, damage));
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        command.args(["perf", &uri, "--type", "ro", "--sizes", "64", "--iterations", "20", "--no-html"]);
        command.args(["--only", only]);
        let output = command.stdin(Stdio::null()).output();
        stop.store(true, Ordering::Relaxed);
        output.expect("runs")
    })
}

#[test]
fn a_damaged_byte_is_found_and_named() {
    let honest = perf_against(|_| {}, "messages");
    assert!(honest.status.success(), "{}", String::from_utf8_lossy(&honest.stderr));
    let cases: [(Damage, &str); 3] = [
        (|echo| echo[40] ^= 1, "differs at byte 40"),
        (|echo| echo.truncate(63), "63 bytes instead of 64"),
        (|echo| echo[0] = echo[0].wrapping_add(1), "came where 0 was due"),
    ];
    for (damage, printed) in cases {
        let output = perf_against(damage, "messages");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        assert!(err.contains(printed), "{printed:?} is not in {err:?}");
        assert!(out.contains("FAILED") && out.contains(printed), "{out}");
    }
}

#[test]
fn memory_that_is_not_what_it_should_be_is_found_and_named() {
    let output = perf_against(|_| {}, "rma");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(err.contains("library memory, read, 64 B: byte 0 of the memory is"), "{err}");
    assert!(out.contains("FAILED"), "{out}");
}
