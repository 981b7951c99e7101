//! A victim, an honest peer beside it, hostile peers that follow scripts, and the judge. All of it runs in one thread, in turns.

use super::script::{Peer, Script, Wire};
use super::side::Side;
use super::stage::{Stage, device};
use cci::{Attribute, ConnectFailure, Connection, Endpoint, Options, RegionHandle, RmaKind, Status};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::time::{Duration, Instant};

/// Nothing that must happen takes as long, on the slowest machine. Only a test that fails waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Turns in which nothing happened before the thread gives way to others.
const IDLE_TURNS: u32 = 50;
const IDLE: Duration = Duration::from_micros(50);
/// How long the judge watches a victim that has nothing to do.
const WATCH: Duration = Duration::from_millis(100);
/// Wake-ups that led to nothing: so many for each millisecond, and for each act of a hostile peer. Timers of the library are a
/// millisecond and more; an endpoint that spins wakes up some hundred times in a millisecond.
const WAKES_PER_MS: u64 = 5;
const WAKES_PER_ACT: u64 = 8;
/// Bytes of a message and of an operation between honest peers.
const HONEST_MESSAGE_BYTES: usize = 300;
const HONEST_OPERATION_BYTES: u64 = 5_000;
/// Sends of a race in one turn, to each.
const SENDS_PER_TURN: u32 = 32;
/// How often the victim's memory is looked at, in turns.
const TURNS_PER_LOOK: u64 = 64;

/// A handle of a hostile peer's region: any numbers will do.
pub fn handle_of_peer(region: u64) -> RegionHandle {
    let words = [region, 1 << 40, 0x0bad_cafe, 7];
    let mut bytes = [0; RegionHandle::BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    RegionHandle::from_bytes(bytes)
}

/// Names a hostile peer in its scene.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PeerId(usize);

impl PeerId {
    /// In requests; 0 is the honest peer.
    const fn number(self) -> u64 {
        self.0 as u64 + 1
    }
}

/// A victim, an honest peer beside it, and the liars.
pub struct Scene {
    /// Whom the hostile peers attack.
    pub victim: Side,
    /// An endpoint that has done nothing wrong.
    pub honest: Side,
    /// How long the victim tries to connect to a hostile peer that listens.
    pub connect_timeout: Duration,
    peers: Vec<Box<dyn Peer>>,
    /// The victim's connection with the honest endpoint, and that one's with the victim.
    links: [Connection; 2],
    rounds: u64,
    turns: u64,
    /// The most that the victim was seen to hold.
    memory_bytes_seen: u64,
    stage: Stage,
}

impl Scene {
    /// A victim with these options on a device of this name ([`Stage::find`]), connected with an honest peer. None: this
    /// machine has no such device, and that was printed.
    pub fn open(name: &str, options: Options) -> Option<Scene> {
        Some(Scene::on(Stage::find(name)?, options))
    }

    /// Makes a scene on a stage of the test's own.
    pub fn on(stage: Stage, options: Options) -> Scene {
        let open = |config: &str, options: Options| {
            Side::new(Endpoint::create(&device(config), options).expect("an endpoint"))
        };
        let honest_options = Options::default().send_timeout(2 * PATIENCE);
        let (victim, honest) = (open(&stage.victim, options), open(&stage.peers, honest_options));
        let nobody = Connection::from_bits(u64::MAX);
        let mut scene = Scene {
            victim,
            honest,
            connect_timeout: PATIENCE,
            peers: Vec::new(),
            links: [nobody; 2],
            rounds: 0,
            turns: 0,
            memory_bytes_seen: 0,
            stage,
        };
        let uri = scene.victim.endpoint.uri().to_owned();
        let attribute = Attribute::ReliableOrdered;
        let connecting = scene.honest.endpoint.connect(&uri, b"honest", attribute, 0, Some(PATIENCE));
        connecting.expect("the honest peer may connect");
        scene.until("the honest peer is connected", |scene| {
            let ends = [&scene.victim, &scene.honest].map(|side| side.met.get(&0)?.connection);
            let [Some(victims), Some(own)] = ends else { return false };
            scene.links = [victims, own];
            true
        });
        // The victim's sends to the honest peer may take as long as that peer is given.
        let set = scene.victim.endpoint.set_send_timeout(scene.links[0], 2 * PATIENCE);
        set.expect("it is open");
        scene.exchange(4);
        scene
    }

    /// The stage that the scene plays on.
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Has a hostile peer follow its script from now on. Where the script listens, the victim connects to it.
    pub fn add<W: Wire>(&mut self, script: Script<W>) -> PeerId {
        let id = PeerId(self.peers.len());
        let peer = script.start(&self.victim.site(id.number())).expect("sockets for a hostile peer");
        self.peers.push(peer);
        if let Some(peer) = self.peers.last_mut() {
            peer.turn();
            if let Some(uri) = peer.uri() {
                let (request, attribute) = (b"victim", Attribute::ReliableOrdered);
                let connecting = self.victim.endpoint.connect(
                    &uri,
                    request,
                    attribute,
                    id.number(),
                    Some(self.connect_timeout),
                );
                connecting.expect("the victim may connect");
            }
        }
        id
    }

    /// Adds a hostile peer, and waits until the victim has a connection with it.
    pub fn join<W: Wire>(&mut self, script: Script<W>) -> PeerId {
        let id = self.add(script);
        self.until("the hostile peer is connected", |scene| scene.has_met(id));
        id
    }

    /// Adds as many peers of one script, one after the other.
    pub fn crowd<W: Wire>(&mut self, count: usize, script: &Script<W>) -> Vec<PeerId> {
        (0..count).map(|_| self.add(script.clone())).collect()
    }

    /// Whether the victim has had a connection with a hostile peer.
    pub fn has_met(&self, id: PeerId) -> bool {
        self.victim.met.get(&id.number()).is_some_and(|met| met.connection.is_some())
    }

    /// Where others than the victim can connect to a hostile peer.
    pub fn addresses(&self, id: PeerId) -> Vec<String> {
        self.peers[id.0].addresses()
    }

    /// Attempts to connect with a hostile peer that have failed, whoever made them.
    pub fn failed(&self, id: PeerId) -> u32 {
        self.victim.met.get(&id.number()).map_or(0, |met| met.failed)
    }

    /// Why the last attempt to connect with it failed.
    pub fn failure(&self, id: PeerId) -> Option<ConnectFailure> {
        self.victim.met.get(&id.number())?.failure
    }

    /// A new honest endpoint connects with the victim, says a word, and leaves.
    pub fn newcomer(&mut self) {
        let endpoint = Endpoint::create(&device(&self.stage.peers), Options::default()).expect("an endpoint");
        let (mut side, uri) = (Side::new(endpoint), self.victim.endpoint.uri().to_owned());
        let (attribute, before) = (Attribute::ReliableOrdered, self.victim.received_in_all());
        let connecting = side.endpoint.connect(&uri, b"newcomer", attribute, 0, Some(PATIENCE));
        connecting.expect("a newcomer may connect");
        let mut connection = None;
        self.until("a newcomer has got in and said a word", |scene| {
            side.turn();
            if let Some(met) = side.met.remove(&0) {
                connection = met.connection;
                let to = connection.expect("a newcomer is let in");
                side.send(to, b"a word").expect("it has nothing under way");
            }
            scene.victim.received_in_all() > before
        });
        // An endpoint that is dropped waits for its peers, and the victim would not answer meanwhile.
        if let Some(connection) = connection {
            side.endpoint.disconnect(connection);
            self.until("a newcomer has left", |_| {
                side.turn();
                side.endpoint.attribute(connection).is_none()
            });
        }
    }

    /// Requests of a hostile peer that the victim's program was shown.
    pub fn requests(&self, id: PeerId) -> u32 {
        self.victim.met.get(&id.number()).map_or(0, |met| met.requests)
    }

    /// The victim's connection with a hostile peer.
    pub fn connection(&self, id: PeerId) -> Connection {
        let met = self.victim.met.get(&id.number());
        met.and_then(|met| met.connection).expect("the victim has a connection with it")
    }

    /// The victim sends to a hostile peer as often as it is let, `times` at most. How often that was.
    pub fn send(&mut self, id: PeerId, times: u32) -> u32 {
        let (to, message) = (self.connection(id), [7; 200]);
        (0..times).take_while(|_| self.victim.send(to, &message).is_ok()).count() as u32
    }

    /// The victim starts operations on the memory of a hostile peer as often as it is let, `times` at most.
    pub fn operate(
        &mut self,
        id: PeerId,
        times: u32,
        kind: RmaKind,
        len_bytes: u64,
        message: Option<&[u8]>,
    ) -> u32 {
        let (to, theirs) = (self.connection(id), handle_of_peer(0x55));
        let mut start = || self.victim.operate(to, kind, theirs, len_bytes, message).is_ok();
        (0..times).take_while(|_| start()).count() as u32
    }

    /// The victim's program is done with a hostile peer.
    pub fn disconnect(&mut self, id: PeerId) {
        let connection = self.connection(id);
        self.victim.endpoint.disconnect(connection);
    }

    /// One turn of everybody. Whether anything happened.
    pub fn turn(&mut self) -> bool {
        self.turns += 1;
        let mut moved = self.victim.turn() | self.honest.turn();
        for peer in &mut self.peers {
            moved |= peer.turn();
        }
        if self.turns.is_multiple_of(TURNS_PER_LOOK) {
            self.look_at_memory();
        }
        moved
    }

    fn look_at_memory(&mut self) {
        let (held, cap) = self.victim.memory_bytes();
        self.memory_bytes_seen = self.memory_bytes_seen.max(held);
        assert!(held <= cap, "{held} of {cap} bytes: {:#?}", self.victim.endpoint.counters().memory);
    }

    /// The most memory that the victim was seen to hold.
    pub fn memory_bytes_seen(&self) -> u64 {
        self.memory_bytes_seen
    }

    /// Takes turns until it is so. The test fails if that takes longer than [`PATIENCE`].
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Scene) -> bool) {
        let (start, mut idle) = (Instant::now(), 0);
        while !done(self) {
            self.pass(&mut idle);
            assert!(start.elapsed() < PATIENCE, "not so: {what}\n{}", self.state());
        }
    }

    /// Takes turns for so long.
    pub fn for_time(&mut self, time: Duration) {
        let (start, mut idle) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.pass(&mut idle);
        }
    }

    fn pass(&mut self, idle: &mut u32) {
        *idle = if self.turn() { 0 } else { *idle + 1 };
        if *idle > IDLE_TURNS {
            std::thread::sleep(IDLE);
        }
    }

    fn state(&self) -> String {
        let waits: Vec<_> = self.peers.iter().take(8).map(|peer| peer.waits_for()).collect();
        let (victims, honest) = (self.victim.open_in_all(), self.honest.open_in_all());
        format!(
            "{} rounds; not ended: {victims} of the victim's, {honest} of the honest peer's; hostile peers wait for {waits:?}\n{:#?}",
            self.rounds,
            self.victim.endpoint.counters()
        )
    }

    /// Takes turns until the scripts of all hostile peers are over.
    pub fn until_over(&mut self) {
        self.until("all scripts are over", |scene| scene.peers.iter().all(|peer| peer.is_over()));
    }

    /// Takes turns until all that the victim has started towards a hostile peer has ended; how.
    pub fn until_ended(&mut self, id: PeerId) -> Vec<Status> {
        let to = self.connection(id);
        self.until("all that was started towards the hostile peer ends", |scene| scene.victim.open(to) == 0);
        self.victim.ends_of(to).into_iter().flatten().collect()
    }

    /// The victim and the honest peer exchange messages and work on each other's memory, so many rounds. In each round both
    /// sides send, write with a message, and read; all of it succeeds, once, and nobody is refused while it has nothing under way.
    pub fn exchange(&mut self, rounds: u64) {
        for _ in 0..rounds {
            let round = self.rounds;
            let before = self.counts();
            self.start_round(round);
            self.until("the honest peers have completed a round", |scene| {
                let open = [(&scene.victim, scene.links[0]), (&scene.honest, scene.links[1])];
                open.iter().all(|(side, to)| side.open(*to) == 0)
                    && scene.counts().iter().zip(&before).all(|(now, then)| *now >= then + 2)
            });
            let came = self.counts();
            assert_eq!(came, before.map(|count| count + 2), "messages of round {round}");
            self.look_at_round(round);
            self.rounds += 1;
        }
    }

    /// The victim sends to the honest peer and to a hostile one in turn, as often as it is let, until `messages` to the honest one
    /// have been acknowledged. How many were of each. The honest one is never refused while nothing to it is under way.
    pub fn race(&mut self, id: PeerId, messages: u64) -> [u64; 2] {
        let (to_honest, to_hostile) = (self.links[0], self.connection(id));
        let before = [to_honest, to_hostile].map(|to| self.victim.ended(to)[0]);
        let came = self.counts()[1];
        self.until("the honest peer has got its messages", |scene| {
            let is_idle = scene.victim.open(to_honest) == 0;
            let sent = scene.victim.send(to_honest, &[7; 400]);
            assert!(sent.is_ok() || !is_idle, "{sent:?}, though nothing to it is under way");
            // As many as it is let. Whoever lies too much loses its connection.
            for to in [to_honest, to_hostile] {
                for _ in 0..SENDS_PER_TURN {
                    if scene.victim.send(to, &[7; 400]).is_err() {
                        break;
                    }
                }
            }
            scene.victim.ended(to_honest)[0] >= before[0] + messages
        });
        self.until("all sends to the honest peer end", |scene| scene.victim.open(to_honest) == 0);
        assert_eq!(self.victim.ended(to_honest)[1], 0, "sends to the honest peer have failed");
        let got = [to_honest, to_hostile].map(|to| self.victim.ended(to)[0]);
        let expected = came + got[0] - before[0];
        self.until("all that was acknowledged is delivered", |scene| scene.counts()[1] >= expected);
        assert_eq!(self.counts()[1], expected, "each message comes once");
        [got[0] - before[0], got[1] - before[1]]
    }

    /// The victim sends so many messages to the honest peer, as fast as it is let; all of them succeed.
    pub fn stream(&mut self, len_bytes: usize, messages: u64) {
        let (to, message) = (self.links[0], vec![7; len_bytes]);
        let (start, mut sent) = (self.victim.ended(to), 0);
        self.until("the messages of a stream have arrived", |scene| {
            while sent < messages && scene.victim.send(to, &message).is_ok() {
                sent += 1;
            }
            scene.victim.ended(to)[0] >= start[0] + messages
        });
        assert_eq!(self.victim.ended(to), [start[0] + messages, start[1]]);
    }

    /// How long something takes, to be compared with something else of the same run.
    pub fn time_of(&mut self, what: impl FnOnce(&mut Scene)) -> Duration {
        let start = Instant::now();
        what(self);
        start.elapsed()
    }

    fn counts(&self) -> [u64; 2] {
        let count = |side: &Side, from| side.received.get(&from).copied().unwrap_or(0);
        [count(&self.victim, self.links[0]), count(&self.honest, self.links[1])]
    }

    fn start_round(&mut self, round: u64) {
        let message = [round as u8; HONEST_MESSAGE_BYTES];
        let data = [round as u8 ^ 0x5a; HONEST_OPERATION_BYTES as usize];
        let handles = [self.honest.shared_handle, self.victim.shared_handle];
        let sides = [&mut self.victim, &mut self.honest];
        for (number, ((side, theirs), to)) in sides.into_iter().zip(handles).zip(self.links).enumerate() {
            let who = ["the victim", "the honest peer"][number];
            side.keep_messages_of = Some(to);
            side.kept.clear();
            assert!(side.own.write(0, &data));
            let sent = side.send(to, &message);
            assert_eq!(sent, Ok(()), "{who} sends in round {round}: it has nothing under way");
            let len_bytes = HONEST_OPERATION_BYTES;
            let written = side.operate(to, RmaKind::Write, theirs, len_bytes, Some(&message));
            assert_eq!(written, Ok(()), "{who} writes in round {round}: it has nothing under way");
            let read = side.operate(to, RmaKind::Read, theirs, len_bytes, None);
            assert_eq!(read, Ok(()), "{who} reads in round {round}: it has only a write under way");
        }
    }

    /// What came in a round, and what is in both memories.
    fn look_at_round(&mut self, round: u64) {
        for (side, to) in [(&mut self.victim, self.links[0]), (&mut self.honest, self.links[1])] {
            assert_eq!(side.last_ends_of(to, 3), [Some(Status::Success); 3], "in round {round}");
            for message in side.kept.drain(..) {
                assert!(message == [round as u8; HONEST_MESSAGE_BYTES], "another message in round {round}");
            }
            let mut data = [0; HONEST_OPERATION_BYTES as usize];
            assert!(side.shared.read(0, &mut data));
            assert!(data == [round as u8 ^ 0x5a; HONEST_OPERATION_BYTES as usize], "memory in round {round}");
        }
    }

    /// The last word: honest peers still get all of theirs, memory is under its cap, and the victim does not spin when
    /// nobody wants anything of it. Hostile peers go on meanwhile.
    pub fn judge(&mut self) {
        self.exchange(20);
        self.look_at_memory();
        let (wakes, allowed) = self.watch();
        assert!(
            wakes <= allowed,
            "{wakes} wake-ups that led to nothing, {allowed} allowed: it spins\n{}",
            self.state()
        );
    }

    /// Watches a victim that has nothing to do, but for what hostile peers say: wake-ups that led to no event, and how many may be.
    pub fn watch(&mut self) -> (u64, u64) {
        let acts = |scene: &Scene| scene.peers.iter().map(|peer| peer.acts()).sum::<u64>();
        let (start, before) = (Instant::now(), acts(self));
        let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let mut wakes = 0;
        while start.elapsed() < WATCH {
            let mut ready = [PollFd::from_borrowed_fd(self.victim.endpoint.os_handle(), PollFlags::IN)];
            let woken = poll(&mut ready, Some(&millisecond)).is_ok_and(|count| count > 0);
            match self.victim.endpoint.next_event() {
                Some(event) => self.victim.take(event),
                None => wakes += u64::from(woken),
            }
            self.honest.turn();
            for peer in &mut self.peers {
                peer.turn();
            }
        }
        let ms = start.elapsed().as_millis() as u64;
        (wakes, 50 + WAKES_PER_MS * ms + WAKES_PER_ACT * (acts(self) - before))
    }
}
