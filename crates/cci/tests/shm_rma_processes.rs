//! Shared memory: regions taken back while a peer uses them, which may be stopped or killed in the middle, or may have to ask for them again.

mod shm_common;

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Context, Endpoint, Event, Foreign,
    Memory, Options, RegionAddress, RmaFlags,
};
use cci::{RegionHandle, RmaError, SendFlags, Status};
use shm_common::{PATIENCE, counter};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROLE: &str = "CCI_RMA_WRITER";
const LEN: usize = 8 << 20;
/// A writer is stopped in the middle of a copy by chance, now and then: so often it is tried at most.
const CHANCES: u64 = 80;
/// A writer that nobody kills ends by itself.
const WRITER_LIFE: Duration = Duration::from_secs(60);

fn endpoint(direct: &str, cma: &str) -> Endpoint {
    let text = format!("[m]\ntransport = shm\ndirect = {direct}\ncma = {cma}\n");
    let context = Context::from_text(&text, Path::new("test.ini")).unwrap();
    Endpoint::create(&context.devices()[0], Options::default()).unwrap()
}

/// Not a test: the process that writes, when one of the tests below has started it. Takes a handle from each message, and
/// writes to all of it, 0x55 and 0xAA in turn, until it is refused; then says so.
#[test]
fn writer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (direct, cma) = role.split_once(' ').unwrap();
    let mut endpoint = endpoint(direct, cma);
    println!("\nURI {}", endpoint.uri());
    let one = Memory::foreign(Foreign::owned(vec![0x55; LEN].into_boxed_slice()));
    let two = Memory::foreign(Foreign::owned(vec![0xAA; LEN].into_boxed_slice()));
    let from = [one, two].map(|memory| endpoint.register(&memory, Access::LOCAL).unwrap());
    let (mut to, mut connection, mut under_way): (Option<RegionHandle>, _, _) = (None, None, 0);
    let start = Instant::now();
    let (mut round, mut current) = (0_u64, 0_u64);
    while start.elapsed() < WRITER_LIFE {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => connection = Some(result.unwrap()),
            Some(Event::Recv(message)) => {
                to = RegionHandle::from_message(&message);
                current += 1;
            }
            Some(Event::Send { context, status, .. }) => {
                under_way -= 1;
                match status {
                    Status::Success => {}
                    // Those for an earlier handle may come late.
                    Status::RmaHandle if context != current || to.take().is_none() => {}
                    Status::RmaHandle => {
                        let _ = endpoint.send(connection.unwrap(), b"refused", 2, SendFlags::SILENT);
                    }
                    Status::Disconnected => return,
                    other => panic!("{other:?}"),
                }
            }
            _ => {}
        }
        let Some(on) = connection else { continue };
        if !endpoint.is_open(on) {
            return;
        }
        if let Some(to) = to
            && under_way < 4
        {
            round += 1;
            // All of it, or many small ones.
            let len = if round.is_multiple_of(8) { LEN as u64 } else { 4096 << (round % 8) };
            let from = from[(round % 2) as usize];
            match endpoint.rma_write(
                on,
                RegionAddress::new(from, 0),
                RegionAddress::new(to, 0),
                len,
                current,
                RmaFlags::NONE,
            ) {
                Ok(()) => under_way += 1,
                Err(RmaError::WouldBlock) => {}
                Err(RmaError::Disconnected | RmaError::UnknownConnection) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

struct Target {
    endpoint: Endpoint,
    connection: Connection,
    child: Child,
    memory: Memory,
}

impl Target {
    fn start(direct: &str, cma: &str) -> Target {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{direct} {cma}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let uri = lines.find_map(|line| line.unwrap().strip_prefix("URI ").map(str::to_owned)).unwrap();
        // The rest of what it says goes nowhere, but must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let mut endpoint = endpoint(direct, cma);
        let memory = if direct == "on" {
            endpoint.allocate(LEN).unwrap()
        } else {
            Memory::foreign(Foreign::owned(vec![0; LEN].into_boxed_slice()))
        };
        endpoint.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let connection = loop {
            if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
                break result.unwrap();
            }
        };
        Target { endpoint, connection, child, memory }
    }

    /// Registers the memory, sends the writer its handle, and waits until it has written, and a little longer.
    fn let_it_write(&mut self, more: Duration) -> RegionHandle {
        assert!(self.memory.write(0, &vec![0; LEN]));
        let handle = self.endpoint.register(&self.memory, Access::ALL).unwrap();
        self.endpoint.send(self.connection, &handle.to_bytes(), 9, SendFlags::SILENT).unwrap();
        let start = Instant::now();
        let mut first = [0];
        while first[0] == 0 || start.elapsed() < more {
            assert!(start.elapsed() < PATIENCE, "the writer does not write");
            self.poll(&mut false);
            assert!(self.memory.read(LEN / 2, &mut first));
        }
        handle
    }

    fn poll(&mut self, refused: &mut bool) {
        match self.endpoint.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(&*message, b"refused");
                *refused = true;
            }
            // The writer may have been killed.
            None | Some(Event::Disconnected { .. }) => {}
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Nobody changes the memory for so long. The writer goes on.
    fn stays(&mut self, time: Duration, refused: &mut bool) {
        let mark = vec![0xC3; LEN];
        assert!(self.memory.write(0, &mark));
        let start = Instant::now();
        let mut now = vec![0; LEN];
        while start.elapsed() < time {
            self.poll(refused);
            assert!(self.memory.read(0, &mut now));
            assert!(now == mark, "a byte changed after the region was taken back");
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn nothing_changes_once_a_region_is_taken_back() {
    for (direct, cma) in [("on", "off"), ("off", "always"), ("off", "off")] {
        let mut target = Target::start(direct, cma);
        for round in 0..25_u64 {
            let handle = target.let_it_write(Duration::from_micros(round * 997 % 5000));
            target.endpoint.deregister(&handle).unwrap();
            let mut refused = false;
            target.stays(Duration::from_millis(8), &mut refused);
            let start = Instant::now();
            while !refused {
                assert!(start.elapsed() < PATIENCE, "{direct} {cma}: the writer was not refused");
                target.poll(&mut refused);
            }
        }
        assert_eq!(counter(&target.endpoint, "rma_detached"), 0, "nobody was stopped");
        assert_eq!(counter(&target.endpoint, "rma_regions_granted"), 0);
        println!("{direct} {cma}: waited {} times", counter(&target.endpoint, "rma_revocations_waited"));
    }
}

#[test]
fn a_writer_stopped_in_the_middle_changes_nothing_any_more() {
    let mut detached = 0;
    for round in 0..CHANCES {
        if round >= 6 && detached > 0 {
            break;
        }
        let mut target = Target::start("on", "off");
        let handle = target.let_it_write(Duration::from_micros(20_000 + round % 8 * 1777));
        target.signal("-STOP");
        let start = Instant::now();
        target.endpoint.deregister(&handle).unwrap();
        assert!(start.elapsed() < PATIENCE, "it does not wait for who is stopped: {:?}", start.elapsed());
        detached += counter(&target.endpoint, "rma_detached");
        let mut refused = false;
        target.stays(Duration::from_millis(5), &mut refused);
        target.signal("-CONT");
        target.stays(Duration::from_millis(50), &mut refused);
        // It works again, with the new pages.
        while !refused {
            target.poll(&mut refused);
        }
        let handle = target.let_it_write(Duration::from_millis(5));
        target.endpoint.deregister(&handle).unwrap();
        target.stays(Duration::from_millis(5), &mut refused);
    }
    println!("pages replaced {detached} times");
    assert!(detached > 0, "one that writes all the time is stopped while it writes, now and then");
}

#[test]
fn a_writer_stopped_while_its_connection_ends_is_locked_out_too() {
    let mut detached = 0;
    for round in 0..CHANCES {
        if round >= 4 && detached > 0 {
            break;
        }
        let mut target = Target::start("on", "off");
        let handle = target.let_it_write(Duration::from_micros(20_000 + round % 8 * 1777));
        target.signal("-STOP");
        target.endpoint.set_send_timeout(target.connection, Duration::from_millis(20)).unwrap();
        target.endpoint.disconnect(target.connection);
        let start = Instant::now();
        while target.endpoint.counters().device.contains(&("links", 1)) {
            assert!(start.elapsed() < PATIENCE);
            assert!(target.endpoint.next_event().is_none());
        }
        target.endpoint.deregister(&handle).unwrap();
        detached += counter(&target.endpoint, "rma_detached");
        let mut refused = false;
        target.stays(Duration::from_millis(2), &mut refused);
        target.signal("-CONT");
        target.stays(Duration::from_millis(30), &mut refused);
    }
    assert!(detached > 0);
}

#[test]
fn a_writer_killed_in_the_middle_holds_nobody_up() {
    for (direct, cma) in [("on", "off"), ("off", "always"), ("off", "off")] {
        for round in 0..5_u64 {
            let mut target = Target::start(direct, cma);
            let handle = target.let_it_write(Duration::from_micros(3000 + round * 1777));
            target.child.kill().unwrap();
            let start = Instant::now();
            target.endpoint.deregister(&handle).unwrap();
            assert!(start.elapsed() < PATIENCE, "it does not wait for the dead: {:?}", start.elapsed());
            target.child.wait().unwrap();
            let mut refused = false;
            target.stays(Duration::from_millis(5), &mut refused);
            let start = Instant::now();
            while target.endpoint.is_open(target.connection) {
                assert!(start.elapsed() < PATIENCE, "its death is known");
                target.poll(&mut refused);
            }
        }
    }
}

/// The target dies, or is stopped, while this process reads from it.
#[test]
fn operations_end_when_the_owner_dies() {
    for (direct, cma) in [("on", "off"), ("off", "always"), ("off", "off")] {
        let mut target = Target::start(direct, cma);
        let handle = target.let_it_write(Duration::from_millis(5));
        // The writer's own segments are not for us: everything is refused, once, whatever happens.
        let mut started = 0;
        for context in 0..200 {
            let (to, from) = (RegionAddress::new(handle, 0), RegionAddress::new(handle, 0));
            if target.endpoint.rma_read(target.connection, to, from, 1 << 20, context, RmaFlags::NONE).is_ok()
            {
                started += 1;
            }
        }
        target.child.kill().unwrap();
        let (start, mut ended) = (Instant::now(), 0);
        while ended < started {
            assert!(start.elapsed() < PATIENCE, "{ended} of {started}");
            if let Some(Event::Send { context, status, .. }) = target.endpoint.next_event() {
                assert_eq!(context, ended, "in order");
                assert!(matches!(status, Status::RmaHandle | Status::Disconnected), "{status:?}");
                ended += 1;
            }
        }
    }
}

/// A client of a table in its peer's memory.
struct Client {
    endpoint: Endpoint,
    server: Connection,
    table: RegionHandle,
    /// Where results come to.
    memory: Memory,
    local: RegionHandle,
}

impl Client {
    /// Connected to `uri`, with the handle that its peer sends first.
    fn of(uri: &str) -> Client {
        let mut endpoint = endpoint("on", "on");
        let memory = endpoint.allocate(8).unwrap();
        let local = endpoint.register(&memory, Access::LOCAL).unwrap();
        endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let mut server = None;
        loop {
            match endpoint.wait(Some(PATIENCE)).unwrap() {
                Some(Event::Connect { result, .. }) => server = Some(result.unwrap()),
                Some(Event::Recv(message)) => {
                    let table = RegionHandle::from_message(&message).unwrap();
                    return Client { endpoint, server: server.unwrap(), table, memory, local };
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Adds 1 to the word at `offset`, and returns what it held before.
    fn count(&mut self, offset: u64) -> u64 {
        let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        let (target, result) = (RegionAddress::new(self.table, offset), RegionAddress::new(self.local, 0));
        let status =
            self.endpoint.atomic_blocking(self.server, add, target, Some(result), RmaFlags::NONE).unwrap();
        assert_eq!(status, Status::Success);
        let mut before = [0; 8];
        assert!(self.memory.read(0, &mut before));
        u64::from_ne_bytes(before)
    }
}

/// Whoever leaves may map the region no longer, for which all who use it must be granted it again: also in the middle of an operation.
#[test]
fn peers_that_leave_do_not_disturb_who_counts() {
    const LEAVERS: u64 = 300;
    let mut server = endpoint("on", "on");
    let memory = server.allocate(4096).unwrap();
    let table = server.register(&memory, Access::ALL).unwrap();
    let uri = server.uri().to_owned();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut client = Client::of(&uri);
            let mut counted = 0;
            while !over.load(Ordering::Relaxed) {
                assert_eq!(client.count(0), counted, "an operation counted twice, or not");
                counted += 1;
            }
        });
        let leaver = scope.spawn(|| {
            for number in 0..LEAVERS {
                let mut client = Client::of(&uri);
                assert_eq!(client.count(8), number);
                client.endpoint.close(PATIENCE);
            }
        });
        while !leaver.is_finished() && !counter.is_finished() {
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => {
                    server.send(result.unwrap(), &table.to_bytes(), 0, SendFlags::SILENT).unwrap();
                }
                Some(Event::Disconnected { .. }) | None => {}
                other => panic!("unexpected {other:?}"),
            }
        }
        // The counter has not ended, unless an assertion of its own failed.
        over.store(true, Ordering::Relaxed);
        while !counter.is_finished() {
            server.progress();
        }
    });
}
