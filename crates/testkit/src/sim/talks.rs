//! The programs of a run: they dial, answer, send, and hang up.

use cci_proto::{Attribute, Event, Request, Time};

use super::ledger::{Role, SideState};
use super::net::{SECOND, node_of};
use super::node::{Node, Sender, address_of, node_at};
use super::operator::Operator;
use super::plan::{Fault, HangUp};
use super::rma::RmaWork;
use super::world::{What, World};
use crate::rng::{Rng, mix};

impl World {
    /// Bytes of a request: the conversation's number, then a pattern.
    fn request_payload(&self, talk: usize) -> Vec<u8> {
        let len = self.plan.talks[talk].request_bytes.clamp(4, 1_024);
        let mut payload = (talk as u32).to_le_bytes().to_vec();
        payload.extend((4..len).map(|i| mix((talk << 16 | i) as u64) as u8));
        payload
    }

    pub(super) fn dial(&mut self, talk: usize) {
        let payload = self.request_payload(talk);
        let plan = &self.plan.talks[talk];
        let (client, attribute) = (plan.client, plan.attribute);
        if self.nodes[client].endpoint.is_none() {
            return;
        }
        let work = plan.down.rma;
        let token = self.ledger.open(talk as u32, Role::Client, client, attribute);
        self.expose(token, client, &work);
        let plan = &self.plan.talks[talk];
        let (now, token_bits, timeout_ns) = (Time(self.now_ns), token as u64, plan.connect_timeout_ns);
        let to = address_of(plan.server);
        let asked = if self.nodes[plan.server].plan.bonded && self.nodes[client].plan.bonded {
            let both = [to, address_of(plan.server + SECOND).with_via(1)];
            let endpoint = self.nodes[client].endpoint.as_mut();
            let Some(endpoint) = endpoint else { return };
            endpoint.connect_bonded(now, both, &payload, attribute, token_bits, timeout_ns)
        } else {
            let Some(endpoint) = self.nodes[client].endpoint.as_mut() else { return };
            endpoint.connect(now, to, &payload, attribute, token_bits, timeout_ns)
        };
        match asked {
            Ok(key) => {
                self.ledger.sides[token].key = Some(key);
                self.talks[talk].client = Some(token);
            }
            Err(error) => {
                // Never started: nothing to end.
                self.ledger.sides[token].state = SideState::Failed;
                if self.plan.all_succeed {
                    self.ledger.fail(self.now_ns, format!("connect: {error:?}"));
                }
            }
        }
        self.wake(client, self.now_ns);
    }

    /// Gives a node's program the events of its endpoint. Returns how many.
    pub(super) fn handle_events(&mut self, node: usize) -> usize {
        let mut count = 0;
        while let Some(event) = self.nodes[node].events.pop_front() {
            count += 1;
            self.log_line(|| format!("node {node}: {}", brief(&event)));
            match event {
                Event::Request(request) => self.requested(node, request),
                Event::Connected { token, .. } | Event::Accepted { token, .. } => {
                    self.start_sending(token as usize)
                }
                Event::Disconnected { token, .. } => self.hang_up(token as usize),
                Event::Closed { token, .. }
                | Event::ConnectFailed { token, .. }
                | Event::AcceptFailed { token, .. } => {
                    self.nodes[node].forget(token as usize);
                }
                _ => {}
            }
        }
        count
    }

    fn requested(&mut self, node: usize, request: Request) {
        let payload = request.payload();
        let talk = match payload.first_chunk::<4>() {
            Some(number) => u32::from_le_bytes(*number) as usize,
            None => usize::MAX,
        };
        if talk >= self.plan.talks.len() || payload != self.request_payload(talk) {
            self.ledger.fail(self.now_ns, format!("node {node}: a request nobody made, {} B", payload.len()));
            return;
        }
        let plan = &self.plan.talks[talk];
        let right = plan.server == node
            && request.attribute() == plan.attribute
            && node_at(request.peer()).is_some_and(|from| node_of(from) == plan.client);
        if !right {
            self.ledger
                .fail(self.now_ns, format!("request of talk {talk} at node {node} is not as it was made"));
        }
        let live =
            |token: &usize| matches!(self.ledger.sides[*token].state, SideState::Pending | SideState::Up);
        let repeated = !self.talks[talk].waiting.is_empty() || self.talks[talk].servers.iter().any(live);
        // A machine that was down remembers nothing of what it handed to another endpoint.
        let forgot =
            self.plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Crash(down) if *down == node));
        if repeated && !forgot {
            self.ledger
                .fail(self.now_ns, format!("request of talk {talk} a second time while the first one lives"));
        }
        let at_ns = self.now_ns + plan.answer_ns;
        self.talks[talk].waiting.push((node, request));
        if plan.answer_ns == 0 { self.answer(talk) } else { self.at(at_ns, What::Answer(talk)) }
    }

    pub(super) fn answer(&mut self, talk: usize) {
        let now = Time(self.now_ns);
        let waiting = std::mem::take(&mut self.talks[talk].waiting);
        for (came_to, request) in waiting {
            let plan = &self.plan.talks[talk];
            let node = plan.broker_to.unwrap_or(came_to);
            let (reject, attribute) = (plan.reject, plan.attribute);
            let ticket = request.ticket();
            let Some(endpoint) = self.nodes[node].endpoint.as_mut() else { continue };
            if reject {
                if let Some(endpoint) = self.nodes[came_to].endpoint.as_mut() {
                    endpoint.reject(now, request);
                }
                self.wake(came_to, self.now_ns);
                continue;
            }
            let work = plan.up.rma;
            let token = self.ledger.open(talk as u32, Role::Server, node, attribute);
            match endpoint.accept(now, request, token as u64) {
                Ok(key) => {
                    let client = self.talks[talk].client;
                    self.ledger.sides[token].key = Some(key);
                    self.ledger.sides[token].peer = client;
                    self.talks[talk].servers.push(token);
                    self.expose(token, node, &work);
                    if node != came_to
                        && let Some(endpoint) = self.nodes[came_to].endpoint.as_mut()
                    {
                        endpoint.request_taken(ticket);
                    }
                }
                Err((error, request)) => {
                    self.ledger.sides[token].state = SideState::Failed;
                    if self.plan.all_succeed {
                        self.ledger.fail(self.now_ns, format!("accept: {error:?}"));
                    }
                    if let Some(endpoint) = self.nodes[came_to].endpoint.as_mut() {
                        endpoint.reject(now, request);
                    }
                }
            }
            self.wake(node, self.now_ns);
            self.wake(came_to, self.now_ns);
        }
    }

    /// The program tells its peer, by whatever way, of memory that it may use.
    fn expose(&mut self, token: usize, node: usize, work: &RmaWork) {
        if self.ledger.sides[token].attribute.is_reliable() {
            let scoped = mix(token as u64) & 1 == 0;
            self.ledger.rma.expose(self.now_ns, token, node, work.region_bytes_of(), scoped);
        }
    }

    /// Programs on a node that goes down forget the requests they have not answered.
    pub(super) fn forget_requests(&mut self, node: usize) {
        for (talk, plan) in self.talks.iter_mut().zip(&self.plan.talks) {
            talk.waiting.retain(|(came_to, _)| plan.broker_to.unwrap_or(*came_to) != node);
        }
    }

    fn start_sending(&mut self, token: usize) {
        let side = &self.ledger.sides[token];
        let (talk, role, node) = (side.conversation as usize, side.role, side.node);
        let Some(key) = side.key else { return };
        let plan = &self.plan.talks[talk];
        if role == Role::Client && self.ledger.sides[token].peer.is_none() {
            self.ledger.sides[token].peer = self.talks[talk].servers.last().copied();
        }
        let (work, linger) = match role {
            Role::Client => (plan.up.clone(), plan.hang_up == HangUp::Linger),
            Role::Server => (plan.down.clone(), false),
        };
        self.ledger.sides[token].flow.always_named = work.always_named();
        if work.rma.operations > 0 && self.ledger.sides[token].attribute.is_reliable() {
            let rng = Rng::new(self.nodes[node].rng.next_u64());
            let operator = Operator::new(token, key, work.rma, self.now_ns, rng, &mut self.ledger);
            self.nodes[node].operators.extend(operator);
        }
        self.nodes[node].senders.push(Sender::new(token, key, work, self.now_ns, linger));
        if self.given_up {
            self.hang_up(token);
        }
        self.wake(node, self.now_ns);
    }

    /// The program on one side hangs up, if there is something to hang up.
    pub(super) fn hang_up(&mut self, token: usize) {
        let side = &mut self.ledger.sides[token];
        let (node, was) = (side.node, side.state);
        if !matches!(was, SideState::Up | SideState::Broken) {
            return;
        }
        let (Some(key), Some(endpoint)) = (side.key, self.nodes[node].endpoint.as_mut()) else { return };
        side.hung_up = was == SideState::Up;
        side.state = SideState::Closing;
        if let Err(error) = endpoint.disconnect(Time(self.now_ns), key) {
            self.ledger
                .fail(self.now_ns, format!("disconnect of side {token}, which was {was:?}: {error:?}"));
        }
        self.nodes[node].forget(token);
        self.log_line(|| format!("node {node}: side {token} hangs up"));
        self.wake(node, self.now_ns);
    }

    /// After the run's patience is over.
    pub(super) fn hang_up_all(&mut self, node: usize) {
        for token in 0..self.ledger.sides.len() {
            if self.ledger.sides[token].node == node {
                self.hang_up(token);
            }
        }
    }

    /// Clients that hang up as soon as they have said everything.
    pub(super) fn hang_up_lingering(&mut self, node: usize) {
        let is_sender = |node: &Node, sender: &Sender| {
            let started =
                node.operators.iter().all(|operator| operator.token != sender.token || operator.left == 0);
            sender.linger && sender.left == 0 && started
        };
        loop {
            let node = &mut self.nodes[node];
            let Some(token) =
                node.senders.iter().find(|sender| is_sender(node, sender)).map(|sender| sender.token)
            else {
                return;
            };
            node.forget(token);
            self.hang_up(token);
        }
    }

    /// Conversations of this node in which everything is said and heard.
    pub(super) fn hang_up_done(&mut self, node: usize) {
        for talk in 0..self.talks.len() {
            let plan = &self.plan.talks[talk];
            if plan.client != node && plan.server != node && plan.broker_to != Some(node) {
                continue;
            }
            let Some(client) = self.talks[talk].client else { continue };
            let Some(server) = self.talks[talk].servers.last().copied() else { continue };
            if self.ledger.sides[client].state != SideState::Up
                || !self.is_all_sent(client)
                || !self.is_all_sent(server)
            {
                continue;
            }
            match self.hang_up_of(talk) {
                HangUp::WhenDone | HangUp::Linger => self.hang_up(client),
                HangUp::Both => {
                    self.hang_up(client);
                    self.hang_up(server);
                }
            }
        }
    }

    /// Whether this side has sent everything and every message ended: for good connections, arrived.
    fn is_all_sent(&self, token: usize) -> bool {
        let side = &self.ledger.sides[token];
        let flow = &side.flow;
        let queued = match self.nodes[side.node].senders.iter().find(|sender| sender.token == token) {
            Some(sender) => sender.left == 0 || self.now_ns >= sender.work.until_ns,
            None => side.state != SideState::Pending,
        };
        let operated = self.ledger.rma.outstanding(token) == 0
            && !self.nodes[side.node]
                .operators
                .iter()
                .any(|operator| operator.token == token && operator.left > 0);
        let heard = side.attribute == Attribute::Unreliable
            || !self.plan.all_succeed
            || flow.delivered == flow.msgs.len() as u64;
        queued && operated && flow.outstanding == 0 && heard
    }
}

/// One line about an event, for traces.
fn brief(event: &Event) -> String {
    match event {
        Event::Request(request) => format!("Request of {:?}", request.peer()),
        other => format!("{other:?}"),
    }
}
