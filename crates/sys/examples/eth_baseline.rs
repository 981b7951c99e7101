//! What a pair of virtual Ethernet interfaces between two namespaces can do at best, without the library: half round trips of 64 B
//! and 64 B messages a second, one a frame, over AF_XDP, AF_PACKET and UDP sockets. Both ends poll.
//!
//! As root: `cargo run --release -p cci-sys --example eth_baseline` (`chrt -f 20` before it on a busy machine).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints what it found")]

use cci_sys::ethernet::{EndpointLock, FrameHeader, FrameSocket, Link};
use cci_sys::xdp::{self, Attachment, Program, Refusal, Wanted};
use cci_sys::{cpu, packet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[allow(dead_code, reason = "others use the rest")]
#[path = "../../measure/src/iproute.rs"]
mod iproute;
#[allow(dead_code, reason = "others use the rest")]
#[path = "../../testkit/src/net.rs"]
mod net;

use net::{End, Veth, Wire};

const ROUNDS: usize = 30_000;
const MESSAGE_BYTES: usize = 64;
const FLOOD: Duration = Duration::from_millis(700);
const BATCH: usize = 32;

/// One end, whatever it is made of.
trait Port {
    /// Sends up to `count` messages; how many have been taken.
    fn send(&mut self, count: usize) -> usize;
    /// How many have come.
    fn receive(&mut self) -> usize;
}

struct Frames<S> {
    socket: S,
    header: FrameHeader,
    _attachment: Option<(Attachment, EndpointLock)>,
}

impl<S: FrameSocket> Port for Frames<S> {
    fn send(&mut self, count: usize) -> usize {
        let mut put = 0;
        while put < count {
            let bytes = self.header.emit(MESSAGE_BYTES as u16);
            let Some(room) = self.socket.begin(bytes.len() + MESSAGE_BYTES) else { break };
            room[..bytes.len()].copy_from_slice(&bytes);
            self.socket.commit(bytes.len() + MESSAGE_BYTES);
            put += 1;
        }
        self.socket.flush().unwrap();
        put
    }

    fn receive(&mut self) -> usize {
        let mut count = 0;
        while let Some(frame) = self.socket.receive() {
            count += usize::from(FrameHeader::parse(frame).is_ok());
        }
        self.socket.release();
        count
    }
}

/// One system call a message.
struct Datagrams {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Port for Datagrams {
    fn send(&mut self, count: usize) -> usize {
        (0..count).take_while(|_| self.socket.send_to(&[1; MESSAGE_BYTES], self.to).is_ok()).count()
    }

    fn receive(&mut self) -> usize {
        let mut bytes = [0; 2 * MESSAGE_BYTES];
        (0..BATCH).take_while(|_| self.socket.recv_from(&mut bytes).is_ok()).count()
    }
}

/// Polls without a pause for as long as something comes. After a while without, sleeps a little: at a real-time priority
/// the kernel's own threads could not work otherwise, and nothing would come for ever.
struct Patience(Instant);

impl Patience {
    fn new() -> Patience {
        Patience(Instant::now())
    }

    fn nothing_came(&mut self) {
        if self.0.elapsed() > Duration::from_micros(200) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn something_came(&mut self) {
        self.0 = Instant::now();
    }
}

fn links(veth: &Veth) -> [Link; 2] {
    [End::A, End::B].map(|end| {
        let _inside = veth.enter(end);
        Link::of(&veth.name(end, 0)).unwrap()
    })
}

fn header(from: &Link, to: &Link) -> FrameHeader {
    FrameHeader { to: to.mac, from: from.mac, to_endpoint: 7, from_endpoint: 7 }
}

fn over_xdp(veth: &Veth, wanted: Wanted) -> Result<[Frames<xdp::Socket>; 2], Refusal> {
    let [a, b] = links(veth);
    let open = |end, from: &Link, to: &Link| -> Result<_, Refusal> {
        let _inside = veth.enter(end);
        let lock = EndpointLock::take(from.mac, 7).unwrap();
        let program = Program::attach(from.index, wanted)?;
        let socket = xdp::Socket::open(&xdp::Options {
            interface_index: from.index,
            frame_bytes_max: from.mtu_bytes + 14,
            recv_frames: 2_048,
            send_frames: 512,
        })?;
        let attachment = Attachment::create(program, &lock, from.mac, Some(&socket))?;
        Ok(Frames { socket, header: header(from, to), _attachment: Some((attachment, lock)) })
    };
    Ok([open(End::A, &a, &b)?, open(End::B, &b, &a)?])
}

fn over_packets(veth: &Veth) -> [Frames<packet::Socket>; 2] {
    let [a, b] = links(veth);
    let open = |end, from: &Link, to: &Link| {
        let _inside = veth.enter(end);
        let socket = packet::Socket::open(&packet::Options {
            interface_index: from.index,
            endpoint: 7,
            frame_bytes_max: from.mtu_bytes + 14,
            recv_frames: 2_048,
            send_frames: 512,
        });
        Frames { socket: socket.unwrap(), header: header(from, to), _attachment: None }
    };
    [open(End::A, &a, &b), open(End::B, &b, &a)]
}

fn over_udp(veth: &Veth) -> [Datagrams; 2] {
    [(End::A, End::B), (End::B, End::A)].map(|(here, there)| {
        let _inside = veth.enter(here);
        let socket = UdpSocket::bind(SocketAddr::new(veth.ip(here, 0, false), 7_777)).unwrap();
        let to = SocketAddr::new(veth.ip(there, 0, false), 7_777);
        socket.set_nonblocking(true).unwrap();
        Datagrams { socket, to }
    })
}

/// Half round trips, ns, sorted.
fn ping(a: &mut (impl Port + Send), b: &mut (impl Port + Send)) -> Vec<u64> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, mut patience) = (cpu::pin(1), Patience::new());
            while !done.load(Ordering::Relaxed) {
                match b.receive() {
                    0 => patience.nothing_came(),
                    came => {
                        b.send(came);
                        patience.something_came();
                    }
                }
            }
        });
        let _ = cpu::pin(0);
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            a.send(1);
            let mut patience = Patience(start);
            while a.receive() == 0 {
                patience.nothing_came();
                // One that was lost must not hold us up for ever.
                if start.elapsed() > Duration::from_millis(50) {
                    a.send(1);
                }
            }
            times.push(start.elapsed().as_nanos() as u64 / 2);
        }
        done.store(true, Ordering::Relaxed);
        times.sort_unstable();
        times
    })
}

/// Messages sent and received a second, as fast as they go.
fn flood(a: &mut (impl Port + Send), b: &mut (impl Port + Send)) -> (f64, f64) {
    let (done, came, ready) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, mut patience) = (cpu::pin(1), Patience::new());
            ready.wait();
            while !done.load(Ordering::Relaxed) {
                match b.receive() {
                    0 => patience.nothing_came(),
                    count => {
                        came.fetch_add(count as u64, Ordering::Relaxed);
                        patience.something_came();
                    }
                }
            }
        });
        ready.wait();
        let (start, mut sent, mut patience) = (Instant::now(), 0, Patience::new());
        while start.elapsed() < FLOOD {
            match a.send(BATCH) {
                0 => patience.nothing_came(),
                count => {
                    sent += count;
                    patience.something_came();
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        std::thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Relaxed);
        (sent as f64 / seconds, came.load(Ordering::Relaxed) as f64 / seconds)
    })
}

fn report(name: &str, [mut a, mut b]: [impl Port + Send; 2]) {
    let times = ping(&mut a, &mut b);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    let (sent, came) = flood(&mut a, &mut b);
    println!(
        "{name:20} {:6.2} µs half round trip (p50; p90 {:.2}, p99 {:.2}), {:.2} M sent, {:.2} M received a second",
        at(0.5),
        at(0.9),
        at(0.99),
        sent / 1e6,
        came / 1e6
    );
}

fn main() {
    let fresh = || Veth::across(&[Wire::default()]);
    if let Err(reason) = fresh() {
        return println!("not here: {reason}");
    }
    for (name, wanted) in [("AF_XDP, native", Wanted::Native), ("AF_XDP, generic", Wanted::Generic)] {
        let veth = fresh().unwrap();
        match over_xdp(&veth, wanted) {
            Ok(ports) => report(name, ports),
            Err(refusal) => println!("{name:20} not here: {refusal}; {}", refusal.remedy()),
        }
    }
    report("AF_PACKET", over_packets(&fresh().unwrap()));
    report("UDP", over_udp(&fresh().unwrap()));
}
