//! One endpoint, two honest peers and a hostile one, each a process of its own: what a peer does that floods, or whose
//! messages the program keeps, does not keep the others from their share. Compared is what peers get within one run.
//!
//! `CCI_HOSTILE_MESSAGES` (2,000 if not given): messages that each honest peer has to get through beside the hostile one.

use super::processes::{Environment, Killed, PATIENCE, Role, messages};
use cci::{Connection, Device, Endpoint, Event, Message, Options, SendError, SendFlags};
use cci_testkit::figures;
use cci_testkit::hostile::device;
use std::time::{Duration, Instant};

/// Few, so that they run out.
const RECV_BUFFERS: u32 = 64;
/// Turns of a loop of nothing for each message that the program takes: some tens of microseconds.
const PROGRAM_SPINS: u32 = 3_000;
/// Sends that an honest peer has under way.
const HONEST_SENDS: u32 = 16;

/// A peer's process: sends until it is killed, or its connection is over.
pub fn send(role: &Role<'_>, device: &Device) {
    let mut endpoint = Endpoint::create(device, Options::default()).unwrap();
    endpoint.connect(role.uri, role.manner.as_bytes(), role.attribute, 0, Some(PATIENCE)).unwrap();
    let (start, text) = (Instant::now(), vec![b'x'; role.bytes]);
    let (mut connection, mut under_way) = (None, 0);
    while start.elapsed() < 2 * PATIENCE {
        let full = role.manner == "honest" && under_way >= HONEST_SENDS;
        let sent = match connection {
            Some(on) if !full => endpoint.send(on, &text, 0, SendFlags::NONE),
            _ => Err(SendError::WouldBlock),
        };
        let event = match sent {
            Ok(()) => {
                under_way += 1;
                endpoint.next_event()
            }
            Err(SendError::WouldBlock) => endpoint.wait(Some(Duration::from_millis(1))).unwrap(),
            Err(_) => return,
        };
        match event {
            Some(Event::Connect { result, .. }) => connection = Some(result.unwrap()),
            Some(Event::Send { .. }) => under_way -= 1,
            _ => {}
        }
    }
}

/// A peer as the endpoint sees it.
struct Seen {
    connection: Connection,
    is_honest: bool,
    received: u64,
}

struct Arena {
    server: Endpoint,
    place: Environment,
    seen: Vec<Seen>,
    /// Messages of the hostile that the program keeps, if it does.
    kept: Option<Vec<Message>>,
    children: Vec<Killed>,
}

impl Arena {
    /// None: this machine can't, and it was said why.
    fn open(name: &str) -> Option<Arena> {
        let place = Environment::find(name)?;
        let options = Options::default().recv_buffers(RECV_BUFFERS);
        let server = Endpoint::create(&device(&place.0.victim), options).unwrap();
        let (seen, children) = (Vec::new(), Vec::new());
        Some(Arena { server, place, seen, kept: None, children })
    }

    /// Starts a peer, and waits until it is connected.
    fn join(&mut self, name: &str, attribute: &str, bytes: u32) {
        let role = format!("{name} {attribute} {bytes} {}", self.server.uri());
        self.children.push(self.place.start(&role));
        let before = self.seen.len();
        self.until(|arena| arena.seen.len() > before);
    }

    fn until(&mut self, mut done: impl FnMut(&Arena) -> bool) {
        let start = Instant::now();
        while !done(self) {
            self.turn();
            assert!(start.elapsed() < PATIENCE, "{:?}\n{:#?}", self.received(), self.server.counters());
        }
    }

    /// The program: a few microseconds of work for each message, more than it takes to send one.
    fn turn(&mut self) {
        match self.server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                let is_honest = request.data() == b"honest";
                self.server.accept(request, is_honest.into()).unwrap();
            }
            Some(Event::Accept { context, result }) => {
                let connection = result.unwrap();
                self.seen.push(Seen { connection, is_honest: context == 1, received: 0 });
            }
            Some(Event::Recv(message)) => {
                let from = message.connection();
                let seen = self.seen.iter_mut().find(|seen| seen.connection == from).unwrap();
                seen.received += 1;
                (0..PROGRAM_SPINS).for_each(|_| std::hint::spin_loop());
                if let Some(kept) = self.kept.as_mut().filter(|_| !seen.is_honest) {
                    kept.push(message);
                }
            }
            _ => {}
        }
    }

    fn received(&self) -> Vec<(bool, u64)> {
        self.seen.iter().map(|seen| (seen.is_honest, seen.received)).collect()
    }

    /// Lets each honest peer get so many messages through; how many each peer got through meanwhile.
    fn race(&mut self, messages: u64) -> Vec<(bool, u64)> {
        let before = self.received();
        let goal = |arena: &Arena| {
            let now = arena.received();
            now.iter().zip(&before).all(|(now, before)| !now.0 || now.1 >= before.1 + messages)
        };
        self.until(goal);
        self.received().iter().zip(&before).map(|(now, before)| (now.0, now.1 - before.1)).collect()
    }
}

/// The smallest part of all that an honest peer got, in thousandths of its fair share.
fn permille_of_share(got: &[(bool, u64)]) -> u64 {
    let total: u64 = got.iter().map(|(_, messages)| messages).sum();
    let least = got.iter().filter(|(is_honest, _)| *is_honest).map(|(_, messages)| *messages).min().unwrap();
    least * got.len() as u64 * 1_000 / total.max(1)
}

/// The program keeps what comes from one peer, for ever: that one gets half of the buffers, the others share the rest.
fn kept_messages_take_half_at_most(name: &str) {
    for attribute in ["RO", "UU"] {
        let Some(mut arena) = Arena::open(name) else { return };
        arena.join("honest", "RO", 200);
        arena.join("honest", "RO", 200);
        arena.race(200);
        arena.kept = Some(Vec::new());
        arena.join("hostile", attribute, 200);
        let got = arena.race(messages());
        let kept = arena.kept.as_ref().unwrap().len() as u32;
        println!("{name} {attribute}: {kept} of {RECV_BUFFERS} buffers kept; {got:?}");
        // Counted within a quarter of what is left.
        assert!(kept <= RECV_BUFFERS / 2 + RECV_BUFFERS / 8, "{kept} of {RECV_BUFFERS}");
        assert!(kept >= 4, "it was hostile: {kept}");
        assert!(arena.server.counters().over_quota > 0);
        // What was kept comes back, and the sender goes on.
        arena.kept = None;
        let hostile = got.iter().position(|(is_honest, _)| !is_honest).unwrap();
        let before = arena.received()[hostile].1;
        arena.until(|arena| arena.received()[hostile].1 > before + 100);
        figures::note("hostile.kept_runs", 1);
    }
}

/// A peer sends all the time, as fast as it can, and the program takes all that comes.
fn a_flood_of_messages_takes_its_share_at_most(name: &str) {
    for (attribute, bytes) in [("RO", 8), ("RU", 1_000), ("UU", 8)] {
        let Some(mut arena) = Arena::open(name) else { return };
        arena.join("honest", "RO", 200);
        arena.join("honest", "RO", 200);
        let alone = permille_of_share(&arena.race(messages() / 4));
        arena.join("hostile", attribute, bytes);
        let got = arena.race(messages());
        let beside = permille_of_share(&got);
        println!("{name} {attribute}: {beside} of 1000 of a share, {alone} without; {got:?}");
        // A machine with fewer cores than processes shares itself out unevenly, too: among honest ones as well, so that these are
        // compared with the hostile one only. Before buffers were shared it got twelve times what they got.
        let like = |is_honest| move |peer: &&(bool, u64)| peer.0 == is_honest;
        let least = got.iter().filter(like(true)).map(|peer| peer.1).min().unwrap();
        let hostile = got.iter().find(like(false)).unwrap().1;
        assert!(hostile <= 6 * least, "{beside} permille of a fair share: {got:?}");
        figures::note("hostile.message_floods", 1);
    }
}

tests! {
    fn kept_udp() = kept_messages_take_half_at_most("udp");
    fn kept_tcp() = kept_messages_take_half_at_most("tcp");
    fn kept_shm() = kept_messages_take_half_at_most("shm");
    fn kept_eth() = kept_messages_take_half_at_most("eth");
    fn flood_udp() = a_flood_of_messages_takes_its_share_at_most("udp");
    fn flood_tcp() = a_flood_of_messages_takes_its_share_at_most("tcp");
    fn flood_shm() = a_flood_of_messages_takes_its_share_at_most("shm");
    fn flood_eth() = a_flood_of_messages_takes_its_share_at_most("eth");
}
