//! `cci ping`: does the peer answer, how fast, and by which path.

use crate::args::PingArgs;
use crate::devices;
use crate::dial;
use crate::failure::{Failure, Outcome};
use crate::pattern::{Pattern, SEQ_BYTES};
use crate::protocol::{self, Hello, Role};
use crate::{signals, text};
use cci::{Connection, Endpoint, Event, Explanation, Fact, Options, SendError, SendFlags, Status};
use cci_sys::clock;
use hdrhistogram::Histogram;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// The longest wait without a look at whether the user or the server has ended it.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the subcommand.
pub fn run(args: &PingArgs) -> Outcome {
    let context = devices::context()?;
    let uri = devices::resolved(&args.uri)?;
    let device = match &args.device {
        Some(name) => devices::named(&context, name)?,
        None => devices::towards(&context, &uri)?,
    };
    check_size(args, device.max_send_size(), &format!("device {}", device.name()))?;
    signals::catch_interrupts()?;
    let mut endpoint = dial::open(device, Options::default())?;
    let hello = protocol::encode(&Hello::new(Role::Echo, 0));
    let attribute = args.r#type.attribute();
    let connection = dial::connect(&mut endpoint, &uri, &hello, attribute, args.timeout.into())?;
    // The path to the peer may take less than the device.
    check_size(args, endpoint.max_send_size(connection).unwrap_or(0), "this connection")?;
    let explanation = endpoint.explain(connection);
    let (pattern, rtt) = (Pattern::new(), Rtt::new());
    let mut pinger = Pinger { args, endpoint, connection, pattern, rtt, sent: 0, received: 0, unanswered: 0 };
    let outcome = pinger.ping();
    // One that has ended explains nothing any more.
    let explanation = pinger.endpoint.explain(connection).or(explanation);
    pinger.report(explanation, outcome.as_ref().err())?;
    outcome
}

/// Before anything is sent: a size that can't be sent is a mistake in the call.
fn check_size(args: &PingArgs, longest: u32, of: &str) -> Outcome {
    if args.size <= longest {
        return Ok(());
    }
    Err(Failure::usage(format!("--size {}: {of} takes messages of {longest} bytes at most", args.size))
        .remedy(format!("--size {longest} or less")))
}

struct Pinger<'a> {
    args: &'a PingArgs,
    endpoint: Endpoint,
    connection: Connection,
    pattern: Pattern,
    rtt: Rtt,
    sent: u64,
    received: u64,
    /// The last one, where the user did not wait for its echo: it is not lost.
    unanswered: u64,
}

/// What came of one ping.
enum Echo {
    /// The echo, after so many nanoseconds.
    After(u64),
    /// None came, which only an unreliable connection may do.
    Lost,
    /// The user ended it.
    Interrupted,
}

/// Round trips, all of them.
struct Rtt(Histogram<u64>);

impl Rtt {
    fn new() -> Rtt {
        // A minute at three digits: the bounds are right, so this can't fail.
        Rtt(Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .unwrap_or_else(|_| unreachable!("bounds are right")))
    }
}

impl Pinger<'_> {
    fn ping(&mut self) -> Outcome {
        let last = self.args.count.checked_sub(1);
        for seq in 0.. {
            let rtt_ns = match self.once(seq)? {
                Echo::After(rtt_ns) => {
                    self.received += 1;
                    self.rtt.0.saturating_record(rtt_ns);
                    Some(rtt_ns)
                }
                Echo::Lost => None,
                Echo::Interrupted => return Ok(()),
            };
            if !self.args.json && self.worth_a_line(seq) {
                let line = match rtt_ns {
                    Some(rtt_ns) => {
                        format!(
                            "{} bytes back: seq={seq} time={}\n",
                            self.args.size,
                            text::duration(rtt_ns as f64)
                        )
                    }
                    None => format!("lost: seq={seq}\n"),
                };
                text::emit(line.as_bytes())?;
            }
            if Some(seq) == last {
                break;
            }
            self.pause(self.args.interval.into())?;
            if signals::interrupted() {
                break;
            }
        }
        Ok(())
    }

    /// A thousand lines tell less than the summary.
    fn worth_a_line(&self, seq: u64) -> bool {
        seq < 10 || !Duration::from(self.args.interval).is_zero()
    }

    /// Sends one and waits for it.
    fn once(&mut self, seq: u64) -> Outcome<Echo> {
        let (number, len) = (seq.to_le_bytes(), self.args.size as usize);
        let head: &[u8] = if len < SEQ_BYTES { &[] } else { &number };
        let until_ns = clock::now_ns() + Duration::from(self.args.timeout).as_nanos() as u64;
        let sent_ns = loop {
            let now_ns = clock::now_ns();
            let segments = [head, self.pattern.body(seq, len)];
            match self.endpoint.send_vectored(self.connection, &segments, seq, SendFlags::NONE) {
                Ok(()) => break now_ns,
                Err(SendError::WouldBlock) if signals::interrupted() => return Ok(Echo::Interrupted),
                Err(SendError::WouldBlock) if now_ns < until_ns => self.endpoint.progress(),
                Err(error) => return Err(dial::not_sent(error)),
            }
        };
        self.sent += 1;
        loop {
            match self.next(until_ns)? {
                Some(Event::Recv(message)) => {
                    let rtt_ns = clock::now_ns() - sent_ns;
                    let is_late = Pattern::seq_of(&message).is_some_and(|number| number < seq);
                    match self.pattern.check(&message, seq, len) {
                        Ok(()) => return Ok(Echo::After(rtt_ns)),
                        Err(_) if is_late && self.args.r#type != crate::args::Kind::Ro => {}
                        Err(reason) => {
                            return Err(Failure::new(format!("the answer is not what was sent: {reason}"))
                                .remedy("is it `cci serve` that listens there?"));
                        }
                    }
                }
                Some(Event::Send { status: Status::Success, .. }) => {}
                Some(Event::Send { status, .. }) => return Err(dial::not_delivered(status)),
                Some(Event::Disconnected { reason, .. }) => {
                    return Err(Failure::new(format!("the server is gone: {reason}")));
                }
                Some(Event::DeviceFailed) => return Err(Failure::new("the device failed")),
                None if signals::interrupted() => {
                    self.unanswered = 1;
                    return Ok(Echo::Interrupted);
                }
                None if !self.args.r#type.attribute().is_reliable() => return Ok(Echo::Lost),
                None => return Err(self.no_echo()),
                Some(_) => {}
            }
        }
    }

    /// The next event; none when the time has come or the user wants no more.
    fn next(&mut self, until_ns: u64) -> Outcome<Option<Event>> {
        loop {
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            let event = dial::wait(&mut self.endpoint, LOOK.min(Duration::from_nanos(left_ns)))?;
            if event.is_some() || left_ns == 0 || signals::interrupted() {
                return Ok(event);
            }
            if !self.endpoint.is_open(self.connection) {
                return Err(dial::not_sent(SendError::Disconnected));
            }
        }
    }

    fn no_echo(&self) -> Failure {
        let held = self.endpoint.explain(self.connection).and_then(|explanation| explanation.blocked_on);
        let held = held.map_or_else(String::new, |reason| format!("; held up by: {reason}"));
        Failure::new(format!("no echo within {}{held}", self.args.timeout))
            .remedy("see whether it is `cci serve` that listens there, and whether it runs or is stopped")
    }

    /// Between two pings the library goes on: acknowledgements, and late echoes, which are dropped.
    fn pause(&mut self, interval: Duration) -> Outcome {
        let until_ns = clock::now_ns() + interval.as_nanos() as u64;
        while let Some(event) = self.next(until_ns)? {
            if let Event::Send { status, .. } = event
                && status != Status::Success
            {
                return Err(dial::not_delivered(status));
            }
        }
        Ok(())
    }

    /// The summary, however it ended.
    fn report(&self, explanation: Option<Explanation>, failure: Option<&Failure>) -> Outcome {
        let (sent, rtt) = (self.sent, &self.rtt.0);
        let lost = sent - self.received - self.unanswered;
        if self.args.json {
            text::emit_json(&json!({
                "uri": self.args.uri,
                "device": self.endpoint.device().name(),
                "type": self.args.r#type.attribute().short_name(),
                "size_bytes": self.args.size,
                "sent": sent,
                "received": self.received,
                "lost": lost,
                "round_trip_ns": (self.received > 0).then(|| json!({
                    "min": rtt.min(), "mean": rtt.mean(), "max": rtt.max(),
                    "p50": rtt.value_at_quantile(0.5), "p90": rtt.value_at_quantile(0.9),
                    "p99": rtt.value_at_quantile(0.99), "p999": rtt.value_at_quantile(0.999),
                })),
                "interrupted": signals::interrupted(),
                "failure": failure.map(Failure::line),
                "explanation": explanation.as_ref().map(explanation_json),
            }))?;
        } else {
            let mut out = format!("\n{sent} sent, {} came back, {lost} lost\n", self.received);
            if self.received > 0 {
                let show = |ns: u64| text::duration(ns as f64);
                let at = |quantile| show(rtt.value_at_quantile(quantile));
                let (min, mean, max) = (show(rtt.min()), text::duration(rtt.mean()), show(rtt.max()));
                let _ = writeln!(
                    out,
                    "round trip: min {min}, mean {mean}, max {max}; p50 {}, p90 {}, p99 {}",
                    at(0.5),
                    at(0.9),
                    at(0.99)
                );
            }
            if let Some(explanation) = explanation.filter(|_| self.args.explain) {
                let _ = write!(out, "\n{explanation}");
            }
            text::emit(out.as_bytes())?;
        }
        let is_vain = self.received == 0 && failure.is_none() && !signals::interrupted();
        if is_vain { Err(Failure::new("nothing came back")) } else { Ok(()) }
    }
}

fn explanation_json(explanation: &Explanation) -> serde_json::Value {
    let paths = explanation.paths.iter();
    json!({
        "transport": explanation.transport,
        "peer": explanation.peer,
        "type": explanation.attribute,
        "paths": paths
            .map(|path| json!({ "path": path.path, "chosen": path.chosen, "reason": path.reason }))
            .collect::<Vec<_>>(),
        "facts": explanation.facts.iter().map(fact_json).collect::<serde_json::Map<_, _>>(),
        "blocked_on": explanation.blocked_on,
    })
}

/// A fact by a key that has its unit, such as `"largest_message_bytes": 8192`.
fn fact_json((name, value): &(&'static str, Fact)) -> (String, serde_json::Value) {
    let (value, unit) = match value {
        Fact::Flag(flag) => (json!(flag), ""),
        Fact::Count(count) => (json!(count), ""),
        Fact::Bytes(bytes) => (json!(bytes), "_bytes"),
        Fact::Ns(ns) => (json!(ns), "_ns"),
        other => (json!(other.to_string()), ""),
    };
    let words: String =
        name.chars().filter(|&letter| letter.is_ascii_alphanumeric() || " -".contains(letter)).collect();
    (words.to_lowercase().replace([' ', '-'], "_") + unit, value)
}
