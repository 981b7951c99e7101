//! Virtual time: the event queue, and what moves between nodes and network.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ledger::{Ledger, Role, SideState};
use super::net::{Delivery, Net, NetCounts, SECOND, node_of};
use super::node::{Node, Packet, address_of, node_at};
use super::plan::{Fault, HangUp, Plan};
use super::rma::RmaCounts;
use crate::rng::{Rng, mix};

/// Events after which a run is a storm. The longest honest run of the tests has a tenth of it.
const EVENTS_MAX: u64 = 20_000_000;

/// Polls in a row, in this time, in which a node does nothing, woken by its own deadline, before it is said to spin.
const IDLE_POLLS_MAX: u32 = 2_000;
const IDLE_POLLS_NS: u64 = 10_000_000_000;

pub(super) enum What {
    /// At the target's own link.
    AtLink(Packet),
    /// Through the link: into the socket.
    AtSocket(Packet),
    Wake(usize),
    /// Conversation starts.
    Dial(usize),
    /// The server's program answers the request it kept.
    Answer(usize),
    Fault(usize),
    /// The network tells a node that a path is narrower.
    Narrow(usize, usize, u16),
    GiveUp,
}

struct Entry {
    at_ns: u64,
    order: u64,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.at_ns, self.order) == (other.at_ns, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Follows from everything that happened: equal for equal seeds.
    pub trace: u64,
    /// When the last thing happened.
    pub end_ns: u64,
    /// What became of datagrams.
    pub net: NetCounts,
    /// Datagrams lost at full sockets.
    pub socket_drops: u64,
    /// Polls of all endpoints.
    pub polls: u64,
    /// What was done to memory.
    pub rma: RmaCounts,
}

/// Where a conversation is.
#[derive(Default)]
pub(super) struct TalkState {
    /// The client's token.
    pub(super) client: Option<usize>,
    /// The tokens of everything accepted in its name: more than one only if a request was repeated after its end.
    pub(super) servers: Vec<usize>,
    /// Requests the server's program has not answered, with the node they came to.
    pub(super) waiting: Vec<(usize, cci_proto::Request)>,
}

/// A run in progress.
pub struct World {
    pub(super) net: Net,
    pub(super) nodes: Vec<Node>,
    pub(super) plan: Plan,
    /// What was promised and kept so far.
    pub ledger: Ledger,
    pub(super) talks: Vec<TalkState>,
    pub(super) rng: Rng,
    pub(super) seen: Vec<(u64, Packet)>,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(super) now_ns: u64,
    order: u64,
    trace: u64,
    events: u64,
    pub(super) given_up: bool,
    /// The last things that happened, for a failure's message.
    pub(super) log: std::collections::VecDeque<String>,
    /// 0: none are kept.
    log_lines_max: usize,
}

impl World {
    /// Nodes, conversations and faults on a network, nothing done yet.
    pub fn new(net: Net, plan: Plan) -> Result<World, String> {
        let mut net = net;
        let mut rng = net.rng.clone();
        net.rng = Rng::new(rng.next_u64());
        let mut nodes = Vec::new();
        for node in &plan.nodes {
            net.add_node();
            nodes.push(Node::new(node, Rng::new(rng.next_u64()))?);
        }
        let mut ledger = Ledger::new(plan.all_succeed);
        for node in 0..nodes.len() {
            ledger.rma.boot(node);
        }
        let talks = plan.talks.iter().map(|_| TalkState::default()).collect();
        let mut world = World {
            net,
            nodes,
            ledger,
            talks,
            rng,
            seen: Vec::new(),
            queue: BinaryHeap::new(),
            now_ns: 0,
            order: 0,
            trace: 0,
            events: 0,
            given_up: false,
            log: std::collections::VecDeque::new(),
            log_lines_max: 0,
            plan,
        };
        if let Ok(lines) = std::env::var("CCI_SIM_TRACE") {
            world.log_lines_max = lines.parse().ok().filter(|lines| *lines > 1).unwrap_or(4_000);
            world.ledger.log = Some(Vec::new());
        }
        for talk in 0..world.plan.talks.len() {
            world.at(world.plan.talks[talk].start_ns, What::Dial(talk));
        }
        for fault in 0..world.plan.faults.len() {
            world.at(world.plan.faults[fault].0, What::Fault(fault));
        }
        world.at(world.plan.give_up_ns, What::GiveUp);
        Ok(world)
    }

    pub(super) fn at(&mut self, at_ns: u64, what: What) {
        self.order += 1;
        self.queue.push(Reverse(Entry { at_ns: at_ns.max(self.now_ns), order: self.order, what }));
    }

    /// Wakes a node at a time, unless it wakes earlier anyway; not before its last poll is over.
    pub(super) fn wake(&mut self, node: usize, at_ns: u64) {
        let state = &mut self.nodes[node];
        let at_ns = at_ns.max(self.now_ns).max(state.busy_until_ns);
        if state.endpoint.is_some() && state.wake_ns.is_none_or(|set| set > at_ns) {
            state.wake_ns = Some(at_ns);
            self.at(at_ns, What::Wake(node));
        }
    }

    pub(super) fn note(&mut self, kind: u64, a: u64, b: u64) {
        self.trace = mix(self.trace ^ mix(self.now_ns ^ kind << 60) ^ mix(a << 32 ^ b));
    }

    pub(super) fn log_line(&mut self, line: impl FnOnce() -> String) {
        if self.log_lines_max > 0 {
            if self.log.len() >= self.log_lines_max {
                self.log.pop_front();
            }
            let line = format!("{:>12} {}", self.now_ns, line());
            self.log.push_back(line);
        }
    }

    /// Runs to the end and judges.
    pub fn run(&mut self) -> Result<Report, String> {
        self.run_until(u64::MAX)?;
        self.check_quiet();
        self.ledger.finish(self.now_ns);
        self.verdict()?;
        Ok(self.report())
    }

    /// What can be said now.
    pub fn report(&self) -> Report {
        Report {
            trace: mix(self.trace ^ self.ledger.trace),
            end_ns: self.now_ns,
            net: self.net.counts().clone(),
            socket_drops: self.nodes.iter().map(|node| node.socket_drops).sum(),
            polls: self.nodes.iter().map(|node| node.polls).sum(),
            rma: self.ledger.rma.counts.clone(),
        }
    }

    /// What became of datagrams so far.
    pub fn net_counts(&self) -> &NetCounts {
        self.net.counts()
    }

    /// Nanoseconds since the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A node's endpoint, while the node is up.
    pub fn endpoint(&self, node: usize) -> Option<&cci_proto::Endpoint> {
        self.nodes[node].endpoint.as_ref()
    }

    fn verdict(&self) -> Result<(), String> {
        match self.ledger.failure() {
            None => Ok(()),
            Some(what) if self.log.is_empty() => Err(what.to_owned()),
            Some(what) => {
                Err(format!("{}\n{what}", self.log.iter().map(String::as_str).collect::<Vec<_>>().join("\n")))
            }
        }
    }

    /// Runs until a time, until nothing more will happen, or until a promise is broken.
    pub fn run_until(&mut self, until_ns: u64) -> Result<(), String> {
        while self.queue.peek().is_some_and(|Reverse(entry)| entry.at_ns <= until_ns) {
            let Some(Reverse(entry)) = self.queue.pop() else { break };
            self.events += 1;
            // What is left of a run that has ended otherwise is not waited for.
            self.now_ns = self.now_ns.max(entry.at_ns);
            if self.now_ns > self.plan.end_ns {
                let left = self.describe();
                self.ledger.fail(self.now_ns, format!("still something going on\n{left}"));
            }
            if self.events > EVENTS_MAX {
                let left = self.describe();
                self.ledger.fail(self.now_ns, format!("{EVENTS_MAX} events: a storm\n{left}"));
            }
            self.step(entry.what);
            self.take_log();
            self.verdict()?;
        }
        Ok(())
    }

    /// Takes over what programs logged of memory, behind what else happened in the step.
    fn take_log(&mut self) {
        for line in self.ledger.log.as_mut().map(std::mem::take).unwrap_or_default() {
            self.log_line(|| line);
        }
    }

    fn step(&mut self, what: What) {
        match what {
            What::AtLink(packet) => match self.net.ingress(self.now_ns, packet.target, packet.bytes.len()) {
                Some(at_ns) if at_ns <= self.now_ns => self.enter_socket(packet),
                Some(at_ns) => self.at(at_ns, What::AtSocket(packet)),
                None => self.log_line(|| format!("{}>{} lost: queue full", packet.source, packet.target)),
            },
            What::AtSocket(packet) => self.enter_socket(packet),
            What::Wake(node) => {
                if self.nodes[node].wake_ns == Some(self.now_ns) {
                    self.nodes[node].wake_ns = None;
                    self.poll(node);
                }
            }
            What::Dial(talk) => self.dial(talk),
            What::Answer(talk) => self.answer(talk),
            What::Fault(fault) => self.fault(fault),
            What::Narrow(interface, target, mtu_bytes) => {
                let (node, via) = (node_of(interface), (interface / SECOND) as u8);
                if let Some(endpoint) = self.nodes[node].endpoint.as_mut() {
                    endpoint.path_mtu_changed(
                        cci_proto::Time(self.now_ns),
                        address_of(target).with_via(via),
                        mtu_bytes & !7,
                    );
                    self.wake(node, self.now_ns);
                }
            }
            What::GiveUp => {
                self.given_up = true;
                self.check_started();
                for node in 0..self.nodes.len() {
                    self.hang_up_all(node);
                    self.wake(node, self.now_ns);
                }
            }
        }
    }

    fn enter_socket(&mut self, packet: Packet) {
        let bytes = packet.bytes.len();
        self.note(1, (packet.source << 8 | packet.target) as u64, bytes as u64);
        let target = node_of(packet.target);
        let node = &mut self.nodes[target];
        if node.endpoint.is_none() {
            return;
        }
        // A socket counts what the kernel's buffers take, not what is in them: some overhead per datagram.
        if node.socket_bytes + bytes > node.plan.socket_bytes {
            node.socket_drops += 1;
            self.log_line(|| format!("{}>{target} lost: socket full", packet.source));
            return;
        }
        node.socket_bytes += bytes;
        node.socket.push_back(packet);
        let poll_ns = node.plan.poll_ns;
        self.wake(target, self.now_ns + poll_ns);
    }

    /// One turn of a node's loop: in, program, out.
    fn poll(&mut self, index: usize) {
        let now_ns = self.now_ns;
        self.nodes[index].polls += 1;
        let taken = self.nodes[index].take_in(now_ns, index, &mut self.ledger);
        let mut happened = taken + self.handle_events(index);
        let mut out = 0;
        let mut full = false;
        // Completions of what has left may free the program to send more, which may then leave too.
        for _ in 0..4 {
            let started = self.nodes[index].send_due(now_ns, &mut self.ledger);
            self.hang_up_lingering(index);
            full = self.nodes[index].put_out(now_ns, index, &mut self.ledger);
            let left = self.dispatch(index, out);
            let events = self.handle_events(index);
            happened += started + left + events;
            out += left;
            if full || left + events + started == 0 {
                break;
            }
        }
        self.check_memory(index);
        if self.nodes[index].polls.is_multiple_of(16) {
            self.check_in_progress(index);
        }
        self.after_poll(index, taken, out, happened, full);
        self.hang_up_done(index);
    }

    fn after_poll(&mut self, index: usize, taken: usize, out: usize, happened: usize, full: bool) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[index];
        let idle = happened == 0 && now_ns - node.idle_since_ns < IDLE_POLLS_NS;
        node.idle_polls = if idle { node.idle_polls + 1 } else { 0 };
        if !idle {
            node.idle_since_ns = now_ns;
        }
        if node.idle_polls > IDLE_POLLS_MAX {
            let deadline = node.endpoint.as_ref().and_then(|endpoint| endpoint.next_deadline());
            self.ledger.fail(
                now_ns,
                format!(
                    "node {index} spins: woken {IDLE_POLLS_MAX} times for nothing, deadline {deadline:?}"
                ),
            );
            return;
        }
        let busy_ns = node.plan.poll_ns + node.plan.datagram_ns * (taken + out) as u64;
        node.busy_until_ns = now_ns + busy_ns.max(1);
        let next_ns = node.next_ns(now_ns);
        let more = full || !node.socket.is_empty();
        let wire_full =
            !self.net.egress_has_room(now_ns, index, u64::from(self.nodes[index].plan.datagram_bytes_max));
        if wire_full && full {
            let at_ns = self.net.egress_half_empty_ns(now_ns, index);
            self.wake(index, at_ns);
        }
        if more && !(wire_full && full) {
            self.wake(index, now_ns);
        }
        if let Some(at_ns) = next_ns {
            self.wake(index, at_ns);
        }
    }

    /// Hands what an endpoint transmitted to the network, behind the `before` datagrams of this poll so far. Returns how
    /// many datagrams.
    fn dispatch(&mut self, source: usize, before: usize) -> usize {
        let batch = std::mem::take(&mut self.nodes[source].outbox.batch);
        let count = batch.len();
        let spacing_ns = self.nodes[source].plan.datagram_ns;
        for (i, (to, fragment, bytes)) in batch.into_iter().enumerate() {
            let at = node_at(to).filter(|target| node_of(*target) < self.nodes.len());
            let Some(target) = at else {
                self.ledger.fail(self.now_ns, format!("node {source} sends to {to:?}, where nobody is"));
                break;
            };
            if bytes.len() > usize::from(self.nodes[source].plan.datagram_bytes_max) {
                self.ledger.fail(self.now_ns, format!("node {source} sends {} bytes", bytes.len()));
            }
            let packet = Packet { source: source + SECOND * usize::from(to.via()), target, bytes };
            if self.plan.record {
                self.seen.push((self.now_ns, packet.clone()));
            }
            // A processor hands one datagram after the other to its link.
            self.launch(packet, fragment, self.now_ns + spacing_ns * (before + i) as u64);
        }
        count
    }

    pub(super) fn launch(&mut self, packet: Packet, fragment: bool, at_ns: u64) {
        let (source, target, bytes) = (packet.source, packet.target, packet.bytes.len());
        self.note(2, (source << 8 | target) as u64, bytes as u64);
        let delivery = self.net.launch(at_ns, source, target, bytes, fragment);
        self.log_line(|| {
            format!("{source}>{target} {bytes:>5} B {delivery:?} {}", crate::dissect::line(&packet.bytes))
        });
        match delivery {
            Delivery::Lost => {}
            Delivery::TooLong(mtu_bytes) => {
                self.at(self.now_ns + 1_000, What::Narrow(source, target, mtu_bytes))
            }
            Delivery::Arrives(first_ns, second_ns) => {
                if let Some(second_ns) = second_ns {
                    self.at(second_ns, What::AtLink(packet.clone()));
                }
                self.at(first_ns, What::AtLink(packet));
            }
        }
    }

    fn fault(&mut self, fault: usize) {
        match self.plan.faults[fault].1.clone() {
            Fault::Crash(node) => {
                self.log_line(|| format!("node {node} crashes"));
                self.nodes[node].crash();
                self.ledger.rma.crash(self.now_ns, node);
                self.forget_requests(node);
                for side in self.ledger.sides.iter_mut().filter(|side| side.node == node) {
                    if !matches!(side.state, SideState::Closed | SideState::Failed) {
                        side.state = SideState::Crashed;
                    }
                }
            }
            Fault::Restart(node) => {
                if self.nodes[node].endpoint.is_none() {
                    if let Err(what) = self.nodes[node].restart() {
                        self.ledger.fail(self.now_ns, what);
                    }
                    self.ledger.rma.boot(node);
                }
            }
            Fault::Links(node, egress, ingress) => self.net.set_links(node, egress, ingress),
            Fault::Replay(count) => self.replay(count),
            Fault::ReplayElsewhere(count) => self.replay_elsewhere(count),
            Fault::ReplayBetween(from_ns, until_ns) => self.replay_between(from_ns, until_ns),
            Fault::Forge(count) => self.forge(count),
        }
    }

    /// What everybody is waiting for: for failure messages.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(endpoint) = &node.endpoint else {
                text += &format!("node {index}: down\n");
                continue;
            };
            text += &format!(
                "node {index}: deadline {:?}, socket {}, {:?}\n",
                endpoint.next_deadline(),
                node.socket.len(),
                endpoint.memory()
            );
        }
        for (token, side) in self.ledger.sides.iter().enumerate() {
            let info = side.key.and_then(|key| self.nodes[side.node].endpoint.as_ref()?.connection(key));
            let (role, state, flow) = (side.role == Role::Client, side.state, &side.flow);
            text += &format!(
                "side {token} (node {}, client {role}, talk {}): {state:?}, sent {}, outstanding {}, delivered {}, {info:?}\n",
                side.node,
                side.conversation,
                flow.msgs.len(),
                flow.outstanding,
                flow.delivered
            );
        }
        text
    }

    /// True if a conversation was to end in a way that waits for the program.
    pub(super) fn hang_up_of(&self, talk: usize) -> HangUp {
        self.plan.talks[talk].hang_up
    }
}
