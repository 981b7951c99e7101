//! What every process of a campaign does: talks to others as much as it can, and checks all that it gets.

use super::process::{DEVICE, NAME, TEMPER, TIMEOUT_MS};
use crate::conformance;
use crate::crash_peers::Random;
use crate::crash_rma::area::{Area, LEN};
use crate::crash_rma::victim::{handles, operate};
use cci::{
    Attribute, ConnectRequest, Connection, Context, Endpoint, Event, Message, Options, RegionHandle,
    SendFlags, Status,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
/// Connections that who connects keeps to each of those it was told of.
const CONNECTIONS: usize = 3;
/// Messages under way on a connection, and remote operations.
const MESSAGES: usize = 4;
const OPERATIONS: usize = 2;
/// Longest remote operation where others' processors have to move the data, bytes: what is sent must end in time on a
/// machine that is busy with much else.
const LONGEST_SLOW: u64 = 60_000;
/// Between messages of a process that may be lost.
const UNRELIABLE_EVERY: Duration = Duration::from_micros(500);
/// What a message begins with: the handles of the sender's regions, or a number.
const HELLO: u8 = 1;
const NUMBERED: u8 = 2;

/// Somebody to connect to.
struct Target {
    name: u32,
    uri: String,
    /// Not before: the last attempt failed.
    again_at: Instant,
}

/// One connection.
struct Talk {
    with: u32,
    attribute: Attribute,
    /// We asked for it.
    ours: bool,
    next: u64,
    /// Numbers beyond `next` that have arrived.
    ahead: HashSet<u64>,
    sent: u64,
    greeted: bool,
    theirs: Option<[RegionHandle; 3]>,
    /// Under way: messages, remote operations.
    messages: usize,
    operations: usize,
}

/// What became of all dealings with one other process.
#[derive(Default)]
struct Acquaintance {
    received: u64,
    /// Connections that ended without our doing.
    lost: u64,
    /// Operations that did not end well.
    failed: u64,
    /// Attempts to connect, operations that have not ended.
    making: usize,
    under_way: usize,
}

struct Peer {
    endpoint: Endpoint,
    name: u32,
    restless: bool,
    /// Sleeps when there is nothing to do, instead of looking again and again.
    sleeps: bool,
    send_timeout: Duration,
    /// Longest remote operation, bytes.
    longest: u64,
    /// Two regions with the right bytes, and words for atomics.
    areas: [Area; 3],
    scratch: Area,
    random: Random,
    targets: Vec<Target>,
    talks: HashMap<Connection, Talk>,
    /// When the next message may be sent that nobody acknowledges.
    unreliable_at: Instant,
    /// What we closed: messages that came before may still be events.
    closed: HashSet<Connection>,
    /// Attempts by context: with whom, and whether we asked.
    making: HashMap<u64, (u32, bool)>,
    /// Operations by context: with whom, on which connection, and whether it is a message.
    under_way: HashMap<u64, (u32, Connection, bool)>,
    known: BTreeMap<u32, Acquaintance>,
    next_context: u64,
    good: u64,
}

/// The body of a test named `victim`, which does nothing unless a campaign has started this process. `crash` is what a
/// program does that reaches where it must not.
pub fn victim(crash: fn()) {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(name), Some(device)) = (variable(NAME), variable(DEVICE)) else { return };
    prepare();
    let name: u32 = name.parse().expect("a number");
    let timeout_ms = variable(TIMEOUT_MS).and_then(|ms| ms.parse().ok()).expect("a time");
    let restless = variable(TEMPER).as_deref() == Some("restless");
    let mut peer = Peer::open(name, &device, Duration::from_millis(timeout_ms), restless);
    print_line(&format!("URI {}", peer.endpoint.uri()));
    let commands = listen(crash);
    loop {
        match commands.try_recv() {
            Ok(line) => {
                if !peer.obey(&line) {
                    break;
                }
            }
            Err(TryRecvError::Empty) => peer.turn(),
            // Nobody is there any more who would end us.
            Err(TryRecvError::Disconnected) => break,
        }
    }
    for area in &peer.areas[..2] {
        area.check();
    }
    drop(peer);
    std::process::exit(0);
}

/// No core files, and no life beyond the harness's.
fn prepare() {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

/// Commands come from a thread, for the endpoint's own must not wait for them. `crash` is obeyed at once, wherever the
/// other thread is at that moment.
fn listen(crash: fn()) -> Receiver<String> {
    let (line_sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line == "crash" {
                crash();
            }
            if line_sender.send(line).is_err() {
                break;
            }
        }
    });
    commands
}

/// Not by println!: the test runner has begun the line.
fn print_line(line: &str) {
    let _ = std::io::stdout().write_all(format!("\n{line}\n").as_bytes());
}

impl Peer {
    fn open(name: u32, device: &str, send_timeout: Duration, restless: bool) -> Peer {
        let context =
            Context::from_text(&conformance::config(), "deaths.ini".as_ref()).expect("the INI file is right");
        let device = context.device(device).expect("the INI file names it");
        let options = Options::default().send_timeout(send_timeout).keepalive(send_timeout);
        let mut endpoint = Endpoint::create(device, options).expect("an endpoint");
        let areas = [true, false, true].map(|library| Area::new(&mut endpoint, library));
        areas[..2].iter().for_each(Area::fill);
        let scratch = Area::new(&mut endpoint, true);
        let longest = if device.transport().name() == "shm" { LEN as u64 } else { LONGEST_SLOW };
        let mut random = Random(u64::from(name).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let sleeps = random.below(2) == 0;
        Peer {
            endpoint,
            name,
            restless,
            sleeps,
            send_timeout,
            longest,
            areas,
            scratch,
            random,
            targets: Vec::new(),
            talks: HashMap::new(),
            unreliable_at: Instant::now(),
            closed: HashSet::new(),
            making: HashMap::new(),
            under_way: HashMap::new(),
            known: BTreeMap::new(),
            next_context: 0,
            good: 0,
        }
    }

    /// False: that was the last one.
    fn obey(&mut self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let name = words.next().and_then(|name| name.parse::<u32>().ok());
        match (verb, name, words.next()) {
            ("dial", Some(name), Some(uri)) => {
                self.targets.push(Target { name, uri: uri.to_owned(), again_at: Instant::now() });
            }
            ("drop", Some(name), None) => self.targets.retain(|target| target.name != name),
            ("forget", Some(name), None) => drop(self.known.remove(&name)),
            ("check", None, None) => {
                for area in self.areas.iter().take(2).chain([&self.scratch]) {
                    area.check();
                }
                print_line("CHECKED");
            }
            ("report", None, None) => self.report(),
            ("quit", None, None) => return false,
            _ => panic!("what is {line:?}?"),
        }
        true
    }

    /// One line: the whole, then for each that we know `name received lost failed open under_way`.
    fn report(&self) {
        let mut line = format!("REPORT {}", self.good);
        for (name, known) in &self.known {
            let open = self.talks.values().filter(|talk| talk.with == *name).count();
            let Acquaintance { received, lost, failed, making, under_way } = known;
            line += &format!(";{name} {received} {lost} {failed} {open} {}", under_way + making);
        }
        print_line(&line);
    }

    fn know(&mut self, name: u32) -> &mut Acquaintance {
        self.known.entry(name).or_default()
    }

    fn context(&mut self) -> u64 {
        self.next_context += 1;
        self.next_context
    }

    fn turn(&mut self) {
        self.dial();
        let connections: Vec<Connection> = self.talks.keys().copied().collect();
        for connection in connections {
            if !self.endpoint.is_open(connection) {
                self.lose(connection);
                continue;
            }
            self.work(connection);
        }
        self.be_restless();
        let mut came = 0;
        while came < 64
            && let Some(event) = self.endpoint.next_event()
        {
            self.handle(event);
            came += 1;
        }
        if came == 0 && self.sleeps {
            let event = self.endpoint.wait(Some(Duration::from_millis(1))).expect("the system can wait");
            event.into_iter().for_each(|event| self.handle(event));
        } else if came == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    fn dial(&mut self) {
        let now = Instant::now();
        for at in 0..self.targets.len() {
            let Target { name, again_at, .. } = self.targets[at];
            let talks = self.talks.values().filter(|talk| talk.with == name && talk.ours).count();
            let making = self.making.values().filter(|(with, ours)| *with == name && *ours).count();
            if talks + making >= CONNECTIONS || now < again_at {
                continue;
            }
            let (context, attribute) = (self.context(), ALL[self.random.below(3) as usize]);
            let (uri, us) = (&self.targets[at].uri, self.name.to_le_bytes());
            if self.endpoint.connect(uri, &us, attribute, context, Some(self.send_timeout)).is_ok() {
                self.making.insert(context, (name, true));
                self.know(name).making += 1;
            } else {
                self.put_off(name);
            }
        }
    }

    fn put_off(&mut self, name: u32) {
        for target in self.targets.iter_mut().filter(|target| target.name == name) {
            target.again_at = Instant::now() + Duration::from_millis(20);
        }
    }

    /// Closes a connection of its own now and then.
    fn be_restless(&mut self) {
        if !self.restless || self.random.below(200) != 0 {
            return;
        }
        if let Some(connection) = self.talks.iter().find(|(_, talk)| talk.ours).map(|(known, _)| *known) {
            self.talks.remove(&connection);
            self.close(connection);
        }
    }

    fn lose(&mut self, connection: Connection) {
        let Some(talk) = self.talks.remove(&connection) else { return };
        self.know(talk.with).lost += 1;
        self.close(connection);
    }

    fn close(&mut self, connection: Connection) {
        self.closed.insert(connection);
        self.endpoint.disconnect(connection);
    }

    fn work(&mut self, connection: Connection) {
        let Some(talk) = self.talks.get(&connection) else { return };
        let (with, attribute, greeted) = (talk.with, talk.attribute, talk.greeted);
        if !greeted {
            let mut hello = vec![HELLO];
            hello.extend(crate::crash_rma::victim::message(&self.areas));
            let context = self.context();
            if self.endpoint.send(connection, &hello, context, SendFlags::NONE).is_ok() {
                self.started(context, connection, with, true);
                self.talk(connection, |talk| talk.greeted = true);
            }
            return;
        }
        // Nothing but its sender holds back what is not reliable, and it would fill everybody's rings.
        let may = attribute.is_reliable() || self.unreliable_at <= Instant::now();
        if talk.messages < MESSAGES && may {
            if !attribute.is_reliable() {
                self.unreliable_at = Instant::now() + UNRELIABLE_EVERY;
            }
            let (number, context) = (talk.sent, self.context());
            let mut message = vec![number as u8; 9 + self.random.below(900) as usize];
            message[0] = NUMBERED;
            message[1..9].copy_from_slice(&number.to_le_bytes());
            if self.endpoint.send(connection, &message, context, SendFlags::NONE).is_ok() {
                self.started(context, connection, with, true);
                self.talk(connection, |talk| talk.sent += 1);
            }
        }
        let Some(talk) = self.talks.get(&connection) else { return };
        if let Some(theirs) = talk.theirs
            && attribute.is_reliable()
            && talk.operations < OPERATIONS
        {
            let (operations, context) = (talk.operations, self.context());
            let local = [self.areas[operations & 1].handle, self.scratch.handle];
            if operate(&mut self.endpoint, connection, &mut self.random, local, theirs, self.longest, context)
            {
                self.started(context, connection, with, false);
            }
        }
    }

    fn talk(&mut self, connection: Connection, change: impl FnOnce(&mut Talk)) {
        if let Some(talk) = self.talks.get_mut(&connection) {
            change(talk);
        }
    }

    fn started(&mut self, context: u64, connection: Connection, with: u32, message: bool) {
        self.under_way.insert(context, (with, connection, message));
        self.know(with).under_way += 1;
        self.talk(connection, |talk| *if message { &mut talk.messages } else { &mut talk.operations } += 1);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => self.accept(request),
            Event::Accept { context, result } | Event::Connect { context, result } => {
                let (with, ours) = self.making.remove(&context).expect("an attempt that ended twice");
                self.know(with).making -= 1;
                match result {
                    Ok(connection) => self.begin(connection, with, ours),
                    Err(_) => self.put_off(with),
                }
            }
            Event::Recv(message) => self.received(&message),
            Event::Send { context, status, .. } => self.ended(context, status),
            Event::KeepaliveTimedOut { connection } => self.lose(connection),
            Event::Disconnected { connection, .. } => self.lose(connection),
            Event::DeviceFailed => panic!("the device failed"),
            other => panic!("an event that this suite does not know: {other:?}"),
        }
    }

    fn accept(&mut self, request: ConnectRequest) {
        let with = u32::from_le_bytes(request.data().try_into().expect("a name"));
        let context = self.context();
        // Who asked may be dead by now.
        if self.endpoint.accept(request, context).is_ok() {
            self.making.insert(context, (with, false));
            self.know(with).making += 1;
        }
    }

    fn begin(&mut self, connection: Connection, with: u32, ours: bool) {
        let attribute = self.endpoint.attribute(connection).expect("a connection that just came is known");
        let talk = Talk {
            with,
            attribute,
            ours,
            next: 0,
            ahead: HashSet::new(),
            sent: 0,
            greeted: false,
            theirs: None,
            messages: 0,
            operations: 0,
        };
        assert!(self.talks.insert(connection, talk).is_none(), "a connection that is open twice");
    }

    fn received(&mut self, message: &Message) {
        let connection = message.connection();
        let Some(talk) = self.talks.get_mut(&connection) else {
            assert!(self.closed.contains(&connection), "a message on a connection that is not open yet");
            return;
        };
        match message.first() {
            Some(&HELLO) => {
                assert!(talk.theirs.is_none(), "a message that came twice");
                talk.theirs = handles(&message[1..]);
                assert!(talk.theirs.is_some(), "a torn message");
            }
            Some(&NUMBERED) => {
                let (number, rest) = message[1..].split_first_chunk::<8>().expect("a whole message");
                let number = u64::from_le_bytes(*number);
                assert!(rest.iter().all(|byte| *byte == number as u8), "garbage was delivered");
                talk.arrived(number);
            }
            _ => assert_eq!(&**message, b"written", "garbage was delivered"),
        }
        let with = talk.with;
        self.know(with).received += 1;
    }

    fn ended(&mut self, context: u64, status: Status) {
        let (with, connection, message) =
            self.under_way.remove(&context).expect("an operation that ended twice");
        self.talk(connection, |talk| *if message { &mut talk.messages } else { &mut talk.operations } -= 1);
        let known = self.know(with);
        known.under_way -= 1;
        match status {
            Status::Success => self.good += 1,
            Status::Disconnected | Status::TimedOut | Status::ReceiverNotReady => known.failed += 1,
            other => panic!("an operation with {with} ended with {other:?}"),
        }
    }
}

impl Talk {
    /// Once, in order, and without gaps, as far as that was promised.
    fn arrived(&mut self, number: u64) {
        match self.attribute {
            Attribute::ReliableOrdered => {
                assert_eq!(number, self.next, "the order of messages from {}", self.with);
                self.next += 1;
            }
            Attribute::ReliableUnordered => {
                let new = number >= self.next && self.ahead.insert(number);
                assert!(new, "message {number} from {} came twice", self.with);
                while self.ahead.remove(&self.next) {
                    self.next += 1;
                }
            }
            // Any may be lost.
            _ => {}
        }
    }
}
