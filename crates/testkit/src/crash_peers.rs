//! Kills a peer at random points, again and again, and looks at what is left: every operation of the survivor must have
//! ended exactly once, its other connections must not have noticed, and no descriptor, mapping or file may remain.
//!
//! The victim is the test's own program, started anew with an environment variable set: see [`victim`].

use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, SendFlags, Status};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "CCI_KILL_ROLE";
const DEVICE: &str = "CCI_KILL_DEVICE";
/// A victim that nobody kills ends by itself.
const VICTIM_LIFE: Duration = Duration::from_secs(30);
const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];

/// What to do, on which device.
pub struct Plan {
    /// The name of a device, as [`cci::Device::name`] gives it, with nothing configured.
    pub device: &'static str,
    /// How often.
    pub kills: u32,
    /// Printed on failure; the points of death depend on it, as far as the scheduler lets them.
    pub seed: u64,
    /// Of the survivor's sends.
    pub send_timeout: Duration,
    /// How long until the survivor must have noticed.
    pub noticed_within: Duration,
    /// The kernel tells of a death. Where it does not, only sends that nobody acknowledges do, and an unreliable
    /// connection has none.
    pub kernel_reports_death: bool,
}

/// What a process holds of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Entries of `/proc/self/fd`.
    pub descriptors: usize,
    /// Mappings of rings.
    pub ring_mappings: usize,
    /// Entries of `/dev/shm`, and those of `/tmp` with "cci" in their name.
    pub files: usize,
}

impl Resources {
    /// As of now.
    pub fn now() -> Resources {
        let entries = |folder: &str, part: &str| {
            std::fs::read_dir(folder).map_or(0, |entries| {
                entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains(part)).count()
            })
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Resources {
            descriptors: entries("/proc/self/fd", ""),
            ring_mappings: maps.lines().filter(|line| line.contains("memfd:cci")).count(),
            files: entries("/dev/shm", "") + entries("/tmp", "cci-sock"),
        }
    }
}

/// Small, seeded, good enough to choose a moment.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn open(device: &str, options: Options) -> Endpoint {
    let context = Context::new().expect("devices");
    let device: &Device = context.device(device).expect("the device");
    Endpoint::create(device, options).expect("an endpoint")
}

/// The body of a test named `victim`, which does nothing unless the harness has started this process for it.
pub fn victim() {
    let (Ok(role), Ok(device)) = (std::env::var(ROLE), std::env::var(DEVICE)) else { return };
    let mut endpoint = open(&device, Options::default());
    let end = Instant::now() + VICTIM_LIFE;
    if role == "server" {
        // Not by println!: the test runner would keep it to itself.
        let _ = writeln!(std::io::stderr(), "URI {}", endpoint.uri());
        while Instant::now() < end {
            match endpoint.next_event() {
                Some(Event::ConnectRequest(request)) => {
                    let _ = endpoint.accept(request, 0);
                }
                Some(Event::Recv(message)) => {
                    let _ = endpoint.send(message.connection(), &message, 0, SendFlags::SILENT);
                }
                _ => {}
            }
        }
    } else {
        hammer(&mut endpoint, &role, end);
    }
    std::process::exit(0);
}

/// Connects, sends numbered messages as fast as it can, closes, connects anew.
fn hammer(endpoint: &mut Endpoint, uri: &str, end: Instant) {
    let mut open: Vec<(Connection, u64)> = Vec::new();
    let mut random = Random(u64::from(std::process::id()));
    let (mut dialing, mut turn) = (0, 0u64);
    while Instant::now() < end {
        turn += 1;
        if open.len() + dialing < 4 {
            let attribute = ALL[random.below(3) as usize];
            dialing += usize::from(endpoint.connect(uri, b"victim", attribute, 0, None).is_ok());
        }
        for (connection, number) in &mut open {
            let mut message = vec![*number as u8; 8 + random.below(600) as usize];
            message[..8].copy_from_slice(&number.to_ne_bytes());
            *number += u64::from(endpoint.send(*connection, &message, 0, SendFlags::SILENT).is_ok());
        }
        if turn % 200 == 0
            && let Some((connection, _)) = open.pop()
        {
            endpoint.disconnect(connection);
        }
        for _ in 0..8 {
            match endpoint.next_event() {
                Some(Event::Connect { result, .. }) => {
                    dialing -= 1;
                    open.extend(result.ok().map(|connection| (connection, 0)));
                }
                Some(_) => {}
                None => break,
            }
        }
    }
}

/// Starts the victim: this very program, running only its test `victim`.
fn start(role: &str, device: &str) -> Child {
    let program = std::env::current_exe().expect("our own path");
    Command::new(program)
        .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(DEVICE, device)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(if role == "server" { Stdio::piped() } else { Stdio::null() })
        .spawn()
        .expect("the victim starts")
}

/// The survivor: an endpoint that victims connect to, or that connects to them, and a bystander in the same process
/// that exchanges messages with it all the time.
struct Survivor {
    hub: Endpoint,
    bystander: Endpoint,
    to_hub: Connection,
    random: Random,
    /// Victims are clients: what they send goes back to them.
    echoes: bool,
    /// Next number expected, and whether order was promised.
    victims: HashMap<Connection, (u64, Attribute)>,
    /// Contexts of sends that have not completed.
    sends: HashSet<u64>,
    next_context: u64,
    /// Connects and accepts that have not ended.
    making: HashSet<u64>,
    requests: u64,
    exchanges: u64,
    received: u64,
    failed_sends: u64,
}

impl Survivor {
    fn new(plan: &Plan) -> Survivor {
        let options = Options::default().send_timeout(plan.send_timeout);
        let (mut hub, mut bystander) = (open(plan.device, options.clone()), open(plan.device, options));
        let uri = hub.uri().to_owned();
        bystander.connect(&uri, b"bystander", Attribute::ReliableOrdered, 0, None).expect("a connection");
        let to_hub = loop {
            if let Some(Event::ConnectRequest(request)) = hub.next_event() {
                hub.accept(request, 0).expect("accepted");
            }
            if let Some(Event::Connect { result, .. }) = bystander.next_event() {
                break result.expect("connected");
            }
        };
        let mut survivor = Survivor {
            hub,
            bystander,
            to_hub,
            random: Random(plan.seed),
            echoes: true,
            victims: HashMap::new(),
            sends: HashSet::new(),
            next_context: 1,
            making: HashSet::new(),
            requests: 0,
            exchanges: 0,
            received: 0,
            failed_sends: 0,
        };
        survivor.ping();
        let end = Instant::now() + plan.noticed_within;
        while survivor.exchanges < 10 {
            assert!(Instant::now() < end, "the bystander is connected");
            survivor.turn();
        }
        survivor
    }

    fn ping(&mut self) {
        self.bystander.send(self.to_hub, b"bystander", 0, SendFlags::SILENT).expect("the bystander can send");
    }

    fn context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    /// One round: an event of each.
    fn turn(&mut self) {
        match self.bystander.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(&*message, b"bystander");
                self.exchanges += 1;
                self.ping();
            }
            Some(other) => panic!("the bystander noticed something: {other:?}"),
            None => {}
        }
        for _ in 0..4 {
            let Some(event) = self.hub.next_event() else { return };
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => {
                self.requests += 1;
                if self.random.below(16) == 0 {
                    return request.reject();
                }
                let context = self.context();
                if self.hub.accept(request, context).is_ok() {
                    self.making.insert(context);
                }
            }
            Event::Accept { context, result } | Event::Connect { context, result } => {
                assert!(self.making.remove(&context) || context == 0, "ended twice");
                // 0 is the bystander.
                if let Ok(connection) = result
                    && context != 0
                {
                    let attribute = self.hub.attribute(connection).expect("it is open");
                    self.victims.insert(connection, (0, attribute));
                }
            }
            Event::Recv(message) => self.received(&message),
            Event::Send { context, status, .. } => {
                assert!(self.sends.remove(&context), "a send that completed twice: {context}");
                self.failed_sends += u64::from(status != Status::Success);
            }
            Event::Disconnected { connection, .. } => {
                assert!(self.victims.contains_key(&connection), "only victims end: {connection:?}");
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn received(&mut self, message: &cci::Message) {
        let connection = message.connection();
        if &**message == b"bystander" {
            self.hub.send(connection, message, 0, SendFlags::SILENT).expect("room for the bystander");
            return;
        }
        let (number, rest) = message.split_first_chunk::<8>().expect("whole");
        let number = u64::from_ne_bytes(*number);
        assert!(rest.iter().all(|&byte| byte == number as u8), "garbage was delivered");
        let (next, attribute) = self.victims.get_mut(&connection).expect("a message on an open connection");
        assert!(number == *next || *attribute != Attribute::ReliableOrdered, "{number} where {next} was due");
        *next = number + 1;
        self.received += 1;
        if !self.echoes {
            return;
        }
        let context = self.context();
        if self.hub.send(connection, message, context, SendFlags::NONE).is_ok() {
            self.sends.insert(context);
        }
    }

    fn turn_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
        }
    }

    /// Goes on until everything of the dead peer's has ended; then lets go of it.
    fn settle(&mut self, plan: &Plan) {
        let end = Instant::now() + plan.noticed_within;
        loop {
            self.turn();
            let silent =
                |attribute: Attribute| !plan.kernel_reports_death && attribute == Attribute::Unreliable;
            let gone = self
                .victims
                .iter()
                .all(|(victim, (_, attribute))| silent(*attribute) || !self.hub.is_open(*victim));
            if gone && self.sends.is_empty() && self.making.is_empty() {
                break;
            }
            assert!(
                Instant::now() < end,
                "not noticed: {} of {} connections open, {} sends and {} handshakes under way; {:?}",
                self.victims.keys().filter(|victim| self.hub.is_open(**victim)).count(),
                self.victims.len(),
                self.sends.len(),
                self.making.len(),
                self.hub.counters(),
            );
            if !gone {
                self.probe();
            }
        }
        // What it sent before it died is still an event, and may bring a request that nobody waits for any more.
        self.turn_for(Duration::from_millis(2));
        for victim in std::mem::take(&mut self.victims).into_keys() {
            self.hub.disconnect(victim);
        }
        let before = self.exchanges;
        while self.exchanges == before {
            assert!(Instant::now() < end + plan.noticed_within, "the bystander was stopped");
            self.turn();
        }
    }

    /// Devices that the kernel does not tell of a death find out by sending.
    fn probe(&mut self) {
        let victims: Vec<Connection> = self.victims.keys().copied().collect();
        for victim in victims {
            let busy =
                self.hub.connection_counters(victim).is_some_and(|counters| counters.sends_in_progress > 0);
            if !busy && self.hub.is_open(victim) {
                let context = self.context();
                if self.hub.send(victim, b"there?", context, SendFlags::NONE).is_ok() {
                    self.sends.insert(context);
                }
            }
        }
    }

    /// After the death of a victim: everything of its ends, and now and then nothing of it may be left.
    fn mourn(&mut self, plan: &Plan, kill: u32, before: &Resources) {
        self.settle(plan);
        if kill.is_multiple_of(16) || kill + 1 == plan.kills {
            self.check_nothing_left(plan, before);
        }
    }

    /// Enters what was exchanged.
    fn count(&self, casualties: Casualties) -> Casualties {
        Casualties {
            received: self.received,
            failed_sends: self.failed_sends,
            exchanges: self.exchanges,
            ..casualties
        }
    }

    fn check_nothing_left(&mut self, plan: &Plan, before: &Resources) {
        let end = Instant::now() + plan.noticed_within;
        let expected = 1;
        loop {
            self.turn();
            let counters = self.hub.counters();
            let now = Resources::now();
            if now == *before && counters.connections_open == expected {
                return;
            }
            assert!(
                Instant::now() < end,
                "left behind: {now:?}, before {before:?}; {} connections open; {counters:?}",
                counters.connections_open,
            );
        }
    }
}

/// What the kills came to, for a line in the test's output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Casualties {
    /// Victims killed.
    pub kills: u32,
    /// Of those, how many had not got as far as asking for a connection.
    pub early: u32,
    /// Messages of theirs that arrived.
    pub received: u64,
    /// Sends to them that ended with an error.
    pub failed_sends: u64,
    /// Round trips of the bystander meanwhile.
    pub exchanges: u64,
}

/// Kills clients of ours at random points of their life.
pub fn kill_clients(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let mut casualties = Casualties::default();
    let before = Resources::now();
    let uri = survivor.hub.uri().to_owned();
    for kill in 0..plan.kills {
        let mut victim = start(&uri, plan.device);
        let (asked, born) = (survivor.requests, Instant::now());
        // Now and then the process dies before it has said anything.
        let patience = if kill % 16 == 0 { Duration::from_millis(2) } else { Duration::from_secs(5) };
        while survivor.requests == asked && born.elapsed() < patience {
            survivor.turn();
        }
        casualties.early += u32::from(survivor.requests == asked);
        let longest_us = [50, 500, 5_000][survivor.random.below(3) as usize];
        let life = Duration::from_micros(survivor.random.below(longest_us));
        survivor.turn_for(life);
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        casualties.kills += 1;
        survivor.mourn(plan, kill, &before);
    }
    survivor.count(casualties)
}

/// Kills servers that we connect to, at random points of the handshake and after.
pub fn kill_servers(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    survivor.echoes = false;
    let mut casualties = Casualties::default();
    let before = Resources::now();
    for kill in 0..plan.kills {
        let mut victim = start("server", plan.device);
        let uri = read_uri(&mut victim);
        for number in 0..4 {
            let context = survivor.context();
            // Not for ever: a server that dies without a word is noticed by time-out where the kernel says nothing.
            let started = survivor.hub.connect(&uri, b"", ALL[number % 3], context, Some(plan.send_timeout));
            if started.is_ok() {
                survivor.making.insert(context);
            }
        }
        // Every other one dies in the handshake, the rest once a connection is made.
        let born = Instant::now();
        while kill % 2 == 0 && survivor.victims.is_empty() && born.elapsed() < Duration::from_secs(2) {
            survivor.turn();
        }
        let longest_us = [50, 500, 5_000][survivor.random.below(3) as usize];
        let end = Instant::now() + Duration::from_micros(survivor.random.below(longest_us));
        while Instant::now() < end {
            survivor.turn();
            survivor.send_to_victims();
        }
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        drop(victim);
        casualties.early += u32::from(survivor.victims.is_empty());
        casualties.kills += 1;
        survivor.mourn(plan, kill, &before);
    }
    survivor.count(casualties)
}

impl Survivor {
    /// Numbered as the victims would: what they echo is checked like what they send.
    fn send_to_victims(&mut self) {
        if self.sends.len() > 4_000 {
            return;
        }
        let victims: Vec<Connection> = self.victims.keys().copied().collect();
        for victim in victims {
            let context = self.context();
            let number = self.victims.get(&victim).map_or(0, |(next, _)| *next);
            // One at a time and connection, as the answer tells the next number.
            let busy = self
                .hub
                .connection_counters(victim)
                .is_some_and(|counters| counters.sends_in_progress > 0 || counters.messages_sent > number);
            if !busy && self.hub.send(victim, &number.to_ne_bytes(), context, SendFlags::NONE).is_ok() {
                self.sends.insert(context);
            }
        }
    }
}

/// Stops a client (SIGSTOP): only its own connections may suffer. It is told apart from one that is slow by the send
/// timeout; after it goes on, it is killed.
pub fn stop_clients(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let mut casualties = Casualties::default();
    let before = Resources::now();
    let uri = survivor.hub.uri().to_owned();
    for _ in 0..plan.kills {
        let mut victim = start(&uri, plan.device);
        let (start, born) = (survivor.received, Instant::now());
        while survivor.received < start + 20 {
            assert!(born.elapsed() < Duration::from_secs(10), "the victim sends");
            survivor.turn();
        }
        signal(&victim, "STOP");
        // What it had sent is taken; then one send that it will not take.
        survivor.turn_for(Duration::from_millis(20));
        let exchanges = survivor.exchanges;
        survivor.probe();
        let end = Instant::now() + plan.noticed_within;
        while !survivor.sends.is_empty() {
            assert!(Instant::now() < end, "{} sends do not end", survivor.sends.len());
            survivor.turn();
        }
        let end = Instant::now() + plan.noticed_within;
        while survivor.exchanges < exchanges + 1_000 {
            assert!(Instant::now() < end, "the bystander goes on");
            survivor.turn();
        }
        signal(&victim, "CONT");
        let life = Duration::from_millis(survivor.random.below(5));
        survivor.turn_for(life);
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        survivor.settle(plan);
        casualties.kills += 1;
    }
    survivor.check_nothing_left(plan, &before);
    survivor.count(casualties)
}

pub(crate) fn signal(victim: &Child, signal: &str) {
    let done = Command::new("sh").arg("-c").arg(format!("kill -{signal} {}", victim.id())).status();
    assert!(done.is_ok_and(|status| status.success()), "{signal} can be sent");
}

pub(crate) fn read_uri(victim: &mut Child) -> String {
    let mut lines = BufReader::new(victim.stderr.take().expect("piped")).lines();
    loop {
        let line = lines.next().expect("it says its URI").expect("text");
        if let Some(uri) = line.strip_prefix("URI ") {
            return uri.to_owned();
        }
    }
}

/// Prints the seed if the test fails.
pub(crate) struct PrintSeedOnPanic(pub u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "seed {}", self.0);
        }
    }
}
