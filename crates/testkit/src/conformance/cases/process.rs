//! Two processes: the test program starts itself once more, to run only the child's part.

use super::{RO, rma_process};
use crate::conformance::{
    DeviceUnderTest, Driver, Flags, Pair, Place, Port, Refusal, Setup, Side, conformance_timeout, number_of,
    pattern,
};
use cci::Status;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the child.
const CHILD: &str = "CCI_CONFORMANCE_CHILD";
/// What the child prints before its URI.
const URI_MARK: &str = "conformance-uri=";
/// No child outlives its parent's patience.
const CHILD_TIME_MAX: Duration = Duration::from_secs(80);

/// The child: echoes until its standard input ends. Does nothing unless a parent of the same device started it.
pub fn child<D: Driver>(driver: D, about: DeviceUnderTest) {
    if std::env::var_os(CHILD).is_none_or(|device| device != about.name) {
        return;
    }
    let place = Place { driver, device: about.name, about, child_test: "" };
    let mut server: Side<D> = Side::plain(&place);
    let mut out = std::io::stdout();
    writeln!(out, "\n{URI_MARK}{}", server.port.uri())
        .and_then(|()| out.flush())
        .expect("the parent listens");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let ended = std::io::stdin().read_line(&mut String::new());
        let _ = tell.send(ended.is_ok());
    });
    let until = Instant::now() + CHILD_TIME_MAX;
    let mut areas = Vec::new();
    while told.try_recv().is_err() && Instant::now() < until {
        server.poll();
        while !server.requests.is_empty() {
            server.accept_next(0);
        }
        while let Some((from, message)) = server.inbox.pop_front() {
            if rma_process::serve(&mut server, from, message.as_ref(), &mut areas) {
                continue;
            }
            while server.port.send(from, message.as_ref(), 0, Flags { silent: true, no_copy: false })
                == Err(Refusal::WouldBlock)
            {
                server.poll();
            }
        }
    }
}

/// A child process and the URI it listens at. Killed when dropped.
pub(super) struct Peer {
    pub(super) child: Child,
    pub(super) uri: String,
}

impl Peer {
    pub(super) fn start<D: Driver>(place: &Place<D>) -> Peer {
        // The path of a test has no crate in front.
        let (_, test) = place.child_test.split_once("::").expect("a test lives in a module");
        let program = std::env::current_exe().expect("the test program");
        let mut child = Command::new(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, place.about.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program starts once more");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = output.lines().map_while(Result::ok);
        let uri = lines.find_map(|line| line.strip_prefix(URI_MARK).map(str::to_owned));
        // Its further output must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        Peer { child, uri: uri.expect("the child prints its URI") }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls one side, whose peer lives in another process, until `done`.
pub(super) fn poll_until<D: Driver>(side: &mut Side<D>, what: &str, done: impl Fn(&Side<D>) -> bool) {
    let patience = Instant::now() + conformance_timeout();
    while !done(side) {
        assert!(Instant::now() < patience, "waited too long for {what}");
        side.poll();
    }
}

/// Messages of all sizes go to another process and come back, a few at a time.
pub fn two_processes_exchange<D: Driver>(place: &Place<D>) {
    let mut peer = Peer::start(place);
    let mut client: Side<D> = Side::plain(place);
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
}

/// The other process is killed in the middle of an exchange: each send completes once, later ones are refused, the
/// rest of the endpoint goes on.
pub fn killed_peer_is_noticed<D: Driver>(place: &Place<D>) {
    let setup = Setup { send_timeout: Duration::from_secs(1), ..Setup::default() };
    for round in 0..3 {
        let mut peer = Peer::start(place);
        let mut client: Side<D> = Side::open(place, &setup);
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
        client.settle();
        let contexts = client.contexts();
        assert_eq!(contexts, (0..taken).collect::<Vec<_>>(), "each send completes once, in order");
        let bad =
            |status: &&Status| !matches!(status, Status::Success | Status::Disconnected | Status::TimedOut);
        assert_eq!(client.statuses().iter().find(bad), None);
        let mut pair = Pair::of(client, Side::plain(place), RO);
        pair.client.sent.clear();
        pair.send(&pattern(1, 1), 0);
        pair.until("life after it", |client, server| client.sent.len() == 1 && server.inbox.len() == 1);
        pair.part();
    }
}
