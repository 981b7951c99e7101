//! What is said of remote memory access: counters, memory, and which path was chosen and why.

use super::state::Rma;
use crate::device::Cma;
use crate::explain::PathOption;
use crate::transport::shm::link::Link;
use cci_memory::slab::Slab;

/// Device counters.
pub(in crate::transport::shm) fn count(
    rma: &Rma,
    links: &Slab<Box<Link>>,
    into: &mut Vec<(&'static str, u64)>,
) {
    let askers = || links.iter().filter_map(|(_, link)| link.asker.as_ref());
    let pulls = links.iter().filter_map(|(_, link)| link.pull.as_ref());
    into.extend([
        ("rma_direct", rma.counts.direct + askers().map(|asker| asker.copied).sum::<u64>()),
        ("rma_pulled", rma.counts.pulled + pulls.map(|pull| pull.pulled).sum::<u64>()),
        ("rma_ring", rma.counts.ring),
        (
            "rma_grants_refused",
            rma.counts.grants_refused + askers().map(|asker| asker.grants_refused).sum::<u64>(),
        ),
        ("rma_mappings", askers().map(|asker| asker.mapped() as u64).sum()),
        ("rma_mapped_bytes", askers().map(|asker| asker.mapped_bytes()).sum()),
        ("rma_regions_granted", rma.owner.regions() as u64),
        ("rma_revocations_waited", rma.owner.waited),
        ("rma_barred", rma.owner.barred() as u64),
        ("rma_detached", rma.owner.detached),
        ("rma_detach_failed", rma.owner.detach_failed),
    ]);
}

/// Bytes held.
pub(in crate::transport::shm) fn bytes(rma: &Rma, links: &Slab<Box<Link>>) -> u64 {
    let of_links =
        links.iter().map(|(_, link)| link.rma.bytes() + link.asker.as_ref().map_or(0, |asker| asker.bytes()));
    rma.bytes() + of_links.sum::<u64>()
}

/// What is counted outlives the link.
pub(in crate::transport::shm) fn keep_counts(rma: &mut Rma, link: &Link) {
    rma.counts.direct += link.asker.as_ref().map_or(0, |asker| asker.copied);
    rma.counts.grants_refused += link.asker.as_ref().map_or(0, |asker| asker.grants_refused);
    rma.counts.pulled += link.pull.as_ref().map_or(0, |pull| pull.pulled);
}

/// The three paths of remote memory access, and why each is taken or not.
pub(in crate::transport::shm) fn explain(rma: &Rma, link: &Link, into: &mut Vec<PathOption>) {
    let mut path = |path: &str, chosen: bool, reason: String| {
        into.push(PathOption { path: format!("remote memory: {path}"), chosen, reason });
    };
    let asker = link.asker.as_ref();
    let mapped = asker.map_or(0, |asker| asker.mapped());
    let direct = match asker {
        _ if !rma.direct => "this device says direct = off".to_owned(),
        None => "not asked for yet: no operation was started".to_owned(),
        Some(asker) => {
            let mut reason = format!("{mapped} memories of the peer's are mapped");
            if let Some(why) = asker.why_not {
                reason += "; the last that is not: ";
                reason += why.reason();
            }
            reason
        }
    };
    path("direct mapping", mapped > 0, direct);
    let pull = link.pull.as_ref();
    let reason = match pull {
        _ if rma.cma == Cma::Off => "this device says cma = off".to_owned(),
        None => "not tried yet: no operation was long enough".to_owned(),
        Some(pull) => pull.describe(),
    };
    let pulls = pull.is_some_and(|pull| pull.is_chosen());
    path("read across processes", pulls, reason);
    let reason = "always works; for what the other two do not reach, and until they are ready";
    path("ring", mapped == 0 && !pulls, reason.to_owned());
}
