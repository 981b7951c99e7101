//! Processes that connect as everybody does and then write garbage into all memory they share with an endpoint, at every
//! instant: both rings, their control words, records half read, lengths changed afterwards, control pages, granted memory.
//! Meanwhile the endpoint sends to them, receives from them, reads and writes their memory, and talks to honest peers.
//!
//! It must live; honest peers must not notice; the hostile links must end with a fault that is counted, and leave nothing.
//! `CCI_SCRIBBLE_ROUNDS` sets how many connections each attacker spoils.
#![forbid(unsafe_code)]

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Foreign, Memory, Options, RegionAddress,
    RegionHandle, Registration, RmaFlags, SendError, SendFlags, Status,
};
use cci_testkit::figures;
use cci_testkit::held::{Held, files};
use cci_testkit::rng::Rng;
use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "CCI_SCRIBBLE_ROLE";
const URI: &str = "CCI_SCRIBBLE_URI";
const ROUNDS: &str = "CCI_SCRIBBLE_ROUNDS";
const SEED: &str = "CCI_SCRIBBLE_SEED";
const ROUNDS_DEFAULT: u64 = 40;
/// Garbage written in each round.
const SCRIBBLES: u64 = 60;
/// For all of it; each round has some more.
const PATIENCE: Duration = Duration::from_secs(240);
const PATIENCE_PER_ROUND: Duration = Duration::from_secs(2);
/// How long an honest message may take: what garbage does to others is a matter of what happens, not of how busy the machine is.
const HONEST_TIMEOUT: Duration = Duration::from_secs(20);
/// A hostile one that nobody takes is given up soon.
const HOSTILE_TIMEOUT: Duration = Duration::from_millis(500);
const REGION_BYTES: usize = 16 << 10;
/// Beside the region that is not the library's memory.
const MARGIN_BYTES: usize = 8 << 10;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn endpoint(recv_buffers: u32, send_timeout: Duration) -> Endpoint {
    let context = Context::new().expect("devices");
    let options = Options::default().recv_buffers(recv_buffers).send_buffers(64).send_timeout(send_timeout);
    Endpoint::create(context.device("shm").expect("shared memory"), options).expect("an endpoint")
}

/// Not a test: attackers and honest peers, when the test has started this program for one.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let uri = std::env::var(URI).expect("where to");
    match role.as_str() {
        "attack" => attack(&uri),
        _ => honest(&uri),
    }
}

fn start(role: &str, uri: &str, seed: u64, rounds: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .envs([(ROLE, role), (URI, uri)])
        .envs([(SEED, seed.to_string()), (ROUNDS, rounds.to_string())])
        .stdout(Stdio::null())
        .spawn()
        .expect("a process")
}

/// Connects, and waits for the handle that the endpoint sends to everybody.
fn join(endpoint: &mut Endpoint, uri: &str, who: &[u8]) -> Option<(Connection, RegionHandle)> {
    let attribute = Attribute::ReliableOrdered;
    endpoint.connect(uri, who, attribute, 0, Some(Duration::from_secs(10))).ok()?;
    let (start, mut connection) = (Instant::now(), None);
    while start.elapsed() < Duration::from_secs(10) {
        match endpoint.next_event() {
            Some(Event::Connect { result, .. }) => connection = Some(result.ok()?),
            Some(Event::Recv(message)) => {
                return Some((message.connection(), RegionHandle::from_message(&message)?));
            }
            _ => std::thread::yield_now(),
        }
        if connection.is_some_and(|connection| !endpoint.is_open(connection)) {
            return None;
        }
    }
    None
}

/// Sends, writes and reads until it is stopped, and looks at every byte.
fn honest(uri: &str) {
    let mut endpoint = endpoint(64, HONEST_TIMEOUT);
    let mut rng = Rng::new(number(SEED, 1));
    let (connection, theirs) = join(&mut endpoint, uri, b"honest").expect("an honest peer gets in");
    let memory = endpoint.allocate(2 * REGION_BYTES).expect("memory");
    let ours = endpoint.register(&memory, Access::LOCAL).expect("registered");
    let (mut count, mut is_stopped) = (0_u64, false);
    while !is_stopped {
        let mut message = vec![0; 8 + rng.below(4000) as usize];
        rng.fill(&mut message);
        message[..8].copy_from_slice(&count.to_le_bytes());
        assert_eq!(endpoint.send_blocking(connection, &[&message]), Ok(Status::Success), "after {count}");
        let (since, mut answered) = (Instant::now(), false);
        while !answered {
            assert!(since.elapsed() < Duration::from_secs(20), "no answer to {count}");
            match endpoint.wait(Some(Duration::from_millis(5))).expect("waits") {
                Some(Event::Recv(echo)) if &*echo == b"stop" => {
                    assert!(count > 0, "nothing was exchanged");
                    return;
                }
                Some(Event::Recv(echo)) => {
                    assert!(*echo == *message, "another echo than what was sent, after {count}");
                    answered = true;
                }
                _ => {}
            }
        }
        if count.is_multiple_of(4) {
            let (mut data, len) = (vec![0; REGION_BYTES], 1 + rng.below(REGION_BYTES as u64));
            rng.fill(&mut data);
            assert!(memory.write(0, &data));
            let (from, to) = (RegionAddress::new(ours, 0), RegionAddress::new(theirs, 0));
            let back = RegionAddress::new(ours, REGION_BYTES as u64);
            endpoint.rma_write(connection, from, to, len, 1, RmaFlags::NONE).expect("started");
            endpoint.rma_read(connection, back, to, len, 2, RmaFlags::FENCE).expect("started");
            let mut done = 0;
            while done < 2 {
                match endpoint.wait(Some(Duration::from_millis(5))).expect("waits") {
                    Some(Event::Send { status, .. }) => {
                        assert_eq!(status, Status::Success, "after {count}");
                        done += 1;
                    }
                    Some(Event::Recv(message)) => {
                        assert!(*message == *b"stop", "{} bytes out of turn after {count}", message.len());
                        is_stopped = true;
                    }
                    _ => assert!(since.elapsed() < Duration::from_secs(30), "operations hang at {count}"),
                }
            }
            let mut read = vec![0; len as usize];
            assert!(memory.read(REGION_BYTES, &mut read) && read == data[..len as usize], "{count}");
        }
        count += 1;
    }
}

/// All that this process shares with others and may write to.
fn shared() -> Vec<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let parse = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        (rest.starts_with("rw-s") && rest.contains("memfd:cci")).then_some((start, end - start))
    };
    maps.lines().filter_map(parse).collect()
}

fn attack(uri: &str) {
    let mut rng = Rng::new(number(SEED, 1));
    let own = OpenOptions::new().read(true).write(true).open("/proc/self/mem").expect("own memory");
    for _ in 0..number(ROUNDS, ROUNDS_DEFAULT) {
        let mut endpoint = endpoint(16, HOSTILE_TIMEOUT);
        let Some((connection, theirs)) = join(&mut endpoint, uri, b"attack") else { continue };
        let memory = endpoint.allocate(REGION_BYTES).expect("memory");
        let ours = endpoint.register(&memory, Access::ALL).expect("registered");
        let _ = endpoint.send(connection, &ours.to_bytes(), 0, SendFlags::SILENT);
        let (local, remote) = (RegionAddress::new(ours, 0), RegionAddress::new(theirs, 64));
        let _ = endpoint.rma_write(connection, local, remote, 1 + rng.below(6000), 1, RmaFlags::SILENT);
        for _ in 0..rng.below(200) {
            endpoint.progress();
        }
        let ranges = shared();
        for _ in 0..SCRIBBLES {
            let (start, len) = ranges[rng.below(ranges.len() as u64) as usize];
            scribble(&own, &mut rng, start, len);
            match rng.below(8) {
                0 => {
                    let message = &[7; 300][..rng.below(300) as usize];
                    let _ = endpoint.send(connection, message, 0, SendFlags::SILENT);
                }
                1 => endpoint.progress(),
                2 => std::thread::sleep(Duration::from_micros(rng.below(200))),
                3 => drop(endpoint.rma_read(connection, local, remote, 500, 2, RmaFlags::SILENT)),
                _ => {}
            }
        }
    }
}

/// Garbage, as near to what is right as it can be, or as far from it.
fn scribble(own: &File, rng: &mut Rng, start: u64, len: u64) {
    let word_at = |at: u64| {
        let mut word = [0; 8];
        let _ = own.read_exact_at(&mut word, start + at);
        u64::from_le_bytes(word)
    };
    let write = |at: u64, bytes: &[u8]| {
        let fits = bytes.len().min((len - at) as usize);
        let _ = own.write_all_at(&bytes[..fits], start + at);
    };
    let anywhere = 8 * rng.below(len / 8);
    // Positions, and the flags of sleepers, are at the beginning.
    let control = 8 * rng.below(64.min(len / 8));
    let record = 64 * rng.below((len / 64).min(64));
    match rng.below(12) {
        0 => write(anywhere, &rng.next_u64().to_le_bytes()),
        1 => write(control, &rng.next_u64().to_le_bytes()),
        2 => write(anywhere, &(word_at(anywhere) ^ 1 << rng.below(64)).to_le_bytes()),
        3 => write(control, &(word_at(control) ^ 1 << rng.below(64)).to_le_bytes()),
        4 => write(control, &word_at(control).wrapping_add(64 * rng.below(5)).to_le_bytes()),
        5 => write(control, &word_at(control).wrapping_sub(64 * rng.below(5)).to_le_bytes()),
        6 => write(anywhere, &word_at(8 * rng.below(len / 8)).to_le_bytes()),
        // A length, another, and back, as fast as it goes: what is read twice is caught.
        7 => {
            let right = word_at(record);
            for _ in 0..200 {
                write(record, &((right & !0x3fff_ffff) | rng.below(1 << 30)).to_le_bytes());
                write(record, &right.to_le_bytes());
            }
        }
        // Half a record.
        8 => write(record + 4, &rng.next_u64().to_le_bytes()),
        9 => write(record, &[0; 64]),
        10 => {
            let mut page = [0; 4096];
            rng.fill(&mut page);
            write(anywhere, &page);
        }
        _ => {
            // Everything, now and then; the beginning else.
            let mut all = vec![0; if rng.below(4) == 0 { len } else { 512.min(len) } as usize];
            rng.fill(&mut all);
            write(0, &all);
        }
    }
}

/// What the endpoint knows of a peer.
struct Peer {
    hostile: bool,
    /// It was asked to stop: its connection will end.
    leaving: bool,
    /// Of the attacker's memory, if it said so.
    theirs: Option<RegionHandle>,
}

/// The endpoint, and what it does.
struct Victim {
    endpoint: Endpoint,
    peers: HashMap<Connection, Peer>,
    own: RegionHandle,
    /// For attackers: memory of the library's, which they map, and other memory, which they can't.
    handles: [RegionHandle; 2],
    /// Each honest peer's own.
    honest_handles: Vec<RegionHandle>,
    /// Echoes for which there was no room.
    echoes: VecDeque<(Connection, Vec<u8>)>,
    rng: Rng,
    made: u64,
    bytes_seen: u64,
}

impl Victim {
    fn step(&mut self) {
        while let Some((on, echo)) = self.echoes.pop_front() {
            if self.endpoint.send(on, &echo, 0, SendFlags::SILENT) == Err(SendError::WouldBlock) {
                self.echoes.push_front((on, echo));
                break;
            }
        }
        match self.endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => {
                let hostile = request.data() == b"attack";
                let _ = self.endpoint.accept(request, u64::from(hostile));
            }
            Some(Event::Accept { context, result: Ok(connection) }) => {
                let hostile = context == 1;
                let handle = if hostile {
                    self.endpoint.set_send_timeout(connection, HOSTILE_TIMEOUT).expect("it is open");
                    self.made += 1;
                    self.handles[(self.made % 2) as usize]
                } else {
                    self.honest_handles.pop().expect("one each")
                };
                let _ = self.endpoint.send(connection, &handle.to_bytes(), 0, SendFlags::SILENT);
                self.peers.insert(connection, Peer { hostile, leaving: false, theirs: None });
            }
            Some(Event::Recv(message)) => {
                let on = message.connection();
                let Some(peer) = self.peers.get_mut(&on) else { return };
                self.bytes_seen += message.iter().map(|&byte| u64::from(byte)).sum::<u64>();
                if peer.hostile {
                    peer.theirs = peer.theirs.or(RegionHandle::from_message(&message));
                } else {
                    self.echoes.push_back((on, message.to_vec()));
                }
            }
            Some(_) => {}
            None => self.bother_attackers(),
        }
    }

    /// Something with one of them; those whose links have ended are let go.
    fn bother_attackers(&mut self) {
        let ended: Vec<Connection> =
            self.peers.keys().copied().filter(|on| !self.endpoint.is_open(*on)).collect();
        for on in ended {
            let peer = self.peers.remove(&on).expect("it was there");
            assert!(
                peer.hostile || peer.leaving,
                "an honest peer's connection ended: {:?}",
                self.endpoint.counters()
            );
            self.endpoint.disconnect(on);
        }
        let hostile: Vec<_> = self.peers.iter().filter(|(_, peer)| peer.hostile).collect();
        if hostile.is_empty() {
            return std::thread::yield_now();
        }
        let (on, peer) = hostile[self.rng.below(hostile.len() as u64) as usize];
        let (on, theirs) = (*on, peer.theirs);
        // Some never take anything: the program sees to it that its sends to them leave room for others.
        let under_way =
            self.endpoint.connection_counters(on).map_or(0, |counters| counters.sends_in_progress);
        if under_way > 16 {
            return;
        }
        let len = 1 + self.rng.below(4000);
        let (ours, remote) =
            (RegionAddress::new(self.own, 0), theirs.map(|handle| RegionAddress::new(handle, len)));
        match (self.rng.below(4), remote) {
            (0, Some(remote)) => drop(self.endpoint.rma_write(on, ours, remote, len, 0, RmaFlags::SILENT)),
            (1, Some(remote)) => drop(self.endpoint.rma_read(on, ours, remote, len, 0, RmaFlags::SILENT)),
            _ => {
                let message = vec![3; len as usize];
                let _ = self.endpoint.send(on, &message, 0, SendFlags::SILENT);
            }
        }
    }
}

#[test]
fn garbage_in_shared_memory_harms_nobody_else() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let rounds = number(ROUNDS, ROUNDS_DEFAULT);
    // Threads of the test runner come and go.
    let held = || {
        let Held { descriptors, shared_mappings, .. } = Held::by(std::process::id());
        (descriptors, shared_mappings, files())
    };
    let before = held();
    let mut endpoint = endpoint(256, HONEST_TIMEOUT);
    let uri = endpoint.uri().to_owned();
    let memory = endpoint.allocate(REGION_BYTES).expect("memory");
    let mapped = endpoint.register(&memory, Access::ALL).expect("registered");
    let own_memory = endpoint.allocate(REGION_BYTES).expect("memory");
    let own = endpoint.register(&own_memory, Access::LOCAL).expect("registered");
    let whole = vec![0x11; REGION_BYTES + 2 * MARGIN_BYTES].into_boxed_slice();
    let foreign = Memory::foreign(Foreign::owned(whole));
    let range = MARGIN_BYTES..MARGIN_BYTES + REGION_BYTES;
    let part = Registration { range: Some(range), ..Registration::from(Access::ALL) };
    let fetched = endpoint.register(&foreign, part).expect("registered");
    let honest_memories: Vec<Memory> =
        (0..2).map(|_| endpoint.allocate(REGION_BYTES).expect("memory")).collect();
    let register = |memory| endpoint.register(memory, Access::ALL).expect("registered");
    let honest_handles: Vec<RegionHandle> = honest_memories.iter().map(register).collect();
    let mut victim = Victim {
        endpoint,
        peers: HashMap::new(),
        own,
        handles: [mapped, fetched],
        honest_handles,
        echoes: VecDeque::new(),
        rng: Rng::new(5),
        made: 0,
        bytes_seen: 0,
    };
    let mut honest: Vec<Child> = (0..2).map(|seed| start("honest", &uri, 10 + seed, 0)).collect();
    let mut attackers: Vec<Child> = (0..2).map(|seed| start("attack", &uri, 20 + seed, rounds)).collect();
    let (begun, mut polls, mut crash) = (Instant::now(), 0_u64, 0);
    let patience = PATIENCE + PATIENCE_PER_ROUND.saturating_mul(rounds as u32);
    while !attackers.is_empty() {
        assert!(begun.elapsed() < patience, "attackers do not end: {:?}", victim.endpoint.counters());
        victim.step();
        polls += 1;
        if polls % 4096 == 0 {
            attackers.retain_mut(|child| {
                let ended = child.try_wait().expect("its status");
                // What it spoiled was its own library's too; it may die of that, which is reported below.
                crash += u64::from(ended.is_some_and(|status| !status.success()));
                ended.is_none()
            });
        }
    }
    let talking: Vec<Connection> =
        victim.peers.iter().filter(|(_, peer)| !peer.hostile).map(|(on, _)| *on).collect();
    assert_eq!(talking.len(), 2, "honest peers are there");
    for on in talking {
        victim.endpoint.send(on, b"stop", 0, SendFlags::SILENT).expect("sent");
        // They end by themselves, and that ends their connections.
        victim.peers.get_mut(&on).expect("known").leaving = true;
    }
    while !honest.is_empty() || !victim.peers.is_empty() {
        assert!(
            begun.elapsed() < patience,
            "honest peers do not end: {} processes, {:?}, {:?}",
            honest.len(),
            victim.peers.keys().map(|on| (*on, victim.endpoint.is_open(*on))).collect::<Vec<_>>(),
            victim.endpoint.counters()
        );
        victim.step();
        honest.retain_mut(|child| {
            let ended = child.try_wait().expect("its status");
            assert!(ended.is_none_or(|status| status.success()), "an honest peer noticed: {ended:?}");
            ended.is_none()
        });
    }
    let counters = victim.endpoint.counters();
    let faults: Vec<_> = counters.drops.iter().filter(|reason| reason.count > 0).collect();
    println!("{} connections spoiled, {crash} attackers died, faults {faults:?}", victim.made);
    assert!(victim.made >= rounds, "attackers hardly got in: {counters:?}");
    let corrupt = faults.iter().find(|reason| reason.name == "link_corrupt").map_or(0, |reason| reason.count);
    assert!(corrupt > 0, "garbage is counted: {faults:?}");
    let mut bytes = vec![0; foreign.len()];
    assert!(foreign.read(0, &mut bytes));
    let (left, right) = (&bytes[..MARGIN_BYTES], &bytes[MARGIN_BYTES + REGION_BYTES..]);
    assert!(left.iter().chain(right).all(|byte| *byte == 0x11), "written beside a region");
    figures::note("hostile_memory.connections_spoiled", victim.made);
    figures::note("hostile_memory.scribbles", victim.made * SCRIBBLES);
    assert_eq!(counters.connections_open, 0);
    drop((victim, memory, own_memory, honest_memories));
    assert_eq!(held(), before, "something is left");
}
