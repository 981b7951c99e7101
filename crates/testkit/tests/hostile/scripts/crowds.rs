//! Crowds that connect and say nothing, or a byte now and then (slow loris), or ask for cookies all the time: who wants to connect
//! gets in all the same, and nothing grows.

use super::{ALWAYS, ms};
use cci::Options;
use cci_testkit::figures;
use cci_testkit::hostile::{Counter, Scene, Script, Wire, all, datagram, shm, tcp};
use std::time::Duration;

/// Peers that are silent at any time.
const CROWD: usize = 400;
/// Sockets from which requests come all the time.
const FLOOD: usize = 64;
/// Honest clients that have to get in.
const NEWCOMERS: u64 = 8;

/// Memory that the victim holds more for a crowd and the newcomers beside it.
fn memory_beside_a_crowd<W: Wire>(scene: &mut Scene, crowd: usize, script: &Script<W>) -> u64 {
    let before = scene.victim.memory_bytes().0;
    scene.crowd(crowd, script);
    // They are there first.
    scene.for_time(ms(20));
    (0..NEWCOMERS).for_each(|_| scene.newcomer());
    scene.judge();
    scene.victim.memory_bytes().0.saturating_sub(before)
}

fn newcomers_get_in_beside<W: Wire>(name: &str, script: &Script<W>, came: &Counter) {
    let mut scene = Scene::open(name, Options::default()).expect("every machine has it");
    let grown = memory_beside_a_crowd(&mut scene, CROWD, script);
    println!("{name}: {NEWCOMERS} got in beside {} that said nothing; {grown} B more", came.get());
    assert!(grown <= 1 << 20, "{grown} B");
    figures::note("hostile.silent_clients", came.get());
    figures::note("hostile.met_beside_a_crowd", NEWCOMERS);
}

#[test]
fn tcp_clients_that_dribble() {
    use tcp::{Kind, dial, dribble};
    let came = Counter::default();
    let come = all([dial(), came.count()]);
    let script = Script::new().now(come.clone()).on(Kind::End, come).every(ms(1), ALWAYS, dribble());
    newcomers_get_in_beside("tcp", &script, &came);
}

#[test]
fn shm_clients_that_say_nothing() {
    use shm::{Kind, connect};
    let came = Counter::default();
    let come = all([connect(), came.count()]);
    newcomers_get_in_beside("shm", &Script::new().now(come.clone()).on(Kind::End, come), &came);
}

/// As many HELLOs for each turn of the victim as there are sockets. (A flood that is faster than the kernel's queue is read fills
/// that, and who gets through then is chance; no process can help that.)
#[test]
fn udp_clients_that_ask_for_cookies() {
    use datagram::{Kind, honestly, shake};
    let mut scene = Scene::open("udp", Options::default()).expect("UDP is everywhere");
    let before = ["datagram_bytes_received", "datagram_bytes_sent"].map(|name| scene.victim.count(name));
    let asked = Counter::default();
    let ask = all([shake(Kind::Hello, honestly), asked.count()]);
    let script = Script::new().every(Duration::ZERO, ALWAYS, ask);
    let grown = memory_beside_a_crowd(&mut scene, FLOOD, &script);
    let after = ["datagram_bytes_received", "datagram_bytes_sent"].map(|name| scene.victim.count(name));
    let [received, sent] = [after[0] - before[0], after[1] - before[1]];
    println!(
        "{NEWCOMERS} got in beside {} HELLOs, {received} B in, {sent} B out; {grown} B more",
        asked.get()
    );
    assert!(sent <= received, "{sent} B out for {received} B in");
    assert!(grown <= NEWCOMERS * 4_096 + 65_536, "{grown} B");
    figures::note("hostile.live_hellos", asked.get());
    figures::note("hostile.met_during_flood", NEWCOMERS);
}
