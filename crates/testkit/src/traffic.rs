//! Traffic between two endpoints while something is done to the network between them: messages, remote writes and atomics
//! both ways, every one of them checked to have happened once, or to have ended with a reason.

use crate::pair::join;
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Endpoint, Event, Memory, RegionAddress,
    RegionHandle, RmaFlags, SendFlags, Status,
};
use std::time::{Duration, Instant};

/// Pieces of remote memory, each written anew when its last write has ended.
const SLOTS: u64 = 6;
/// Length of a piece: many datagrams.
const SLOT_BYTES: usize = 20_000;
/// Messages under way at once, each way.
const MESSAGES_UNDER_WAY: u64 = 128;
/// Contexts from here on are of remote writes and atomics; below are messages.
const WRITES: u64 = 1 << 48;
const ATOMICS: u64 = 1 << 49;
/// A message begins with its number and its length.
const HEAD_BYTES: usize = 12;
/// Nothing that ought to happen takes as long.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// One end of the connection, and what it has sent and seen.
pub struct Side {
    /// The endpoint itself.
    pub endpoint: Endpoint,
    connection: Connection,
    remote: RegionHandle,
    local: RegionHandle,
    /// What the peer writes into.
    shared: Memory,
    /// What our writes read from.
    source: Memory,
    len_max: usize,
    sent: u64,
    /// Messages that have not ended.
    under_way: u64,
    /// How each message ended, by number.
    ends: Vec<Option<Status>>,
    /// What arrived, by number.
    seen: Vec<bool>,
    next: u64,
    /// By piece: writes begun, and whether one is under way.
    writes: [u64; SLOTS as usize],
    writing: [bool; SLOTS as usize],
    atomics: u64,
    atomic_under_way: bool,
    /// How remote operations ended otherwise than well.
    failed: Vec<Status>,
    /// Other events, as text.
    events: Vec<String>,
}

/// What a message holds: its number, and bytes that follow from it.
fn message(number: u64, len_max: usize, into: &mut Vec<u8>) {
    let len = HEAD_BYTES + (number.wrapping_mul(0x9e37_79b9) as usize >> 3) % (len_max - HEAD_BYTES + 1);
    into.clear();
    into.extend(number.to_le_bytes());
    into.extend((len as u32).to_le_bytes());
    into.extend((HEAD_BYTES..len).map(|at| filler(number, at)));
}

fn filler(number: u64, at: usize) -> u8 {
    (number as u8) ^ (at as u8).wrapping_mul(7)
}

/// The number of a message, if it is whole.
fn read(message: &[u8]) -> Option<u64> {
    let (number, rest) = message.split_first_chunk::<8>()?;
    let number = u64::from_le_bytes(*number);
    let (len, filled) = rest.split_first_chunk::<4>()?;
    let whole = u32::from_le_bytes(*len) as usize == message.len()
        && filled.iter().zip(HEAD_BYTES..).all(|(byte, at)| *byte == filler(number, at));
    whole.then_some(number)
}

/// What the write number `round` puts into a piece.
fn slot_contents(index: u64, round: u64) -> Vec<u8> {
    (0..SLOT_BYTES).map(|at| (round as u8).wrapping_mul(31) ^ (at / 3) as u8 ^ index as u8).collect()
}

impl Side {
    fn new(mut endpoint: Endpoint, connection: Connection) -> Side {
        let len_bytes = SLOTS as usize * SLOT_BYTES;
        let shared = endpoint.allocate(len_bytes + 8).expect("memory");
        let source = endpoint.allocate(len_bytes).expect("memory");
        let handle = endpoint.register(&shared, Access::ALL).expect("a region");
        let local = endpoint.register(&source, Access::LOCAL).expect("a region");
        let len_max = endpoint.max_send_size(connection).map_or(1_000, |len| len as usize);
        Side {
            endpoint,
            connection,
            // Ours; the two sides exchange them.
            remote: handle,
            local,
            shared,
            source,
            len_max,
            sent: 0,
            under_way: 0,
            ends: Vec::new(),
            seen: Vec::new(),
            next: 0,
            writes: [0; SLOTS as usize],
            writing: [false; SLOTS as usize],
            atomics: 0,
            atomic_under_way: false,
            failed: Vec::new(),
            events: Vec::new(),
        }
    }

    fn is_busy(&self) -> bool {
        self.under_way != 0 || self.writing.contains(&true) || self.atomic_under_way
    }

    fn send_more(&mut self, buffer: &mut Vec<u8>) {
        while self.under_way < MESSAGES_UNDER_WAY {
            // A path that has become narrower takes less than it did.
            let len_max =
                self.endpoint.max_send_size(self.connection).map_or(self.len_max, |len| len as usize);
            self.len_max = self.len_max.min(len_max);
            message(self.sent, self.len_max, buffer);
            if self.endpoint.send(self.connection, buffer, self.sent, SendFlags::NONE).is_err() {
                break;
            }
            self.ends.push(None);
            self.sent += 1;
            self.under_way += 1;
        }
        self.write_more();
    }

    fn write_more(&mut self) {
        for index in 0..SLOTS {
            let at = index as usize;
            if self.writing[at] {
                continue;
            }
            let offset = index * SLOT_BYTES as u64;
            assert!(self.source.write(offset as usize, &slot_contents(index, self.writes[at] + 1)));
            let (from, into) =
                (RegionAddress::new(self.local, offset), RegionAddress::new(self.remote, offset));
            let len_bytes = SLOT_BYTES as u64;
            let (to, context) = (self.connection, WRITES + index);
            if self.endpoint.rma_write(to, from, into, len_bytes, context, RmaFlags::NONE).is_ok() {
                self.writes[at] += 1;
                self.writing[at] = true;
            }
        }
        if !self.atomic_under_way {
            let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            let word = RegionAddress::new(self.remote, SLOTS * SLOT_BYTES as u64);
            if self.endpoint.atomic(self.connection, add, word, None, ATOMICS, RmaFlags::NONE).is_ok() {
                self.atomics += 1;
                self.atomic_under_way = true;
            }
        }
    }

    /// Takes one event; whether there was one.
    fn take_event(&mut self, ordered: bool) -> bool {
        match self.endpoint.next_event() {
            Some(Event::Send { status, context, .. }) => self.ended(context, status),
            Some(Event::Recv(got)) => {
                let number = read(&got).unwrap_or_else(|| panic!("a torn message: {:?}", &got[..]));
                assert!(!ordered || number == self.next, "message {number} in order, {} is next", self.next);
                self.next += 1;
                let at = number as usize;
                if self.seen.len() <= at {
                    self.seen.resize(at + 1, false);
                }
                assert!(!std::mem::replace(&mut self.seen[at], true), "message {number} twice");
            }
            Some(other) => self.events.push(format!("{other:?}")),
            None => return false,
        }
        true
    }

    fn ended(&mut self, context: u64, status: Status) {
        if context >= ATOMICS {
            assert!(std::mem::replace(&mut self.atomic_under_way, false), "an atomic ended twice");
        } else if context >= WRITES {
            let under_way = &mut self.writing[(context - WRITES) as usize];
            assert!(std::mem::replace(under_way, false), "a write ended twice");
        } else {
            let end = self.ends.get_mut(context as usize).expect("of a send that was taken");
            assert!(end.replace(status).is_none(), "message {context} ended twice");
            self.under_way -= 1;
        }
        if context >= WRITES && status != Status::Success {
            self.failed.push(status);
        }
    }

    /// Messages of this side that ended so.
    pub fn count(&self, status: Status) -> u64 {
        self.ends.iter().filter(|end| **end == Some(status)).count() as u64
    }

    /// Events that were neither a message nor a completion, as text.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// How remote operations ended that did not end well.
    pub fn failed(&self) -> &[Status] {
        &self.failed
    }

    /// What the library says of the connection.
    pub fn explained(&self) -> String {
        self.endpoint.explain(self.connection).map_or_else(String::new, |explanation| explanation.to_string())
    }

    /// A counter of the device's by its name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.endpoint.counters();
        let counts = counters.device.iter().map(|(known, count)| (*known, *count));
        let drops = counters.drops.iter().map(|drop| (drop.name, drop.count));
        counts.chain(drops).filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }
}

/// Two connected endpoints, driven by one thread.
pub struct Traffic {
    /// Who asked for the connection.
    pub client: Side,
    /// Who accepted it.
    pub server: Side,
    ordered: bool,
    buffer: Vec<u8>,
}

/// Turns after the last operation has ended: enough to take all events that may be queued.
const TURNS_BEHIND: u32 = 64;

impl Traffic {
    /// Connects them.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub fn join(client: Endpoint, server: Endpoint, attribute: Attribute) -> Result<Traffic, String> {
        let uri = server.uri().to_owned();
        Traffic::join_at(client, server, &uri, attribute, PATIENCE)
    }

    /// Connects by another URI than the server's own, with a patience of its own.
    ///
    /// # Errors
    /// Says why there is no connection.
    pub fn join_at(
        mut client: Endpoint,
        mut server: Endpoint,
        uri: &str,
        attribute: Attribute,
        patience: Duration,
    ) -> Result<Traffic, String> {
        let [ours, theirs] = join(&mut client, &mut server, uri, attribute, patience)?;
        let (mut client, mut server) = (Side::new(client, ours), Side::new(server, theirs));
        std::mem::swap(&mut client.remote, &mut server.remote);
        let ordered = attribute == Attribute::ReliableOrdered;
        Ok(Traffic { client, server, ordered, buffer: Vec::new() })
    }

    fn turn(&mut self, load: bool) {
        let mut came = false;
        for side in [&mut self.client, &mut self.server] {
            if load {
                side.send_more(&mut self.buffer);
            }
            for _ in 0..16 {
                if !side.take_event(self.ordered) {
                    break;
                }
                came = true;
            }
        }
        if !came {
            // A core for whoever else there is: nothing comes while the network is down.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Keeps both busy for so long.
    pub fn run(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(true);
        }
    }

    /// Drives both with nothing new to say.
    pub fn rest(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(false);
        }
    }

    /// Sends no more, and drives both until all has ended, well or not. How long that took.
    pub fn drain(&mut self) -> Duration {
        let start = Instant::now();
        while self.client.is_busy() || self.server.is_busy() {
            self.turn(false);
            assert!(start.elapsed() < PATIENCE, "something never ended\n{}", self.state());
        }
        let took = start.elapsed();
        // What was sent well is there; its events may still be queued, of which a turn takes a few, however late it comes.
        self.rest(Duration::from_millis(2));
        (0..TURNS_BEHIND).for_each(|_| self.turn(false));
        took
    }

    /// Drains, and makes sure that everything happened exactly once and in order. What was sent, both ways.
    pub fn finish(&mut self) -> u64 {
        self.drain();
        let events = (self.client.events(), self.server.events());
        assert!(events.0.is_empty() && events.1.is_empty(), "{events:?}\n{}", self.state());
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let good = from.count(Status::Success);
            assert_eq!(good, from.sent, "all ended well\n{}", self.state());
            assert_eq!(to.seen.iter().filter(|seen| **seen).count() as u64, from.sent, "all arrived");
            assert!(from.failed.is_empty(), "{:?}", from.failed);
            for index in 0..SLOTS {
                let (at, round) = (index as usize * SLOT_BYTES, from.writes[index as usize]);
                let mut came = vec![0; SLOT_BYTES];
                assert!(to.shared.read(at, &mut came));
                assert!(
                    round == 0 || came == slot_contents(index, round),
                    "write {round} of piece {index} is there"
                );
            }
            let added = to.shared.load(SLOTS as usize * SLOT_BYTES, AtomicWidth::Eight);
            assert_eq!(added, Ok(from.atomics), "each atomic once");
        }
        self.client.sent + self.server.sent
    }

    /// Drains what was under way when the connection broke, and makes sure that what ended well arrived, once, and that
    /// the rest ended in one of these ways.
    pub fn finish_broken(&mut self, allowed: &[Status]) -> Duration {
        let took = self.drain();
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            for (number, end) in from.ends.iter().enumerate() {
                let end = end.expect("drained");
                let arrived = to.seen.get(number).copied().unwrap_or(false);
                assert!(end != Status::Success || arrived, "message {number} ended well and is not there");
                assert!(end == Status::Success || allowed.contains(&end), "message {number}: {end:?}");
            }
            assert!(from.failed.iter().all(|end| allowed.contains(end)), "{:?}", from.failed);
        }
        took
    }

    /// Sets the send timeout of both sides.
    pub fn set_send_timeout(&mut self, timeout: Duration) {
        for side in [&mut self.client, &mut self.server] {
            side.endpoint.set_send_timeout(side.connection, timeout).expect("an open connection");
        }
    }

    /// Messages that both sides have received.
    pub fn received(&self) -> u64 {
        self.client.next + self.server.next
    }

    /// Keeps both busy until so many more messages have arrived. How long that took.
    pub fn until_received(&mut self, more: u64) -> Duration {
        let (start, goal) = (Instant::now(), self.received() + more);
        while self.received() < goal {
            self.turn(true);
            assert!(start.elapsed() < PATIENCE, "no more arrives\n{}", self.state());
        }
        start.elapsed()
    }

    /// Everything that is known, for a failure.
    pub fn state(&self) -> String {
        let side = |name: &str, side: &Side| {
            format!(
                "{name}: sent {}, got {}, {} under way, writes {:?} {:?}, atomics {} {}, events {:?}\n{}\n{:?}\n",
                side.sent,
                side.next,
                side.under_way,
                side.writes,
                side.writing,
                side.atomics,
                side.atomic_under_way,
                side.events,
                side.explained(),
                side.endpoint.counters(),
            )
        };
        side("client", &self.client) + &side("server", &self.server)
    }
}
