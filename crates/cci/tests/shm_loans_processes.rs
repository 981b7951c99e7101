//! Shared memory: processes that are killed while they hold what this one has lent, and while this one holds what they have lent.

mod shm_common;

use cci::{Attribute, Connection, Endpoint, Event, Loan, Loans, MappedMessage, SendError, SendFlags, Status};
use shm_common::{PATIENCE, counter, endpoint, pattern};
use std::collections::HashSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// In the environment of a process that lends and borrows: a seed, and the URI to connect to.
const ROLE: &str = "CCI_LOANS_PEER";
const ROUNDS: u64 = 40;
/// What is mapped has at least this length.
const MAPPED_BYTES_MIN: usize = 2048;
const SLOT_BYTES: usize = 8192;
/// Slots that one process lends to another.
const SLOTS: u64 = 32;
/// How many messages are under way at most: more than there are slots, so that some are copied.
const UNDER_WAY_MAX: usize = 40;
/// A process that nobody kills ends by itself.
const LIFE: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

/// A message that is kept, and its number.
struct Kept {
    message: MappedMessage,
    number: u64,
}

impl Kept {
    fn check(&self) {
        assert_eq!(self.message.to_vec(), pattern(self.number, self.message.len()), "{}", self.number);
    }
}

/// One side of a connection on which both lend and borrow.
struct Side {
    connection: Connection,
    random: Random,
    /// How many messages it keeps before it drops one. With as many as there are slots it never does.
    keeps: usize,
    next_sent: u64,
    next_received: u64,
    under_way: HashSet<u64>,
    kept: Vec<Kept>,
    delivered: u64,
    lost: u64,
}

impl Side {
    fn new(endpoint: &mut Endpoint, connection: Connection, mut random: Random) -> Side {
        endpoint.set_loans(connection, Loans::Mapped).unwrap();
        let keeps = [1, 6, 20, SLOTS as usize][random.below(4)];
        Side {
            connection,
            random,
            keeps,
            next_sent: 0,
            next_received: 0,
            under_way: HashSet::new(),
            kept: Vec::new(),
            delivered: 0,
            lost: 0,
        }
    }

    fn received(&mut self, message: &[u8]) -> u64 {
        let number = self.next_received;
        assert_eq!(message, pattern(number, message.len()), "message {number}, in order and whole");
        self.next_received += 1;
        number
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Recv(message) => {
                self.received(&message);
            }
            Event::Mapped(message) => {
                let number = self.received(&message.to_vec());
                self.kept.push(Kept { message, number });
                if self.kept.len() > self.keeps {
                    let at = self.random.below(self.kept.len());
                    self.kept.swap_remove(at).check();
                }
            }
            Event::Send { context, status, .. } => {
                assert!(self.under_way.remove(&context), "{context} ended twice: {status}");
                match status {
                    Status::Success => self.delivered += 1,
                    Status::Disconnected => self.lost += 1,
                    other => panic!("{context}: {other}"),
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Lends and sends a message of any length. Returns whether it was handed over mapped; `None` if it was refused.
    fn lend(&mut self, endpoint: &mut Endpoint) -> Option<bool> {
        let len = MAPPED_BYTES_MIN + self.random.below(SLOT_BYTES - MAPPED_BYTES_MIN + 1);
        let mut loan = match endpoint.loan(self.connection, len) {
            Ok(loan) => loan,
            Err(SendError::WouldBlock | SendError::Disconnected | SendError::UnknownConnection) => {
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let is_mapped = loan.is_mapped();
        loan.copy_from_slice(&pattern(self.next_sent, len));
        if let Err(refused) = endpoint.send_loan(loan, self.next_sent, SendFlags::NONE) {
            let error = refused.error;
            assert!(matches!(error, SendError::WouldBlock | SendError::Disconnected), "{error}");
            return None;
        }
        self.under_way.insert(self.next_sent);
        self.next_sent += 1;
        Some(is_mapped)
    }

    fn lend_some(&mut self, endpoint: &mut Endpoint) {
        for _ in 0..self.random.below(6) {
            if self.under_way.len() >= UNDER_WAY_MAX || self.lend(endpoint).is_none() {
                break;
            }
        }
    }
}

/// Not a test: a process that lends and borrows, when the test below has started it. It ends when its peer is gone.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (seed, uri) = role.split_once(' ').unwrap();
    let mut endpoint = endpoint();
    endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
    let Some(Event::Connect { result, .. }) = endpoint.wait(Some(PATIENCE)).unwrap() else { panic!() };
    let mut side = Side::new(&mut endpoint, result.unwrap(), Random(seed.parse().unwrap()));
    let start = Instant::now();
    while start.elapsed() < LIFE {
        match endpoint.next_event() {
            Some(Event::Disconnected { .. }) => return,
            Some(event) => side.handle(event),
            None => {}
        }
        // Also while something comes: a peer that sends faster than this side checks would leave it no turn.
        side.lend_some(&mut endpoint);
    }
}

/// A process that is killed at the latest when this is dropped.
struct Process(Child);

impl Process {
    fn start(uri: &str, seed: u64) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "peer", "--test-threads=1"])
            .env(ROLE, format!("{seed} {uri}"))
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn stop(&self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn memory(endpoint: &Endpoint, name: &str) -> u64 {
    let kinds = endpoint.counters().memory.kinds;
    kinds.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

/// What must not grow from round to round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    mapped_memfds: usize,
    bytes: u64,
}

/// The process that outlives its peers. It has a neighbour in the same process as well, to which it lends throughout.
struct Survivor {
    endpoint: Endpoint,
    neighbour: Endpoint,
    to_neighbour: Connection,
}

impl Survivor {
    fn new() -> Survivor {
        let (mut endpoint, mut neighbour) = (endpoint(), endpoint());
        let (to_neighbour, from) =
            shm_common::connect(&mut endpoint, &mut neighbour, Attribute::ReliableOrdered);
        neighbour.set_loans(from, Loans::Mapped).unwrap();
        Survivor { endpoint, neighbour, to_neighbour }
    }

    fn accept(&mut self) -> Connection {
        loop {
            match self.endpoint.wait(Some(PATIENCE)).unwrap() {
                Some(Event::ConnectRequest(request)) => self.endpoint.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => return result.unwrap(),
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// Lends a message to the neighbour. No other peer is connected yet.
    fn lend_to_neighbour(&mut self, byte: u8) -> MappedMessage {
        let start = Instant::now();
        let mut loan = loop {
            assert!(start.elapsed() < PATIENCE, "no mapped loan");
            let loan = self.endpoint.loan(self.to_neighbour, SLOT_BYTES).unwrap();
            if loan.is_mapped() {
                break loan;
            }
            assert!(self.neighbour.next_event().is_none() && self.endpoint.next_event().is_none());
        };
        loan.fill(byte);
        self.endpoint.send_loan(loan, byte.into(), SendFlags::NONE).unwrap();
        match self.neighbour.wait(Some(PATIENCE)).unwrap() {
            Some(Event::Mapped(message)) => message,
            other => panic!("unexpected {other:?}"),
        }
    }

    /// Lends and borrows until a number of messages has come, some of them are kept, and the peer has some, too.
    fn exchange(&mut self, side: &mut Side) {
        let received_min = 20 + side.random.below(200) as u64;
        let start = Instant::now();
        while side.next_received < received_min
            || side.kept.is_empty()
            || counter(&self.endpoint, "loans_lent") < 2
        {
            assert!(start.elapsed() < PATIENCE, "{} of {received_min} received", side.next_received);
            if let Some(event) = self.endpoint.next_event() {
                side.handle(event);
            }
            side.lend_some(&mut self.endpoint);
        }
    }

    /// Waits for the end of the connection, and of all its sends. Some rounds poll, and others sleep.
    fn outlive(&mut self, side: &mut Side, sleeps: bool) {
        let (start, mut has_ended) = (Instant::now(), false);
        while !has_ended || !side.under_way.is_empty() {
            assert!(start.elapsed() < PATIENCE, "ended: {has_ended}, under way: {:?}", side.under_way);
            let event =
                if sleeps { self.endpoint.wait(Some(PATIENCE)).unwrap() } else { self.endpoint.next_event() };
            match event {
                Some(Event::Disconnected { connection, .. }) => {
                    assert!(connection == side.connection && !has_ended);
                    has_ended = true;
                }
                Some(event) => side.handle(event),
                None => {}
            }
        }
    }

    fn held(&self) -> Held {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        Held {
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            mapped_memfds: maps.lines().filter(|line| line.contains("memfd:")).count(),
            bytes: self.endpoint.counters().memory.total_bytes,
        }
    }

    /// One process comes, lends and borrows, and is killed. Returns how many sends to it ended as delivered, and as lost, after its end.
    fn round(&mut self, seed: u64) -> (u64, u64) {
        let neighbours = self.lend_to_neighbour(seed as u8);
        let mut process = Process::start(self.endpoint.uri(), seed);
        let connection = self.accept();
        let mut side = Side::new(&mut self.endpoint, connection, Random(seed ^ 0xABCD_EF01));
        if seed % 8 == 7 {
            // It is killed at the beginning, with memory offered to it or by it, or not yet.
            side.lend_some(&mut self.endpoint);
        } else {
            self.exchange(&mut side);
        }
        let unsent = self.endpoint.loan(connection, MAPPED_BYTES_MIN).ok().filter(Loan::is_mapped);
        if seed.is_multiple_of(2) {
            // It takes nothing any more, so that some loans are in the ring when it is killed.
            process.stop();
            while side.lend(&mut self.endpoint) == Some(true) {}
        }
        process.0.kill().unwrap();
        if seed.is_multiple_of(3) {
            // The endpoint has not noticed that yet.
            side.lend_some(&mut self.endpoint);
        }
        // Some messages are dropped on another thread while the link ends.
        let half = side.kept.split_off(side.kept.len() / 2);
        let dropping = std::thread::spawn(move || half.into_iter().for_each(|kept| kept.check()));
        let before = (side.delivered, side.lost);
        self.outlive(&mut side, seed % 4 < 2);
        dropping.join().unwrap();
        process.0.wait().unwrap();

        // What was lent to it is back, and what it has lent is here as long as it is kept.
        assert_eq!(counter(&self.endpoint, "loans_lent"), 1, "the neighbour's");
        assert_eq!(counter(&self.endpoint, "loans_held"), 0);
        assert_eq!(memory(&self.endpoint, "memory lent to peers"), SLOTS * SLOT_BYTES as u64);
        let mapped = |survivor: &Survivor| memory(&survivor.endpoint, "loans of peers, mapped");
        assert_eq!(mapped(self), if side.kept.is_empty() { 0 } else { SLOTS * SLOT_BYTES as u64 });
        side.kept.iter().for_each(Kept::check);
        side.kept.clear();
        assert_eq!(mapped(self), 0);
        if let Some(loan) = unsent {
            let refused = self.endpoint.send_loan(loan, 0, SendFlags::NONE).unwrap_err();
            assert!(
                matches!(refused.error, SendError::Disconnected | SendError::UnknownConnection),
                "{refused}"
            );
        }
        assert!(self.endpoint.next_event().is_none(), "each send ended once");

        // The neighbour has noticed nothing.
        assert_eq!(neighbours.to_vec(), [seed as u8; SLOT_BYTES]);
        drop(neighbours);
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "the neighbour returns");
            assert!(self.neighbour.next_event().is_none());
            match self.endpoint.next_event() {
                None => {}
                Some(Event::Send { context, status: Status::Success, .. }) if context == seed & 0xFF => break,
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(counter(&self.endpoint, "loans_lent"), 0);
        assert_eq!(counter(&self.endpoint, "sends_in_progress"), 0);
        (side.delivered - before.0, side.lost - before.1)
    }
}

#[test]
fn whoever_is_killed_with_loans_leaves_nothing_behind() {
    let first: u64 = std::env::var("CCI_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut survivor = Survivor::new();
    let (mut delivered, mut lost, mut held) = (0, 0, None);
    for seed in first..first + ROUNDS {
        println!("seed {seed}");
        let ended = survivor.round(seed);
        (delivered, lost) = (delivered + ended.0, lost + ended.1);
        let now = survivor.held();
        assert_eq!(held.get_or_insert(now), &now, "what was held after the first round");
    }
    println!("{delivered} loans were with processes that died, and {lost} on their way to them; {held:?}");
    assert!(delivered > 0 && lost > 0, "{delivered} {lost}");
}
