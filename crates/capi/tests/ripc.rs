//! The C tests of libRIPC: programs that know `ripc.h` and the library only, as processes that find each other in a directory of their own.

mod common;

use common::Linked;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How the processes reach each other: as they would without a configuration, and each transport alone.
const PATHS: [(&str, &str); 3] = [
    ("shm", "[shm]\ntransport = shm\n"),
    ("udp", "[udp]\ntransport = udp\nip = 127.0.0.1\n"),
    ("tcp", "[tcp]\ntransport = tcp\nip = 127.0.0.1\n"),
];

fn run_on(name: &str, linked: Linked, config: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cci.ini");
    fs::write(&file, config).expect("a file");
    let directory = folder.path().join("services");
    fs::create_dir(&directory).expect("a folder");
    let mut command = Command::new(common::compile(name, linked));
    command.env("CCI_CONFIG", &file).env("CCI_DIRECTORY", format!("host:{}", directory.display()));
    let output = common::finish(&mut command);
    assert!(output.contains(&format!("{name}: all well")), "{output}");
    println!("{output}");
    let left: Vec<_> = fs::read_dir(&directory).expect("the folder").flatten().collect();
    // What a killed process leaves, nobody has locked; those that end take their services out.
    assert!(left.len() <= 2, "{left:?}");
}

fn run(name: &str) {
    let _compiled_once = common::compile(name, Linked::Shared);
    // At once: what takes time is waiting for what is gone, on each path for itself.
    std::thread::scope(|scope| {
        for (path, config) in PATHS {
            scope.spawn(move || {
                println!("{name} over {path}");
                run_on(name, Linked::Shared, config);
            });
        }
    });
}

#[test]
fn misuse_and_buffers() {
    run_on("ripc_misuse", Linked::Static, PATHS[0].1);
    run("ripc_misuse");
}

#[test]
fn short_messages() {
    run("ripc_messages");
}

#[test]
fn long_messages() {
    run("ripc_long");
}

#[test]
fn the_published_clients() {
    run("ripc_pingpong");
}

#[test]
fn calls_and_answers() {
    run("ripc_calls");
}

#[test]
fn groups() {
    run("ripc_multicast");
}

#[test]
fn services_that_are_killed_and_started_again() {
    run("ripc_restart");
}

#[test]
fn senders_that_exit_and_receivers_that_do_not_receive() {
    run("ripc_ends");
}

/// The example of a file service and its client. The service is killed in the middle of a file, and started anew.
#[test]
fn files_are_fetched_from_a_service_that_is_killed() {
    let example = |name: &str| {
        let source = common::package_folder().join("examples").join(format!("{name}.c"));
        common::compile_file(&source, Linked::Shared)
    };
    let (files, get) = (example("ripc_files"), example("ripc_get"));
    for (path, config) in PATHS {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("cci.ini");
        fs::write(&file, config).expect("a file");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        fs::write(folder.path().join("data"), &bytes).expect("a file");
        let services = folder.path().join("services");
        fs::create_dir(&services).expect("a folder");
        let command = |program: &Path, argument: &Path| {
            let mut command = Command::new(program);
            command.arg(argument).stdout(Stdio::piped());
            command.env("CCI_CONFIG", &file).env("CCI_DIRECTORY", format!("host:{}", services.display()));
            command
        };
        let serve = || {
            let mut service = command(&files, folder.path()).spawn().expect("it starts");
            let mut line = [0; 8];
            service.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("a line");
            assert_eq!(&line, b"serving\n");
            service
        };
        let end = |mut child: Child| {
            child.kill().expect("it is there");
            child.wait().expect("it has ended");
        };
        let service = serve();
        let mut client = command(&get, Path::new("data")).spawn().expect("it starts");
        let mut output = client.stdout.take().expect("a pipe");
        // More does not fit into a pipe: the client has most of the file to come.
        let mut got = vec![0; 100_000];
        output.read_exact(&mut got).expect("the beginning");
        end(service);
        let service = serve();
        output.read_to_end(&mut got).expect("the rest");
        assert!(common::wait(&mut client, Duration::from_secs(60)), "it ends");
        assert!(client.wait().expect("its status").success() && got == bytes, "{path}: {} bytes", got.len());
        for wrong in ["nothing", "../cci.ini", "/etc/passwd", "services"] {
            let mut client = command(&get, Path::new(wrong));
            let output = client.stderr(Stdio::piped()).output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains("no such file"), "{wrong}: {text}");
        }
        end(service);
    }
}

/// The header is C of every standard from C99 on, and C++.
#[test]
fn the_header_in_every_standard() {
    let source = common::package_folder().join("tests/c/ripc_header.c");
    let object = common::scratch().join("ripc_header.o");
    for standard in ["c99", "c11", "c17", "c2x", "c++98", "c++11", "c++17", "c++20"] {
        let mut cc = Command::new(if standard.starts_with("c++") { "c++" } else { "cc" });
        if standard.starts_with("c++") {
            cc.args(["-x", "c++"]);
        }
        cc.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-I"]);
        cc.arg(common::package_folder().join("include")).arg(&source).arg("-o").arg(&object);
        common::succeed(&mut cc);
    }
}
