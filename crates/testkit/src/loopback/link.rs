//! A connection as one end has it.

use super::task::{Request, Task, access};
use super::wire::{CLIENT, End, Wire, lock};
use super::{BUFFER_RETRY_NS, MESSAGE_BYTES_MAX};
use cci::seam::Core;
use cci::{Attribute, ConnectFailure, Connection, DisconnectReason, Status};
use cci_sys::clock;
use std::sync::Arc;

/// How long a connection waits for its peer, nanoseconds.
#[derive(Copy, Clone)]
pub(super) struct Times {
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
}

pub(super) struct Link {
    connection: Connection,
    wire: Arc<Wire>,
    /// Which end of the wire this is.
    end: usize,
    /// When the attempt to connect is given up. `None`: the connection is open.
    until_ns: Option<u64>,
    pub times: Times,
    /// When the peer was last known to be there, or the keepalive was set.
    pub heard_ns: u64,
    /// What is not over, the oldest first.
    pub tasks: Vec<Task>,
    next_number: u64,
    /// The program is done with the connection.
    pub is_closing: bool,
}

impl Link {
    /// A connection is open, or gives up the attempt at `until_ns`.
    pub fn new(
        connection: Connection,
        wire: Arc<Wire>,
        end: usize,
        times: Times,
        until_ns: Option<u64>,
    ) -> Link {
        let heard_ns = clock::now_ns();
        let (tasks, next_number, is_closing) = (Vec::new(), 0, false);
        Link { connection, wire, end, until_ns, times, heard_ns, tasks, next_number, is_closing }
    }

    pub fn sends(&self) -> u32 {
        self.tasks.iter().filter_map(Task::send_op).count() as u32
    }

    pub fn sends_unreported(&self) -> u32 {
        self.tasks.iter().filter_map(Task::send_op).filter(|op| !op.silent).count() as u32
    }

    /// The peer has no receive buffer for what was sent.
    pub fn is_refused(&self) -> bool {
        lock(&self.wire.ends)[1 - self.end].lacks_buffer
    }

    /// When there is something to do at the latest, if the other end does nothing.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let is_watched = self.until_ns.is_none() && self.times.keepalive_ns > 0;
        let keepalive_ns = is_watched.then_some(self.heard_ns.saturating_add(self.times.keepalive_ns));
        let lacks_buffer = lock(&self.wire.ends)[self.end].lacks_buffer;
        let buffer_ns = lacks_buffer.then_some(now_ns + BUFFER_RETRY_NS);
        let task_ns = self.tasks.iter().map(|task| task.due_ns).min();
        [self.until_ns, keepalive_ns, buffer_ns, task_ns].into_iter().flatten().min()
    }

    /// Takes a task, and asks the peer for its first step if it may begin.
    pub fn start(&mut self, core: &mut Core, mut task: Task, now_ns: u64) {
        // Sends of a connection time out in order.
        let due_ns = now_ns.saturating_add(self.times.send_timeout_ns);
        let due_ns = self.tasks.last().map_or(due_ns, |before| before.due_ns.max(due_ns));
        (task.number, task.due_ns) = (self.next_number, due_ns);
        self.tasks.push(task);
        self.next_number += 1;
        let wire = self.wire.clone();
        let mut ends = lock(&wire.ends);
        let (own, other) = both(&mut ends, self.end);
        self.ask(core, own, other);
    }

    /// Looks at the wire, and does what is due. True: the link is over.
    pub fn service(&mut self, core: &mut Core, now_ns: u64) -> bool {
        let wire = self.wire.clone();
        let mut ends = lock(&wire.ends);
        let (own, other) = both(&mut ends, self.end);
        own.polled_ns = now_ns;
        if let Some(until_ns) = self.until_ns.filter(|_| !self.is_closing) {
            self.await_server(core, own, other, now_ns, until_ns);
        } else {
            self.serve(core, own, other);
            self.advance(core, own, now_ns);
            self.ask(core, own, other);
            self.time_out(core, own, other, now_ns);
            self.follow(core, own, other);
        }
        if self.is_leaving() {
            own.left = Some(DisconnectReason::Closed);
            core.closed(self.connection);
        }
        own.left.is_some()
    }

    /// The program is done with the connection, and so is the peer with all that it was sent.
    fn is_leaving(&self) -> bool {
        self.is_closing && self.tasks.is_empty()
    }

    /// Looks whether the server has decided.
    fn await_server(&mut self, core: &mut Core, own: &mut End, other: &End, now_ns: u64, until_ns: u64) {
        if other.bell.is_some() {
            (self.until_ns, self.heard_ns) = (None, now_ns);
            core.opened(self.connection, MESSAGE_BYTES_MAX);
        } else if other.left.is_some() || now_ns >= until_ns {
            let why = if other.left.is_some() { ConnectFailure::Refused } else { ConnectFailure::TimedOut };
            own.left = Some(DisconnectReason::Closed);
            core.failed(self.connection, why);
        }
    }

    /// Does what the peer asks for. Messages that find no receive buffer wait.
    fn serve(&mut self, core: &mut Core, own: &mut End, other: &mut End) {
        own.lacks_buffer = false;
        let mut at = 0;
        while let Some((number, request)) = other.requests.get(at).filter(|_| !self.is_leaving()) {
            let reply = match request {
                // What comes for a program that has closed the connection is nobody's.
                Request::Message(_) if self.is_closing => Ok(Vec::new()),
                _ if self.is_closing => Err(Status::Disconnected),
                Request::Message(message) => {
                    let is_delivered = !own.lacks_buffer && core.deliver(self.connection, message);
                    if !is_delivered && self.wire.attribute != Attribute::Unreliable {
                        own.lacks_buffer = true;
                        at += 1;
                        continue;
                    }
                    Ok(Vec::new())
                }
                _ => access(core, self.connection, request),
            };
            other.replies.push((*number, reply));
            other.requests.remove(at);
            other.ring();
        }
    }

    /// Goes on with the tasks whose steps the peer has done.
    fn advance(&mut self, core: &mut Core, own: &mut End, now_ns: u64) {
        for (number, reply) in own.replies.drain(..) {
            let Some(at) = self.tasks.iter().position(|task| task.number == number) else { continue };
            self.tasks[at].due_ns = now_ns.saturating_add(self.times.send_timeout_ns);
            if let Err(status) = self.tasks[at].advance(core, reply) {
                self.tasks[at].complete(core, self.connection, status);
                self.tasks.remove(at);
            }
        }
    }

    /// Asks the peer for the next steps of all tasks that may go on.
    fn ask(&mut self, core: &mut Core, own: &mut End, other: &End) {
        for (at, task) in self.tasks.iter_mut().enumerate() {
            if task.is_fenced && at > 0 {
                break;
            }
            if task.is_asked {
                continue;
            }
            match task.request(core) {
                Ok(request) => {
                    own.requests.push_back((task.number, request));
                    other.ring();
                }
                Err(status) => {
                    own.replies.push((task.number, Err(status)));
                    own.ring();
                }
            }
        }
    }

    /// Ends what has taken too long, and says once that the peer is silent.
    fn time_out(&mut self, core: &mut Core, own: &mut End, other: &End, now_ns: u64) {
        self.heard_ns = self.heard_ns.max(other.polled_ns);
        let keepalive_ns = self.times.keepalive_ns;
        if keepalive_ns > 0 && now_ns >= self.heard_ns.saturating_add(keepalive_ns) && other.left.is_none() {
            self.times.keepalive_ns = 0;
            core.keepalive_timed_out(self.connection);
        }
        let status = if other.lacks_buffer { Status::ReceiverNotReady } else { Status::TimedOut };
        self.end_tasks(core, own, status, |task| task.due_ns <= now_ns);
    }

    /// If the peer is gone, ends the tasks, and the connection once everything that came is delivered.
    fn follow(&mut self, core: &mut Core, own: &mut End, other: &End) {
        let Some(reason) = other.left else { return };
        self.end_tasks(core, own, Status::Disconnected, |_| true);
        if other.requests.is_empty() {
            core.ended(self.connection, reason);
        } else {
            core.peer_gone(self.connection);
        }
    }

    /// Ends the tasks that `which` picks, and withdraws what the peer was asked for them.
    fn end_tasks(&mut self, core: &mut Core, own: &mut End, status: Status, which: impl Fn(&Task) -> bool) {
        for task in self.tasks.extract_if(.., |task| which(task)) {
            own.requests.retain(|(number, _)| *number != task.number);
            task.complete(core, self.connection, status);
        }
    }
}

impl Drop for Link {
    /// The peer learns that this end is gone, if it does not know.
    fn drop(&mut self) {
        let mut ends = lock(&self.wire.ends);
        let (own, other) = both(&mut ends, self.end);
        own.left.get_or_insert(DisconnectReason::Died);
        other.ring();
    }
}

/// Both ends of a wire: the one given, and the other.
fn both(ends: &mut [End; 2], own: usize) -> (&mut End, &mut End) {
    let [client, server] = ends;
    if own == CLIENT { (client, server) } else { (server, client) }
}
