//! The C tests of libRIPC: programs that know `ripc.h` and the library only, as processes that find each other in a directory of their own.

mod common;

use cci::Context;
use cci_ripc::{CallOptions, Content, Event, Node, Options, Part, ServiceName, directory};
use common::Linked;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// The calls that the guide shows are ones that compile.
#[test]
fn the_guides_calls_compile() {
    let serve = ["#include <ripc.h>\n#include <stddef.h>\nvoid serve(void)\n{\n", "}\n"];
    common::compile_from_guide("struct ripc_message message;", serve);
    let ask = [
        "#include <ripc.h>\n#include <stddef.h>\nextern void something_else(void);\nvoid ask(uint16_t me)\n{\n",
        "}\n",
    ];
    common::compile_from_guide("void *item = \"time?\";", ask);
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
fn files() {
    run("ripc_file");
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
fn what_is_lent_comes_back() {
    run("ripc_leases");
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

/// Processes on one path, with a directory of their own and a folder that is served.
struct Site {
    folder: tempfile::TempDir,
    config: &'static str,
    bytes: Vec<u8>,
}

impl Site {
    fn new(config: &'static str) -> Site {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("cci.ini"), config).expect("a file");
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        fs::write(folder.path().join("data"), &bytes).expect("a file");
        fs::create_dir(folder.path().join("services")).expect("a folder");
        Site { folder, config, bytes }
    }

    fn directory(&self) -> String {
        format!("host:{}", self.folder.path().join("services").display())
    }

    fn command(&self, program: &Path, argument: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg(argument).stdout(Stdio::piped());
        command.env("CCI_CONFIG", self.folder.path().join("cci.ini")).env("CCI_DIRECTORY", self.directory());
        command
    }

    /// Starts the service in C.
    fn serve(&self) -> Child {
        let mut service =
            self.command(&example("ripc_files"), self.folder.path()).spawn().expect("it starts");
        let mut line = [0; 8];
        service.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("a line");
        assert_eq!(&line, b"serving\n");
        service
    }

    /// A node in this process.
    fn node(&self) -> Node {
        let context = Context::from_text(self.config, "test".as_ref()).expect("a configuration");
        let directory = directory::open(&self.directory()).expect("a directory");
        Node::open(Options::default().directory(directory).device(context.default_device())).expect("a node")
    }
}

fn example(name: &str) -> PathBuf {
    let source = common::package_folder().join("examples").join(format!("{name}.c"));
    common::compile_file(&source, Linked::Shared)
}

fn end(mut child: Child) {
    child.kill().expect("it is there");
    child.wait().expect("it has ended");
}

/// The example of a file service and its client. The service is killed in the middle of a file, and started anew.
#[test]
fn files_are_fetched_from_a_service_that_is_killed() {
    let get = example("ripc_get");
    for (path, config) in PATHS {
        let site = Site::new(config);
        let service = site.serve();
        let mut client = site.command(&get, Path::new("data")).spawn().expect("it starts");
        let mut output = client.stdout.take().expect("a pipe");
        // More does not fit into a pipe: the client has most of the file to come.
        let mut got = vec![0; 100_000];
        output.read_exact(&mut got).expect("the beginning");
        end(service);
        let service = site.serve();
        output.read_to_end(&mut got).expect("the rest");
        assert!(common::wait(&mut client, Duration::from_secs(60)), "it ends");
        let succeeded = client.wait().expect("its status").success();
        assert!(succeeded && got == site.bytes, "{path}: {} bytes", got.len());
        for wrong in ["nothing", "../cci.ini", "/etc/passwd", "services"] {
            let mut client = site.command(&get, Path::new(wrong));
            let output = client.stderr(Stdio::piped()).output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains("no such file"), "{wrong}: {text}");
        }
        end(service);
    }
}

/// The example of a file service in C, asked from Rust. It is killed in the middle of a file, and started anew.
#[test]
fn a_service_in_c_answers_a_client_in_rust() {
    for (path, config) in PATHS {
        let site = Site::new(config);
        let mut service = site.serve();
        let mut node = site.node();
        let me = node.client().expect("a client");
        let to = node.partner(me, &ServiceName::new("files-in-c").expect("a name")).expect("a partner");
        let window = node.allocate(256 << 10).expect("memory");
        let mut got = Vec::new();
        while got.len() < site.bytes.len() {
            let offset = (got.len() as u64).to_ne_bytes();
            let (items, windows) = ([&b"data"[..], &offset], [Part::all(&window)]);
            let request = Content::from(&items).return_buffers(&windows);
            let options = CallOptions::default().timeout(Duration::from_secs(60));
            let answer = node.call_blocking(to, request, options).expect("an answer");
            assert_eq!(answer.item(0), (site.bytes.len() as u64).to_ne_bytes(), "{path}");
            let [Some(item)] = answer.long_items() else { panic!("{path}: {answer:?}") };
            got.extend(item.to_vec());
            if got.len() == 1 << 20 {
                end(service);
                service = site.serve();
            }
        }
        assert!(got == site.bytes, "{path}: {} bytes", got.len());
        end(service);
    }
}

/// A client in C, which fetches from a service in Rust.
#[test]
fn a_client_in_c_is_answered_by_a_service_in_rust() {
    let get = example("ripc_get");
    for (path, config) in PATHS {
        let site = Site::new(config);
        let mut node = site.node();
        let files = node.register(&ServiceName::new("files-in-c").expect("a name")).expect("a service");
        let memory = node.allocate(site.bytes.len()).expect("memory");
        assert!(memory.write(0, &site.bytes));
        let mut client = site.command(&get, Path::new("data")).spawn().expect("it starts");
        let mut output = client.stdout.take().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            output.read_to_end(&mut got).map(|_| got)
        });
        let began = Instant::now();
        while client.try_wait().expect("its status").is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "{path}: it does not end");
            let event = node.wait(files, Some(Duration::from_millis(10))).expect("it can wait");
            let Some(Event::Request(request)) = event else { continue };
            let message = request.message();
            assert_eq!(message.item(0), b"data");
            let offset = u64::from_ne_bytes(message.item(1).try_into().expect("8 bytes")) as usize;
            let part = Part::new(&memory, offset..(offset + (256 << 10)).min(site.bytes.len()));
            let length = (site.bytes.len() as u64).to_ne_bytes();
            let answer = Content::from(&length).long_items(std::slice::from_ref(&part));
            node.answer(request.ticket(), answer).expect("it leaves");
        }
        assert!(client.wait().expect("its status").success(), "{path}");
        let got = reader.join().expect("it reads").expect("its output");
        assert!(got == site.bytes, "{path}: {} bytes", got.len());
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
