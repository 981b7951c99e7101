//! Many idle connections between two endpoints: what a poll costs, and what each of them holds.

use super::dial;
use super::messages::Messages;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci::{Attribute, Connection, Endpoint, Event, Options, SendFlags};
use cci_measure::channel::Channel;
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use std::fs;
use std::time::Duration;

/// Attempts to connect under way at once.
const WINDOW: u32 = 32;
/// No connection takes longer.
const SILENCE_NS: u64 = 20_000_000_000;
/// For a million connections and all that they need while they are set up.
const MEMORY_BYTES_MAX: u64 = 2 << 30;
/// The system counts no finer: few connections may fit what was there already.
const PAGE_BYTES: u64 = 4096;
/// What the last handshakes left to do is done after that.
const REST: Duration = Duration::from_millis(300);
/// Requests to connect are remembered for a while, so that a repetition is no second request. Until then they are forgotten, at the
/// latest.
const UNTIL_FORGOTTEN: Duration = Duration::from_secs(45);
/// So many connections are a trial of this work, whose reading nobody uses: it does not wait until requests are forgotten.
const TRIAL_CONNECTIONS_MAX: u32 = 1_000;

fn options() -> Options {
    Options::default().memory_bytes_max(MEMORY_BYTES_MAX)
}

/// One poll that finds nothing, nanoseconds.
pub fn poll(args: &WorkArgs, connections: u32) -> Outcome<Option<Reading>> {
    with_connections(args, connections, |side| {
        side.rest(REST)?;
        let polls = args.count.max(1);
        let begin_ns = clock::now_ns();
        for _ in 0..polls {
            std::hint::black_box(side.endpoint.next_event());
        }
        Ok((clock::now_ns() - begin_ns) as f64 / polls as f64)
    })
}

/// Resident bytes a connection and side, as the system counts them: of both processes, after less before.
pub fn idle_memory(args: &WorkArgs, connections: u32) -> Outcome<Option<Reading>> {
    with_connections(args, connections, |side| {
        side.rest(if connections <= TRIAL_CONNECTIONS_MAX { REST } else { UNTIL_FORGOTTEN })?;
        let more = side.resident_bytes()?.saturating_sub(side.resident_bytes_before).max(PAGE_BYTES);
        Ok(more as f64 / f64::from(connections) / 2.0)
    })
}

/// The first side, with all connections open.
struct Side {
    endpoint: Endpoint,
    partner: Partner,
    resident_bytes_before: u64,
}

impl Side {
    /// Lets what is under way come to its end: polls, as a program would.
    fn rest(&mut self, length: Duration) -> Outcome {
        let until_ns = clock::now_ns() + length.as_nanos() as u64;
        while clock::now_ns() < until_ns {
            if let Some(Event::DeviceFailed) = self.endpoint.next_event() {
                return Err(Failure::new("the device failed"));
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> Outcome<u64> {
        Ok(resident_bytes("self")? + resident_bytes(&self.partner.pid().to_string())?)
    }
}

/// The proportional set: of what both processes map, each counts half.
fn resident_bytes(process: &str) -> Outcome<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|error| Failure::new(format!("{path}: {error}")))?;
    parse_pss(&text).ok_or_else(|| Failure::new(format!("{path}: no Pss")))
}

fn parse_pss(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn with_connections(
    args: &WorkArgs,
    connections: u32,
    measure: impl FnOnce(&mut Side) -> Outcome<f64>,
) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        connect_all(args, first, connections)?;
        return Ok(None);
    }
    let site = partner::site(args)?;
    let endpoint = dial::endpoint_with(args, options())?;
    let partner = Partner::start(args, &site, endpoint.uri())?;
    partner::pin(args)?;
    let mut side = Side { endpoint, partner, resident_bytes_before: 0 };
    // The first connection is not counted: with it comes what an endpoint needs for any.
    let first = accept_all(&mut side.endpoint, 1)?;
    side.resident_bytes_before = side.resident_bytes()?;
    send_first(&mut side.endpoint, first)?;
    if connections > 1 {
        accept_all(&mut side.endpoint, connections - 1)?;
    }
    let value = measure(&mut side)?;
    send_first(&mut side.endpoint, first)?;
    let Side { mut endpoint, partner, .. } = side;
    partner.end(|| drop(endpoint.next_event()))?;
    Ok(Some(Reading::of(value)))
}

/// Goes on, or done: the partner waits for it.
fn send_first(endpoint: &mut Endpoint, to: Connection) -> Outcome {
    endpoint.send(to, b"", 0, SendFlags::SILENT).map_err(|error| dial::failed("send")(&error))
}

/// The last of them.
fn accept_all(endpoint: &mut Endpoint, count: u32) -> Outcome<Connection> {
    let (mut open, mut last_ns) = (0, clock::now_ns());
    loop {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => {
                endpoint.accept(request, 0).map_err(|error| dial::failed("accept")(&error))?;
            }
            Some(Event::Accept { result, .. }) => {
                let connection = result.map_err(|error| dial::failed("accept")(&error))?;
                (open, last_ns) = (open + 1, clock::now_ns());
                if open == count {
                    return Ok(connection);
                }
            }
            Some(_) => {}
            None if clock::now_ns() - last_ns > SILENCE_NS => {
                return Err(Failure::new(format!("{open} of {count} connections are open")));
            }
            None => {}
        }
    }
}

/// The partner: one connection, the others when it is asked for them, and then nothing until it is asked to end.
fn connect_all(args: &WorkArgs, first: &str, connections: u32) -> Outcome {
    let mut endpoint = dial::endpoint_with(args, options())?;
    let connection = dial::connect(&mut endpoint, first, Attribute::ReliableOrdered)?;
    let mut side = Messages { endpoint, connection };
    side.receive()?;
    let (mut asked, mut open, mut last_ns) = (1, 1, clock::now_ns());
    while open < connections {
        while asked < connections && asked - open < WINDOW {
            let started = side.endpoint.connect(first, b"", Attribute::ReliableOrdered, 0, None);
            started.map_err(|error| dial::failed(first)(&error))?;
            asked += 1;
        }
        match side.endpoint.next_event() {
            Some(Event::Connect { result, .. }) => {
                result.map_err(|error| dial::failed(first)(&error))?;
                (open, last_ns) = (open + 1, clock::now_ns());
            }
            Some(_) => {}
            None if clock::now_ns() - last_ns > SILENCE_NS => {
                return Err(Failure::new(format!("{open} of {connections} connections are open")));
            }
            None => {}
        }
    }
    let until_ns = SILENCE_NS + UNTIL_FORGOTTEN.as_nanos() as u64;
    side.receive_within(until_ns)?.map(drop).ok_or_else(|| Failure::new("nothing comes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_count_is_read() {
        let text = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:     1748 kB\nPss:      250 kB\nPss_Dirty: 90 kB\n";
        assert_eq!(parse_pss(text), Some(250 << 10));
        assert_eq!(parse_pss("Rss: 5 kB\n"), None);
        assert!(resident_bytes("self").is_ok_and(|bytes| bytes > 0));
    }
}
