//! TCP side by side with sockets by hand, in one run on two pinned cores: `cargo run --release --example tcp_pingpong`.
//!
//! - half round trip of 8 bytes, reliable ordered, against two non-blocking streams polled by hand;
//! - messages of 8 bytes a second, reliable ordered, against one write for each.
#![allow(clippy::print_stdout)]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 5;
const PINGS: usize = 20_000;
const RATE_TIME: Duration = Duration::from_millis(500);

fn main() -> Result<()> {
    // One of the two alone, for a profiler.
    if let Some(only) = std::env::args().nth(1) {
        for _ in 0..ROUNDS {
            match only.as_str() {
                "ping" => println!("cci {:.0} ns", cci_ping()?),
                "rate" => println!("cci {:.3} M/s", cci_rate()? / 1e6),
                _ => return Err("usage: tcp_pingpong [ping|rate]".into()),
            }
        }
        return Ok(());
    }
    let mut table = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        table[0].push(hand_ping()?);
        table[1].push(cci_ping()?);
        table[2].push(hand_rate()?);
        table[3].push(cci_rate()?);
    }
    let [hand_ns, cci_ns, hand_rate, cci_rate] = table.map(median);
    println!(
        "8 B half round trip: by hand {hand_ns:.0} ns, cci {cci_ns:.0} ns, ratio {:.3}",
        cci_ns / hand_ns
    );
    println!(
        "8 B messages a second: by hand {:.3} M, cci {:.3} M, ratio {:.1}",
        hand_rate / 1e6,
        cci_rate / 1e6,
        cci_rate / hand_rate
    );
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

fn streams() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (two, _) = listener.accept()?;
    for stream in [&one, &two] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((one, two))
}

/// Something comes; false: no more.
fn recv(stream: &mut TcpStream, buffer: &mut [u8], stop: &AtomicBool) -> Result<bool> {
    loop {
        match stream.read(buffer) {
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

fn hand_ping() -> Result<f64> {
    let (mut one, mut two) = streams()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let placed = Arc::new(Barrier::new(2));
    let there = placed.clone();
    let echo = std::thread::spawn(move || -> Result<()> {
        cci_sys::cpu::pin(1)?;
        there.wait();
        let mut buffer = [0; 64];
        while recv(&mut two, &mut buffer, &stopped)? {
            two.write_all(&buffer[..8])?;
        }
        Ok(())
    });
    placed.wait();
    cci_sys::cpu::pin(0)?;
    let mut trips_ns = Vec::with_capacity(PINGS);
    let mut buffer = [0; 64];
    for _ in 0..PINGS {
        let start = Instant::now();
        one.write_all(&[7; 8])?;
        recv(&mut one, &mut buffer, &stop)?;
        trips_ns.push(start.elapsed().as_nanos() as u64);
    }
    stop.store(true, Ordering::Relaxed);
    echo.join().map_err(|_| "the echo thread panicked")??;
    Ok(half(trips_ns))
}

fn hand_rate() -> Result<f64> {
    let (mut one, mut two) = streams()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let placed = Arc::new(Barrier::new(2));
    let there = placed.clone();
    let sink = std::thread::spawn(move || -> Result<()> {
        cci_sys::cpu::pin(1)?;
        there.wait();
        let mut buffer = vec![0; 64 << 10];
        while recv(&mut two, &mut buffer, &stopped)? {}
        Ok(())
    });
    placed.wait();
    cci_sys::cpu::pin(0)?;
    let start = Instant::now();
    let mut sent = 0u64;
    while start.elapsed() < RATE_TIME {
        for _ in 0..64 {
            match one.write(&[7; 8]) {
                Ok(_) => sent += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let rate = sent as f64 / start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    sink.join().map_err(|_| "the receiving thread panicked")??;
    Ok(rate)
}

/// A client here and a server in a thread of its own, which runs `serve` until `stop`.
fn with_server<T>(
    serve: impl Fn(&mut Endpoint, Option<Event>) -> Result<()> + Send + 'static,
    run: impl FnOnce(&mut Endpoint, Connection) -> Result<T>,
) -> Result<T> {
    let context = Context::from_text("[t]\ntransport = tcp\nip = 127.0.0.1\n", Path::new("example.ini"))?;
    let mut server = Endpoint::create(context.default_device(), Options::default())?;
    let mut client = Endpoint::create(context.default_device(), Options::default())?;
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(Duration::from_secs(5)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    // A thread that is placed does not run over one that is not yet, even where both have real-time priority.
    let placed = Arc::new(Barrier::new(2));
    let there = placed.clone();
    let serving = std::thread::spawn(move || -> Result<()> {
        cci_sys::cpu::pin(1)?;
        there.wait();
        while !stopped.load(Ordering::Relaxed) {
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0)?,
                other => serve(&mut server, other)?,
            }
        }
        if std::env::var_os("TCP_PINGPONG_COUNTERS").is_some() {
            println!("{:#?}", server.counters());
        }
        Ok(())
    });
    placed.wait();
    cci_sys::cpu::pin(0)?;
    let connection = loop {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            break result?;
        }
    };
    let result = run(&mut client, connection);
    if std::env::var_os("TCP_PINGPONG_COUNTERS").is_some() {
        println!("{:#?}", client.counters());
        println!("{}", client.explain(connection).unwrap_or_default());
    }
    // The server is still there to confirm the close.
    client.close(Duration::from_secs(1));
    stop.store(true, Ordering::Relaxed);
    serving.join().map_err(|_| "the server's thread panicked")??;
    result
}

fn cci_ping() -> Result<f64> {
    let serve = |server: &mut Endpoint, event: Option<Event>| -> Result<()> {
        if let Some(Event::Recv(message)) = event {
            server.send(message.connection(), &message, 0, SendFlags::SILENT)?;
        }
        Ok(())
    };
    with_server(serve, |client, connection| {
        let mut trips_ns = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let start = Instant::now();
            client.send(connection, &[7; 8], 0, SendFlags::SILENT)?;
            while client.next_event().is_none() {}
            trips_ns.push(start.elapsed().as_nanos() as u64);
        }
        Ok(half(trips_ns))
    })
}

fn cci_rate() -> Result<f64> {
    let received = Arc::new(AtomicU64::new(0));
    let counted = received.clone();
    let serve = move |_: &mut Endpoint, event: Option<Event>| -> Result<()> {
        if let Some(Event::Recv(message)) = event {
            counted.fetch_add(u64::from(message.len() == 8), Ordering::Relaxed);
        }
        Ok(())
    };
    with_server(serve, |client, connection| {
        let start = Instant::now();
        let mut sent = 0u64;
        while start.elapsed() < RATE_TIME {
            for _ in 0..256 {
                match client.send(connection, &[7; 8], 0, SendFlags::SILENT) {
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
