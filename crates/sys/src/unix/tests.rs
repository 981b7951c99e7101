use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// Descriptors are counted per process, so the tests that make them here run one at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("cci-sys-{:x}", crate::random::u64().unwrap()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn name(&self) -> Name {
        Name::Path(self.0.join("s"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn abstract_name() -> Name {
    Name::Abstract(format!("cci-sys-test-{:x}", crate::random::u64().unwrap()).into_bytes())
}

fn connected(name: &Name) -> (Listener, Stream, Stream) {
    let listener = Listener::bind(name).unwrap();
    assert!(listener.accept().unwrap().is_none());
    let client = Stream::connect(name).unwrap();
    let server = listener.accept().unwrap().unwrap();
    server.trust();
    (listener, client, server)
}

#[test]
fn meets_by_either_kind_of_name_and_knows_the_peer() {
    let _alone = one_at_a_time();
    let folder = Folder::new();
    for name in [abstract_name(), folder.name()] {
        let (_listener, client, server) = connected(&name);
        let me = Credentials {
            pid: Some(crate::process::pid()),
            uid: crate::process::uid(),
            gid: crate::process::gid(),
        };
        assert_eq!(client.peer_credentials().unwrap(), me);
        assert_eq!(server.peer_credentials().unwrap(), me);
        let mut buffer = [0; 64];
        assert_eq!(server.recv(&mut buffer, 0).unwrap_err().kind(), ErrorKind::WouldBlock);
        client.send(b"one", &[]).unwrap();
        client.send(b"another", &[]).unwrap();
        for expected in [&b"one"[..], b"another"] {
            let len = server.recv(&mut buffer, 0).unwrap().len;
            assert_eq!(&buffer[..len], expected, "messages keep their bounds");
        }
        assert!(!server.hung_up());
        client.send(b"last", &[]).unwrap();
        drop(client);
        assert!(server.hung_up());
        assert_eq!(server.recv(&mut buffer, 0).unwrap().len, 4, "sent before it closed");
        assert_eq!(server.recv(&mut buffer, 0).unwrap().len, 0);
        assert_eq!(server.send(b"x", &[]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

#[test]
fn descriptors_travel() {
    let _alone = one_at_a_time();
    let (one, other) = Stream::pair().unwrap();
    let event = crate::event::EventFd::new().unwrap();
    let segment = crate::shared_memory::SharedMemory::create("cci-test", 4_096).unwrap();
    one.send(b"two", &[event.as_fd(), segment.fd().unwrap()]).unwrap();
    let mut got = other.recv(&mut [0; 16], 2).unwrap();
    assert_eq!((got.len, got.fds.len()), (3, 2));
    let first = got.fds.take(0).unwrap();
    let flags = rustix::io::fcntl_getfd(&first).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let theirs = crate::event::EventFd::from_peer(first).unwrap();
    theirs.signal().unwrap();
    assert!(event.drain().unwrap());
    crate::shared_memory::SharedMemory::open(got.fds.take(1).unwrap(), 4_096).unwrap();
    assert!(got.fds.take(1).is_none() && got.fds.take(99).is_none() && got.fds.is_empty());
}

#[test]
fn full_is_would_block_and_too_long_is_an_error() {
    let _alone = one_at_a_time();
    let (one, other) = Stream::pair().unwrap();
    assert_eq!(one.send(b"", &[]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut sent = 0;
    let full = loop {
        match one.send(&[7; 1_000], &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100_000);
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert_eq!(other.recv(&mut [0; 999], 0).unwrap_err().kind(), ErrorKind::InvalidData);
    assert_eq!(other.recv(&mut [0; 1_000], 0).unwrap().len, 1_000);
    drop(other);
    assert_eq!(one.recv(&mut [0; 8], 0).unwrap().len, 0, "a reset is an end");
}

#[test]
fn what_was_said_before_a_close_is_heard_though_the_peer_left_something_unread() {
    let (one, other) = Stream::pair().unwrap();
    one.send(b"a question", &[]).unwrap();
    other.send(b"no", &[]).unwrap();
    drop(other);
    let mut buffer = [0; 64];
    let got = one.recv(&mut buffer, 0).unwrap();
    assert_eq!(&buffer[..got.len], b"no");
    assert_eq!(one.recv(&mut buffer, 0).unwrap().len, 0);
}

#[test]
fn a_live_name_is_not_stolen_and_a_dead_one_is_no_obstacle() {
    let _alone = one_at_a_time();
    let folder = Folder::new();
    let name = folder.name();
    let Name::Path(path) = &name else { unreachable!() };
    let listener = Listener::bind(&name).unwrap();
    assert_eq!(Listener::bind(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert!(listener.accept().unwrap().is_some(), "the probe, which left again");
    drop(listener);
    assert!(!path.exists(), "removed by its owner");

    // Killed: the socket is closed, the file stays.
    let dead = seqpacket().unwrap();
    rustix::net::bind(&dead, &name.to_addr().unwrap()).unwrap();
    drop(dead);
    assert!(path.exists());
    assert_eq!(Stream::connect(&name).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (listener, ..) = connected(&name);

    // Somebody removed ours and listens there now: theirs stays.
    fs::remove_file(path).unwrap();
    let second = Listener::bind(&name).unwrap();
    drop(listener);
    Stream::connect(&name).unwrap();
    drop(second);

    fs::write(path, "no socket").unwrap();
    assert_eq!(Listener::bind(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(fs::read_to_string(path).unwrap(), "no socket");
    fs::remove_file(path).unwrap();

    let name = abstract_name();
    let _listener = Listener::bind(&name).unwrap();
    assert_eq!(Listener::bind(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn many_who_bind_one_dead_path_at_once_leave_one_live() {
    let _alone = one_at_a_time();
    let folder = Folder::new();
    let name = folder.name();
    for _ in 0..10 {
        drop_dead_socket(&name);
        let bound: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..4).map(|_| scope.spawn(|| Listener::bind(&name))).collect();
            all.into_iter().filter_map(|one| one.join().unwrap().ok()).collect()
        });
        assert_eq!(bound.len(), 1);
        Stream::connect(&name).unwrap();
        assert!(bound[0].accept().unwrap().is_some());
    }
}

fn drop_dead_socket(name: &Name) {
    let dead = seqpacket().unwrap();
    rustix::net::bind(&dead, &name.to_addr().unwrap()).unwrap();
}

#[test]
fn bad_names_are_errors() {
    let _alone = one_at_a_time();
    for name in [
        Name::Abstract(vec![]),
        Name::Abstract(vec![b'x'; 108]),
        Name::Path(PathBuf::new()),
        Name::Path(PathBuf::from("/".repeat(200))),
        Name::Path(PathBuf::from("/nowhere/at/all")),
    ] {
        assert!(Listener::bind(&name).is_err(), "{name}");
        assert!(Stream::connect(&name).is_err(), "{name}");
    }
    Listener::bind(&Name::Abstract(vec![b'x'; 107])).unwrap();
}

/// Whoever is not known yet can't have us close, read or not, what it likes.
#[test]
fn strangers_send_no_descriptors() {
    let _alone = one_at_a_time();
    let name = abstract_name();
    let listener = Listener::bind(&name).unwrap();
    if !rights::take_descriptors(&seqpacket().unwrap(), false) {
        println!("skipped: this kernel has no SO_PASSRIGHTS (Linux 6.16)");
        return;
    }
    let client = Stream::connect_warily(&name).unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    let refused = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    refused(client.send(b"unasked", &[file.as_fd()]).unwrap_err());
    let server = listener.accept().unwrap().expect("a client");
    refused(client.send(b"unasked", &[file.as_fd()]).unwrap_err());
    refused(server.send(b"unasked", &[file.as_fd()]).unwrap_err());
    client.send(b"words pass", &[]).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(server.recv(&mut buffer, 1).unwrap().len, 10);
    server.trust();
    client.send(b"wanted", &[file.as_fd()]).unwrap();
    let got = server.recv(&mut buffer, 1).unwrap();
    assert_eq!((got.len, got.fds.len()), (6, 1));
    client.trust();
    server.send(b"wanted", &[file.as_fd()]).unwrap();
}
