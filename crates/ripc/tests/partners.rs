//! Partners in processes of their own: hostile ones beside an honest pair that must be served, and who may do what by keys and certificates.
//!
//! Each process is this program again, with a role.

mod forged;

use cci::{Attribute, Connection, Context, Endpoint, Event as Core, Names, SendFlags};
use cci_ripc::{
    CallError, CallOptions, Content, Event, Node, Options, Part, Partner, Policy, ReachError, ServiceName,
};
use cci_sys::process::{Signal, send_signal};
use forged::{frame, hello_of, long_item};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A safety net: nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
const ROLE: &str = "CCI_TEST_ROLE";
/// Where the service is, for those who do not ask a directory.
const BANK: &str = "CCI_TEST_BANK";
/// Calls of the honest client during each attack.
const CALLS: usize = 300;
const LONG_BYTES: usize = 50_000;

/// A process of a test. It is killed with this value.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    input: Option<ChildStdin>,
}

/// Where the processes of a test find each other, and how they reach each other.
struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("services")).unwrap();
        World { folder }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }

    fn start(&self, config: &Path, role: &str, bank: &str) -> Process {
        let directory = format!("host:{}", self.folder.path().join("services").display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_of_a_test", "--nocapture"])
            .envs([(ROLE, role), (BANK, bank), ("CCI_DIRECTORY", &directory)])
            .env("CCI_CONFIG", config)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        Process { child, output, input }
    }
}

impl Process {
    /// The next line that it says.
    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it has ended");
            if let Some((_, said)) = line.split_once("said: ") {
                return said.trim().to_owned();
            }
        }
    }

    /// Tells it to end, and hears what it got.
    fn ends(&mut self) -> String {
        drop(self.input.take());
        self.says()
    }

    fn signal(&self, signal: Signal) {
        send_signal(self.child.id(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _status = self.child.wait();
    }
}

fn say(text: &str) {
    println!("said: {text}");
    std::io::stdout().flush().unwrap();
}

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

/// True from when the test has closed this process's input.
fn is_to_end() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    std::thread::spawn(move || {
        let _end = std::io::stdin().read_to_end(&mut Vec::new());
        set.store(true, Ordering::Relaxed);
    });
    flag
}

/// No test of its own: what the tests start.
#[test]
fn a_process_of_a_test() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["bank"] => bank(Policy::default(), &["bank"]),
        ["guarded", allowed] => {
            let (allowed, nobody) = (Names::parse(allowed).unwrap(), Names::parse("nobody.test").unwrap());
            let policy = Policy::default()
                .rule("bank", Names::Everyone, allowed.clone())
                .rule("vault", Names::Everyone, nobody)
                .rule("branch-*", allowed, Names::Everyone);
            bank(policy, &["bank", "vault", "info"]);
        }
        ["asks", own, service, owner, timeout_ms] => asks(own, service, owner, timeout_ms.parse().unwrap()),
        ["honest"] => honest(),
        ["stalls"] => lends_and_waits(),
        ["dies"] => lends_and_waits(),
        ["lies"] => lies(),
        ["floods"] => floods(),
        ["poses"] => poses(),
        ["guesses"] => guesses(),
        _ => panic!("{role} is no role"),
    }
}

/// Services that echo, say how many bytes of long items came, and what they count.
fn bank(policy: Policy, names: &[&str]) {
    let mut node = Node::open(Options::default().policy(policy)).unwrap();
    let services: Vec<_> = names.iter().map(|text| node.register(&name(text)).unwrap()).collect();
    say(node.uri());
    loop {
        for &service in &services {
            let pause = Duration::from_millis(if services.len() == 1 { 100 } else { 5 });
            let Some(Event::Request(request)) = node.wait(service, Some(pause)).unwrap() else { continue };
            let message = request.message();
            let answer = if message.item(0) == b"counters" {
                let counters = node.counters();
                format!("malformed {}, dropped {}", counters.malformed, counters.dropped).into_bytes()
            } else if let [item] = message.long_items() {
                let bytes = item.as_ref().map(cci_ripc::LongItem::to_vec).unwrap_or_default();
                let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
                format!("{} bytes, sum {sum}", bytes.len()).into_bytes()
            } else {
                message.item(0).to_vec()
            };
            let _gone_meanwhile = node.answer(request.ticket(), &answer[..]);
        }
    }
}

/// A client that must be served, whatever others do.
fn honest() {
    let mut node = Node::open(Options::default()).unwrap();
    let me = node.register(&name("honest")).unwrap();
    let bank = node.partner(me, &name("bank")).unwrap();
    let memory = node.allocate(LONG_BYTES).unwrap();
    let options = CallOptions::default().timeout(PATIENCE);
    let mut longest = Duration::ZERO;
    for call in 0..CALLS {
        let asked = Instant::now();
        if call % 10 == 0 {
            let bytes = vec![(call / 10 + 1) as u8; LONG_BYTES];
            assert!(memory.write(0, &bytes));
            let long_items = [Part::all(&memory)];
            let content = Content::from(b"count").long_items(&long_items);
            let answer = node.call_blocking(bank, content, options).unwrap();
            let expected = format!("{LONG_BYTES} bytes, sum {}", LONG_BYTES * (call / 10 + 1));
            assert_eq!(answer.item(0), expected.as_bytes());
            let is_back = |node: &mut Node| {
                node.progress();
                while node.next_notice(me).is_some() {}
                !node.is_lent(&long_items[0])
            };
            while !is_back(&mut node) {
                assert!(asked.elapsed() < PATIENCE, "the memory is not given back");
            }
        } else {
            let text = call.to_le_bytes();
            let answer = node.call_blocking(bank, &text, options).unwrap();
            assert_eq!(answer.item(0), text);
        }
        longest = longest.max(asked.elapsed());
    }
    let counters = node.call_blocking(bank, b"counters", options).unwrap();
    let counters = String::from_utf8_lossy(counters.item(0)).into_owned();
    say(&format!("{CALLS} calls answered, the longest in {} ms; bank: {counters}", longest.as_millis()));
}

/// Lends large data, and is stopped or killed before anybody has fetched them.
fn lends_and_waits() {
    let mut node = Node::open(Options::default()).unwrap();
    let me = node.client().unwrap();
    let bank = node.partner(me, &name("bank")).unwrap();
    node.reach(bank, PATIENCE).unwrap();
    let memory = node.allocate(8 << 20).unwrap();
    let long_items = [Part::all(&memory)];
    let content = Content::from(b"count").long_items(&long_items);
    node.call(bank, content, CallOptions::default().timeout(PATIENCE)).unwrap();
    say("at work");
    let answer = loop {
        if let Some(Event::Answer { result, .. }) = node.wait(me, Some(PATIENCE)).unwrap() {
            break result.unwrap();
        }
    };
    say(&format!("its answer, late: {}", String::from_utf8_lossy(answer.item(0))));
}

/// A peer that makes the frames of the wire itself.
struct Forger {
    endpoint: Endpoint,
    bank: String,
}

impl Forger {
    fn new() -> Forger {
        let context = Context::new().unwrap();
        let endpoint = Endpoint::create(context.default_device(), cci::Options::default()).unwrap();
        Forger { endpoint, bank: std::env::var(BANK).unwrap() }
    }

    fn connect(&mut self, from: &str) -> Connection {
        let hello = hello_of(std::process::id().into(), from, "bank", true);
        let attribute = Attribute::ReliableOrdered;
        self.endpoint.connect(&self.bank, &hello, attribute, 0, Some(PATIENCE)).unwrap();
        self.until(|event| match event {
            Core::Connect { result, .. } => Some(result.unwrap()),
            _ => None,
        })
    }

    fn until<T>(&mut self, mut look: impl FnMut(Core) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            while let Some(event) = self.endpoint.next_event() {
                if let Some(found) = look(event) {
                    return found;
                }
            }
            assert!(began.elapsed() < PATIENCE, "nothing came");
            let _woken = self.endpoint.wait_any(Some(Duration::from_millis(20)));
        }
    }

    /// Sends a frame as soon as there is space. What comes meanwhile is given to `look`.
    fn sends(&mut self, connection: Connection, bytes: &[u8], mut look: impl FnMut(&cci::Message)) {
        let began = Instant::now();
        loop {
            while let Some(event) = self.endpoint.next_event() {
                if let Core::Recv(message) = event {
                    look(&message);
                }
            }
            if self.endpoint.send(connection, bytes, 0, SendFlags::SILENT).is_ok() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no space");
        }
    }
}

/// Frames that are none, each over a connection of its own.
fn lies() {
    let (mut forger, ends) = (Forger::new(), is_to_end());
    let good = frame(1, [0; 3], &[b"text"], &[]);
    let mut wrong = vec![good[..20].to_vec(), [&good[..], b"x"].concat(), Vec::new()];
    wrong.push(frame(1, [0; 3], &[], &[long_item(0, [0; 32], u64::MAX)]));
    let (mut closed, mut got) = (0, 0);
    while closed < 40 || !ends.load(Ordering::Relaxed) {
        let connection = forger.connect("liar");
        forger.sends(connection, &wrong[closed % wrong.len()], |_| {});
        forger.until(|event| {
            got += usize::from(matches!(event, Core::Recv(_)));
            matches!(event, Core::Disconnected { .. }).then_some(())
        });
        closed += 1;
        if closed == 1 {
            say("at work");
        }
    }
    say(&format!("{closed} connections closed, {got} messages"));
}

/// Messages and requests without end.
fn floods() {
    let (mut forger, ends) = (Forger::new(), is_to_end());
    let connection = forger.connect("liar");
    let (mut sent, mut answered, mut busy) = (0_u64, 0_u64, 0_u64);
    while sent < 20_000 || !ends.load(Ordering::Relaxed) {
        sent += 1;
        let bytes = if sent % 2 == 0 {
            frame(1, [0; 3], &[b"flood"], &[])
        } else {
            frame(2, [sent, 1, 0], &[b"flood"], &[])
        };
        forger.sends(connection, &bytes, |message| {
            answered += u64::from(message[0] == 3);
            busy += u64::from(message[0] == 5);
        });
        if sent == 1_000 {
            say("at work");
        }
    }
    say(&format!("{sent} frames taken, {answered} answered, {busy} asked to come later"));
}

/// Whether a frame is an answer to what the poser has asked, or says that there is none.
fn is_own(message: &[u8]) -> bool {
    matches!(message.first(), Some(4 | 5)) || message.ends_with(b"posed")
}

/// Says that it is the honest client, and must get nothing of what that one is sent.
fn poses() {
    let (mut forger, ends) = (Forger::new(), is_to_end());
    let (mut own, mut others) = (0_u64, 0_u64);
    let mut number = 0;
    while number < 200 || !ends.load(Ordering::Relaxed) {
        if number % 20 == 0 {
            let connection = forger.connect("honest");
            number += 1;
            forger.sends(connection, &frame(2, [number, number, 0], &[b"posed"], &[]), |_| {});
            forger.until(|event| match event {
                Core::Recv(message) => {
                    let is_own = is_own(&message);
                    (own, others) = (own + u64::from(is_own), others + u64::from(!is_own));
                    Some(())
                }
                Core::Disconnected { .. } => Some(()),
                _ => None,
            });
            if number == 1 {
                say("at work");
            }
            continue;
        }
        number += 1;
        while let Some(event) = forger.endpoint.next_event() {
            if let Core::Recv(message) = event {
                let is_own = is_own(&message);
                (own, others) = (own + u64::from(is_own), others + u64::from(!is_own));
            }
        }
        let _woken = forger.endpoint.wait_any(Some(Duration::from_millis(1)));
    }
    assert_eq!((others, own > 0), (0, true), "messages of another's");
    say("answers to its own requests, none of another's");
}

/// Guesses leases and return buffers of others.
fn guesses() {
    let (mut forger, ends) = (Forger::new(), is_to_end());
    let connection = forger.connect("liar");
    let (mut guessed, mut got) = (0_u64, 0_u64);
    while guessed < 2_000 || !ends.load(Ordering::Relaxed) {
        let number = (guessed / 16 % 64) << 32 | (guessed % 16);
        let mut handle = [0; 32];
        handle[..8].copy_from_slice(&number.to_le_bytes());
        for bytes in [
            frame(7, [1, 0, number], &[], &[]),
            frame(1, [0; 3], &[], &[long_item(1, handle, 10)]),
            frame(3, [guessed % 400, 0, 0], &[b"forged"], &[]),
        ] {
            forger.sends(connection, &bytes, |_| got += 1);
        }
        guessed += 1;
        if guessed == 100 {
            say("at work");
        }
    }
    say(&format!("{guessed} guesses, {got} messages"));
}

#[test]
fn hostile_processes_cost_an_honest_pair_nothing_but_time() {
    let mut table = String::new();
    for device in ["shm", "udp", "tcp"] {
        let world = World::new();
        let config = world.file("cci.ini", &format!("[{device}]\ntransport = {device}\n"));
        let mut bank = world.start(&config, "bank", "");
        let uri = bank.says();
        for attack in ["lies", "floods", "poses", "guesses", "stalls", "dies"] {
            let mut hostile = world.start(&config, attack, &uri);
            assert_eq!(hostile.says(), "at work");
            match attack {
                "stalls" => hostile.signal(Signal::Stop),
                "dies" => hostile.signal(Signal::Kill),
                _ => {}
            }
            let served = world.start(&config, "honest", "").says();
            let got = match attack {
                "stalls" => {
                    hostile.signal(Signal::Continue);
                    hostile.says()
                }
                "dies" => "nothing".to_owned(),
                _ => hostile.ends(),
            };
            assert!(
                served.starts_with(&format!("{CALLS} calls answered")),
                "{attack} over {device}: {served}"
            );
            assert!(bank.child.try_wait().unwrap().is_none(), "the service lives");
            table += &format!("| {device} | {attack} | {got} | {served} |\n");
        }
    }
    println!("| device | attack | the attacker got | the honest client |\n|---|---|---|---|\n{table}");
}

/// Calls a service, as a service of its own name, if what is there has proved to be `owner`.
fn asks(own: &str, service: &str, owner: &str, timeout_ms: u64) {
    let owner = if owner == "anybody" { Names::Everyone } else { Names::parse(owner).unwrap() };
    let policy = Policy::default().rule(service, owner, Names::Everyone);
    let mut node = Node::open(Options::default().policy(policy)).unwrap();
    let me = node.register(&name(own)).unwrap();
    let to: Partner = node.partner(me, &name(service)).unwrap();
    let options = CallOptions::default().timeout(Duration::from_millis(timeout_ms));
    say(&match node.call_blocking(to, b"hello", options) {
        Ok(answer) if answer.item(0) == b"hello" => "answered".to_owned(),
        Ok(answer) => format!("{answer:?}"),
        Err(CallError::TimedOut { reached: false, reason: Some(ReachError::NotThere { .. }) }) => {
            "not let in".to_owned()
        }
        Err(CallError::TimedOut { reached: false, reason: Some(ReachError::WrongIdentity { .. }) }) => {
            "another is there".to_owned()
        }
        Err(error) => format!("{error:?}"),
    });
}

/// What a process of this role says of its call. A busy machine may be too slow to be refused in time, so that is tried again; an answer is final.
fn outcome(world: &World, config: &Path, role: &str, expected: &str) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let said = world.start(config, role, "").says();
        if said == expected || said == "answered" || Instant::now() > until {
            return said;
        }
    }
}

/// Time enough for a call that is answered, and mostly for one that is refused, ms.
const LONG_MS: u64 = 100_000;
const SHORT_MS: u64 = 1_500;

#[test]
fn keys_say_who_may_have_which_name_and_reach_which_service() {
    for device in ["udp", "tcp"] {
        let world = World::new();
        let teller = "teller = 5b1f6a6f0d1c2e0f7a5b3c4d9e8f7061524334251607f8e9dacbbcad9e8f7062\n".to_owned();
        let stranger =
            "stranger = 7b4a1f2e3d5c6b7a8998a7b6c5d4e3f20112233445566778899aabbccddeeff1\n".to_owned();
        let section = |keys: &str, file: &str| {
            let keys = world.file(&format!("{file}.psk"), keys);
            let section = format!(
                "[lan]\ntransport = {device}\nip = 127.0.0.1\nsecurity = psk\npsk_file = {}\n",
                keys.display()
            );
            world.file(&format!("{file}.ini"), &section)
        };
        let of_bank = section(&[&*teller, &stranger].concat(), "bank");
        let (of_teller, of_stranger) = (section(&teller, "teller"), section(&stranger, "stranger"));
        let mut bank = world.start(&of_bank, "guarded teller", "");
        bank.says();
        for (config, role, expected) in [
            (&of_teller, format!("asks branch-1 bank teller {LONG_MS}"), "answered"),
            (&of_stranger, format!("asks customer info anybody {LONG_MS}"), "answered"),
            (&of_stranger, format!("asks customer bank anybody {SHORT_MS}"), "not let in"),
            (&of_stranger, format!("asks branch-2 info anybody {SHORT_MS}"), "not let in"),
            (&of_teller, format!("asks branch-3 vault anybody {SHORT_MS}"), "not let in"),
            (&of_teller, format!("asks branch-4 bank somebody-else {SHORT_MS}"), "another is there"),
        ] {
            assert_eq!(outcome(&world, config, &role, expected), expected, "{role} over {device}");
        }
    }
}

#[test]
fn certificates_say_who_may_have_which_name_and_reach_which_service() {
    let folder = cci_testkit::credentials::folder().display();
    for device in ["udp", "tcp"] {
        let world = World::new();
        let config = world.file(
            "cci.ini",
            &format!(
                "[lan]\ntransport = {device}\nip = 127.0.0.1\nsecurity = certificates\n\
                 certificate = {folder}/node1.pem\nprivate_key = {folder}/node1.key\nauthorities = {folder}/authority.pem\n"
            ),
        );
        for (allowed, own, service, owner, expected) in [
            ("*.cci.test", "branch-1", "bank", "storage.cci.test", "answered"),
            ("other.cci.test", "customer", "bank", "anybody", "not let in"),
            ("other.cci.test", "branch-1", "info", "anybody", "not let in"),
            ("*.cci.test", "branch-1", "bank", "other.cci.test", "another is there"),
        ] {
            let mut bank = world.start(&config, &format!("guarded {allowed}"), "");
            bank.says();
            let timeout_ms = if expected == "answered" { LONG_MS } else { SHORT_MS };
            let role = format!("asks {own} {service} {owner} {timeout_ms}");
            assert_eq!(outcome(&world, &config, &role, expected), expected, "{role} over {device}");
        }
    }
}
