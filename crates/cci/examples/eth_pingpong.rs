//! Raw Ethernet side by side with UDP on one pair of virtual interfaces, each in a network namespace of its own, in one run
//! on two pinned cores. As root: `cargo run --release --example eth_pingpong`, or with `ping` or `rate`, a device's number or
//! `hand`, and bytes for one of them alone.
//!
//! - half round trip of 64 bytes, reliable ordered, against two non-blocking UDP sockets polled by hand;
//! - messages of 64 bytes a second, reliable ordered, against one sendto for each.
#![allow(clippy::print_stdout)]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use cci_sys::net::namespace::{Inside, Namespace};
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 5;
const PINGS: usize = 20_000;
/// Of a message, for half round trips; for messages a second unless told.
const BYTES: usize = 64;
const RATE_TIME: Duration = Duration::from_millis(300);
/// What is measured, by the lines of a device's configuration.
const DEVICES: [(&str, &str); 4] = [
    ("udp", "transport = udp\ninterface = wire0"),
    ("eth", "transport = eth\ninterface = wire0"),
    ("eth, in the driver", "transport = eth\ninterface = wire0\nmode = xdp"),
    ("eth, AF_PACKET", "transport = eth\ninterface = wire0\nmode = packet"),
];

fn main() -> Result<()> {
    let wire = match Wire::new() {
        Ok(wire) => wire,
        Err(error) => return Err(format!("{error}; run it as root, with iproute2").into()),
    };
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [what, which, bytes @ ..] = args.as_slice() {
        let bytes = bytes.first().map_or(Ok(BYTES), |bytes| bytes.parse())?;
        return alone(&wire, what, which, bytes);
    }
    let mut hand = [Vec::new(), Vec::new()];
    let mut ours = [const { [Vec::new(), Vec::new()] }; DEVICES.len()];
    for _ in 0..ROUNDS {
        hand[0].push(hand_ping(&wire)?);
        hand[1].push(hand_rate(&wire, BYTES)?);
        for ((_, lines), [pings, rates]) in DEVICES.iter().zip(&mut ours) {
            pings.push(cci_ping(&wire, lines)?);
            rates.push(cci_rate(&wire, lines, BYTES)?);
        }
    }
    let [hand_ns, hand_rate] = hand.map(median);
    println!("sockets by hand: half round trip {hand_ns:.0} ns, {:.3} M messages/s", hand_rate / 1e6);
    for ((name, _), values) in DEVICES.iter().zip(ours) {
        let [ns, rate] = values.map(median);
        let (latency, times) = (ns / hand_ns, rate / hand_rate);
        println!(
            "{name}: {ns:.0} ns ({latency:.2} of it), {:.3} M messages/s ({times:.1} times)",
            rate / 1e6
        );
    }
    Ok(())
}

/// One of them alone, for a profiler or to take turns with others.
fn alone(wire: &Wire, what: &str, which: &str, bytes: usize) -> Result<()> {
    for _ in 0..ROUNDS {
        let lines = || -> Result<&str> {
            Ok(DEVICES.get(which.parse::<usize>()?).ok_or("a device from 0 to 3, or hand")?.1)
        };
        match (what, which) {
            ("ping", "hand") => println!("{:.0} ns", hand_ping(wire)?),
            ("ping", _) => println!("{:.0} ns", cci_ping(wire, lines()?)?),
            (_, "hand") => println!("{:.3} M/s", hand_rate(wire, bytes)? / 1e6),
            _ => println!("{:.3} M/s", cci_rate(wire, lines()?, bytes)? / 1e6),
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Half of the median round trip, nanoseconds.
fn half(mut trips_ns: Vec<u64>) -> f64 {
    trips_ns.sort_unstable();
    trips_ns[trips_ns.len() / 2] as f64 / 2.0
}

/// The pair: this thread is at one end.
struct Wire {
    there: Namespace,
    _here: Inside,
}

impl Wire {
    fn new() -> Result<Wire> {
        let other = Namespace::fresh()?;
        let there = other.namespace().clone();
        drop(other);
        let here = Namespace::fresh()?;
        let up = |ip: &str| format!("addr add {ip}/24 dev wire0\nlink set wire0 up\n");
        ip(&format!("link add wire0 index 11 type veth peer name wire0 index 12 netns {}\n", there.path()))?;
        ip(&up("10.99.1.1"))?;
        {
            let _inside = there.enter()?;
            ip(&up("10.99.1.2"))?;
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(Wire { there, _here: here })
    }

    /// Does something at the other end.
    fn there<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let _inside = self.there.enter()?;
        act()
    }

    fn sockets(&self) -> Result<[UdpSocket; 2]> {
        let one = UdpSocket::bind("10.99.1.1:0")?;
        let two = self.there(|| Ok(UdpSocket::bind("10.99.1.2:0")?))?;
        one.set_nonblocking(true)?;
        two.set_nonblocking(true)?;
        Ok([one, two])
    }
}

fn ip(batch: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(batch.as_bytes())?;
    if child.wait()?.success() { Ok(()) } else { Err("ip failed".into()) }
}

fn recv(socket: &UdpSocket, buffer: &mut [u8], stop: &AtomicBool) -> Result<bool> {
    loop {
        match socket.recv(buffer) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs `act` on one core while `answer` runs on the other, until it is told to stop.
fn beside<T>(
    answer: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static,
    act: impl FnOnce(&AtomicBool) -> Result<T>,
) -> Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let placed = Arc::new(Barrier::new(2));
    let (stopped, there) = (stop.clone(), placed.clone());
    let answering = std::thread::spawn(move || -> Result<()> {
        cci_sys::cpu::pin(1)?;
        there.wait();
        answer(&stopped)
    });
    placed.wait();
    cci_sys::cpu::pin(0)?;
    let done = act(&stop);
    stop.store(true, Ordering::Relaxed);
    answering.join().map_err(|_| "the other thread panicked")??;
    done
}

fn hand_ping(wire: &Wire) -> Result<f64> {
    let [one, two] = wire.sockets()?;
    let (at_one, at_two): (SocketAddr, SocketAddr) = (one.local_addr()?, two.local_addr()?);
    let echo = move |stop: &AtomicBool| -> Result<()> {
        let mut buffer = [0; BYTES];
        while recv(&two, &mut buffer, stop)? {
            two.send_to(&buffer, at_one)?;
        }
        Ok(())
    };
    beside(echo, |stop| {
        let mut trips_ns = Vec::with_capacity(PINGS);
        let mut buffer = [0; BYTES];
        for _ in 0..PINGS {
            let start = Instant::now();
            one.send_to(&[7; BYTES], at_two)?;
            recv(&one, &mut buffer, stop)?;
            trips_ns.push(start.elapsed().as_nanos() as u64);
        }
        Ok(half(trips_ns))
    })
}

fn hand_rate(wire: &Wire, bytes: usize) -> Result<f64> {
    let [one, two] = wire.sockets()?;
    let at_two = two.local_addr()?;
    let sink = move |stop: &AtomicBool| -> Result<()> {
        let mut buffer = vec![0; bytes];
        while recv(&two, &mut buffer, stop)? {}
        Ok(())
    };
    let message = vec![7; bytes];
    beside(sink, |_| {
        let start = Instant::now();
        let mut sent = 0u64;
        while start.elapsed() < RATE_TIME {
            for _ in 0..64 {
                match one.send_to(&message, at_two) {
                    Ok(_) => sent += 1,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(sent as f64 / start.elapsed().as_secs_f64())
    })
}

/// A client here and a server at the other end, in a thread of its own, which runs `serve` until `stop`.
fn with_server<T>(
    wire: &Wire,
    lines: &str,
    serve: impl Fn(&mut Endpoint, Option<Event>) -> Result<()> + Send + 'static,
    run: impl FnOnce(&mut Endpoint, Connection) -> Result<T>,
) -> Result<T> {
    let open = || -> Result<Endpoint> {
        let context = Context::from_text(&format!("[d]\n{lines}\n"), Path::new("example.ini"))?;
        Ok(Endpoint::create(context.default_device(), Options::default())?)
    };
    let mut server = wire.there(open)?;
    let mut client = open()?;
    let shown = std::env::var_os("ETH_PINGPONG_COUNTERS").is_some();
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(Duration::from_secs(5)))?;
    let serving = move |stop: &AtomicBool| -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0)?,
                other => serve(&mut server, other)?,
            }
        }
        if shown {
            println!("{:#?}", server.counters());
        }
        Ok(())
    };
    beside(serving, |_| {
        let connection = loop {
            if let Some(Event::Connect { result, .. }) = client.next_event() {
                break result?;
            }
        };
        let result = run(&mut client, connection);
        if shown {
            println!("{:#?}", client.counters());
            println!("{}", client.explain(connection).unwrap_or_default());
        }
        // The server is still there to confirm the close.
        client.close(Duration::from_secs(1));
        result
    })
}

fn cci_ping(wire: &Wire, lines: &str) -> Result<f64> {
    let serve = |server: &mut Endpoint, event: Option<Event>| -> Result<()> {
        if let Some(Event::Recv(message)) = event {
            server.send(message.connection(), &message, 0, SendFlags::SILENT)?;
        }
        Ok(())
    };
    with_server(wire, lines, serve, |client, connection| {
        let mut trips_ns = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let start = Instant::now();
            client.send(connection, &[7; BYTES], 0, SendFlags::SILENT)?;
            while client.next_event().is_none() {}
            trips_ns.push(start.elapsed().as_nanos() as u64);
        }
        Ok(half(trips_ns))
    })
}

fn cci_rate(wire: &Wire, lines: &str, bytes: usize) -> Result<f64> {
    let message = vec![7; bytes];
    let received = Arc::new(AtomicU64::new(0));
    let counted = received.clone();
    let serve = move |_: &mut Endpoint, event: Option<Event>| -> Result<()> {
        if let Some(Event::Recv(message)) = event {
            counted.fetch_add(u64::from(message.len() == bytes), Ordering::Relaxed);
        }
        Ok(())
    };
    with_server(wire, lines, serve, |client, connection| {
        let start = Instant::now();
        let mut sent = 0u64;
        while start.elapsed() < RATE_TIME {
            for _ in 0..256 {
                match client.send(connection, &message, 0, SendFlags::SILENT) {
                    Ok(()) => sent += 1,
                    Err(SendError::WouldBlock) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            client.progress();
        }
        while received.load(Ordering::Relaxed) < sent {
            client.progress();
        }
        Ok(sent as f64 / start.elapsed().as_secs_f64())
    })
}
