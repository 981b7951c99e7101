//! Messages between two processes, one of which may be killed.

use super::RO;
use super::peer::{Peer, poll_until};
use crate::conformance::{
    Capability, Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped, conformance_timeout,
    number_of, pattern,
};
use cci::{DisconnectReason, Status};
use std::time::{Duration, Instant};

/// Messages of all sizes go to another process and come back, a few at a time.
pub fn two_processes_exchange<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Processes)?;
    let mut peer = Peer::start(env);
    let mut client: Side<D> = Side::plain(env);
    for attribute in super::RELIABLE {
        client.connected.clear();
        client.dial(&peer.uri, attribute, 1);
        poll_until(&mut client, "the connection", |client| !client.connected.is_empty());
        let to_peer = client.connected[0].1.expect("connected to the other process");
        let longest = client.port.max_send_size(to_peer);
        for round in 0..300 {
            client.sent.clear();
            for number in round * 4..round * 4 + 4 {
                let message = pattern(number, 8 + (number as usize * 97) % (longest - 8));
                client.port.send(to_peer, &message, number, Flags::default()).expect("room");
            }
            poll_until(&mut client, "echoes", |client| client.inbox.len() == 4 && client.sent.len() == 4);
            let mut numbers: Vec<u64> =
                client.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())).collect();
            if attribute != RO {
                numbers.sort_unstable();
            }
            assert_eq!(numbers, (round * 4..round * 4 + 4).collect::<Vec<_>>());
        }
        client.port.disconnect(to_peer);
    }
    drop(peer.child.stdin.take());
    let ended = peer.child.wait().expect("the child ends");
    assert!(ended.success(), "the child ended with {ended}");
    Ok(())
}

/// The other process is killed in the middle of an exchange: each send completes once, later ones are refused, the
/// rest of the endpoint goes on.
pub fn killed_peer_is_noticed<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Processes)?;
    let setup =
        Setup { send_timeout: Duration::from_secs(1), reports_disconnected: true, ..Setup::default() };
    for round in 0..env.rounds(3) as u64 {
        let mut peer = Peer::start(env);
        let mut client: Side<D> = Side::open(env, &setup);
        client.dial(&peer.uri, RO, 1);
        poll_until(&mut client, "the connection", |client| !client.connected.is_empty());
        let to_peer = client.connected[0].1.expect("connected to the other process");
        let patience = Instant::now() + conformance_timeout();
        let kill_after = 50 + round * 333;
        let mut taken = 0;
        loop {
            assert!(Instant::now() < patience, "the peer is dead and sends are still taken");
            match client.port.send(to_peer, &pattern(taken, 200), taken, Flags::default()) {
                Ok(()) => taken += 1,
                Err(Refusal::Closed) => break,
                Err(Refusal::WouldBlock) => {}
                Err(other) => panic!("{other:?}"),
            }
            if taken == kill_after {
                peer.child.kill().expect("kill");
            }
            client.poll();
            client.inbox.clear();
        }
        poll_until(&mut client, "an end of each send", |client| client.sent.len() >= taken as usize);
        // Behind them the program gets one event.
        poll_until(&mut client, "word that the peer has died", |client| !client.disconnected.is_empty());
        client.settle();
        let reported: Vec<_> = client.disconnected.drain(..).collect();
        let lost = |reason| matches!(reason, DisconnectReason::Died | DisconnectReason::TimedOut);
        assert!(matches!(reported[..], [(who, 1, why)] if who == to_peer && lost(why)), "{reported:?}");
        assert_eq!(client.port.counts().connections_open, 0);
        let contexts = client.contexts();
        assert_eq!(contexts, (0..taken).collect::<Vec<_>>(), "each send completes once, in order");
        let bad =
            |status: &&Status| !matches!(status, Status::Success | Status::Disconnected | Status::TimedOut);
        assert_eq!(client.statuses().iter().find(bad), None);
        let mut pair = Pair::of(client, Side::server(env), RO);
        pair.client.sent.clear();
        pair.send(&pattern(1, 1), 0);
        pair.until("life after it", |client, server| client.sent.len() == 1 && server.inbox.len() == 1);
        pair.part();
    }
    Ok(())
}
