//! `cci ping`: does the peer answer, how fast, and by which path.

use crate::args::PingArgs;
use crate::client::{Client, Data, Echo};
use crate::devices;
use crate::failure::{Failure, Outcome};
use crate::{signals, text};
use cci::{Explanation, Fact, SendFlags};
use cci_measure::statistics::Times;
use cci_sys::clock;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

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
    let (timeout, attribute) = (args.timeout.into(), args.r#type.attribute());
    let (client, data) = Client::for_echoes(device, &uri, attribute, timeout)?;
    // The path to the peer may take less than the device.
    check_size(args, data.len_max, "this connection")?;
    let explanation = client.endpoint.explain(data.connection);
    let mut pinger = Pinger { args, client, data, rtt: Times::default(), sent: 0 };
    let outcome = pinger.ping();
    // One that has ended explains nothing any more.
    let explanation = pinger.client.endpoint.explain(pinger.data.connection).or(explanation);
    // What the user has ended has not failed.
    let outcome = if signals::interrupted() { Ok(()) } else { outcome };
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
    client: Client,
    data: Data,
    rtt: Times,
    /// Those that were answered or lost: one whose echo the user did not wait for is neither.
    sent: u64,
}

impl Pinger<'_> {
    /// Fails where the user ends it, too.
    fn ping(&mut self) -> Outcome {
        let last = self.args.count.checked_sub(1);
        for seq in 0.. {
            let what = match self.once(seq)? {
                Some(rtt_ns) => {
                    format!(
                        "{} bytes back: seq={seq} time={}\n",
                        self.args.size,
                        text::duration(rtt_ns as f64)
                    )
                }
                None => format!("lost: seq={seq}\n"),
            };
            if !self.args.json && self.worth_a_line(seq) {
                text::emit(what.as_bytes())?;
            }
            if Some(seq) == last {
                break;
            }
            // Between two pings the library goes on: acknowledgements, and late echoes, which are dropped.
            let pause_ns = Duration::from(self.args.interval).as_nanos() as u64;
            self.client.let_pass(clock::now_ns() + pause_ns)?;
            signals::go_on()?;
        }
        Ok(())
    }

    /// A thousand lines say less than the summary.
    fn worth_a_line(&self, seq: u64) -> bool {
        seq < 10 || !Duration::from(self.args.interval).is_zero()
    }

    /// Sends one and waits for it. `None`: no echo came, which only an unreliable connection may do.
    fn once(&mut self, seq: u64) -> Outcome<Option<u64>> {
        let patience_ns = Duration::from(self.args.timeout).as_nanos() as u64;
        let what = (seq, self.args.size);
        let is_any_lost = self.rtt.count() < self.sent;
        let echo = self.client.round_trip(&self.data, what, SendFlags::NONE, patience_ns, is_any_lost);
        self.sent += u64::from(echo.is_ok() || !signals::interrupted());
        match echo? {
            Echo::After { ns, wrong: None } => {
                self.rtt.record(ns);
                Ok(Some(ns))
            }
            Echo::After { wrong: Some(reason), .. } => {
                Err(Failure::new(format!("the answer is not what was sent: {reason}"))
                    .remedy("is it `cci serve` that listens there?"))
            }
            Echo::Missing if !self.data.attribute.is_reliable() => Ok(None),
            Echo::Missing => {
                let failure = self.client.silent(&format!("no echo within {}", self.args.timeout));
                Err(failure.remedy(
                    "see whether it is `cci serve` that listens there, and whether it runs or is stopped",
                ))
            }
        }
    }

    /// The summary, however it ended.
    fn report(&self, explanation: Option<Explanation>, failure: Option<&Failure>) -> Outcome {
        let (sent, rtt) = (self.sent, self.rtt.summary(1.0));
        let received = rtt.samples;
        let lost = sent - received;
        if self.args.json {
            text::emit_json(&json!({
                "uri": self.args.uri,
                "device": self.client.endpoint.device().name(),
                "type": self.args.r#type.attribute().short_name(),
                "size_bytes": self.args.size,
                "sent": sent,
                "received": received,
                "lost": lost,
                "round_trip_ns": (received > 0).then(|| json!({
                    "min": rtt.min as u64, "mean": rtt.mean, "max": rtt.max as u64,
                    "p50": rtt.p50 as u64, "p90": self.rtt.quantile_ns(0.9),
                    "p99": rtt.p99 as u64, "p999": rtt.p999 as u64,
                })),
                "interrupted": signals::interrupted(),
                "failure": failure.map(Failure::to_string),
                "explanation": explanation.as_ref().map(explanation_json),
            }))?;
        } else {
            let mut out = format!("\n{sent} sent, {} came back, {lost} lost\n", received);
            if received > 0 {
                let p90 = self.rtt.quantile_ns(0.9) as f64;
                let [min, mean, max, p50, p90, p99] =
                    [rtt.min, rtt.mean, rtt.max, rtt.p50, p90, rtt.p99].map(text::duration);
                let _ = writeln!(
                    out,
                    "round trip: min {min}, mean {mean}, max {max}; p50 {p50}, p90 {p90}, p99 {p99}"
                );
            }
            if let Some(explanation) = explanation.filter(|_| self.args.explain) {
                let _ = write!(out, "\n{explanation}");
            }
            text::emit(out.as_bytes())?;
        }
        let is_vain = received == 0 && failure.is_none() && !signals::interrupted();
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
