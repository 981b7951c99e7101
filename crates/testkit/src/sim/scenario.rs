//! Runs drawn from a seed: the seed is the whole description.

use cci_proto::Attribute;

use super::net::{Link, Net, Outage};
use super::plan::{Fault, HangUp, NodePlan, Plan, Sizes, Talk, Workload};
use super::reader::Reading;
use super::rma::RmaWork;
use super::world::{Report, World};
use crate::rng::Rng;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A run drawn from a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What everything else follows from.
    pub seed: u64,
    /// What kind of trouble it is about.
    pub kind: Kind,
    /// The network.
    pub net: Net,
    /// The rest.
    pub plan: Plan,
}

/// What kind of trouble a scenario is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loss, duplication, reordering, narrow links; everything must succeed.
    Rough,
    /// A network as rough, and readers that give no buffers back for a while, within the send timeout.
    Busy,
    /// Readers that give none back for longer than the send timeout.
    NotReady,
    /// Parts of the network are cut off for a time; some for longer than anyone waits.
    Outage,
    /// Machines go down and come back.
    Crash,
    /// Old datagrams come again, forged ones come too.
    Hostile,
    /// Many short connections, rejections, brokers, more requests than fit.
    Churn,
}

const KINDS: &[Kind] = &[
    Kind::Rough,
    Kind::Rough,
    Kind::Rough,
    Kind::Busy,
    Kind::Busy,
    Kind::NotReady,
    Kind::NotReady,
    Kind::Outage,
    Kind::Crash,
    Kind::Hostile,
    Kind::Churn,
    Kind::Churn,
];

impl Scenario {
    /// The scenario of this seed.
    pub fn draw(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed);
        let kind = rng.pick(KINDS);
        let nodes = rng.range(2, 4) as usize;
        let net = draw_net(&mut rng, kind);
        let mut plan = Plan::new(nodes, NodePlan::default());
        plan.all_succeed = matches!(kind, Kind::Rough | Kind::Busy | Kind::Hostile);
        for node in 0..nodes {
            plan.nodes[node] = draw_node(&mut rng, kind);
        }
        let talks = if kind == Kind::Churn { rng.range(5, 40) } else { rng.range(1, 6) };
        for _ in 0..talks {
            plan.talks.push(draw_talk(&mut rng, kind, nodes));
        }
        draw_rma(seed, &net, &mut plan);
        let mut scenario = Scenario { seed, kind, net, plan };
        scenario.draw_trouble(&mut rng);
        scenario
    }

    fn draw_trouble(&mut self, rng: &mut Rng) {
        let nodes = self.plan.nodes.len() as u64;
        match self.kind {
            Kind::Rough | Kind::Busy | Kind::NotReady | Kind::Churn => {}
            Kind::Outage => {
                for _ in 0..rng.range(1, 4) {
                    let from_ns = rng.range(0, 200 * MS);
                    let until_ns = from_ns + rng.pick(&[MS, 20 * MS, 300 * MS, 3 * SECOND, 60 * SECOND]);
                    let (a, b) = (rng.below(nodes) as usize, rng.below(nodes) as usize);
                    let net = std::mem::replace(&mut self.net, Net::new(0));
                    self.net = match rng.below(3) {
                        0 => net.partition(a, b, from_ns, until_ns),
                        1 => net.outage(Outage { from_ns, until_ns, source: Some(a), target: None }),
                        _ => net.outage(Outage { from_ns, until_ns, source: None, target: Some(a) }),
                    };
                }
            }
            Kind::Crash => {
                for _ in 0..rng.range(1, 3) {
                    let node = rng.below(nodes) as usize;
                    let at_ns = rng.range(0, 100 * MS);
                    let down_ns = rng.pick(&[0, 10_000, MS, 100 * MS, 10 * SECOND]);
                    self.plan.faults.push((at_ns, Fault::Crash(node)));
                    self.plan.faults.push((at_ns + down_ns, Fault::Restart(node)));
                }
            }
            Kind::Hostile => {
                self.plan.record = true;
                for _ in 0..rng.range(3, 30) {
                    let at_ns = rng.range(0, 30 * MS) * rng.pick(&[1, 1, 10, 1_000]);
                    let count = rng.range(1, 40) as u32;
                    let fault = if rng.pct(60.0) { Fault::Replay(count) } else { Fault::Forge(count) };
                    self.plan.faults.push((at_ns, fault));
                }
            }
        }
    }

    /// Runs it and judges.
    pub fn run(&self) -> Result<Report, String> {
        World::new(self.net.clone(), self.plan.clone())?.run()
    }
}

fn draw_net(rng: &mut Rng, kind: Kind) -> Net {
    let seed = rng.next_u64();
    let loss_pct = match kind {
        Kind::Rough => rng.pick(&[0.0, 0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0]),
        _ => rng.pick(&[0.0, 0.0, 1.0, 5.0, 15.0]),
    };
    let delay_ns = rng.pick(&[0, 1_000, 10_000, 100_000, MS, 40 * MS]);
    let jitter_ns = rng.pick(&[0, 0, 1_000, 10_000, 100_000]) + if rng.pct(20.0) { delay_ns } else { 0 };
    let mut net = Net::new(seed).loss_pct(loss_pct).delay_ns(delay_ns, jitter_ns);
    if rng.pct(50.0) {
        net = net.duplicate_pct(rng.pick(&[0.5, 2.0, 10.0, 50.0]));
    }
    if rng.pct(40.0) {
        net = net.reorder(rng.pick(&[0.5, 5.0, 30.0]), rng.pick(&[5_000, 100_000, 5 * MS, 100 * MS]));
    }
    if rng.pct(40.0) {
        let egress =
            Link::new(rng.pick(&[100_000_000, 1_000_000_000, 10_000_000_000]), rng.pick(&[30_000, 300_000]));
        let ingress =
            Link::new(rng.pick(&[50_000_000, 1_000_000_000, 10_000_000_000]), rng.pick(&[20_000, 300_000]));
        net = net.links(egress, ingress);
    }
    if rng.pct(15.0) {
        net = net.mtu_bytes(rng.pick(&[1_152, 1_280, 1_400, 4_000]));
    }
    net
}

fn draw_node(rng: &mut Rng, kind: Kind) -> NodePlan {
    let buffers = rng.pick(&[1, 2, 8, 64]);
    let reading = match kind {
        Kind::Rough | Kind::Outage | Kind::Crash | Kind::Churn if rng.pct(70.0) => Reading::Instant,
        Kind::NotReady => match rng.below(3) {
            0 => Reading::Deaf { until_ns: rng.range(10 * MS, 8 * SECOND) },
            1 => Reading::Hoard { buffers, period_ns: rng.range(100 * MS, 3 * SECOND) },
            _ => Reading::Slow { buffers, hold_ns: rng.pick(&[MS, 50 * MS, 300 * MS]) },
        },
        _ => match rng.below(5) {
            0 => Reading::Instant,
            1 => Reading::Slow { buffers, hold_ns: rng.pick(&[100, 10_000, 500_000]) },
            2 => Reading::Hoard { buffers, period_ns: rng.pick(&[50_000, MS, 20 * MS]) },
            3 => Reading::Shuffled { buffers, hold_ns_max: rng.pick(&[1_000, 100_000, 5 * MS]) },
            _ => Reading::Deaf { until_ns: rng.range(0, 100 * MS) },
        },
    };
    // Few clients of a receiver that is not ready for long should all learn of it: a timeout shorter than the deafness.
    let send_timeout_ns = match kind {
        Kind::NotReady => rng.pick(&[20 * MS, 200 * MS, SECOND]),
        Kind::Outage | Kind::Crash => rng.pick(&[0, 100 * MS, 2 * SECOND]),
        _ => 100 * SECOND,
    };
    NodePlan {
        datagram_bytes_max: rng.pick(&[1_152, 1_472, 1_472, 4_096, 8_952]),
        memory_bytes_max: rng.pick(&[700_000, 1 << 20, 2 << 20]),
        connections_max: if kind == Kind::Churn { rng.pick(&[4, 16, 64]) } else { 64 },
        requests_max: if kind == Kind::Churn { rng.pick(&[1, 2, 16]) } else { 16 },
        sends_max: rng.pick(&[16, 256, 1_024]),
        send_timeout_ns,
        keepalive_ns: if rng.pct(25.0) { rng.pick(&[5 * MS, 500 * MS]) } else { 0 },
        reading,
        batch: rng.pick(&[1, 4, 32, 64]),
        socket_bytes: rng.pick(&[20_000, 212_992, 4 << 20]),
        ..NodePlan::default()
    }
}

fn draw_talk(rng: &mut Rng, kind: Kind, nodes: usize) -> Talk {
    let client = rng.below(nodes as u64) as usize;
    let server = (client + 1 + rng.below(nodes as u64 - 1) as usize) % nodes;
    let attribute = rng.pick(&[
        Attribute::ReliableOrdered,
        Attribute::ReliableOrdered,
        Attribute::ReliableUnordered,
        Attribute::Unreliable,
    ]);
    let up = draw_workload(rng, kind);
    let down = if rng.pct(50.0) { draw_workload(rng, kind) } else { Workload::QUIET };
    let mut talk = Talk::new(client, server, attribute, up, down);
    talk.request_bytes = rng.pick(&[4, 16, 300, 1_024]);
    talk.start_ns = rng.below(rng.clone().pick(&[1, 1_000, MS, 100 * MS]));
    talk.answer_ns = rng.pick(&[0, 0, 10_000, 5 * MS]);
    talk.connect_timeout_ns = Some(match kind {
        Kind::Outage | Kind::Crash | Kind::Churn => rng.pick(&[MS, 100 * MS, 10 * SECOND]),
        _ => 100 * SECOND,
    });
    if nodes > 2 && rng.pct(20.0) {
        talk.broker_to = (0..nodes).find(|node| *node != client && *node != server);
    }
    talk.reject = kind == Kind::Churn && rng.pct(30.0);
    talk.hang_up = rng.pick(&[HangUp::WhenDone, HangUp::WhenDone, HangUp::Both, HangUp::Linger]);
    if talk.hang_up == HangUp::Linger && kind != Kind::Churn {
        // What the server still has to say when the client hangs up is lost by design.
        talk.down = Workload::QUIET;
    }
    talk
}

fn draw_workload(rng: &mut Rng, kind: Kind) -> Workload {
    let few = kind == Kind::Churn || rng.pct(40.0);
    let messages = if few { rng.range(0, 20) } else { rng.range(20, 600) } as u32;
    let sizes = match rng.below(6) {
        0 => Sizes::Fixed(8),
        1 => Sizes::Fixed(0),
        2 => Sizes::Between(0, 64),
        3 => Sizes::Between(0, 3_000),
        4 => Sizes::Fixed(100_000),
        _ => Sizes::Between(8, 1_000),
    };
    let gap_ns = rng.pick(&[0, 0, 500, 20_000, MS]);
    Workload {
        messages,
        sizes,
        gap_ns,
        burst: rng.pick(&[1, 1, 8, 64]),
        silent_pct: rng.pick(&[0.0, 0.0, 30.0, 100.0]),
        until_ns: u64::MAX,
        rma: RmaWork::NONE,
    }
}

/// Remote memory access in two of three runs. Drawn apart, so that it changes nothing else of what a seed means.
fn draw_rma(seed: u64, net: &Net, plan: &mut Plan) {
    let mut rng = Rng::new(seed ^ 0x726d_6100_0000_0000);
    if !rng.pct(67.0) {
        return;
    }
    for node in &mut plan.nodes {
        node.operations_max = rng.pick(&[2, 64, 1_024, 16_384]);
    }
    let share = if plan.talks.len() > 6 { 5 } else { 1 };
    for talk in &mut plan.talks {
        if rng.pct(60.0) {
            talk.up.rma = draw_work(&mut rng, net.is_slow(), share);
        }
        // Nobody is left to answer a server whose client hangs up as soon as it has said everything.
        if talk.hang_up != HangUp::Linger && rng.pct(40.0) {
            talk.down.rma = draw_work(&mut rng, net.is_slow(), share);
        }
        if rng.pct(30.0) {
            (talk.up.messages, talk.down.messages) = (0, 0);
        }
    }
}

fn draw_work(rng: &mut Rng, slow: bool, share: u32) -> RmaWork {
    let (bytes_min, bytes_max, operations) = match rng.below(8) {
        0 => (1, 16, rng.range(1, 1_500)),
        1 => (8, 8, rng.range(1, 1_500)),
        2 | 3 => (1, 3_000, rng.range(1, 300)),
        4 => (1, 20_000, rng.range(1, 40)),
        5 => (1_300, 1_500, rng.range(1, 100)),
        6 if !slow => (200_000, 700_000, rng.range(1, 6)),
        7 if !slow => (1, 300_000, rng.range(1, 12)),
        _ => (1, 100_000, rng.range(1, 4)),
    };
    // Each may have to wait for the one before it.
    let operations = if slow { operations.min(40) } else { operations };
    let atomic_pct = rng.pick(&[0.0, 0.0, 5.0, 50.0, 100.0]);
    let region_bytes = (bytes_max * rng.range(3, 6)).max(rng.pick(&[2_000, 20_000, 200_000]));
    RmaWork {
        operations: operations as u32 / share + 1,
        bytes_min,
        bytes_max,
        segments_max: rng.pick(&[1, 1, 2, 10, 1_024]).min(region_bytes as u32 / 32),
        outstanding_max: rng.pick(&[1, 2, 20, 200, 2_000]),
        region_bytes,
        gap_ns: rng.pick(&[0, 0, 0, 2_000, 100_000]),
        burst: rng.pick(&[1, 1, 16]),
        read_pct: rng.pick(&[0.0, 30.0, 50.0, 100.0]),
        atomic_pct,
        message_pct: rng.pick(&[0.0, 0.0, 10.0, 100.0]),
        fence_pct: rng.pick(&[0.0, 0.0, 5.0, 50.0]),
        again_pct: rng.pick(&[0.0, 0.0, 30.0]),
        bad_pct: rng.pick(&[0.0, 0.0, 5.0, 30.0]),
        deregister_pct: rng.pick(&[0.0, 0.0, 1.0, 5.0]),
        change_pct: rng.pick(&[0.0, 5.0]),
    }
}
