//! Global memory (ACP): copies, atomics, channels and the map, beside the core, and beside the one-sided calls of the MPIs.

use super::{Against, Bound, Contestants, Goal, Row, baseline_at_least, baseline_at_most, ours, with_peers};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::peers::{Peers, RANKS_MANY};
use crate::work::{Placement, Work};

/// Messages of a channel whose slots hold one each.
const LONG_SIZES: [u32; 3] = [65_520, 262_128, 1_048_560];
/// How many requests of a channel's receiver have memory of their own. The core writes to as many places, since what the caches hold decides how fast memory
/// is.
const REQUESTS: u32 = 8;
/// Slots of a channel that is made and freed.
const SLOT_SIZES: [u32; 4] = [4096, 65_536, 262_144, 1 << 20];

/// The rows that measure global memory.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let mut rows = vec![
        one_sided(
            "put-fence/8",
            "Copy of 8 B to a remote rank and wait",
            Work::PutFence { len: 8 },
            peers.message_passing(),
        ),
        one_sided(
            "get-fence/8",
            "Copy of 8 B from a remote rank and wait",
            Work::GetFence { len: 8 },
            peers.message_passing(),
        ),
        one_sided("fetch-add", "Atomic addition to a remote rank's memory", Work::FetchAdd, peers.ranks()),
        half_trip("shm", By::Shm, By::Acp),
        half_trip("udp", By::Udp, By::AcpUdp),
        beside_core(
            "rate/8",
            "Messages a second through a channel, 8 B",
            (Work::Rate { len: 8 }, Work::Rate { len: 8 }),
            baseline_at_least(0.5),
        ),
    ];
    rows.extend(LONG_SIZES.map(|len| {
        let title = format!("Messages through a channel with slots of as many bytes, {len} B");
        let core = Work::WriteInTurn { len, places: REQUESTS };
        let works = (core, Work::Long { len });
        beside_core(&format!("long/{len}"), &title, works, baseline_at_least(0.9))
    }));
    rows.extend(SLOT_SIZES.map(|len| {
        let title = format!("A channel is made, connects and is freed, two slots of {len} B");
        let work = Work::ChannelLife { len };
        // What grows with the slots: the kernel makes each of their pages, and takes it back.
        let pages = Worker::baseline("the receiver's slots alone", By::Pages, Placement::SameHost);
        let contestants: Contestants = vec![Box::new(pages), ours("acp", By::Acp)];
        Row::new(format!("acp/channel-life/{len}"), title, work, contestants)
    }));
    let swaps = ("compare-and-swap or add, one rank", Work::FetchAdd);
    rows.extend([
        map("find-2", Work::MapFind { ranks: 2 }, swaps, 0.2),
        map("insert-2", Work::MapInsert { ranks: 2 }, swaps, 0.1),
        map("find-8", Work::MapFind { ranks: RANKS_MANY }, ("two ranks", Work::MapFind { ranks: 2 }), 0.8),
        map(
            "insert-8",
            Work::MapInsert { ranks: RANKS_MANY },
            ("two ranks", Work::MapInsert { ranks: 2 }),
            0.8,
        ),
    ]);
    rows
}

fn one_sided(name: &str, title: &str, work: Work, beside: Vec<Box<dyn Contestant>>) -> Row {
    let contestants = with_peers(vec![ours("acp", By::Acp)], beside);
    let bound = if work.unit().more_is_better() { Bound::AtLeast(1.0) } else { Bound::AtMost(1.0) };
    let row = Row::new(format!("acp/{name}"), title.to_owned(), work, contestants);
    row.with_goals(&[Goal { against: Against::BestMessagePasser, bound }])
}

fn half_trip(name: &str, core: By, by: By) -> Row {
    let work = Work::HalfTrip { len: 8 };
    let core = Worker::baseline("cci messages", core, Placement::SameHost).doing(work);
    let contestants: Contestants = vec![Box::new(core), ours("acp", by)];
    let title = format!("Half round trip through channels over {name}, 8 B");
    let row = Row::new(format!("acp/half-trip-{name}"), title, work, contestants);
    row.with_goals(&[baseline_at_most(1.5)])
}

fn beside_core(name: &str, title: &str, (core, work): (Work, Work), goal: Goal) -> Row {
    let core = Worker::baseline("cci, the core", By::Shm, Placement::SameHost).doing(core);
    let contestants: Contestants = vec![Box::new(core), ours("acp", By::Acp)];
    Row::new(format!("acp/{name}"), title.to_owned(), work, contestants).with_goals(&[goal])
}

fn map(name: &str, work: Work, (beside, core): (&'static str, Work), least: f64) -> Row {
    let core = Worker::baseline(beside, By::Acp, Placement::SameHost).doing(core);
    let contestants: Contestants = vec![Box::new(core), ours("acp", By::Acp)];
    let title = format!("The map: {} in all", name.replace('-', " by ranks, "));
    let row = Row::new(format!("acp/map-{name}"), title, work, contestants);
    row.with_goals(&[baseline_at_least(least)])
}
