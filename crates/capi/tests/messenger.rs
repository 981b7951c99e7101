//! The C tests of messengers: programs that know the headers and the library only, on every kind of device.

mod common;

use common::Linked;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const CONFIG: &str = "[shm]\ntransport = shm\n\n[udp]\ntransport = udp\nip = 127.0.0.1\n\n[tcp]\ntransport = tcp\nip = 127.0.0.1\n\n\
                      [any]\ntransport = any\nip = 127.0.0.1\n";

/// The file, written once: a program that reads it while it is written anew would find it empty.
fn config() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = common::scratch().join("messenger.ini");
        fs::write(&path, CONFIG).expect("a file");
        path
    })
}

fn run(name: &str, arguments: &[&str]) {
    let mut command = Command::new(common::compile(name, Linked::Shared));
    let output = common::finish(command.args(arguments).env("CCI_CONFIG", config()));
    assert!(output.contains(&format!("{name}: all well")), "{name} {arguments:?}:\n{output}");
}

macro_rules! on_each_device {
    ($($test:ident: $program:literal;)+) => {
        $(
            mod $test {
                #[test]
                fn shm() {
                    super::run($program, &["shm"]);
                }

                #[test]
                fn udp() {
                    super::run($program, &["udp"]);
                }

                #[test]
                fn tcp() {
                    super::run($program, &["tcp"]);
                }

                #[test]
                fn any() {
                    super::run($program, &["any"]);
                }

                #[test]
                fn without_locks() {
                    super::run($program, &["shm", "single"]);
                }
            }
        )+
    };
}

on_each_device! {
    messages: "messenger_messages";
    calls: "messenger_calls";
    fork: "messenger_fork";
}

/// Needs the locks of the library.
#[test]
fn answers_from_threads() {
    for device in ["shm", "udp", "tcp", "any"] {
        run("messenger_threads", &[device]);
    }
}

#[test]
fn peers_that_are_killed() {
    for device in ["shm", "udp", "tcp", "any"] {
        run("messenger_deaths", &[device]);
    }
}

/// The server that the guide shows is one that compiles.
#[test]
fn the_guides_server_compiles() {
    let around = [
        "#include <cci_messenger.h>\n#include <poll.h>\nvoid serve(cci_messenger_t *messenger, int fd)\n{\n",
        "}\n",
    ];
    common::compile_from_guide("cci_messenger_event_t *event;", around);
}

/// Nothing is wrong with the library's memory either.
#[test]
fn under_valgrind() {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no valgrind on this machine");
        return;
    }
    for name in ["messenger_messages", "messenger_calls"] {
        let program = common::compile(name, Linked::Shared);
        let mut command = Command::new("valgrind");
        command.args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
        ]);
        let output = common::finish(command.arg(Path::new(&program)).arg("shm").env("CCI_CONFIG", config()));
        assert!(output.contains("all well"), "{name}:\n{output}");
    }
}
