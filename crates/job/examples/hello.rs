//! Four processes find each other, exchange where they are, connect, and say how fast it was.
//!
//! `cargo cci run -n 4 --label -- cargo run --quiet --release -p cci-job --example hello`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for people")]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendFlags};
use cci_job::Job;
use std::error::Error;
use std::time::{Duration, Instant};

const TRIPS: u32 = 1000;
/// Nothing on one host takes nearly so long.
const LIMIT: Duration = Duration::from_secs(30);

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut job = Job::join()?;
    let joined = start.elapsed();

    let context = Context::new()?;
    let device = context.device("any").ok_or("no device any: `cci info` lists them")?;
    let mut endpoint = Endpoint::create(device, Options::default().security(job.security()?))?;
    let uris = job.exchange(endpoint.uri().as_bytes())?;

    // Each speaks to the next rank, and the last one to the first.
    let next = (job.rank() + 1) % job.size();
    let uri = std::str::from_utf8(&uris[next as usize])?;
    endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(LIMIT))?;
    let mut connection = None;
    let mut asked = 0;
    let mut begun = Instant::now();
    let mut done = None;
    let mut answered = 0;
    // Until this rank has all its answers, and has answered all that the one before it asks.
    while done.is_none() || answered < TRIPS {
        match endpoint.wait(Some(LIMIT))?.ok_or("the others are silent")? {
            Event::ConnectRequest(request) => endpoint.accept(request, 0)?,
            Event::Connect { result, .. } => {
                connection = Some(result?);
                begun = Instant::now();
                ask(&mut endpoint, connection, &mut asked)?;
            }
            Event::Recv(message) if *message == *b"ping" => {
                answered += 1;
                endpoint.send(message.connection(), b"pong", 0, SendFlags::SILENT)?;
            }
            Event::Recv(_) if asked < TRIPS => ask(&mut endpoint, connection, &mut asked)?,
            Event::Recv(_) => done = Some(begun.elapsed() / TRIPS),
            _ => {}
        }
    }
    let start = Instant::now();
    job.barrier()?;
    println!(
        "rank {} of {} (on host {}: {} of {}), joined in {joined:.1?}; to rank {next} and back {:.1?}; barrier {:.1?}",
        job.rank(),
        job.size(),
        job.host(),
        job.local_rank(),
        job.local_size(),
        done.unwrap_or_default(),
        start.elapsed(),
    );
    Ok(())
}

fn ask(endpoint: &mut Endpoint, to: Option<Connection>, asked: &mut u32) -> Result<(), Box<dyn Error>> {
    *asked += 1;
    Ok(endpoint.send(to.ok_or("no connection yet")?, b"ping", 0, SendFlags::SILENT)?)
}
