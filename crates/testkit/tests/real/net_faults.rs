//! What becomes of traffic while the network between two hosts fails: interfaces down and up, wires cut, addresses changed,
//! packets that no longer fit. Two network namespaces stand for the hosts.
//!
//! Short faults lose nothing and repeat nothing; long ones end what was under way with a reason, in bounded time.
//! `CCI_NET_FAULTS` (1 if not given) says how many times as often the repeated faults strike.

use crate::stage::{across, connect, ips, open};
use cci::{Attribute, DisconnectReason, Endpoint, Event, Options, Status};
use cci_testkit::figures;
use cci_testkit::net::{End, Veth, Wire};
use cci_testkit::traffic::{PATIENCE, Traffic};
use std::time::{Duration, Instant};

const RO: Attribute = Attribute::ReliableOrdered;
const RU: Attribute = Attribute::ReliableUnordered;

/// A device to be tested: its name, and whether it is above IP.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Kind {
    Udp4,
    Udp6,
    Tcp4,
    Tcp6,
    Xdp,
    Packet,
    Any,
}

const ALL: [Kind; 7] = [Kind::Udp4, Kind::Udp6, Kind::Tcp4, Kind::Tcp6, Kind::Xdp, Kind::Packet, Kind::Any];

impl Kind {
    fn is_raw(self) -> bool {
        matches!(self, Kind::Xdp | Kind::Packet)
    }

    /// Whether the kernel's TCP has to find out what the way takes.
    fn is_kernels(self) -> bool {
        matches!(self, Kind::Tcp4 | Kind::Tcp6 | Kind::Any)
    }

    fn open(self, veth: &Veth, end: End, options: Options) -> Endpoint {
        let ip = |v6| veth.ip(end, 0, v6);
        let interface = veth.name(end, 0);
        let lines = match self {
            Kind::Udp4 => format!("transport = udp\nip = {}", ip(false)),
            Kind::Udp6 => format!("transport = udp\nip = {}", ip(true)),
            Kind::Tcp4 => format!("transport = tcp\nip = {}", ip(false)),
            Kind::Tcp6 => format!("transport = tcp\nip = {}", ip(true)),
            Kind::Xdp => format!("transport = eth\ninterface = {interface}\nmode = xdp"),
            Kind::Packet => format!("transport = eth\ninterface = {interface}\nmode = packet"),
            Kind::Any => format!("transport = any\nip = {}", ip(false)),
        };
        open(veth, end, &lines, options)
    }

    /// A network of its own, and traffic across it.
    fn start(self, attribute: Attribute, options: Options) -> Option<(Veth, Traffic)> {
        let veth = network()?;
        let mut traffic = self.join(&veth, attribute, options);
        traffic.until_received(500);
        Some((veth, traffic))
    }

    fn join(self, veth: &Veth, attribute: Attribute, options: Options) -> Traffic {
        let (client, server) = (self.open(veth, End::A, options.clone()), self.open(veth, End::B, options));
        Traffic::join(client, server, attribute).unwrap_or_else(|why| panic!("{self:?}: {why}"))
    }
}

fn network() -> Option<Veth> {
    across(&[Wire::default()])
}

/// How often to do what is done again and again.
fn times(count: u64) -> u64 {
    count * std::env::var("CCI_NET_FAULTS").ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The options of a connection that must survive, however seldom a busy machine lets this program run.
fn patient() -> Options {
    timeout(PATIENCE)
}

fn timeout(send_timeout: Duration) -> Options {
    Options::default().send_timeout(send_timeout)
}

#[test]
fn an_interface_down_for_a_moment_loses_nothing() {
    for kind in ALL {
        for (end, attribute) in [(End::A, RO), (End::B, RU)] {
            let Some((veth, mut traffic)) = kind.start(attribute, patient()) else { return };
            veth.down(end, 0);
            traffic.run(ms(150));
            let before = traffic.received();
            veth.up(end, 0);
            traffic.until_received(1_000);
            let messages = traffic.finish();
            println!("{kind:?} {attribute:?}: {messages} messages once, {before} before {end:?} came up");
            figures::note("netfault.interfaces_down", 1);
            figures::note("netfault.messages_once", messages);
        }
    }
}

#[test]
fn a_link_that_flaps_loses_nothing() {
    for kind in ALL {
        let Some((veth, mut traffic)) = kind.start(RU, patient()) else { return };
        for round in 0..times(6) {
            let end = if round % 2 == 0 { End::A } else { End::B };
            veth.down(end, 0);
            traffic.run(ms(5 + 7 * (round % 5)));
            veth.up(end, 0);
            traffic.run(ms(20 + 13 * (round % 3)));
        }
        traffic.until_received(500);
        let messages = traffic.finish();
        println!("{kind:?}: {messages} messages once");
        figures::note("netfault.interfaces_down", times(6));
        figures::note("netfault.messages_once", messages);
    }
}

#[test]
fn a_wire_cut_for_a_moment_loses_nothing() {
    for kind in ALL.into_iter().filter(|kind| !kind.is_raw()) {
        let Some((veth, mut traffic)) = kind.start(RO, patient()) else { return };
        for _ in 0..times(3) {
            veth.cut(0);
            traffic.run(ms(60));
            veth.mend(0);
            traffic.until_received(500);
        }
        let messages = traffic.finish();
        println!("{kind:?}: {messages} messages once");
        figures::note("netfault.wires_cut", times(3));
        figures::note("netfault.messages_once", messages);
    }
}

/// How a host that has vanished shows: everything under way ends in bounded time, and the connection is broken.
#[test]
fn a_wire_that_stays_cut_ends_everything_in_time() {
    const LIMIT: Duration = Duration::from_millis(1_000);
    for kind in ALL {
        let Some((veth, mut traffic)) = kind.start(RO, timeout(LIMIT)) else { return };
        if kind.is_raw() {
            veth.down(End::B, 0)
        } else {
            veth.cut(0)
        }
        traffic.run(ms(20));
        let took = traffic.finish_broken(&[Status::TimedOut, Status::Disconnected]);
        let [client, server] = [&traffic.client, &traffic.server].map(|side| side.count(Status::TimedOut));
        println!(
            "{kind:?}: {client} and {server} timed out, the last after {took:?}\n{}",
            traffic.client.explained()
        );
        assert!(client + server > 0, "{}", traffic.state());
        figures::note("netfault.hosts_vanished", 1);
        if kind.is_raw() {
            veth.up(End::B, 0)
        } else {
            veth.mend(0)
        }
        // The endpoints are as good as new.
        let Traffic { client, server, .. } = traffic;
        let mut again = Traffic::join(client.endpoint, server.endpoint, RU).unwrap();
        again.until_received(500);
        again.finish();
    }
}

#[test]
fn an_address_that_comes_back_loses_nothing_and_another_one_needs_another_endpoint() {
    const LIMIT: Duration = Duration::from_millis(700);
    // Where an address comes back, the connection has to outlive its absence: on a busy machine `ip` takes its time.
    const ABSENCE_MAX: Duration = Duration::from_secs(10);
    for kind in [Kind::Udp4, Kind::Tcp4, Kind::Any] {
        for end in [End::A, End::B] {
            let Some((veth, mut traffic)) = kind.start(RO, timeout(ABSENCE_MAX)) else { return };
            let own = u8::from(end == End::B) + 1;
            let other = veth.readdress(end, 0, 77);
            traffic.run(ms(100));
            veth.readdress(end, 0, own);
            traffic.until_received(500);
            let messages = traffic.finish();
            traffic.set_send_timeout(LIMIT);
            traffic.run(ms(20));
            veth.readdress(end, 0, 77);
            traffic.run(ms(20));
            let took = traffic.finish_broken(&[Status::TimedOut, Status::Disconnected]);
            println!(
                "{kind:?}: {messages} messages once; at another address of {end:?} all ended after {took:?}"
            );
            // At the new address there is an endpoint once somebody makes one.
            let transport = if kind == Kind::Tcp4 { "tcp" } else { "udp" };
            let at = |this_end: End, ip: std::net::IpAddr| {
                open(&veth, this_end, &format!("transport = {transport}\nip = {ip}"), timeout(LIMIT))
            };
            let ip = |this_end: End| if this_end == end { other.into() } else { veth.ip(this_end, 0, false) };
            let (client, server) = (at(End::A, ip(End::A)), at(End::B, ip(End::B)));
            let mut again = Traffic::join(client, server, RU).unwrap();
            again.until_received(500);
            again.finish();
            figures::note("netfault.addresses_changed", 3);
        }
    }
}

#[test]
fn interfaces_whose_mtu_shrinks_lose_nothing() {
    for kind in ALL {
        for attribute in [RO, RU] {
            let Some((veth, mut traffic)) = kind.start(attribute, patient()) else { return };
            for mtu_bytes in [1_400, 1_280] {
                veth.mtu(0, mtu_bytes);
                traffic.until_received(500);
            }
            let messages = traffic.finish();
            println!("{kind:?} {attribute:?}: {messages} messages once\n{}", traffic.client.explained());
            figures::note("netfault.mtus_shrunk", 2);
            figures::note("netfault.messages_once", messages);
        }
    }
}

#[test]
fn a_way_that_swallows_large_packets_is_found_out() {
    for kind in ALL {
        for attribute in [RO, RU] {
            let Some((veth, mut traffic)) = kind.start(attribute, patient()) else { return };
            if kind.is_kernels() {
                // It does so if it is allowed to.
                for end in [End::A, End::B] {
                    let _inside = veth.enter(end);
                    std::fs::write("/proc/sys/net/ipv4/tcp_mtu_probing", "1").unwrap();
                }
            }
            veth.no_offload(0);
            veth.mtu_of(End::B, 0, 1_300);
            let took = traffic.until_received(500);
            let messages = traffic.finish();
            println!(
                "{kind:?} {attribute:?}: {messages} messages once, 500 after {took:?}\n{}",
                traffic.client.explained()
            );
            if !kind.is_kernels() {
                assert!(traffic.client.counter("paths_narrowed") > 0, "{kind:?}: {}", traffic.state());
            }
            figures::note("netfault.black_holes", 1);
            figures::note("netfault.messages_once", messages);
        }
    }
}

#[test]
fn of_two_ways_one_is_cut_again_and_again() {
    for attribute in [RO, RU] {
        let Some(veth) = across(&[Wire::default(); 2]) else { return };
        let open =
            |end| open(&veth, end, &format!("transport = udp\nip = {}", ips(&veth, end, &[0, 1])), patient());
        let mut traffic = Traffic::join(open(End::A), open(End::B), attribute).unwrap();
        traffic.until_received(500);
        for round in 0..times(8) {
            let wire = (round % 2) as u8;
            if round % 4 < 2 {
                veth.cut(wire)
            } else {
                veth.down(End::B, wire)
            }
            traffic.until_received(400);
            if round % 4 < 2 {
                veth.mend(wire)
            } else {
                veth.up(End::B, wire)
            }
            // Sometimes it is up again before the next one goes, sometimes not.
            traffic.run(ms(10 + 40 * (round % 3)));
            traffic.until_received(100);
        }
        let messages = traffic.finish();
        let lost = traffic.client.counter("paths_lost") + traffic.server.counter("paths_lost");
        println!(
            "{attribute:?}: {messages} messages once, {lost} times a way was lost\n{}",
            traffic.client.explained()
        );
        figures::note("netfault.ways_cut", times(8));
        figures::note("netfault.messages_once", messages);
    }
}

#[test]
fn an_interface_taken_away_ends_everything() {
    const LIMIT: Duration = Duration::from_millis(700);
    for kind in ALL {
        let Some((veth, mut traffic)) = kind.start(RU, timeout(LIMIT)) else { return };
        veth.remove(0);
        traffic.run(ms(20));
        let took = traffic.finish_broken(&[Status::TimedOut, Status::Disconnected, Status::DeviceDead]);
        let events = (traffic.client.events().to_vec(), traffic.server.events().to_vec());
        println!("{kind:?}: all ended after {took:?}, events {events:?}");
        if kind.is_raw() {
            // Once, and then the end of the connection.
            let failed_once = |events: &[String]| {
                events.first().is_some_and(|first| first == "DeviceFailed")
                    && events.iter().skip(1).all(|other| other.starts_with("Disconnected"))
                    && events.len() <= 2
            };
            assert!(failed_once(&events.0) && failed_once(&events.1), "{}", traffic.state());
        }
        figures::note("netfault.interfaces_removed", 1);
    }
}

/// Two endpoints across a wire, a connection between them, and nothing more to say.
fn idle(kind: Kind, veth: &Veth, attribute: Attribute) -> [Endpoint; 2] {
    let mut client = kind.open(veth, End::A, Options::default());
    let mut server = kind.open(veth, End::B, Options::default());
    connect(&mut client, &mut server, attribute);
    [client, server]
}

/// The kernel's timer of each TCP connection that is established: its kind, and how long it runs still.
fn tcp_timers() -> Vec<(u8, Duration)> {
    let mut timers = Vec::new();
    for line in std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, "01", _, timer, ..] = fields[..] else { continue };
        let (kind, ticks) = timer.split_once(':').unwrap();
        let ticks = u64::from_str_radix(ticks, 16).unwrap();
        timers.push((kind.parse().unwrap(), Duration::from_millis(ticks * 10)));
    }
    timers
}

/// Both ends are asked for by their kernels, the one that dialled and the one that accepted, without any option.
#[test]
fn kernels_ask_for_idle_tcp_peers() {
    for attribute in [RO, Attribute::Unreliable] {
        let Some(veth) = network() else { return };
        let _sides = idle(Kind::Tcp4, &veth, attribute);
        for end in [End::A, End::B] {
            let _inside = veth.enter(end);
            let timers = tcp_timers();
            // What is still to be acknowledged has a timer before that.
            assert_eq!(timers.len(), 1, "{timers:?}");
            let (kind, left) = timers[0];
            assert!(kind == 1 || kind == 4 || kind == 2 && left <= Duration::from_secs(46), "{timers:?}");
        }
        std::thread::sleep(ms(500));
        for end in [End::A, End::B] {
            let _inside = veth.enter(end);
            let timers = tcp_timers();
            assert!(matches!(timers[..], [(2, left)] if left <= Duration::from_secs(46)), "{timers:?}");
        }
    }
}

/// A peer that vanishes without a word from an idle connection is missed on every device, on both sides.
#[test]
#[ignore = "takes some three minutes: as long as a peer may be silent"]
fn idle_peers_that_vanish_are_missed() {
    let tests = ALL.map(|kind| {
        std::thread::spawn(move || {
            for attribute in [if kind.is_raw() { Attribute::Unreliable } else { RO }] {
                let Some(veth) = network() else { return };
                let mut sides = idle(kind, &veth, attribute);
                // Raw frames don't pass where a cut is felt; the end that is down is not asked then.
                let wanted = if kind.is_raw() { [1, 0] } else { [1, 1] };
                if kind.is_raw() {
                    veth.down(End::B, 0);
                } else {
                    veth.cut(0);
                }
                let (started, mut reported) = (Instant::now(), [0, 0]);
                while reported != wanted {
                    assert!(
                        started.elapsed() < Duration::from_secs(260),
                        "{kind:?} {attribute:?}: {reported:?}"
                    );
                    for (side, reported) in sides.iter_mut().zip(&mut reported).take(wanted.iter().sum()) {
                        match side.wait(Some(ms(20))).unwrap() {
                            Some(Event::Disconnected { reason, .. }) => {
                                assert_eq!(reason, DisconnectReason::TimedOut, "{kind:?} {attribute:?}");
                                *reported += 1;
                            }
                            other => assert!(other.is_none(), "{kind:?} {attribute:?}: {other:?}"),
                        }
                    }
                }
                let open = sides.iter().zip(wanted).filter(|(_, wanted)| *wanted == 1);
                assert!(open.map(|(side, _)| side.counters().connections_open).all(|open| open == 0));
                println!("{kind:?} {attribute:?}: after {:.0} s", started.elapsed().as_secs_f64());
            }
        })
    });
    tests.into_iter().for_each(|test| test.join().unwrap());
}
