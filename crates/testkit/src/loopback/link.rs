//! A connection as one end has it.

use super::remote::{Operation, serve};
use super::wire::{CLIENT, Handshake, Wire, lock};
use super::{BUFFER_RETRY_NS, MESSAGE_BYTES_MAX, failure};
use cci::seam::{Action, Core, SendOp, chosen_path};
use cci::{Attribute, ConnectFailure, Connection, DisconnectReason, Explanation, SendError, Status};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Messages of a connection that may be on their way; more wait in the engine.
const WINDOW: usize = 64;

/// A send that the peer has not taken.
pub(super) struct Send {
    number: u64,
    op: SendOp,
    len: usize,
    due_ns: u64,
}

/// See the module.
pub(super) struct Link {
    connection: Connection,
    wire: Arc<Mutex<Wire>>,
    /// Which end of it this is.
    end: usize,
    is_open: bool,
    /// When the attempt to connect is given up.
    until_ns: u64,
    /// The program, or the engine, is done with it.
    pub is_closing: bool,
    /// The engine was told that the peer is gone.
    has_ended: bool,
    /// Nothing is left to do.
    pub is_over: bool,
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
    /// The peer was there then, or the keepalive was turned on.
    heard_ns: u64,
    /// The oldest first.
    pub sends: VecDeque<Send>,
    /// How many sends there were, and how many messages came.
    pub sent: u64,
    pub received: u64,
    operations: VecDeque<Operation>,
    /// Something of the peer's waits for a receive buffer.
    lacks_buffer: bool,
}

impl Link {
    pub fn new(
        connection: Connection,
        wire: Arc<Mutex<Wire>>,
        end: usize,
        until_ns: u64,
        now_ns: u64,
    ) -> Link {
        Link {
            connection,
            wire,
            end,
            // A server's is open once it has accepted.
            is_open: end != CLIENT,
            until_ns,
            is_closing: false,
            has_ended: false,
            is_over: false,
            send_timeout_ns: 0,
            keepalive_ns: 0,
            heard_ns: now_ns,
            sends: VecDeque::new(),
            sent: 0,
            received: 0,
            operations: VecDeque::new(),
            lacks_buffer: false,
        }
    }

    /// Bytes of messages on their way.
    pub fn held_bytes(&self) -> u64 {
        self.sends.iter().map(|send| send.len as u64).sum()
    }

    pub fn sends_unreported(&self) -> u32 {
        self.sends.iter().filter(|send| !send.op.silent).count() as u32
    }

    pub fn has_sends_or_operations(&self) -> bool {
        !self.sends.is_empty() || !self.operations.is_empty()
    }

    /// Takes a message.
    pub fn send(&mut self, message: Vec<u8>, op: SendOp, now_ns: u64) -> Result<(), SendError> {
        if self.sends.len() >= WINDOW {
            return Err(SendError::WouldBlock);
        }
        let number = self.sent;
        let due_ns = now_ns.saturating_add(self.send_timeout_ns);
        self.sends.push_back(Send { number, op, len: message.len(), due_ns });
        self.sent += 1;
        let mut wire = lock(&self.wire);
        wire.both(self.end).0.messages.push_back((number, message));
        wire.tell(1 - self.end);
        Ok(())
    }

    /// Enters an operation that the engine knows by `id`.
    pub fn start(&mut self, core: &mut Core, id: u64, action: &Action<'_>, now_ns: u64) {
        let due_ns = now_ns.saturating_add(self.send_timeout_ns);
        self.operations.push_back(Operation::new(id, action, self.sent, due_ns));
        self.pump(core);
    }

    /// Sets the keepalive; the peer has that long from now on.
    pub fn keepalive(&mut self, timeout_ns: u64, now_ns: u64) {
        (self.keepalive_ns, self.heard_ns) = (timeout_ns, now_ns);
    }

    /// When there is something to do at the latest. `None`: the other end moves first.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let until_ns = Some(self.until_ns).filter(|_| !self.is_open);
        let keepalive_ns =
            Some(self.heard_ns + self.keepalive_ns).filter(|_| self.keepalive_ns > 0 && self.is_open);
        let buffer_ns = Some(now_ns + BUFFER_RETRY_NS).filter(|_| self.lacks_buffer);
        let send_ns = self.sends.front().map(|send| send.due_ns);
        let operation_ns = self.operations.iter().map(|operation| operation.due_ns).min();
        [until_ns, keepalive_ns, buffer_ns, send_ns, operation_ns].into_iter().flatten().min()
    }

    /// Looks at the wire, and does what is due.
    pub fn service(&mut self, core: &mut Core, now_ns: u64) {
        if !self.is_open || lock(&self.wire).handshake != Handshake::Accepted {
            return self.shake_hands(core, now_ns);
        }
        self.receive(core);
        self.complete(core);
        self.pump(core);
        self.time_out(core, now_ns);
        self.end(core);
    }

    /// The connection is not open yet, or not any more before it was.
    fn shake_hands(&mut self, core: &mut Core, now_ns: u64) {
        let handshake = {
            let mut wire = lock(&self.wire);
            let gives_up = self.is_closing || now_ns >= self.until_ns;
            if self.end == CLIENT && wire.handshake == Handshake::Asked && gives_up {
                wire.handshake = Handshake::GivenUp;
                self.is_over = true;
            }
            wire.handshake
        };
        if self.is_closing && handshake != Handshake::Accepted {
            self.is_over = true;
            core.closed(self.connection);
        } else if self.is_over {
            core.failed(self.connection, ConnectFailure::TimedOut);
        } else if let Some(why) = failure(handshake) {
            self.is_over = true;
            core.failed(self.connection, why);
        } else if handshake == Handshake::Accepted {
            self.is_open = true;
            self.heard_ns = now_ns;
            if !self.is_closing {
                core.opened(self.connection, MESSAGE_BYTES_MAX);
            }
            self.service(core, now_ns);
        }
    }

    /// Takes what has come, as far as there are receive buffers, and serves the peer's questions.
    fn receive(&mut self, core: &mut Core) {
        let mut wire = lock(&self.wire);
        let is_reliable = wire.attribute != Attribute::Unreliable;
        let (own, other) = wire.both(self.end);
        let mut has_news = false;
        own.has_no_buffer = false;
        while let Some((number, message)) = other.messages.front() {
            // What comes for a program that has closed the connection is nobody's.
            if !self.is_closing {
                if core.deliver(self.connection, message) {
                    self.received += 1;
                } else if is_reliable {
                    own.has_no_buffer = true;
                    break;
                }
            }
            other.taken = number + 1;
            other.messages.pop_front();
            has_news = true;
        }
        while let Some((id, question)) = other.questions.front() {
            let Some(answer) = serve(core, self.connection, question, self.is_closing) else {
                own.has_no_buffer = true;
                break;
            };
            other.answers.push_back((*id, answer));
            other.questions.pop_front();
            has_news = true;
        }
        self.lacks_buffer = own.has_no_buffer;
        if has_news {
            wire.tell(1 - self.end);
        }
    }

    /// Completes what the peer has taken or answered.
    fn complete(&mut self, core: &mut Core) {
        let (taken, answers) = {
            let mut wire = lock(&self.wire);
            let own = wire.both(self.end).0;
            (own.taken, std::mem::take(&mut own.answers))
        };
        while let Some(send) = self.sends.front().filter(|send| send.number < taken) {
            core.complete(self.connection, send.op, Status::Success);
            self.sends.pop_front();
        }
        for (id, answer) in answers {
            let Some(at) = self.operations.iter().position(|operation| operation.id == id) else { continue };
            let due_ns = cci_sys::clock::now_ns().saturating_add(self.send_timeout_ns);
            if let Some(status) = self.operations[at].answered(core, answer, due_ns) {
                self.operations.remove(at);
                core.complete_operation(id, status);
            }
        }
    }

    /// Asks the peer for what operations need next.
    fn pump(&mut self, core: &mut Core) {
        let first_send = self.sends.front().map_or(u64::MAX, |send| send.number);
        let mut at = 0;
        let mut wire = lock(&self.wire);
        let mut has_asked = false;
        while let Some(operation) = self.operations.get_mut(at) {
            // A fenced one begins when all before it is over.
            if operation.is_fenced && (at > 0 || first_send < operation.behind) {
                break;
            }
            match operation.ask(core) {
                Ok(None) => at += 1,
                Ok(Some(question)) => {
                    wire.both(self.end).0.questions.push_back((operation.id, question));
                    has_asked = true;
                    at += 1;
                }
                Err(status) => {
                    let id = operation.id;
                    self.operations.remove(at);
                    core.complete_operation(id, status);
                }
            }
        }
        if has_asked {
            wire.tell(1 - self.end);
        }
    }

    /// Ends what has taken too long, and says once that the peer is silent.
    fn time_out(&mut self, core: &mut Core, now_ns: u64) {
        let mut wire = lock(&self.wire);
        if self.keepalive_ns > 0 {
            let polled_ns = wire.ends[1 - self.end].inbox.as_ref().map_or(0, |(inbox, _)| inbox.polled_ns());
            self.heard_ns = self.heard_ns.max(polled_ns);
            if now_ns >= self.heard_ns + self.keepalive_ns && !wire.ends[1 - self.end].is_closed {
                self.keepalive_ns = 0;
                core.keepalive_timed_out(self.connection);
            }
        }
        let (own, other) = wire.both(self.end);
        let status = if other.has_no_buffer { Status::ReceiverNotReady } else { Status::TimedOut };
        while let Some(send) =
            self.sends.front().filter(|send| send.due_ns <= now_ns && send.number >= own.taken)
        {
            core.complete(self.connection, send.op, status);
            own.messages.retain(|(number, _)| *number != send.number);
            self.sends.pop_front();
        }
        self.operations.retain(|operation| {
            let is_over = operation.due_ns <= now_ns;
            if is_over {
                own.questions.retain(|(id, _)| *id != operation.id);
                core.complete_operation(operation.id, status);
            }
            !is_over
        });
    }

    /// Closes, once everything sent is delivered, or follows the peer, once everything that it sent is.
    fn end(&mut self, core: &mut Core) {
        let mut wire = lock(&self.wire);
        let (own, other) = wire.both(self.end);
        if other.is_closed {
            let reason = if other.is_abandoned { DisconnectReason::Died } else { DisconnectReason::Closed };
            own.messages.clear();
            own.questions.clear();
            let has_more = !other.messages.is_empty() && !self.is_closing;
            drop(wire);
            for send in self.sends.drain(..) {
                core.complete(self.connection, send.op, Status::Disconnected);
            }
            for operation in self.operations.drain(..) {
                core.complete_operation(operation.id, Status::Disconnected);
            }
            if has_more {
                core.peer_gone(self.connection);
            } else if !self.has_ended && !self.is_closing {
                self.has_ended = true;
                core.ended(self.connection, reason);
            }
        } else {
            drop(wire);
        }
        if self.is_closing && !self.has_sends_or_operations() {
            let mut wire = lock(&self.wire);
            wire.ends[self.end].is_closed = true;
            wire.tell(1 - self.end);
            drop(wire);
            self.is_over = true;
            core.closed(self.connection);
        }
    }

    /// The endpoint goes at once.
    pub fn abandon(&self) {
        let mut wire = lock(&self.wire);
        if wire.handshake == Handshake::Asked {
            wire.handshake = Handshake::GivenUp;
        }
        let own = wire.both(self.end).0;
        (own.is_closed, own.is_abandoned) = (true, true);
        wire.tell(1 - self.end);
    }

    /// The peer has no receive buffer for what was sent.
    pub fn is_refused(&self) -> bool {
        lock(&self.wire).both(self.end).1.has_no_buffer
    }

    pub fn explain(&self, into: &mut Explanation) {
        into.transport = "loop".to_owned();
        into.paths.push(chosen_path("memory", "both endpoints are in one process"));
        if self.is_refused() {
            into.blocked_on = Some("the peer's program has no receive buffer free".to_owned());
        }
    }
}
