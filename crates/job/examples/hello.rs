//! Four processes find each other, connect, and say how fast it was.
//!
//! `cargo cci run -n 4 --label -- cargo run --quiet --release -p cci-job --example hello`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for people")]

use cci::{Connection, Context, Event, Options, SendFlags};
use cci_job::{Job, Peer, RankEvent, Ranks};
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
    let mut ranks = Ranks::open(&mut job, device, Options::default())?;

    // Each speaks to the next rank, and the last one to the first. Two of two have one connection for that.
    let next = (job.rank() + 1) % job.size();
    ranks.connect(Peer::of(next), LIMIT)?;
    let mut asked = 0;
    let mut begun = Instant::now();
    let mut done = None;
    let mut answered = 0;
    // Until this rank has all its answers, and has answered all that the one before it asks.
    while done.is_none() || answered < TRIPS {
        match ranks.wait(Some(LIMIT))?.ok_or("the others are silent")? {
            RankEvent::Connected { peer, connection } if peer.rank() == next => {
                begun = Instant::now();
                ask(&mut ranks, connection, &mut asked)?;
            }
            RankEvent::Failed { peer, why } => {
                return Err(format!("no connection with rank {}: {why}", peer.rank()).into());
            }
            RankEvent::Ended { peer, reason, .. } if done.is_none() && peer.rank() == next => {
                return Err(format!("rank {next} is gone: {reason}").into());
            }
            RankEvent::Endpoint(Event::Recv(message)) if *message == *b"ping" => {
                answered += 1;
                let connection = message.connection();
                ranks.endpoint().send(connection, b"pong", 0, SendFlags::SILENT)?;
            }
            RankEvent::Endpoint(Event::Recv(message)) if asked < TRIPS => {
                ask(&mut ranks, message.connection(), &mut asked)?;
            }
            RankEvent::Endpoint(Event::Recv(_)) => done = Some(begun.elapsed() / TRIPS),
            _ => {}
        }
    }
    // The first one opens its connections.
    barrier(&mut ranks)?;
    let start = Instant::now();
    for _ in 0..TRIPS {
        barrier(&mut ranks)?;
    }
    let barriers = start.elapsed() / TRIPS;
    job.barrier()?;
    println!(
        "rank {} of {} (on host {}: {} of {}), joined in {joined:.1?}; to rank {next} and back {:.1?}; barrier {:.1?}",
        job.rank(),
        job.size(),
        job.host(),
        job.local_rank(),
        job.local_size(),
        done.unwrap_or_default(),
        barriers,
    );
    Ok(())
}

fn barrier(ranks: &mut Ranks) -> Result<(), Box<dyn Error>> {
    ranks.barrier(LIMIT)?;
    loop {
        if let RankEvent::Barrier(end) = ranks.wait(Some(LIMIT))?.ok_or("the others are silent")? {
            return Ok(end?);
        }
    }
}

fn ask(ranks: &mut Ranks, to: Connection, asked: &mut u32) -> Result<(), Box<dyn Error>> {
    *asked += 1;
    Ok(ranks.endpoint().send(to, b"ping", 0, SendFlags::SILENT)?)
}
