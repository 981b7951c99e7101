//! A program's life in stages, each of which may fail and be tried again.

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Context, CreateError, Device, Endpoint,
    Event, Memory, Options, RegionAddress, RegionHandle, RmaFlags, SendFlags, Status,
};
use cci_testkit::conformance::{DeviceUnderTest, config};
use cci_testkit::net::{End, Veth};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an attempt to connect, or a send, may take.
const TIMEOUT: Duration = Duration::from_millis(500);
/// And anything that is certain to come.
const PATIENCE: Duration = Duration::from_secs(60);
const AREA_BYTES: usize = 256 << 10;
const NEAR: usize = 0;
const FAR: usize = 1;

/// What a program does, in this order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    OpenFar,
    OpenNear,
    Connect,
    Talk,
    ConnectAgain,
    Allocate,
    Move,
    Register,
    MoreBuffers,
    Sleep,
}

pub const STAGES: [Stage; 10] = [
    Stage::OpenFar,
    Stage::OpenNear,
    Stage::Connect,
    Stage::Talk,
    Stage::ConnectAgain,
    Stage::Allocate,
    Stage::Move,
    Stage::Register,
    Stage::MoreBuffers,
    Stage::Sleep,
];

/// How a stage failed.
#[derive(Debug)]
pub enum Failure {
    /// A call returned an error: its text.
    Call(String),
    /// An event reported it: the peer, or the network, did something or did not.
    Event(String),
}

type Wanted = (Device, Options);
type Opened = Result<Endpoint, CreateError>;

/// A thread that is in another namespace all the time: going there and back takes descriptors.
struct There {
    wanted: Option<Sender<Wanted>>,
    opened: Receiver<Opened>,
    thread: Option<JoinHandle<()>>,
}

impl There {
    fn new(network: &Veth) -> There {
        let (wanted, to_open) = channel::<Wanted>();
        let (created, opened) = channel();
        let there = network.namespace(End::B);
        let thread = std::thread::spawn(move || {
            let _inside = there.enter().expect("who made it may enter it");
            let ready = created.send(Err(CreateError::DeviceDown));
            ready.expect("it is waited for");
            for (device, options) in to_open {
                created.send(Endpoint::create(&device, options)).expect("it is waited for");
            }
        });
        // It is there now.
        let _ = opened.recv();
        There { wanted: Some(wanted), opened, thread: Some(thread) }
    }

    fn open(&self, device: Device, options: Options) -> Opened {
        self.wanted.as_ref().expect("until dropped").send((device, options)).expect("it listens");
        self.opened.recv().expect("it answers")
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Two endpoints and what they have.
pub struct Scene {
    sections: [Device; 2],
    /// Where the far end is another namespace.
    there: Option<There>,
    timeout: Duration,
    /// The cap of each endpoint.
    pub memory_bytes_max: u64,
    ends: [Option<Endpoint>; 2],
    connections: Vec<[Connection; 2]>,
    areas: [Option<(Memory, RegionHandle)>; 2],
    own: Option<RegionHandle>,
    memory: Option<Memory>,
    buffers: u32,
    attempt: u64,
    round: u8,
    /// The test's own large memory, had before anything runs out.
    fill: Vec<u8>,
    seen: Vec<u8>,
    program: Option<Box<[u8]>>,
}

fn call<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|error| Failure::Call(error.to_string()))
}

impl Scene {
    pub fn new(about: &DeviceUnderTest, network: Option<&Veth>) -> Scene {
        let section = |name: &str| {
            let context = Context::from_text(&config(), Path::new("exhaustion.ini")).expect("it is right");
            context.device(name).expect("the configuration names it").clone()
        };
        let across = network.filter(|_| about.name == "udp-bonded");
        let near = section(about.name);
        // Which of them are up depends on where that is asked.
        let _there = across.map(|veth| veth.enter(End::B));
        Scene {
            sections: [near, section(about.peer.unwrap_or(about.name))],
            there: across.map(There::new),
            timeout: TIMEOUT,
            memory_bytes_max: Options::default().memory_bytes_max,
            ends: [None, None],
            connections: Vec::new(),
            areas: [None, None],
            own: None,
            memory: None,
            buffers: 1_024,
            attempt: 0,
            round: 0,
            fill: vec![0; AREA_BYTES],
            seen: vec![0; AREA_BYTES],
            program: Some(vec![7; 64 << 10].into_boxed_slice()),
        }
    }

    /// The device of the near end.
    pub fn device(&self) -> &Device {
        &self.sections[NEAR]
    }

    pub fn run(&mut self, stage: Stage) -> Result<(), Failure> {
        match stage {
            Stage::OpenFar => self.open(FAR),
            Stage::OpenNear => self.open(NEAR),
            Stage::Connect => self.connect_up_to(1, Attribute::ReliableOrdered),
            Stage::Talk => self.talk(),
            Stage::ConnectAgain => self.connect_up_to(2, Attribute::ReliableUnordered),
            Stage::Allocate => self.allocate(),
            Stage::Move => self.move_memory(),
            Stage::Register => self.register(),
            Stage::MoreBuffers => self.more_buffers(),
            Stage::Sleep => self.sleep(),
        }
    }

    fn open(&mut self, end: usize) -> Result<(), Failure> {
        let (send_timeout, memory_bytes_max) = (self.timeout, self.memory_bytes_max);
        let options = Options::default().send_timeout(send_timeout).memory_bytes_max(memory_bytes_max);
        let device = self.sections[end].clone();
        let opened = match self.there.as_ref().filter(|_| end == FAR) {
            Some(there) => there.open(device, options),
            None => Endpoint::create(&device, options),
        };
        self.ends[end] = Some(call(opened)?);
        Ok(())
    }

    /// From now on everything has time: what is expected to succeed must not fail on a busy machine.
    pub fn be_patient(&mut self) {
        self.timeout = PATIENCE / 2;
        let timeout = self.timeout;
        for (end, endpoint) in self.ends.iter_mut().enumerate() {
            let Some(endpoint) = endpoint else { continue };
            endpoint.set_default_send_timeout(timeout);
            for pair in &self.connections {
                // One that has ended has no timeout to be set.
                let _ = endpoint.set_send_timeout(pair[end], timeout);
            }
        }
    }

    fn both(&mut self) -> [&mut Endpoint; 2] {
        self.ends.each_mut().map(|end| end.as_mut().expect("opened before"))
    }

    /// Connections that are open; others are let go.
    fn drop_closed(&mut self) {
        let connections = std::mem::take(&mut self.connections);
        for pair in connections {
            let [near, far] = self.both();
            if near.is_open(pair[NEAR]) && far.is_open(pair[FAR]) {
                self.connections.push(pair);
            } else {
                near.disconnect(pair[NEAR]);
                far.disconnect(pair[FAR]);
            }
        }
    }

    fn connect_up_to(&mut self, count: usize, attribute: Attribute) -> Result<(), Failure> {
        self.drop_closed();
        while self.connections.len() < count {
            self.connect(attribute)?;
        }
        Ok(())
    }

    fn connect(&mut self, attribute: Attribute) -> Result<(), Failure> {
        self.attempt += 1;
        let (attempt, timeout) = (self.attempt, self.timeout);
        let [near, far] = self.both();
        call(near.connect(far.uri(), &attempt.to_le_bytes(), attribute, attempt, Some(timeout)))?;
        let (mut ours, mut theirs, mut refused) = (None, None, None);
        let started = Instant::now();
        while ours.is_none() || theirs.is_none() && ours.is_some_and(|ours: Result<_, _>| ours.is_ok()) {
            assert!(started.elapsed() < PATIENCE, "{ours:?}, {theirs:?}: no event after connect");
            match far.next_event() {
                Some(Event::ConnectRequest(request)) if *request.data() == attempt.to_le_bytes() => {
                    if let Err(error) = far.accept(request, attempt) {
                        refused = Some(error.to_string());
                    }
                }
                Some(Event::Accept { context, result }) if context == attempt => theirs = Some(result),
                _ => {}
            }
            match near.next_event() {
                Some(Event::Connect { context, result }) if context == attempt => ours = Some(result),
                _ => {}
            }
            if refused.is_some() && ours.is_some() {
                break;
            }
        }
        match (ours, theirs) {
            (Some(Ok(ours)), Some(Ok(theirs))) => {
                self.connections.push([ours, theirs]);
                return Ok(());
            }
            (Some(Ok(ours)), _) => near.disconnect(ours),
            (_, Some(Ok(theirs))) => far.disconnect(theirs),
            _ => {}
        }
        if let Some(refused) = refused {
            return Err(Failure::Call(refused));
        }
        let failed = ours.and_then(Result::err).or(theirs.and_then(Result::err));
        Err(Failure::Event(failed.map_or("one side only".to_owned(), |why| why.to_string())))
    }

    /// Messages both ways over all connections, and every one is looked at.
    pub fn talk(&mut self) -> Result<(), Failure> {
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        for pair in self.connections.clone() {
            for (from, to) in [(NEAR, FAR), (FAR, NEAR)] {
                for len in [1, 100, 1_400] {
                    let message = vec![round ^ len as u8; len];
                    let [near, far] = self.both();
                    let (sender, receiver) = if from == NEAR { (near, far) } else { (far, near) };
                    call(sender.send(pair[from], &message, u64::from(round), SendFlags::NONE))?;
                    exchange(sender, receiver, pair[to], &message)?;
                }
            }
        }
        Ok(())
    }

    fn allocate(&mut self) -> Result<(), Failure> {
        for end in [NEAR, FAR] {
            if self.areas[end].is_some() {
                continue;
            }
            let endpoint = self.ends[end].as_mut().expect("opened before");
            let memory = call(endpoint.allocate(AREA_BYTES))?;
            let handle = call(endpoint.register(&memory, Access::ALL))?;
            self.areas[end] = Some((memory, handle));
        }
        Ok(())
    }

    /// There and back, and an atomic.
    fn move_memory(&mut self) -> Result<(), Failure> {
        self.drop_closed();
        self.connect_up_to(2, Attribute::ReliableOrdered)?;
        self.round = self.round.wrapping_add(1);
        let (fill, seen) = (&mut self.fill, &mut self.seen);
        fill.fill(self.round);
        seen.fill(0);
        let [Some((local, package_folder)), Some((remote, there))] = &self.areas else {
            panic!("allocated before")
        };
        let (package_folder, there) = (RegionAddress::new(*package_folder, 0), RegionAddress::new(*there, 0));
        assert!(local.write(0, fill) && remote.write(0, seen));
        let connection = self.connections[0][NEAR];
        let len = AREA_BYTES as u64;
        let [near, far] = self.ends.each_mut().map(|end| end.as_mut().expect("opened before"));
        call(near.rma_write(connection, package_folder, there, len, 1, RmaFlags::NONE))?;
        complete(near, far)?;
        assert!(local.write(0, seen) && remote.read(0, seen) && seen == fill, "written");
        call(near.rma_read(connection, package_folder, there, len, 1, RmaFlags::NONE))?;
        complete(near, far)?;
        seen.fill(0);
        assert!(local.read(0, seen) && seen == fill, "read");
        let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        call(near.atomic(connection, add, there, Some(package_folder), 1, RmaFlags::NONE))?;
        complete(near, far)
    }

    /// Memory of the program's own.
    fn register(&mut self) -> Result<(), Failure> {
        if self.own.is_none() {
            if let Some(bytes) = self.program.take() {
                self.memory = Some(Memory::foreign(cci::Foreign::owned(bytes)));
            }
            let near = self.ends[NEAR].as_mut().expect("opened before");
            let memory = self.memory.as_ref().expect("made above");
            self.own = Some(call(near.register(memory, Access::ALL))?);
        }
        Ok(())
    }

    fn more_buffers(&mut self) -> Result<(), Failure> {
        let count = self.buffers + 512;
        for endpoint in self.both() {
            call(endpoint.set_recv_buffers(count))?;
        }
        Ok(())
    }

    /// Waits until the time is up, and until something comes.
    fn sleep(&mut self) -> Result<(), Failure> {
        self.connect_up_to(1, Attribute::ReliableOrdered)?;
        let pair = self.connections[0];
        let [near, far] = self.both();
        while call(far.wait(Some(Duration::from_millis(2))))?.is_some() {}
        call(near.send(pair[NEAR], b"wake up", 9, SendFlags::NONE))?;
        exchange(near, far, pair[FAR], b"wake up")
    }
}

fn exchange(
    sender: &mut Endpoint,
    receiver: &mut Endpoint,
    on: Connection,
    message: &[u8],
) -> Result<(), Failure> {
    let (mut came, mut ended) = (false, None);
    let started = Instant::now();
    while ended.is_none() || !came && ended == Some(Status::Success) {
        assert!(started.elapsed() < PATIENCE, "came: {came}, ended: {ended:?}");
        match receiver.next_event() {
            Some(Event::Recv(received)) if received.connection() == on => {
                assert!(*received == *message, "another message than was sent");
                came = true;
            }
            _ => {}
        }
        if let Some(Event::Send { status, .. }) = sender.next_event() {
            ended = Some(status);
        }
    }
    match ended {
        Some(Status::Success) | None => Ok(()),
        Some(other) => Err(Failure::Event(format!("{other:?}"))),
    }
}

fn complete(near: &mut Endpoint, far: &mut Endpoint) -> Result<(), Failure> {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE, "an operation does not end");
        far.next_event();
        match near.next_event() {
            Some(Event::Send { status: Status::Success, .. }) => return Ok(()),
            Some(Event::Send { status, .. }) => return Err(Failure::Event(format!("{status:?}"))),
            _ => {}
        }
    }
}
