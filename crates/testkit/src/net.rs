//! Networks for tests: pairs of virtual Ethernet interfaces in network namespaces of their own, made with `ip` and `tc`.
//!
//! They need root and iproute2. Where those are missing the constructors say so, and a test prints it and ends:
//!
//! ```no_run
//! use cci_testkit::net::{End, Veth, Wire};
//!
//! # fn test() {
//! // Both ends in one fresh namespace, which this thread is now in: enough for raw Ethernet.
//! let veth = match Veth::pair_in_one_namespace(1500) {
//!     Ok(veth) => veth,
//!     Err(reason) => return println!("skipped: {reason}"),
//! };
//! let (_a, _b) = (veth.name(End::A, 0), veth.name(End::B, 0)); // "a0" and "b0"
//!
//! // Two namespaces with IPv4 and IPv6, joined by two wires, one of them slow. This thread is in A.
//! let slow = Wire { rate_bits_per_s: Some(200_000_000), ..Wire::default() };
//! let Ok(veth) = Veth::across(&[Wire::default(), slow]) else { return };
//! let far = veth.namespace(End::B); // `Send`: for a thread that works in B
//! std::thread::spawn(move || {
//!     let _inside = far.enter().expect("as root");
//!     // 10.77.0.2 and fd77:0::2 on b0, 10.77.1.2 and fd77:1::2 on b1: sockets made here stay here.
//! });
//! {
//!     let _inside = veth.enter(End::B);
//!     // Also this thread may open an endpoint in B, and go on using it from A.
//! }
//! veth.down(End::B, 1);
//! veth.up(End::B, 1);
//! # }
//! ```
//!
//! * A thread or a child process begins in the namespace of the thread that starts it.
//! * Interfaces of wire `n` are `a{n}` and `b{n}`; their MAC addresses are [`mac`]; offloads are the kernel's defaults.
//! * Dropping a [`Veth`] takes its thread back to where it was. Nothing has a name in the file system: the kernel removes
//!   interfaces and namespaces after the last thread and the last socket in them, even after `kill -9`.
//! * Each test makes its own. That takes some 20 ms, and tests run at the same time don't meet.

use super::iproute::{Refused, ip, tc};
use cci_sys::net::interfaces;
use cci_sys::net::namespace::{Inside, Namespace};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

/// One of the commands.
type Tool = fn(&str) -> Result<(), Refused>;

/// An end of every wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the thread is that made it.
    A,
    /// The other.
    B,
}

impl End {
    const fn letter(self) -> char {
        match self {
            End::A => 'a',
            End::B => 'b',
        }
    }

    const fn number(self) -> u8 {
        match self {
            End::A => 1,
            End::B => 2,
        }
    }
}

/// One pair of interfaces.
#[derive(Copy, Clone, Debug)]
pub struct Wire {
    /// Longest IP packet.
    pub mtu_bytes: u32,
    /// What each end sends at most, by a token bucket. None: as fast as the machine is.
    pub rate_bits_per_s: Option<u64>,
}

impl Default for Wire {
    fn default() -> Self {
        Wire { mtu_bytes: 1500, rate_bits_per_s: None }
    }
}

/// Why this machine can't have such a network.
#[derive(Clone, Debug)]
pub struct Unavailable(String);

impl Unavailable {
    /// For a test that needs something more of the machine.
    pub fn new(reason: impl Into<String>) -> Unavailable {
        Unavailable(reason.into())
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Pairs of interfaces, and the calling thread in their namespace for as long as this lives.
#[derive(Debug)]
pub struct Veth {
    a: Namespace,
    b: Namespace,
    /// Goes back when dropped, with what is above still there.
    _inside: Inside,
}

/// The MAC address of an end.
pub const fn mac(end: End, wire: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, wire, end.number()]
}

/// The IPv4 address of an end, /24.
pub const fn ipv4(end: End, wire: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, wire, end.number())
}

/// The IPv6 address of an end, /64.
pub const fn ipv6(end: End, wire: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, wire as u16, 0, 0, 0, 0, 0, end.number() as u16)
}

/// Pairs of interfaces that no thread works with for now.
#[derive(Debug)]
pub struct Resting {
    a: Namespace,
    b: Namespace,
}

impl Resting {
    /// The calling thread is in their namespace from now on.
    pub fn enter(self) -> Veth {
        let inside = self.a.enter().expect("who made it may enter it");
        Veth { a: self.a, b: self.b, _inside: inside }
    }
}

impl Veth {
    /// The calling thread goes back to where it was; the interfaces stay as they are, for another thread.
    pub fn rest(self) -> Resting {
        Resting { a: self.a, b: self.b }
    }

    /// One pair with both ends in one fresh namespace and no addresses: for protocols below IP.
    pub fn pair_in_one_namespace(mtu_bytes: u32) -> Result<Veth, Unavailable> {
        Veth::pairs_in_one_namespace(&[Wire { mtu_bytes, rate_bits_per_s: None }])
    }

    /// Several pairs with both ends in one fresh namespace, without addresses for IP. The loopback interface has 127.0.0.1, 127.0.0.2 and ::1.
    pub fn pairs_in_one_namespace(wires: &[Wire]) -> Result<Veth, Unavailable> {
        let inside = fresh()?;
        let near = inside.namespace().clone();
        let veth = Veth { a: near.clone(), b: near, _inside: inside };
        let mut batch = String::from("link set lo up\naddr add 127.0.0.2/8 dev lo\n");
        for (number, wire) in (0..).zip(wires) {
            veth.add(number, wire)?;
            for end in [End::A, End::B] {
                // No IPv6 of its own accord: the only frames are the test's.
                let name = veth.name(end, number);
                batch += &format!("link set {name} addrgenmode none\nlink set {name} up\n");
            }
        }
        veth.run(End::A, ip, &batch)?;
        for (number, wire) in (0..).zip(wires) {
            for end in [End::A, End::B] {
                veth.limit(end, number, wire.rate_bits_per_s)?;
            }
        }
        veth.wait_for_carrier(wires.len());
        Ok(veth)
    }

    /// Two fresh namespaces joined by `wires`, each with IPv4 and IPv6. The calling thread is in A.
    pub fn across(wires: &[Wire]) -> Result<Veth, Unavailable> {
        let other = fresh()?;
        let b = other.namespace().clone();
        without_duplicate_detection();
        drop(other);
        let inside = fresh()?;
        without_duplicate_detection();
        let veth = Veth { a: inside.namespace().clone(), b, _inside: inside };
        for (number, wire) in (0..).zip(wires) {
            veth.add(number, wire)?;
        }
        for end in [End::A, End::B] {
            let mut batch = String::from("link set lo up\n");
            for number in (0..).take(wires.len()) {
                let name = veth.name(end, number);
                let (v4, v6) = (ipv4(end, number), ipv6(end, number));
                batch += &format!("addr add {v4}/24 dev {name}\naddr add {v6}/64 dev {name} nodad\n");
                batch += &format!("link set {name} up\n");
            }
            veth.run(end, ip, &batch)?;
            for (number, wire) in (0..).zip(wires) {
                veth.limit(end, number, wire.rate_bits_per_s)?;
            }
        }
        veth.wait_for_carrier(wires.len());
        veth.wait_for_link_local(wires.len());
        Ok(veth)
    }

    /// Gives one end of a wire its IPv6 address, where [`Veth::pairs_in_one_namespace`] gave it none.
    pub fn give_ipv6(&self, end: End, wire: u8) {
        let (name, v6) = (self.name(end, wire), ipv6(end, wire));
        self.must(end, ip, &format!("addr add {v6}/64 dev {name} nodad\n"));
    }

    /// The interface at an end of a wire.
    pub fn name(&self, end: End, wire: u8) -> String {
        format!("{}{wire}", end.letter())
    }

    /// An IPv4 or IPv6 address of an end of a wire, as [`Veth::across`] gives them.
    pub fn ip(&self, end: End, wire: u8, v6: bool) -> IpAddr {
        if v6 { ipv6(end, wire).into() } else { ipv4(end, wire).into() }
    }

    /// The namespace of an end, for other threads.
    pub fn namespace(&self, end: End) -> Namespace {
        match end {
            End::A => self.a.clone(),
            End::B => self.b.clone(),
        }
    }

    /// The calling thread goes to an end, until the guard is dropped.
    pub fn enter(&self, end: End) -> Inside {
        self.namespace(end).enter().expect("who made it may enter it")
    }

    /// Switches one end of a wire off: its other end loses the carrier.
    pub fn down(&self, end: End, wire: u8) {
        self.must(end, ip, &format!("link set {} down\n", self.name(end, wire)));
    }

    /// Switches it on again. IPv6 addresses, which the kernel drops with the interface, come back.
    pub fn up(&self, end: End, wire: u8) {
        let (name, v6) = (self.name(end, wire), ipv6(end, wire));
        self.must(end, ip, &format!("link set {name} up\n"));
        if self.a != self.b {
            self.must(end, ip, &format!("addr replace {v6}/64 dev {name} nodad\n"));
        }
    }

    /// Changes the longest packet of both ends of a wire.
    pub fn mtu(&self, wire: u8, mtu_bytes: u32) {
        for end in [End::A, End::B] {
            self.must(end, ip, &format!("link set {} mtu {mtu_bytes}\n", self.name(end, wire)));
        }
    }

    /// Changes the longest packet of one end of a wire. What the other end sends that is longer is lost on the way, and
    /// nobody hears of it: a black hole for large packets.
    pub fn mtu_of(&self, end: End, wire: u8, mtu_bytes: u32) {
        self.must(end, ip, &format!("link set {} mtu {mtu_bytes}\n", self.name(end, wire)));
    }

    /// Has the kernel cut what is to be sent into packets before it reaches the wire, as with a real network card. A
    /// virtual pair otherwise hands over joined packets whole, and pays no heed to their length.
    pub fn no_offload(&self, wire: u8) {
        for end in [End::A, End::B] {
            self.must(end, ip, &format!("link set {} gso_max_segs 1\n", self.name(end, wire)));
        }
    }

    /// Cuts a wire without anybody's noticing: what leaves either end by IP is lost. Where a program sends by other means
    /// than the kernel's queues (raw Ethernet), it is [`Veth::down`] at the other end that comes nearest.
    pub fn cut(&self, wire: u8) {
        for end in [End::A, End::B] {
            // A bucket in which no packet fits.
            let name = self.name(end, wire);
            self.must(
                end,
                tc,
                &format!("qdisc replace dev {name} root tbf rate 8bit burst 10 latency 1ms\n"),
            );
        }
    }

    /// Joins it again. For wires without a rate.
    pub fn mend(&self, wire: u8) {
        for end in [End::A, End::B] {
            self.must(end, tc, &format!("qdisc del dev {} root\n", self.name(end, wire)));
        }
    }

    /// Has what leaves an end be lost, delayed and reordered: `how` is what netem takes, such as `delay 1ms loss 1%`.
    ///
    /// # Errors
    /// Says why, where this kernel has no netem.
    pub fn netem(&self, end: End, wire: u8, how: &str) -> Result<(), Unavailable> {
        let name = self.name(end, wire);
        self.run(end, tc, &format!("qdisc replace dev {name} root netem {how}\n"))
    }

    /// Takes the IPv4 address of an end away and gives it another, which ends in this number.
    pub fn readdress(&self, end: End, wire: u8, last: u8) -> Ipv4Addr {
        let name = self.name(end, wire);
        let address = Ipv4Addr::new(10, 77, wire, last);
        self.must(
            end,
            ip,
            &format!("addr flush dev {name} to 10.77.0.0/16\naddr add {address}/24 dev {name}\n"),
        );
        address
    }

    /// Takes a wire away altogether.
    pub fn remove(&self, wire: u8) {
        self.must(End::A, ip, &format!("link del {}\n", self.name(End::A, wire)));
    }

    /// Changes what one end of a wire sends at most.
    pub fn rate(&self, end: End, wire: u8, bits_per_s: u64) {
        self.limit(end, wire, Some(bits_per_s)).expect("it could be limited before");
    }

    fn add(&self, number: u8, wire: &Wire) -> Result<(), Unavailable> {
        let [a, b] = [End::A, End::B].map(|end| {
            let address = mac(end, number).map(|byte| format!("{byte:02x}")).join(":");
            // Different numbers at the ends: where they happen to be the same, as they do in fresh namespaces, the
            // kernel takes the pair for hardware, and a second to report its carrier.
            let index = 10 + 2 * u32::from(number) + u32::from(end.number());
            format!("name {} index {index} address {address} mtu {}", self.name(end, number), wire.mtu_bytes)
        });
        let elsewhere = if self.a == self.b { String::new() } else { format!(" netns {}", self.b.path()) };
        self.run(End::A, ip, &format!("link add {a} type veth peer {b}{elsewhere}\n"))
    }

    fn limit(&self, end: End, wire: u8, rate_bits_per_s: Option<u64>) -> Result<(), Unavailable> {
        let Some(rate) = rate_bits_per_s else { return Ok(()) };
        // The bucket holds 5 ms, and at least two of the longest packets that offloads make.
        let burst = (rate / 8 / 200).max(128 << 10);
        let name = self.name(end, wire);
        self.run(
            end,
            tc,
            &format!("qdisc replace dev {name} root tbf rate {rate}bit burst {burst} latency 30ms\n"),
        )
    }

    fn must(&self, end: End, tool: Tool, batch: &str) {
        if let Err(reason) = self.run(end, tool, batch) {
            panic!("{reason}");
        }
    }

    /// Runs commands of iproute2 at an end. What the kernel does not have is an error; anything else is the test's failure.
    fn run(&self, end: End, tool: Tool, batch: &str) -> Result<(), Unavailable> {
        let _inside = (self.a != self.b && end == End::B).then(|| self.enter(end));
        let Err(refused) = tool(batch) else { return Ok(()) };
        if let Refused::Said(_, printed) = &refused {
            let kernel_lacks = ["not supported", "Unknown device type", "Specified qdisc kind is unknown"];
            assert!(kernel_lacks.iter().any(|words| printed.contains(words)), "{refused}, of {batch:?}");
        }
        Err(Unavailable(format!("{refused}, of {batch:?}")))
    }

    /// The kernel gives an interface its link-local address a while after it is up. A kernel without IPv6 gives none.
    fn wait_for_link_local(&self, wires: usize) {
        let patience = Instant::now() + Duration::from_secs(10);
        for end in [End::A, End::B] {
            let _inside = self.enter(end);
            let all_there = || match std::fs::read_to_string("/proc/thread-self/net/if_inet6") {
                Ok(table) => (0..).take(wires).all(|wire| has_link_local(&table, &self.name(end, wire))),
                Err(_) => true,
            };
            while !all_there() {
                assert!(Instant::now() < patience, "no link-local address on a new pair of interfaces");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn wait_for_carrier(&self, wires: usize) {
        let patience = Instant::now() + Duration::from_secs(10);
        for end in [End::A, End::B] {
            let _inside = self.enter(end);
            let all_up = || {
                let found = interfaces().expect("interfaces can be listed");
                (0..).take(wires).all(|wire| {
                    let name = self.name(end, wire);
                    found.iter().any(|interface| interface.name == name && interface.up)
                })
            };
            while !all_up() {
                assert!(Instant::now() < patience, "no carrier on a new pair of interfaces");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Whether an interface of the calling thread's namespace has a link-local address that can be used.
fn has_link_local(table: &str, interface: &str) -> bool {
    const LINK_LOCAL: &str = "20";
    const TENTATIVE: u8 = 0x40;
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| match fields[..] {
        [_, _, _, LINK_LOCAL, flags, name] => {
            name == interface && u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & TENTATIVE == 0)
        }
        _ => false,
    })
}

fn fresh() -> Result<Inside, Unavailable> {
    let root = cci_sys::process::uid() == 0;
    Namespace::fresh()
        .map_err(|error| Unavailable(format!("{error}{}", if root { "" } else { " (it needs root)" })))
}

/// Addresses are ours alone: they can be used at once. A kernel without IPv6 has nothing to switch off.
fn without_duplicate_detection() {
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn patient(address: IpAddr) -> UdpSocket {
        let socket = UdpSocket::bind((address, 0)).expect("an address of this namespace");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        socket
    }

    #[test]
    fn two_namespaces_talk_over_each_wire() {
        let slow = Wire { rate_bits_per_s: Some(100_000_000), mtu_bytes: 9000 };
        let veth = match Veth::across(&[Wire::default(), slow]) {
            Ok(veth) => veth,
            Err(reason) => return println!("skipped: {reason}"),
        };
        for (wire, v6) in [(0, false), (0, true), (1, false), (1, true)] {
            let near = patient(veth.ip(End::A, wire, v6));
            let far = {
                let _inside = veth.enter(End::B);
                patient(veth.ip(End::B, wire, v6))
            };
            near.send_to(&[7; 1400], far.local_addr().unwrap()).unwrap();
            let mut heard = [0; 2000];
            let (len, from) = far.recv_from(&mut heard).unwrap();
            assert_eq!((len, from), (1400, near.local_addr().unwrap()), "wire {wire}, IPv6 {v6}");
        }
    }

    #[test]
    fn a_wire_goes_down_and_up() {
        let veth = match Veth::across(&[Wire::default()]) {
            Ok(veth) => veth,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let far = veth.namespace(End::B);
        let (asked, to_answer) = std::sync::mpsc::channel();
        let responder = std::thread::spawn(move || {
            let _inside = far.enter().expect("as root");
            let [v4, v6] = [ipv4(End::B, 0).into(), ipv6(End::B, 0).into()].map(patient);
            asked.send([v4.local_addr().unwrap(), v6.local_addr().unwrap()]).unwrap();
            for socket in [v4, v6] {
                // What was sent into the gap may come late, when the neighbour is found.
                let mut heard = [0; 100];
                let from = loop {
                    let (len, from) = socket.recv_from(&mut heard).expect("something after the wire is up");
                    if &heard[..len] == b"again" {
                        break from;
                    }
                };
                socket.send_to(b"again", from).unwrap();
            }
        });
        for to in to_answer.recv().unwrap() {
            let near = patient(veth.ip(End::A, 0, to.is_ipv6()));
            veth.down(End::B, 0);
            let _ = near.send_to(b"lost", to);
            veth.up(End::B, 0);
            // The first may be lost while the neighbour is found out.
            near.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let mut heard = [0; 100];
            let answered = (0..20).any(|_| {
                let _ = near.send_to(b"again", to);
                matches!(near.recv(&mut heard), Ok(5))
            });
            assert!(answered, "{to} answers after the wire is up again");
        }
        responder.join().unwrap();
    }

    #[test]
    fn a_pair_in_one_namespace_has_no_addresses() {
        let before = Namespace::current().unwrap();
        let veth = match Veth::pair_in_one_namespace(9000) {
            Ok(veth) => veth,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let found = interfaces().unwrap();
        for end in [End::A, End::B] {
            let name = veth.name(end, 0);
            let interface =
                found.iter().find(|interface| interface.name == name).expect("both ends are here");
            assert!(
                interface.up && interface.mtu_bytes == 9000 && interface.addrs.is_empty(),
                "{interface:?}"
            );
        }
        drop(veth);
        assert_eq!(Namespace::current().unwrap(), before);
    }
}
