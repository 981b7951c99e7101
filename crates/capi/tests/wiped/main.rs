//! Pre-shared keys are nowhere in memory that was given back, once all that used them is gone: neither of the file that
//! was read, nor of a handshake, nor of a file that was refused. It is here because an allocator takes unsafe code.

mod allocator;

use allocator::{KEYS, key};
use cci::{Attribute, ConnectFailure, Connection, Context, Endpoint, Event, Options, Security, SendFlags};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A file of its own in the folder for such.
fn file(name: &str) -> (PathBuf, File) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("wiped-{}-{name}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    (path, file.expect("a file"))
}

/// Writes all keys without a byte of them on the heap.
fn write_keys(mut file: File, last: &[u8]) {
    for number in 0..KEYS {
        let mut line = *b"key00 = ----------------------------------------------------------------\n";
        line[3] += (number / 10) as u8;
        line[4] += (number % 10) as u8;
        for (at, byte) in key(number).into_iter().enumerate() {
            for (half, place) in [byte >> 4, byte & 15].into_iter().zip(&mut line[8 + 2 * at..]) {
                *place = if half < 10 { b'0' + half } else { b'a' + half - 10 };
            }
        }
        file.write_all(&line).expect("room on the disk");
    }
    file.write_all(last).expect("room on the disk");
}

fn poll(endpoint: &mut Endpoint, made: &mut Option<Result<Connection, ConnectFailure>>, got: &mut u32) {
    while let Some(event) = endpoint.next_event() {
        match event {
            Event::ConnectRequest(request) => endpoint.accept(request, 0).expect("it can be accepted"),
            Event::Connect { result, .. } | Event::Accept { result, .. } => *made = Some(result),
            Event::Recv(_) => *got += 1,
            _ => {}
        }
    }
}

/// Two endpoints of a device find each other by the keys, and talk.
fn talk(context: &Context, device: &str) {
    let device = context.devices().iter().find(|found| found.name() == device).expect("it is configured");
    let open = || Endpoint::create(device, Options::default()).expect("an endpoint");
    let (mut client, mut server) = (open(), open());
    let uri = server.uri().to_owned();
    client.connect(&uri, b"hello", Attribute::ReliableOrdered, 0, Some(PATIENCE)).expect("it begins");
    let (mut ours, mut theirs, mut got) = (None, None, 0);
    let start = Instant::now();
    while got < 10 {
        assert!(start.elapsed() < PATIENCE, "{ours:?} {theirs:?}");
        poll(&mut client, &mut ours, &mut got);
        poll(&mut server, &mut theirs, &mut got);
        for (endpoint, made) in [(&mut client, ours), (&mut server, theirs)] {
            if let Some(Ok(connection)) = made {
                let _ = endpoint.send(connection, b"a message", 0, SendFlags::NONE);
            }
        }
    }
}

#[test]
fn no_key_is_left_in_memory_that_was_given_back() {
    let (path, keys) = file("keys");
    write_keys(keys, b"# the end\n");
    let (bad_path, bad) = file("bad");
    write_keys(bad, b"and one more line that is no key\n");
    let name = path.to_str().expect("UTF-8");
    let section = |kind: &str| {
        format!("[{kind}]\ntransport = {kind}\nip = 127.0.0.1\nsecurity = psk\npsk_file = {name}\n")
    };
    let text = format!("{}{}", section("udp"), section("tcp"));

    allocator::look();
    let context = Context::from_text(&text, Path::new("test.ini")).expect("it is right");
    talk(&context, "udp");
    talk(&context, "tcp");
    let refused = Security::psk_file(&bad_path).expect_err("its last line is wrong");
    drop((context, refused));
    let (found, blocks) = allocator::found();

    fs::remove_file(&path).and_then(|()| fs::remove_file(&bad_path)).expect("they are ours");
    println!("keys {found:#x?} (a bit each), as bytes and as digits, in {blocks} blocks");
    assert!(blocks > 300, "{blocks} blocks");
    assert_eq!(
        found,
        [0, 0],
        "a bit for each key found as bytes and as digits in memory that was given back"
    );
}

/// What is looked for is found where it is.
#[test]
fn a_key_that_is_left_would_be_found() {
    // In a process of its own: what is found counts for all of it.
    if std::env::var_os("CCI_WIPED_CHILD").is_some() {
        allocator::look();
        drop(key(7).to_vec());
        let digits: String = key(9).iter().map(|byte| format!("{byte:02x}")).collect();
        drop(digits);
        let (found, _) = allocator::found();
        assert_eq!(found, [1 << 7, 1 << 9]);
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("our own path"));
    child
        .args(["--exact", "a_key_that_is_left_would_be_found", "--test-threads=1"])
        .env("CCI_WIPED_CHILD", "1");
    assert!(child.status().expect("it runs").success());
}
