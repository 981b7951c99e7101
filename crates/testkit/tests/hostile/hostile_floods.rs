//! Floods from strangers, counted: nothing is kept before a cookie has come back, no answer is larger than its question, and
//! guesses at a nonce meet silence. That honest peers still get in is in `scripts`.
//!
//! `CCI_HOSTILE_FLOOD` (1,000,000 if not given): datagrams of each flood.

use cci_proto::{Address, Config, Memory, PeerFault, Sink, Time, Transmit};
use cci_testkit::figures;
use cci_testkit::fuzz::pair::address_of;
use cci_testkit::rng::Rng;
use std::net::{Ipv4Addr, SocketAddr};

fn flood() -> u64 {
    std::env::var("CCI_HOSTILE_FLOOD").map_or(1_000_000, |text| text.parse().unwrap())
}

/// A program that keeps the requests it is shown.
#[derive(Default)]
struct Program {
    requests: Vec<cci_proto::Request>,
    messages: u64,
}

impl Memory for Program {}

impl Sink for Program {
    fn message(&mut self, _: cci_proto::ConnKey, _: u64, _: &[u8]) -> bool {
        self.messages += 1;
        true
    }

    fn event(&mut self, event: cci_proto::Event) {
        if let cci_proto::Event::Request(request) = event {
            self.requests.push(request);
        }
    }
}

/// Takes datagrams, and where they go.
#[derive(Default)]
struct Out(Vec<(Address, Vec<u8>)>);

impl Transmit for Out {
    fn has_space(&self) -> bool {
        self.0.len() < 1_000
    }

    fn begin(&mut self, to: Address, len_max: usize, _: bool) -> Option<&mut [u8]> {
        self.0.push((to, vec![0; len_max]));
        self.0.last_mut().map(|(_, bytes)| bytes.as_mut_slice())
    }

    fn commit(&mut self, len: usize) {
        if let Some((_, last)) = self.0.last_mut() {
            last.truncate(len);
        }
    }
}

/// One endpoint of the protocol, its program, and what was counted.
struct End {
    protocol: cci_proto::Endpoint,
    program: Program,
    now: Time,
    in_bytes: u64,
    out_bytes: u64,
}

impl End {
    fn new(number: u8) -> End {
        let config = Config { secret: [number + 1; 32], requests_max: 64, ..Config::default() };
        let protocol = cci_proto::Endpoint::new(config).unwrap();
        End { protocol, program: Program::default(), now: Time(5), in_bytes: 0, out_bytes: 0 }
    }

    /// Asks the endpoint at the address of number 0 for a connection.
    fn dial(&mut self) -> cci_proto::ConnKey {
        let attribute = cci_proto::Attribute::ReliableOrdered;
        self.protocol.connect(self.now, address_of(0), b"hi", attribute, 1, None).unwrap()
    }

    fn take(&mut self, from: Address, datagram: &[u8]) {
        self.in_bytes += datagram.len() as u64;
        self.protocol.handle_datagram(self.now, from, datagram, &mut self.program);
    }

    fn give(&mut self) -> Vec<(Address, Vec<u8>)> {
        let mut out = Out::default();
        self.protocol.poll_transmit(self.now, &mut out, &mut self.program);
        self.out_bytes += out.0.iter().map(|(_, datagram)| datagram.len() as u64).sum::<u64>();
        out.0
    }

    fn fault(&self, fault: PeerFault) -> u64 {
        self.protocol.counters().fault(fault)
    }
}

/// The `number`th of many strangers.
fn stranger(number: u64) -> Address {
    let ip = Ipv4Addr::from_bits(0x0b00_0000 + (number >> 10) as u32);
    Address::from(SocketAddr::from((ip, 1_024 + (number & 1_023) as u16)))
}

/// What a client sends first.
fn hello() -> Vec<u8> {
    let mut client = End::new(1);
    client.dial();
    client.give().remove(0).1
}

#[test]
fn nothing_is_kept_of_a_million_strangers() {
    let (mut end, hello, count) = (End::new(0), hello(), flood());
    let before = end.protocol.memory().total_bytes();
    for number in 0..count {
        end.take(stranger(number), &hello);
        if number % 64 == 63 {
            let (asked, answered) = (end.in_bytes, end.out_bytes);
            for (to, answer) in end.give() {
                assert!(answer.len() <= hello.len(), "{to}: {} bytes for {}", answer.len(), hello.len());
            }
            assert!(end.out_bytes <= asked && answered <= end.out_bytes);
            end.now = end.now.plus(64_000);
        }
    }
    end.give();
    let counters = end.protocol.counters();
    assert_eq!(counters.requests_received, 0);
    assert_eq!(end.protocol.memory().total_bytes(), before, "memory");
    assert!(end.out_bytes * 2 <= end.in_bytes, "{} bytes out for {} in", end.out_bytes, end.in_bytes);
    println!(
        "{count} HELLOs: {} B in, {} B out, memory {before} B before and after",
        end.in_bytes, end.out_bytes
    );
    figures::note("hostile.spoofed_hellos", count);
    figures::note("hostile.hello_bytes_in", end.in_bytes);
    figures::note("hostile.hello_bytes_out", end.out_bytes);
}

/// Cookies that nobody was given: each costs a look, and is answered as a HELLO is.
#[test]
fn cookies_are_not_guessed() {
    let (mut end, count) = (End::new(0), flood());
    let mut client = End::new(1);
    client.dial();
    let hello = client.give().remove(0).1;
    end.take(address_of(1), &hello);
    let retry = end.give().remove(0).1;
    client.take(address_of(0), &retry);
    let connect = client.give().remove(0).1;
    let (mut rng, before) = (Rng::new(7), end.protocol.memory().total_bytes());
    for number in 0..count {
        let mut guess = connect.clone();
        //= wire.md R-HS-3
        if number % 2 == 0 {
            rng.fill(&mut guess[24..32]);
            end.take(address_of(1), &guess);
        } else {
            // The right one, from where it was not given to.
            end.take(stranger(number), &guess);
        }
        if number % 64 == 63 {
            assert!(end.give().iter().all(|(_, answer)| answer.len() <= guess.len()));
        }
    }
    assert_eq!((end.fault(PeerFault::Cookie), end.program.requests.len()), (count, 0));
    assert_eq!(end.protocol.memory().total_bytes(), before);
    assert!(end.out_bytes <= end.in_bytes);
    // And who has the cookie gets in.
    end.take(address_of(1), &connect);
    assert_eq!(end.program.requests.len(), 1);
    figures::note("hostile.cookie_guesses", count);
}

/// Real hosts that ask again and again, with right cookies: one has half of the requests that may wait for the program, two a
/// third each; so others get in meanwhile, though the program answers nothing.
#[test]
fn requests_of_one_host_leave_room_for_others() {
    let mut end = End::new(0);
    let ask = |end: &mut End, host: u8, number: u64| {
        let from = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 1_024 + number as u16));
        let mut client = End::new(1 + (number % 200) as u8);
        client.dial();
        let before = end.program.requests.len();
        for _ in 0..2 {
            for (_, datagram) in client.give() {
                end.take(from.into(), &datagram);
            }
            // Only what is for it: others are answered, too.
            for (_, datagram) in end.give().iter().filter(|(to, _)| *to == Address::from(from)) {
                client.take(address_of(0), datagram);
            }
        }
        end.program.requests.len() - before
    };
    let before = end.protocol.memory().total_bytes();
    let first: usize = (0..1_000).map(|number| ask(&mut end, 1, number)).sum();
    assert_eq!(first, 32, "of 64");
    assert_eq!(end.protocol.counters().requests_dropped, 1_000 - 32);
    let second: usize = (0..1_000).map(|number| ask(&mut end, 2, number)).sum();
    assert_eq!(second, 16);
    assert_eq!(ask(&mut end, 3, 0), 1, "an honest one gets in");
    let kept = end.protocol.memory().total_bytes() - before;
    assert!(kept < 64 * 1_024, "{kept} bytes for {} requests", end.program.requests.len());
    println!("2,000 requests of two hosts: {first} and {second} of 64 wait, {kept} B; a third gets in");
    for request in std::mem::take(&mut end.program.requests) {
        end.protocol.reject(end.now, request);
    }
    assert_eq!(ask(&mut end, 1, 5_000), 1, "and the first again, once it was answered");
    figures::note("hostile.connect_floods", 2_000);
}

/// A program that answers at once does not help: what was answered is remembered for a while.
#[test]
fn answered_requests_of_one_host_leave_room_for_others() {
    let mut end = End::new(0);
    let cap_bytes = end.protocol.memory().cap_bytes;
    let before = end.protocol.memory().total_bytes();
    let flood_from = |end: &mut End, host: u8, times: usize| {
        let from = SocketAddr::from((Ipv4Addr::new(10, 1, 0, host), 1_024)).into();
        let (mut client, mut shown) = (End::new(host), 0);
        for _ in 0..times {
            let key = client.dial();
            for _ in 0..3 {
                for (_, datagram) in client.give() {
                    end.take(from, &datagram);
                }
                for request in std::mem::take(&mut end.program.requests) {
                    shown += 1;
                    end.protocol.reject(end.now, request);
                }
                for (_, datagram) in end.give() {
                    client.take(address_of(0), &datagram);
                }
            }
            let _ = client.protocol.disconnect(client.now, key);
            client.give();
        }
        shown
    };
    let first = flood_from(&mut end, 1, 30_000);
    let second = flood_from(&mut end, 2, 10_000);
    assert!((1_000..20_000).contains(&first), "{first} of 30,000");
    assert!((first / 3..first * 2 / 3).contains(&second), "half of what the first has left: {second}");
    assert_eq!(flood_from(&mut end, 3, 1), 1, "an honest one gets in");
    let kept = end.protocol.memory().total_bytes() - before;
    assert!(kept <= cap_bytes / 4, "{kept} bytes are kept");
    println!(
        "40,000 requests, each refused at once: {first} and {second} are remembered, {kept} B; a third host gets in"
    );
    end.now = end.now.plus(60_000_000_000);
    assert_eq!(flood_from(&mut end, 1, 1), 1, "and the first again, after a while");
}

/// Datagrams of a connection but for its nonce, from its peer's address: each is counted, and nothing is said to it.
#[test]
fn guesses_at_a_nonce_meet_silence() {
    let (mut end, mut client, count) = (End::new(0), End::new(1), flood());
    let key = client.dial();
    let mut header = None;
    for _ in 0..4 {
        for (_, datagram) in client.give() {
            header = header.or(datagram.first_chunk::<48>().filter(|first| first[0] & 15 >= 8).copied());
            end.take(address_of(1), &datagram);
        }
        for request in std::mem::take(&mut end.program.requests) {
            end.protocol.accept(end.now, request, 1).unwrap();
        }
        for (_, datagram) in end.give() {
            client.take(address_of(0), &datagram);
        }
    }
    let (header, mut rng) = (header.expect("a connection"), Rng::new(3));
    end.give();
    let (before, sent_bytes) = (end.protocol.memory().total_bytes(), end.out_bytes);
    for _ in 0..count {
        let mut guess = header;
        //= wire.md R-CONN-1
        rng.fill(&mut guess[16..24]);
        end.take(address_of(1), &guess);
    }
    end.give();
    assert_eq!(end.fault(PeerFault::Nonce), count);
    assert_eq!(
        (end.out_bytes, end.protocol.memory().total_bytes()),
        (sent_bytes, before),
        "silence, and nothing kept"
    );
    client.protocol.send(client.now, key, &[b"still here"], 0, false).unwrap();
    for (_, datagram) in client.give() {
        end.take(address_of(1), &datagram);
    }
    assert_eq!(end.program.messages, 1);
    figures::note("hostile.nonce_guesses", count);
}
