//! The C tests of `tests/c`: programs that know the header and the library only.

mod common;

use common::Linked;

/// Each program on one device, linked in one of the two ways.
fn run(name: &str, linked: Linked, arguments: &[&str]) {
    let program = common::compile(name, linked);
    let output = common::run(&program, arguments);
    assert!(output.contains(&format!("{name}: all well")), "{name} {arguments:?}:\n{output}");
}

macro_rules! on_each_device {
    ($($test:ident: $program:literal $(, $argument:literal)*;)+) => {
        mod shm {
            $(
                #[test]
                fn $test() {
                    super::run($program, super::Linked::Shared, &["shm" $(, $argument)*]);
                }
            )+
        }

        mod udp {
            $(
                #[test]
                fn $test() {
                    super::run($program, super::Linked::Shared, &["udp" $(, $argument)*]);
                }
            )+
        }
    };
}

on_each_device! {
    calls: "calls";
    requests: "requests";
    requests_without_locks: "requests", "single";
    buffers: "buffers";
    exchange: "exchange";
    exchange_without_locks: "exchange", "single";
    threads: "threads";
}

#[test]
fn static_library() {
    run("exchange", Linked::Static, &["shm"]);
}
