//! An endpoint on the device NULL connects to whatever its host can reach, and listens on no network for that.

mod common;

use cci::{Attribute, ConnectFailure, Context, Device, Endpoint, Event, Options, SendFlags};
use cci_testkit::net::{End, Veth};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// The devices of the servers.
const SERVERS: &str = "[shm]\ntransport = shm\n\n[udp]\ntransport = udp\nip = 127.0.0.1\n\n\
                       [tcp]\ntransport = tcp\nip = 127.0.0.1\n\n[any]\ntransport = any\nip = 127.0.0.1\n";

/// A server in this process that answers every message with "pong".
struct Server {
    uri: String,
    end: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(device: &Device) -> Server {
        let mut endpoint = Endpoint::create(device, Options::default()).expect("an endpoint");
        let uri = endpoint.uri().to_owned();
        let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let ended = end.clone();
        let serve = move || {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                match endpoint.wait(Some(Duration::from_millis(20))).expect("it can wait") {
                    Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).expect("accepted"),
                    Some(Event::Recv(message)) => {
                        let _ = endpoint.send(message.connection(), b"pong", 0, SendFlags::SILENT);
                    }
                    _ => {}
                }
            }
        };
        Server { uri, end, thread: Some(thread::spawn(serve)) }
    }

    fn on(device: &str) -> Server {
        let context = Context::from_text(SERVERS, Path::new("servers.ini")).expect("a configuration");
        Server::start(context.device(device).expect("a device"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// The client of the README as it stands there.
fn readmes_client() -> &'static Path {
    static CLIENT: OnceLock<PathBuf> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let readme =
            fs::read_to_string(common::package_folder().join("../../README.md")).expect("the README");
        let program = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
        let source = common::scratch().join("readme_client.c");
        fs::write(&source, program.expect("a program in C")).expect("a file");
        common::compile_file(&source, common::Linked::Shared)
    })
}

/// Runs it without a configuration file.
fn pong(uri: &str) {
    let printed = common::finish(Command::new(readmes_client()).arg(uri).env_remove("CCI_CONFIG"));
    assert_eq!(printed, "pong\n", "{uri}");
}

#[test]
fn the_readmes_client_takes_uris_of_every_device() {
    for device in ["shm", "udp", "tcp", "any"] {
        pong(&Server::on(device).uri);
    }
}

#[test]
fn the_readmes_client_takes_uris_of_ethernet() {
    let veth = match Veth::pair_in_one_namespace(1500) {
        Ok(veth) => veth,
        Err(why) => return println!("skipped: {why}"),
    };
    let section = |end| format!("[eth]\ntransport = eth\ninterface = {}\n", veth.name(end, 0));
    let context = Context::from_text(&section(End::A), Path::new("server.ini")).expect("a configuration");
    let server = Server::start(context.device("eth").expect("a device"));
    let config = common::scratch().join("reach-eth.ini");
    fs::write(&config, format!("[shm]\ntransport = shm\npriority = 90\n{}", section(End::B)))
        .expect("a file");
    let printed = common::finish(Command::new(readmes_client()).arg(&server.uri).env("CCI_CONFIG", &config));
    assert_eq!(printed, "pong\n", "{}", server.uri);
}

/// The C program checks its own sockets after each step.
#[test]
fn nothing_listens_on_a_network_before_it_dials_there() {
    let servers = ["udp", "tcp", "any", "shm"].map(Server::on);
    let uris: Vec<&str> = servers.iter().map(|server| server.uri.as_str()).collect();
    let program = common::compile("reach", common::Linked::Shared);
    for mode in ["locking", "single", "thread"] {
        let mut command = Command::new(&program);
        let printed = common::finish(command.arg(mode).args(&uris).env_remove("CCI_CONFIG"));
        assert!(printed.contains("reach: all well"), "{printed}");
    }
}

/// A port that was opened to dial lets nobody else in.
#[test]
fn strangers_get_no_answer_from_a_port_that_only_dials() {
    let server = Server::on("udp");
    let program = common::compile("reach", common::Linked::Shared);
    let mut child = Command::new(&program)
        .args(["stay", &server.uri])
        .env_remove("CCI_CONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let (found, port) = mpsc::channel();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::BufRead::read_line(&mut output, &mut line);
        let _ = found.send(line.trim().to_owned());
    });
    let port = port.recv_timeout(PATIENCE).expect("the client says its port");
    assert!(port.parse::<u16>().is_ok(), "{port:?}");
    let context = Context::from_text(SERVERS, Path::new("servers.ini")).expect("a configuration");
    let device = context.device("udp").expect("a device");
    let mut stranger = Endpoint::create(device, Options::default()).expect("an endpoint");
    let patience = Some(Duration::from_millis(500));
    let to = format!("udp://127.0.0.1:{port}");
    stranger.connect(&to, b"who are you", Attribute::ReliableOrdered, 7, patience).expect("it starts");
    let until = Instant::now() + PATIENCE;
    let result = loop {
        assert!(Instant::now() < until, "the attempt ends");
        match stranger.wait(Some(PATIENCE)).expect("it can wait") {
            Some(Event::Connect { result, context: 7, .. }) => break result,
            _ => continue,
        }
    };
    // The program polls, and hears nothing of it: it would have said so and failed.
    assert_eq!(result.map(drop), Err(ConnectFailure::TimedOut));
    drop(child.stdin.take());
    assert!(common::wait(&mut child, PATIENCE) && child.wait().expect("it ended").success());
}
