//! Lies over shared memory.

use super::{late, ms, soon};
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Options, RegionAddress, RmaKind, Status};
use cci_testkit::hostile::shm::{
    DIRECT_AT, Granted, Kind, LIVE_WORD, Memfd, Ring, Shm, allocated_bytes, client, client_by, confirm,
    connect, connect_as, grant, honestly, rma, send, shake,
};
use cci_testkit::hostile::{Act, Counter, Scene, Script, act, handle_of_peer};

/// Nobody on any machine.
const NOBODY: u32 = 65_534;

fn open(options: Options) -> Scene {
    Scene::open("shm", options).expect("shared memory is everywhere")
}

/// What no honest peer writes into the ring costs the link.
#[test]
fn a_false_record_costs_its_sender_the_link() {
    let mut scene = open(soon());
    let forgeries = [
        send(Kind::Message, |message| message.check = Some(7)),
        send(Kind::Message, |message| message.len = Some(1 << 29)),
        send(Kind::Message, |message| message.ack += 1_000),
    ];
    let count = forgeries.len() as u64;
    for forgery in forgeries {
        let peer = scene.join(client().now(forgery).expect(Kind::End));
        scene.until_over();
        assert_eq!(scene.send(peer, 1), 0, "the connection is over");
    }
    assert_eq!(scene.victim.count("link_corrupt"), count);
    scene.judge();
}

/// A ring that is not what it should be makes no link.
#[test]
fn a_false_ring_makes_no_link() {
    let mut scene = open(soon());
    let honest = Memfd::honest(Ring::file_bytes(32 << 10));
    let forgeries = [
        Memfd { is_sealed: false, ..honest },
        Memfd { len_bytes: 4_096, ..honest },
        Memfd { len_bytes: 1 << 30, is_allocated: false, ..honest },
    ];
    for ring in forgeries {
        let script = Script::new().now(connect()).now(shake(Kind::Request, honestly)).expect(Kind::Accept);
        scene.add(script.now(confirm(ring)).expect(Kind::End));
        scene.until_over();
    }
    scene.judge();
}

/// Counts the bytes of the memory that was granted first which are really there.
fn count_allocated(into: &Counter) -> Act<Shm> {
    let into = into.clone();
    act(move |shm: &mut Shm| into.add(shm.files.first().map_or(0, allocated_bytes)))
}

/// A3: what a peer says of its memory makes nobody allocate it.
#[test]
fn holes_in_granted_memory_are_not_filled() {
    let mut scene = open(soon());
    let allocated = Counter::default();
    let script = client().now(send(Kind::Message, honestly)).expect(Kind::Map);
    let script = script.now(grant(Granted::Memory(Memfd::sparse(256 << 20)), honestly)).rest(ms(50));
    let peer = scene.join(script.now(count_allocated(&allocated)));
    for _ in 0..4 {
        scene.operate(peer, 1, RmaKind::Write, 4_096, None);
        scene.for_time(ms(20));
    }
    scene.until_over();
    assert!(allocated.get() <= 1 << 20, "{} bytes allocated for the peer's word", allocated.get());
    scene.until_ended(peer);
    scene.judge();
}

/// A target may take its memory back while an atomic is at it, and replace the pages: if the initiator was stopped for a while, for
/// example. Here the grant covers the word that says whether it stands, so the atomic itself ends the grant.
#[test]
fn an_atomic_whose_grant_ends_meanwhile_is_no_success() {
    let mut scene = open(late());
    let script = client().now(send(Kind::Message, honestly)).expect(Kind::Map);
    let script = script.now(grant(Granted::ControlPage, honestly)).now(send(rma::DONE, honestly));
    let peer = scene.join(script.rest(ms(1_000)));
    let connection = scene.connection(peer);
    // This write goes through the ring, and makes the victim ask for the grant.
    assert_eq!(scene.operate(peer, 1, RmaKind::Write, 8, None), 1);
    scene.until("the end of the write, and the grant", |scene| {
        scene.victim.open(connection) == 0 && scene.victim.count("rma_mapped_bytes") != 0
    });
    let direct = scene.victim.count("rma_direct");
    let own_word = |scene: &Scene| {
        let mut word = [0; 8];
        assert!(scene.victim.own.read(0, &mut word));
        word
    };
    let own = own_word(&scene);
    let take_back = Atomic { kind: AtomicKind::Swap, width: AtomicWidth::Eight, operand: 0, compare: 0 };
    let word = RegionAddress::new(handle_of_peer(0x55), 8 * LIVE_WORD);
    scene.victim.change(connection, take_back, word).expect("an operation more");
    scene.until("the end of the atomic", |scene| scene.victim.open(connection) == 0);
    assert_eq!(scene.victim.last_ends_of(connection, 1), [Some(Status::TimedOut)]);
    assert_eq!(scene.victim.count("rma_direct") - direct, 1, "the atomic was carried out in mapped memory");
    assert_eq!(own_word(&scene), own, "what was there before is not known");
    scene.victim.endpoint.disconnect(connection);
    scene.judge();
}

/// A1: another user of the host is not let in, and least where security is asked for.
fn another_user_is_not_let_in(name: &str) {
    let mut scene = Scene::open(name, soon()).expect("every machine has it");
    let peer = scene.add(client_by(connect_as(NOBODY)).expect(Kind::End));
    scene.for_time(ms(100));
    assert_eq!(scene.requests(peer), 0, "{name}: a request of user {NOBODY}");
    scene.judge();
}

tests! {
    fn another_user() = another_user_is_not_let_in("shm");
    fn another_user_where_there_are_several_transports() = another_user_is_not_let_in("any");
    fn another_user_where_a_key_is_asked_for() = another_user_is_not_let_in("any-psk");
    fn another_user_where_certificates_are_asked_for() = another_user_is_not_let_in("any-certificates");
}

/// A8: a peer whose copies never end is waited for once, and not for each region that its owner takes back.
#[test]
fn a_copy_that_never_ends_is_waited_for_once() {
    let mut scene = open(soon());
    let endpoint = &mut scene.victim.endpoint;
    let memory = endpoint.allocate(64 << 10).expect("memory");
    let regions: Vec<_> =
        (0..8).map(|_| endpoint.register(&memory, Access::ALL).expect("a region")).collect();
    let script = regions.iter().fold(client(), |script, region| {
        let handle = region.to_bytes();
        let map = send(Kind::Map, move |map| {
            map.payload = [&handle[..8], &handle[16..24], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
        });
        script.now(map).expect(Kind::Grant).now(copy_for_ever()).expect(Kind::Unmap)
    });
    scene.join(script);
    for region in &regions {
        scene.for_time(ms(10));
        scene.victim.endpoint.deregister(region).expect("it is registered");
    }
    let (waited, detached) =
        (scene.victim.count("rma_revocations_waited"), scene.victim.count("rma_detached"));
    assert!(waited <= 1 && detached <= 1, "waited {waited} times and copied {detached} times for one peer");
    scene.judge();
}

/// Names the memory that was granted last as the one that is being copied to.
fn copy_for_ever() -> Act<Shm> {
    act(|shm: &mut Shm| {
        if let (Some(ring), Some(grant)) = (&shm.write, shm.grants.last()) {
            ring.set_word(DIRECT_AT, grant.word);
        }
    })
}
