//! What is reported of remote memory access: counters, memory, and which path was chosen and why.

use super::Transfers;
use crate::device::Cma;
use crate::engine::mapped_pairs::MappedPairs;
use crate::explain::PathOption;
use crate::transport::shm::link::Link;
use crate::transport::shm::table::Table;

/// Adds the device's counters for remote memory access.
pub(in crate::transport::shm) fn count(
    transfers: &Transfers,
    links: &Table,
    pairs: &MappedPairs,
    into: &mut Vec<(&'static str, u64)>,
) {
    let initiators = || links.iter().filter_map(|(_, link)| link.transfers.initiator.as_ref());
    let pulls = links.iter().filter_map(|(_, link)| link.transfers.pull.as_ref());
    into.extend([
        (
            "rma_direct",
            pairs.done
                + transfers.counts.direct
                + initiators().map(|initiator| initiator.copied).sum::<u64>(),
        ),
        ("rma_paired", pairs.done),
        ("rma_pulled", transfers.counts.pulled + pulls.map(|pull| pull.pulled).sum::<u64>()),
        ("rma_ring", transfers.counts.ring),
        (
            "rma_grants_refused",
            transfers.counts.grants_refused
                + initiators().map(|initiator| initiator.grants_refused).sum::<u64>(),
        ),
        ("rma_mappings", initiators().map(|initiator| initiator.mapped() as u64).sum()),
        ("rma_mapped_bytes", initiators().map(|initiator| initiator.mapped_bytes()).sum()),
        ("rma_regions_granted", transfers.target.regions() as u64),
        ("rma_revocations_waited", transfers.target.waited),
        ("rma_barred", transfers.target.barred() as u64),
        ("rma_detached", transfers.target.detached),
        ("rma_detach_failed", transfers.target.detach_failed),
    ]);
}

/// How many bytes are held for remote memory access.
pub(in crate::transport::shm) fn bytes(transfers: &Transfers, links: &Table) -> u64 {
    let of_links = links.iter().map(|(_, link)| {
        link.transfers.bytes() + link.transfers.initiator.as_ref().map_or(0, |initiator| initiator.bytes())
    });
    transfers.bytes() + of_links.sum::<u64>()
}

/// Adds the counts of a link that ends to those of links that have ended.
pub(in crate::transport::shm) fn keep_counts(transfers: &mut Transfers, link: &Link) {
    transfers.counts.direct += link.transfers.initiator.as_ref().map_or(0, |initiator| initiator.copied);
    transfers.counts.grants_refused +=
        link.transfers.initiator.as_ref().map_or(0, |initiator| initiator.grants_refused);
    transfers.counts.pulled += link.transfers.pull.as_ref().map_or(0, |pull| pull.pulled);
}

/// Explains for each of the three paths of remote memory access why it is taken or not.
pub(in crate::transport::shm) fn explain(transfers: &Transfers, link: &Link, into: &mut Vec<PathOption>) {
    let mut path = |path: &str, chosen: bool, reason: String| {
        into.push(PathOption { path: format!("remote memory: {path}"), chosen, reason });
    };
    let initiator = link.transfers.initiator.as_ref();
    let mapped = initiator.map_or(0, |initiator| initiator.mapped());
    let direct = match initiator {
        _ if !transfers.paths.direct => "this device says direct = off".to_owned(),
        None => "not asked for yet: no operation was started".to_owned(),
        Some(initiator) => {
            let mut reason = format!("{mapped} memories of the peer's are mapped");
            if let Some(why) = initiator.why_not {
                reason += "; the last that is not: ";
                reason += why.reason();
            }
            reason
        }
    };
    path("direct mapping", mapped > 0, direct);
    let pull = link.transfers.pull.as_ref();
    let reason = match pull {
        _ if transfers.paths.cma == Cma::Off => "this device says cma = off".to_owned(),
        None => "not tried yet: no operation was long enough".to_owned(),
        Some(pull) => pull.describe(),
    };
    let pulls = pull.is_some_and(|pull| pull.is_chosen());
    path("read across processes", pulls, reason);
    let reason = "always works; for what the other two do not reach, and until they are ready";
    path("ring", mapped == 0 && !pulls, reason.to_owned());
}
