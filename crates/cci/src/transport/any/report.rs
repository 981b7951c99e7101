//! Counters and explanations: what the transport reports of itself, and of the paths that a connection did or did not take.

use super::Any;
use super::dial::{Attempt, Outcome};
use super::parts::unpack;
use super::uri::ORDER;
use crate::ConnectFailure;
use crate::counters::DropReason;
use crate::device::TransportKind;
use crate::engine::core::Core;
use crate::explain::{Explanation, PathOption};
use crate::transport::Report;

const SHARED_MEMORY: &str = "shared memory";
/// What transports report of paths that they are not themselves. `any` reports it of every path.
const OTHERS: [&str; 2] = [SHARED_MEMORY, "network devices"];

impl Any {
    pub(super) fn count(
        &self,
        core: &Core,
        into: &mut Vec<(&'static str, u64)>,
        drops: &mut Vec<DropReason>,
    ) {
        let mut all = Vec::new();
        let mut all_drops = Vec::new();
        for part in &self.parts {
            let report = Report::Counters { into: &mut all, drops: &mut all_drops };
            part.transport.report(core, report);
        }
        sum(into, all);
        for DropReason { name, count } in all_drops {
            match drops.iter_mut().find(|known| known.name == name) {
                Some(known) => known.count += count,
                None => drops.push(DropReason { name, count }),
            }
        }
        into.extend([
            ("attempts", self.counts.attempts),
            ("fallbacks", self.counts.fallbacks),
            ("paths_silent", self.counts.silent),
            ("paths_disproved", self.counts.disproved),
        ]);
    }

    pub(super) fn count_memory(&self, core: &Core, into: &mut Vec<(&'static str, u64)>) {
        let mut all = Vec::new();
        for part in &self.parts {
            part.transport.report(core, Report::Memory(&mut all));
        }
        sum(into, all);
        let entry = size_of::<(u64, super::Outcomes)>() as u64;
        let attempts: u64 = self.attempts.values().map(Attempt::bytes).sum();
        let due = self.due.capacity() * size_of::<(u64, u64)>();
        into.push(("paths", self.paths.capacity() as u64 * entry + attempts + due as u64));
    }

    /// Explains a connection: its paths first, then what its own transport reports.
    pub(super) fn explain_connection(&self, core: &Core, link: u64, into: &mut Explanation) {
        let (index, own) = unpack(link);
        let Some(part) = self.parts.get(index) else { return };
        part.transport.report(core, Report::Explanation { link: own, into: &mut *into });
        into.paths.retain(|path| path.chosen || !OTHERS.contains(&path.path.as_str()));
        let mut paths = match self.paths.get(&link) {
            Some(outcomes) => self.options(outcomes),
            None => vec![PathOption {
                path: name(part.kind).to_owned(),
                chosen: true,
                reason: "the peer connected by it, or its URI named it alone".to_owned(),
            }],
        };
        paths.sort_by_key(|path| !path.chosen);
        paths.append(&mut into.paths);
        into.paths = paths;
        into.kind = Some(part.kind);
        into.transport = match &part.device {
            None => format!("{} (any)", part.kind),
            Some(device) => format!("{} (device {device})", part.kind),
        };
    }

    fn options(&self, outcomes: &super::Outcomes) -> Vec<PathOption> {
        let options = ORDER.iter().zip(outcomes).map(|(kind, outcome)| PathOption {
            path: name(*kind).to_owned(),
            chosen: *outcome == Outcome::Chosen,
            reason: self.reason(*kind, *outcome),
        });
        options.collect()
    }

    fn reason(&self, kind: TransportKind, outcome: Outcome) -> String {
        let reason = match (outcome, kind) {
            (Outcome::Chosen, TransportKind::Shm) => {
                "the peer's endpoint is on this host: it showed the secret that its URI is the hash of"
            }
            (Outcome::Chosen, _) => "the first path, in order, on which the peer answered",
            (Outcome::Untried, _) => "not tried: a better path led to the peer",
            (Outcome::Started, _) => "being tried",
            (Outcome::Unlisted, _) => "the peer's URI does not list it",
            (Outcome::Missing, _) => {
                let out = self.missing.iter().find(|missing| missing.kind == kind);
                return format!("this endpoint goes without: {}", out.map_or("", |out| &out.reason));
            }
            (Outcome::Silent, _) => {
                "nothing was heard in time: it may be filtered, or the peer's program did not poll; if it computes \
                 for long, give it a progress thread"
            }
            (Outcome::Nameless, _) => "somebody is expected by name, which the kernel can't prove",
            (Outcome::Disproved, _) => {
                "somebody else has the endpoint's name here: it could not show the endpoint's secret"
            }
            (Outcome::BadAddress, _) => {
                "its address means nothing here: another kind of IP, or an interface not here"
            }
            (Outcome::NotStarted, _) => {
                "it could not be tried: out of memory under the cap, or of descriptors"
            }
            (Outcome::Failed(why), kind) => return failure(kind, why),
        };
        reason.to_owned()
    }
}

fn failure(kind: TransportKind, why: ConnectFailure) -> String {
    match (why, kind) {
        (ConnectFailure::Refused, TransportKind::Shm) => {
            "nobody listens there: the peer is on another host or in another container".to_owned()
        }
        (ConnectFailure::NotPermitted, TransportKind::Shm) => {
            "the process there is another user's; run both as one user to share memory".to_owned()
        }
        (ConnectFailure::Refused, _) => "nobody listens there, or a firewall says so".to_owned(),
        (other, _) => format!("it failed: {other}"),
    }
}

fn name(kind: TransportKind) -> &'static str {
    match kind {
        TransportKind::Shm => SHARED_MEMORY,
        TransportKind::Udp => "UDP",
        TransportKind::Tcp => "TCP",
        TransportKind::Eth => "raw Ethernet",
        TransportKind::Any => "any",
    }
}

/// Adds up counts that have the same name.
fn sum(into: &mut Vec<(&'static str, u64)>, counts: Vec<(&'static str, u64)>) {
    for (name, count) in counts {
        match into.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known += count,
            None => into.push((name, count)),
        }
    }
}
