//! Ranks of a job: their start and barriers; active messages, one-sided memory and collectives of CCS, beside UCX and MPI.

use super::{Against, Bound, Contestants, Goal, Row, baseline_at_least, baseline_at_most, ours, with_peers};
use crate::args::By;
use crate::contestant::Worker;
use crate::peers::{Peers, RANKS_MANY};
use crate::shape::Shape;
use crate::work::{Placement, Work};

/// Figure 2 of the paper: 4 B and more. It has a plot, as figure 3 has.
const MESSAGE_SIZES: [u32; 7] = [4, 16, 64, 256, 1024, 2048, 4096];
/// Figure 3 of the paper.
const PUT_SIZES: [u32; 7] = [8, 64, 512, 4096, 32_768, 262_144, 1 << 20];
/// From here on all are one copy.
const COPY_BYTES: u32 = 262_144;
/// Blocks of the put that has gaps, and how long each is.
const STRIDED: (u32, u32) = (1024, 64);

/// The rows that measure ranks.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let mut rows: Vec<Row> = MESSAGE_SIZES.iter().map(|&len| half_trip(len, peers)).collect();
    rows.extend([
        message_rate(peers),
        row("put-fence/8", "Put and fence, 8 B", Work::PutFence { len: 8 }, peers.message_passing(), 1.0),
        row(
            "put-fence-heap/8",
            "Put and fence to memory of the heap, 8 B",
            Work::PutFenceHeap { len: 8 },
            peers.message_passing(),
            1.0,
        ),
        row("fetch-add", "Fetch-and-add from one rank", Work::FetchAdd, peers.ranks(), 1.0),
        row(
            "fetch-add-all",
            "Fetch-and-add from two ranks to one word",
            Work::FetchAddAll { ranks: 2 },
            peers.message_passing(),
            1.0,
        ),
        strided(),
    ]);
    for shape in Shape::ALL {
        let least = if shape == Shape::Contiguous { 0.97 } else { 1.0 };
        for (word, work) in [("Pack", Work::Pack { shape }), ("Unpack", Work::Unpack { shape })] {
            let name = format!("{}-{}", word.to_lowercase(), shape.word());
            let title = format!("{word} {}", shape.words());
            rows.push(row(&name, &title, work, peers.message_passing(), least));
        }
    }
    rows.extend(PUT_SIZES.map(|len| {
        let title = format!("Puts to library memory, then a fence, {len} B");
        let least = if len < COPY_BYTES { 1.0 } else { 0.97 };
        row(&format!("put/{len}"), &title, Work::Write { len }, peers.ranks(), least)
    }));
    // Of both MPIs the better one bounds those that share cores.
    for (ranks, least) in [(2, 1.0), (RANKS_MANY, 1.2)] {
        let (work, title) = (Work::Barrier { ranks }, format!("Barrier of {ranks} ranks on two cores"));
        rows.push(row(&format!("barrier-{ranks}"), &title, work, peers.message_passing(), least));
        rows.extend([8, 1 << 20].map(|len| {
            let title = format!("Allreduce of {ranks} ranks on two cores, {len} B");
            let work = Work::Allreduce { len, ranks };
            row(&format!("allreduce-{ranks}/{len}"), &title, work, peers.message_passing(), least)
        }));
    }
    rows.extend([2, 16, 64].map(|ranks| start(ranks, peers)));
    rows.push(barrier());
    rows
}

/// Each program by its own launcher.
fn start(ranks: u32, peers: &Peers) -> Row {
    let title = format!("Start of {ranks} ranks to the end of their first barrier");
    let contestants = with_peers(vec![ours("cci run", By::Job)], peers.message_passing());
    let row = Row::new(format!("job/start-{ranks}"), title, Work::Start { ranks }, contestants);
    row.with_goals(&[Goal { against: Against::BestMessagePasser, bound: Bound::AtMost(1.0) }])
}

/// At most 1.2 round trips, which are 2.4 halves.
fn barrier() -> Row {
    let trip = Worker::baseline("cci shm, half round trip of 8 B", By::Shm, Placement::SameHost);
    let contestants: Contestants =
        vec![Box::new(trip.doing(Work::HalfTrip { len: 8 })), ours("cci", By::Job)];
    let title = "Barrier of 2 ranks beside half a round trip of a message".to_owned();
    let row = Row::new("job/barrier-2".to_owned(), title, Work::Barrier { ranks: 2 }, contestants);
    row.with_goals(&[baseline_at_most(2.4)])
}

fn half_trip(len: u32, peers: &Peers) -> Row {
    let (name, title) = (format!("am/{len}"), format!("Half round trip of an active message, {len} B"));
    row(&name, &title, Work::HalfTrip { len }, peers.active_messages(), 1.0)
}

/// Beside the core's messages, sent one by one and received by a handler, as active messages are, and beside the others'.
fn message_rate(peers: &Peers) -> Row {
    let len = 8;
    let core = Worker::baseline("cci shm, by handler", By::Shm, Placement::SameHost);
    let contestants: Contestants = vec![Box::new(core.doing(Work::Handled { len })), ours("ccs", By::Ranks)];
    let title = format!("Active messages a second, {len} B");
    let contestants = with_peers(contestants, peers.active_messages());
    let row = Row::new(format!("ccs/am-rate/{len}"), title, Work::Rate { len }, contestants);
    let beside_peers = Goal { against: Against::BestMessagePasser, bound: Bound::AtLeast(1.2) };
    row.with_goals(&[baseline_at_least(0.85), beside_peers])
}

/// Puts of blocks with gaps, beside puts of as many bytes in a row.
fn strided() -> Row {
    let (blocks, len) = STRIDED;
    let title = format!("Puts of {blocks} × {len} B at a stride of {} B, then a fence", 4 * len);
    let in_a_row = Worker::baseline("in a row", By::Ranks, Placement::SameHost);
    let in_a_row = in_a_row.doing(Work::Write { len: blocks * len });
    let contestants = vec![Box::new(in_a_row) as Box<_>, ours("ccs", By::Ranks)];
    let row = Row::new("ccs/put-strided".to_owned(), title, Work::WriteStrided { blocks, len }, contestants);
    row.with_goals(&[baseline_at_least(0.7)])
}

/// At least so many times as good as the best of UCX and the MPIs.
fn row(name: &str, title: &str, work: Work, peers: Contestants, least: f64) -> Row {
    let bound = if work.unit().more_is_better() { Bound::AtLeast(least) } else { Bound::AtMost(1.0 / least) };
    let contestants = with_peers(vec![ours("ccs", By::Ranks)], peers);
    let row = Row::new(format!("ccs/{name}"), title.to_owned(), work, contestants);
    row.with_goals(&[Goal { against: Against::BestMessagePasser, bound }])
}
