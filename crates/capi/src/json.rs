//! Counters as JSON.

use cci::messages::Counters;
use cci::{ConnectionCounters, EndpointCounters};
use std::fmt::Write;

/// The counters of an endpoint. `side_bytes`: what the C interface holds for it, bytes.
pub(crate) fn of_endpoint(counters: &EndpointCounters, side_bytes: u64) -> String {
    let mut json = Json::new();
    json.endpoint(counters, side_bytes);
    json.end()
}

/// The counters of a messenger: those of its endpoint, and its own in a member `messenger`. `side_bytes`: what the C interface holds for
/// it, bytes.
pub(crate) fn of_messenger(endpoint: &EndpointCounters, own: &Counters, side_bytes: u64) -> String {
    let mut json = Json::new();
    json.endpoint(endpoint, side_bytes);
    let members = [
        ("long_sent", own.long_sent),
        ("long_received", own.long_received),
        ("long_failed", own.long_failed),
        ("silent_failed", own.silent_failed),
        ("faults", own.faults),
        ("late", own.late),
        ("strangers", own.strangers),
        ("lent_bytes", own.lent_bytes),
        ("idle_lent_bytes", own.idle_lent_bytes),
        ("staged_bytes", own.staged_bytes),
        ("idle_staged_bytes", own.idle_staged_bytes),
        ("kept_regions", own.kept_regions),
    ];
    json.object("messenger", &members);
    json.end()
}

/// The counters of a connection.
pub(crate) fn of_connection(counters: &ConnectionCounters) -> String {
    let mut json = Json::new();
    json.number("messages_sent", counters.messages_sent);
    json.number("bytes_sent", counters.bytes_sent);
    json.number("messages_received", counters.messages_received);
    json.number("bytes_received", counters.bytes_received);
    json.number("retransmissions", counters.retransmissions);
    if let Some(rtt_ns) = counters.rtt_ns {
        json.number("rtt_ns", rtt_ns);
    }
    json.number("window_bytes", counters.window_bytes);
    json.number("receiver_not_ready", counters.receiver_not_ready);
    json.number("sends_in_progress", counters.sends_in_progress);
    json.end()
}

/// Just enough JSON for names that are the library's own and numbers.
struct Json(String);

impl Json {
    fn new() -> Json {
        Json("{".to_owned())
    }

    fn endpoint(&mut self, counters: &EndpointCounters, side_bytes: u64) {
        self.number("messages_sent", counters.messages_sent);
        self.number("bytes_sent", counters.bytes_sent);
        self.number("messages_received", counters.messages_received);
        self.number("bytes_received", counters.bytes_received);
        self.number("rma_writes", counters.rma_writes);
        self.number("rma_reads", counters.rma_reads);
        self.number("rma_bytes", counters.rma_bytes);
        self.number("atomics", counters.atomics);
        self.number("rma_refused", counters.rma_refused);
        self.number("rma_refused_by_name", counters.rma_refused_by_name);
        self.number("regions", counters.regions);
        self.number("registration_hits", counters.registration_hits);
        self.number("registration_misses", counters.registration_misses);
        self.number("registration_evictions", counters.registration_evictions);
        self.number("registrations_idle_bytes", counters.registrations_idle_bytes);
        self.number("sends_failed", counters.sends_failed);
        self.number("receiver_not_ready", counters.receiver_not_ready);
        self.number("connections_open", counters.connections_open);
        self.number("connections_made", counters.connections_made);
        self.number("sleeps", counters.sleeps);
        self.object("device", &counters.device);
        let drops: Vec<_> = counters.drops.iter().map(|drop| (drop.name, drop.count)).collect();
        self.object("drops", &drops);
        let mut kinds = counters.memory.kinds.clone();
        kinds.push(("C interface", side_bytes));
        self.object("memory_bytes", &kinds);
        self.number("memory_total_bytes", counters.memory.total_bytes + side_bytes);
        self.number("memory_cap_bytes", counters.memory.cap_bytes);
    }

    fn name(&mut self, name: &str) {
        if !self.0.ends_with('{') {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.extend(name.chars().filter(|char| !char.is_control() && !matches!(char, '"' | '\\')));
        self.0.push_str("\":");
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        // Writing to a String can't fail.
        let _ = write!(self.0, "{value}");
    }

    fn object(&mut self, name: &str, members: &[(&'static str, u64)]) {
        self.name(name);
        self.0.push('{');
        for (name, value) in members {
            self.number(name, *value);
        }
        self.0.push('}');
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}
