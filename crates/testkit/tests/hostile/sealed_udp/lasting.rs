//! Associations over time: peers restart, addresses change hands, silence.

use super::stage::*;
use cci::{ConnectFailure, Options};
use cci_testkit::figures;
use std::time::Duration;

#[test]
fn a_peer_that_restarts_is_known_again() {
    let mut client = Side::with(KEY1);
    let mut server = Side::with(KEY1);
    let port = address(&server.endpoint).port();
    join(&mut client, &mut server, &mut None);
    talk(&mut client, &mut server, &mut None);
    for _ in 0..3 {
        drop(server);
        server = Side::new(open(Some(keys(KEY1)), Some(port)));
        join(&mut client, &mut server, &mut None);
        talk(&mut client, &mut server, &mut None);
    }
    // And the one that asked.
    let port = address(&client.endpoint).port();
    drop(client);
    let mut client = Side::new(open(Some(keys(KEY1)), Some(port)));
    join(&mut client, &mut server, &mut None);
    talk(&mut client, &mut server, &mut None);
}

#[test]
fn an_address_in_use_is_its_owners() {
    let mut server = Side::with(&format!("{KEY1}{KEY2}"));
    let (mut first, mut second) = (Side::with(KEY1), Side::with(KEY2));
    let mut tap = Some(Tap::to(address(&server.endpoint)));
    let only = |tap: &mut Option<Tap>, side: &Side| {
        tap.as_mut().unwrap().only = Some(address(&side.endpoint));
    };
    only(&mut tap, &first);
    join(&mut first, &mut server, &mut tap);
    talk(&mut first, &mut server, &mut tap);
    // Somebody else with a good key of another name, at the same address.
    only(&mut tap, &second);
    second.dial(tap.as_ref().unwrap().address(), Duration::from_secs(1));
    let over = |sides: &[&mut Side]| !sides[0].made.is_empty();
    assert!(run(&mut [&mut second, &mut server], &mut tap, PATIENCE, over));
    assert_eq!(second.made, [Err(ConnectFailure::TimedOut)]);
    assert_eq!(server.asked, [Some("node1".to_owned())]);
    // The first is still there.
    only(&mut tap, &first);
    talk(&mut first, &mut server, &mut tap);
    // Once it has gone, the address is free.
    let (theirs, ours) = (server.last(), first.last());
    server.endpoint.disconnect(theirs);
    first.endpoint.disconnect(ours);
    wait(&mut [&mut first, &mut server], &mut tap, Duration::from_millis(100));
    drop(first);
    only(&mut tap, &second);
    join(&mut second, &mut server, &mut tap);
    assert_eq!(server.asked.last(), Some(&Some("node2".to_owned())));
    talk(&mut second, &mut server, &mut tap);
}

#[test]
fn after_a_silence_all_is_as_before() {
    let (mut client, mut server) = (Side::with(KEY1), Side::with(KEY1));
    join(&mut client, &mut server, &mut None);
    talk(&mut client, &mut server, &mut None);
    std::thread::sleep(Duration::from_millis(1500));
    talk(&mut client, &mut server, &mut None);
    wait(&mut [&mut client, &mut server], &mut None, Duration::from_millis(500));
    talk(&mut client, &mut server, &mut None);
    assert_eq!(server.device_counter("sealed-forged"), 0);
}

/// Each from an address of its own; `CCI_SEALED_PEERS` says how many.
#[test]
fn a_thousand_peers_are_under_the_cap() {
    let peers: u64 =
        std::env::var("CCI_SEALED_PEERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let mut server = Side::with(KEY1);
    let to = address(&server.endpoint);
    let memory = |server: &Side| {
        let memory = server.endpoint.counters().memory;
        let of = memory.kinds.iter().find(|(kind, _)| *kind == "associations").map(|(_, bytes)| *bytes);
        assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
        of.unwrap_or(0)
    };
    let before = memory(&server);
    for _ in 0..peers {
        let mut client = Side::new(open_with(
            Options::default().security(keys(KEY1)).recv_buffers(4).send_buffers(4).memory_bytes_max(1 << 20),
        ));
        client.dial(to, PATIENCE);
        assert!(run(&mut [&mut client, &mut server], &mut None, PATIENCE, |sides| !sides[0].made.is_empty()));
        assert!(client.made[0].is_ok());
        let (theirs, ours) = (server.last(), client.last());
        server.endpoint.disconnect(theirs);
        client.endpoint.disconnect(ours);
        // It goes without waiting for the farewell.
        client.endpoint.close(Duration::ZERO);
        server.poll();
    }
    let held = memory(&server) - before;
    println!("{peers} associations: {held} bytes, {} each", held / peers.max(1));
    assert!(held / peers.max(1) <= 4096, "{held} bytes for {peers}");
    assert_eq!(server.device_counter("security_handshakes"), peers);
    figures::note("encryption.associations", peers);
}
