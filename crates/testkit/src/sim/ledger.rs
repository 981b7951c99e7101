//! What was sent, what arrived and what was said about it: the judge of every run.
//!
//! Promises checked, all of them at the moment they could be broken:
//! - reliable ordered: delivered in the order sent, exactly once; completions in that order;
//! - reliable unordered: delivered exactly once;
//! - unreliable: at most once;
//! - contents as sent; nothing delivered on a connection that is not up, or from anyone but its peer;
//! - every send that is not silent completes exactly once; `Success` on a reliable connection was (or will be) delivered unless the
//!   receiver crashed or hung up; `ReceiverNotReady` was never and will never be delivered;
//! - a connect, an accept and a disconnect end exactly once.
//!
//! What is promised of remote memory access is checked in `accesses` and `ends`.

mod accesses;
mod ends;

use cci_proto::{Attribute, ConnKey, Status};

use super::rma::Rma;
use super::rma::names::operation_side;
use crate::contents;
use crate::rng::mix;

/// Which end of a conversation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Dialled.
    Client,
    /// Accepted.
    Server,
}

/// Where one end of a conversation is in its life.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SideState {
    /// `connect` or `accept` called, not ended.
    Pending,
    /// Connected or accepted.
    Up,
    /// The peer hung up or is dead: `Event::Disconnected`.
    Broken,
    /// `disconnect` called.
    Closing,
    /// `Event::Closed`.
    Closed,
    /// `Event::ConnectFailed` or `AcceptFailed`.
    Failed,
    /// The node went down.
    Crashed,
}

/// One message of a flow.
#[derive(Copy, Clone, Debug)]
pub struct Msg {
    /// Length in bytes.
    pub len_bytes: u32,
    /// No completion if it succeeds.
    pub silent: bool,
    /// How it ended.
    pub status: Option<Status>,
    /// Times it arrived.
    pub delivered: u8,
}

/// The messages one side sends.
#[derive(Debug, Default)]
pub struct Flow {
    /// In the order sent.
    pub msgs: Vec<Msg>,
    /// Sends not silent and not completed.
    pub outstanding: u64,
    /// Of all messages.
    pub delivered: u64,
    /// Payload bytes delivered.
    pub delivered_bytes: u64,
    /// Time of the latest delivery.
    pub last_delivery_ns: u64,
    /// Time of the latest completion.
    pub last_completion_ns: u64,
    /// None of them is too short to say where it is from.
    pub always_named: bool,
    /// Reliable ordered: the first message that has not arrived and was not skipped.
    next: u32,
    /// Reliable ordered: the latest completed.
    completed: Option<u32>,
    /// Messages too short to be named, sent and arrived (unordered only).
    short_sent: u64,
    short_arrived: u64,
}

/// One end of one conversation. Its token is its index.
#[derive(Debug)]
pub struct Side {
    /// Both ends have the same number.
    pub conversation: u32,
    /// Which end.
    pub role: Role,
    /// On which node.
    pub node: usize,
    /// Reliability and order.
    pub attribute: Attribute,
    /// Once known.
    pub key: Option<ConnKey>,
    /// Where in its life.
    pub state: SideState,
    /// The other end, once a message or an event told.
    pub peer: Option<usize>,
    /// The program here called `disconnect` of its own accord, not because the peer was gone.
    pub hung_up: bool,
    /// Times `Event::KeepaliveTimedOut` was raised.
    pub silences: u32,
    /// What this side sends.
    pub flow: Flow,
}

/// The judge.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By token.
    pub sides: Vec<Side>,
    /// Nothing but `Success` is acceptable.
    pub all_succeed: bool,
    /// Fold of everything programs saw.
    pub trace: u64,
    /// Memory, and who does what to it.
    pub rma: Rma,
    /// Lines for a trace, if one is wanted.
    pub(super) log: Option<Vec<String>>,
    failure: Option<String>,
}

impl Ledger {
    /// An empty ledger; `all_succeed` as in [`super::Plan`].
    pub fn new(all_succeed: bool) -> Ledger {
        Ledger { all_succeed, ..Ledger::default() }
    }

    /// Adds one end of a conversation and gives its token.
    pub fn open(&mut self, conversation: u32, role: Role, node: usize, attribute: Attribute) -> usize {
        self.sides.push(Side {
            conversation,
            role,
            node,
            attribute,
            key: None,
            state: SideState::Pending,
            peer: None,
            hung_up: false,
            silences: 0,
            flow: Flow::default(),
        });
        self.sides.len() - 1
    }

    /// Records the first broken promise; later ones are mostly its consequences.
    pub fn fail(&mut self, now_ns: u64, what: impl Into<String>) {
        if self.failure.is_none() {
            self.failure = Some(format!("at {now_ns} ns: {}", what.into()));
        }
    }

    /// The first broken promise.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn log_line(&mut self, line: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(line());
        }
    }

    pub(super) fn note(&mut self, now_ns: u64, kind: u64, side: u64, what: u64) {
        self.trace = mix(self.trace ^ mix(now_ns) ^ mix(kind << 56 ^ side << 32 ^ what));
    }

    /// A message was queued; its index is the next one.
    pub fn sent(&mut self, side: usize, len_bytes: usize, silent: bool) {
        let side = &mut self.sides[side];
        let ordered = side.attribute == Attribute::ReliableOrdered;
        side.flow.short_sent += u64::from(!ordered && len_bytes < contents::NAMED_BYTES_MIN);
        side.flow.outstanding += u64::from(!silent);
        side.flow.msgs.push(Msg { len_bytes: len_bytes as u32, silent, status: None, delivered: 0 });
    }

    /// `Sink::message` took a payload for the connection with this token.
    pub fn delivered(&mut self, now_ns: u64, node: usize, key: ConnKey, token: u64, payload: &[u8]) {
        self.note(now_ns, 1, token, payload.len() as u64);
        if let Err(what) = self.check_delivered(now_ns, node, key, token as usize, payload) {
            self.fail(now_ns, format!("message of {} B for side {token}: {what}", payload.len()));
        }
    }

    fn check_delivered(
        &mut self,
        now_ns: u64,
        node: usize,
        key: ConnKey,
        token: usize,
        payload: &[u8],
    ) -> Result<(), String> {
        let side = self.sides.get(token).ok_or("no such token")?;
        if side.node != node || side.key.is_some_and(|known| known != key) {
            return Err(format!(
                "the token is of node {} key {:?}, not node {node} {key:?}",
                side.node, side.key
            ));
        }
        if !matches!(side.state, SideState::Up | SideState::Broken | SideState::Closing) {
            return Err(format!("delivered while {:?}", side.state));
        }
        let (conversation, role, ordered) =
            (side.conversation, side.role, side.attribute == Attribute::ReliableOrdered);
        if let Some((from, index)) = self.is_behind_data(token, payload) {
            let peer = self.sides.get(from).ok_or("from no side there is")?;
            if peer.conversation != conversation || peer.role == role {
                return Err(format!("it is from side {from} of conversation {}", peer.conversation));
            }
            return match index {
                Some(index) => self.behind_data(from, index, payload),
                None => self.empty_behind_data(from),
            };
        }
        let from = match contents::identify(payload) {
            Some((from, _)) => from as usize,
            None if payload.len() < contents::NAMED_BYTES_MIN => side.peer.ok_or("from nobody known")?,
            None => return Err("contents damaged".into()),
        };
        let peer = self.sides.get(from).ok_or("from no side there is")?;
        if peer.conversation != conversation
            || peer.role == role
            || side.peer.is_some_and(|known| known != from)
        {
            return Err(format!("it is from side {from} of conversation {}", peer.conversation));
        }
        self.sides[token].peer = Some(from);
        let flow = &mut self.sides[from].flow;
        flow.delivered += 1;
        flow.delivered_bytes += payload.len() as u64;
        flow.last_delivery_ns = now_ns;
        let index = if ordered {
            flow.take_next(from, payload)?
        } else if let Some((_, index)) = contents::identify(payload) {
            index
        } else {
            flow.short_arrived += 1;
            return if flow.short_arrived > flow.short_sent {
                Err("more short messages than were sent".into())
            } else {
                Ok(())
            };
        };
        let msg = flow.msgs.get_mut(index as usize).ok_or(format!("message {index} was never sent"))?;
        msg.delivered = msg.delivered.saturating_add(1);
        match msg {
            _ if msg.len_bytes as usize != payload.len() => {
                Err(format!("message {index} had {} B", msg.len_bytes))
            }
            Msg { delivered: 2.., .. } => Err(format!("message {index} for the second time")),
            Msg { status: Some(Status::ReceiverNotReady), .. } => {
                Err(format!("message {index}, after its sender was told ReceiverNotReady"))
            }
            _ => Ok(()),
        }
    }

    /// Side and number of the operation that a message belongs to, if it does; no number if it is empty.
    fn is_behind_data(&self, token: usize, payload: &[u8]) -> Option<(usize, Option<u32>)> {
        if let Some((from, index)) = contents::identify(payload) {
            return Some((operation_side(from)?, Some(index)));
        }
        let peer = self.sides[token].peer?;
        (payload.is_empty() && self.sides.get(peer)?.flow.always_named).then_some((peer, None))
    }

    /// `Event::Sent`.
    pub fn completed(&mut self, now_ns: u64, token: u64, context: u64, status: Status) {
        self.note(now_ns, 2, token, context ^ (status as u64) << 24);
        let all_succeed = self.all_succeed;
        let Some(side) = self.sides.get_mut(token as usize) else {
            return self.fail(now_ns, format!("completion for token {token}, which there is not"));
        };
        let ordered = side.attribute == Attribute::ReliableOrdered;
        let state = side.state;
        let flow = &mut side.flow;
        flow.last_completion_ns = now_ns;
        let index = context as u32;
        let Some(msg) = flow.msgs.get_mut(index as usize).filter(|_| context >> 32 == token) else {
            return self.fail(
                now_ns,
                format!("side {token}: completion of context {context:#x}, which was never sent"),
            );
        };
        let second = msg.status.replace(status);
        let (silent, delivered) = (msg.silent, msg.delivered);
        flow.outstanding = flow.outstanding.saturating_sub(1);
        let disordered = ordered && flow.completed.is_some_and(|last| last >= index);
        flow.completed = Some(index);
        let wrong = if let Some(first) = second {
            format!("completed twice: {first:?}, then {status:?}")
        } else if matches!(
            state,
            SideState::Closed | SideState::Failed | SideState::Crashed | SideState::Pending
        ) {
            format!("completed {status:?} while the connection is {state:?}")
        } else if silent {
            format!("silent, yet completed with {status:?}")
        } else if disordered {
            "completed out of order".into()
        } else if status == Status::ReceiverNotReady && delivered > 0 {
            "was delivered, yet completed with ReceiverNotReady".into()
        } else if all_succeed && status != Status::Success {
            format!("completed with {status:?} though nothing was wrong")
        } else {
            return;
        };
        self.fail(now_ns, format!("side {token}, message {index}: {wrong}"));
    }

    /// An event of a connection's life moves its side from one of `from` to `to`.
    pub fn moved(
        &mut self,
        now_ns: u64,
        token: u64,
        key: ConnKey,
        from: &[SideState],
        to: SideState,
        event: &str,
    ) {
        self.note(now_ns, 3, token, to as u64);
        let Some(side) = self.sides.get_mut(token as usize) else {
            return self.fail(now_ns, format!("{event} for token {token}, which there is not"));
        };
        let wrong_key = side.key.replace(key).is_some_and(|known| known != key);
        let was = std::mem::replace(&mut side.state, to);
        let unwanted = self.all_succeed && event == "ConnectFailed";
        if wrong_key || unwanted || !from.contains(&was) {
            self.fail(now_ns, format!("side {token}: {event} while {was:?}, wrong key: {wrong_key}"));
        }
    }

    /// `Event::KeepaliveTimedOut`: once per connection at most, since nobody turns it on again.
    pub fn silent(&mut self, now_ns: u64, token: u64) {
        self.note(now_ns, 4, token, 0);
        let Some(side) = self.sides.get_mut(token as usize) else { return };
        side.silences += 1;
        if side.silences > 1 || !matches!(side.state, SideState::Up | SideState::Closing) {
            let what =
                format!("side {token}: KeepaliveTimedOut number {} while {:?}", side.silences, side.state);
            self.fail(now_ns, what);
        }
    }

    /// Messages this side still waits for a completion of.
    pub fn outstanding(&self, token: usize) -> u64 {
        self.sides[token].flow.outstanding
    }

    /// Whether a send of this side may be refused because its peer has hung up or is gone.
    pub fn peer_may_be_gone(&self, token: usize) -> bool {
        let side = &self.sides[token];
        let gone = |peer: &Side| !matches!(peer.state, SideState::Up | SideState::Pending);
        let mut peers =
            self.sides.iter().filter(|peer| peer.conversation == side.conversation && peer.role != side.role);
        // The news may wait behind messages that the program has not taken yet; failed sends do not.
        let failed = |msg: &Msg| matches!(msg.status, Some(Status::TimedOut | Status::Disconnected));
        side.state == SideState::Broken || peers.any(gone) || side.flow.msgs.iter().any(failed)
    }

    /// Judges what can only be judged when nothing more will happen.
    pub fn finish(&mut self, now_ns: u64) {
        for token in 0..self.sides.len() {
            if let Err(what) = self.check_finished(token) {
                self.fail(now_ns, format!("at the end, side {token}: {what}"));
            }
        }
        if let Err(what) = self.rma_finish() {
            self.fail(now_ns, format!("at the end, {what}"));
        }
    }

    fn check_finished(&self, token: usize) -> Result<(), String> {
        let side = &self.sides[token];
        if !matches!(side.state, SideState::Closed | SideState::Failed | SideState::Crashed) {
            return Err(format!("still {:?}", side.state));
        }
        if side.state != SideState::Crashed
            && let Some(index) = side.flow.msgs.iter().position(|msg| !msg.silent && msg.status.is_none())
        {
            return Err(format!("message {index} never completed ({:?})", side.flow.msgs[index]));
        }
        if side.attribute == Attribute::Unreliable {
            return Ok(());
        }
        // The receiver is excused if its machine went down or its program hung up while messages were still coming.
        let mut receivers =
            self.sides.iter().filter(|peer| peer.conversation == side.conversation && peer.role != side.role);
        if receivers.any(|peer| peer.state == SideState::Crashed || peer.hung_up) {
            return Ok(());
        }
        let must = |msg: &Msg| msg.status == Some(Status::Success) || (self.all_succeed && msg.silent);
        if side.attribute == Attribute::ReliableUnordered {
            let short = |msg: &&Msg| (msg.len_bytes as usize) < contents::NAMED_BYTES_MIN;
            let owed = side.flow.msgs.iter().filter(short).filter(|msg| must(msg)).count() as u64;
            if owed > side.flow.short_arrived {
                return Err(format!("{owed} short messages succeeded, {} arrived", side.flow.short_arrived));
            }
        }
        let lost = side.flow.msgs.iter().position(|msg| {
            let named = msg.len_bytes as usize >= contents::NAMED_BYTES_MIN
                || side.attribute == Attribute::ReliableOrdered;
            named && must(msg) && msg.delivered == 0
        });
        match lost {
            Some(index) => {
                Err(format!("message {index} succeeded but never arrived ({:?})", side.flow.msgs[index]))
            }
            None => Ok(()),
        }
    }
}

impl Flow {
    /// Reliable ordered: which message this must be, skipping only those whose sender was told that they will not arrive.
    fn take_next(&mut self, from: usize, payload: &[u8]) -> Result<u32, String> {
        let named = contents::identify(payload).map(|(_, index)| index);
        let first = self.next;
        loop {
            let index = self.next;
            let msg = self
                .msgs
                .get(index as usize)
                .ok_or_else(|| format!("nothing after message {first} matches"))?;
            let this = match named {
                Some(named) => named == index,
                // Empty messages look all the same: those that were refused for good are not meant.
                None if msg.status == Some(Status::ReceiverNotReady) => false,
                None => {
                    msg.len_bytes as usize == payload.len() && contents::is_short(from as u32, index, payload)
                }
            };
            if this {
                self.next += 1;
                return Ok(index);
            }
            // A silent send that fails says nothing, so one may be missing without a word.
            if msg.status != Some(Status::ReceiverNotReady) && !msg.silent {
                return Err(format!("message {named:?} came though {index} did not ({msg:?})"));
            }
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: ConnKey = ConnKey { index: 0, generation: 0 };

    /// Side 0 sends messages of these lengths to side 1; both are up.
    fn talking(attribute: Attribute, lens: &[usize]) -> Ledger {
        let mut ledger = Ledger::new(false);
        for role in [Role::Client, Role::Server] {
            let token = ledger.open(0, role, role as usize, attribute) as u64;
            ledger.moved(0, token, KEY, &[SideState::Pending], SideState::Up, "Connected");
        }
        ledger.sides[1].peer = Some(0);
        for len in lens {
            ledger.sent(0, *len, false);
        }
        ledger
    }

    fn arrive(ledger: &mut Ledger, index: u32, len: usize) {
        let mut bytes = vec![0; len];
        contents::fill(0, index, &mut bytes);
        ledger.delivered(1, 1, KEY, 1, &bytes);
    }

    #[test]
    fn order_matters_only_where_it_was_promised() {
        let mut ordered = talking(Attribute::ReliableOrdered, &[8, 8]);
        arrive(&mut ordered, 1, 8);
        assert!(ordered.failure().is_some());
        let mut unordered = talking(Attribute::ReliableUnordered, &[8, 8]);
        arrive(&mut unordered, 1, 8);
        arrive(&mut unordered, 0, 8);
        assert_eq!(unordered.failure(), None);
        arrive(&mut unordered, 0, 8);
        assert!(unordered.failure().is_some_and(|what| what.contains("second time")));
    }

    #[test]
    fn not_ready_and_delivered_exclude_each_other() {
        let mut ledger = talking(Attribute::ReliableOrdered, &[8, 3, 9]);
        ledger.completed(1, 0, 0, Status::ReceiverNotReady);
        arrive(&mut ledger, 1, 3);
        arrive(&mut ledger, 2, 9);
        assert_eq!(ledger.failure(), None);
        ledger.completed(1, 0, 1, Status::ReceiverNotReady);
        assert!(ledger.failure().is_some_and(|what| what.contains("was delivered")));
    }

    #[test]
    fn damage_and_strangers_are_seen() {
        let mut ledger = talking(Attribute::ReliableUnordered, &[20]);
        ledger.delivered(1, 1, KEY, 1, &[7; 20]);
        assert!(ledger.failure().is_some_and(|what| what.contains("damaged")));
        let mut ledger = talking(Attribute::ReliableUnordered, &[20]);
        arrive(&mut ledger, 5, 20);
        assert!(ledger.failure().is_some_and(|what| what.contains("never sent")));
    }

    #[test]
    fn completions_come_once_and_in_order() {
        let mut ledger = talking(Attribute::ReliableOrdered, &[8, 8]);
        ledger.completed(1, 0, 1, Status::Success);
        assert_eq!(ledger.failure(), None);
        ledger.completed(1, 0, 0, Status::Success);
        assert!(ledger.failure().is_some_and(|what| what.contains("out of order")));
        let mut ledger = talking(Attribute::ReliableUnordered, &[8]);
        ledger.completed(1, 0, 0, Status::Success);
        ledger.completed(2, 0, 0, Status::Success);
        assert!(ledger.failure().is_some_and(|what| what.contains("twice")));
    }
}
