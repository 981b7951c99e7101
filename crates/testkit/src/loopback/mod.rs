//! A transport that shows how one is written: endpoints of one process, in memory.
//!
//! Nothing here is fast, and everything is plain. What two endpoints share is a *wire* (`wire`), one for each connection, behind a
//! lock: what each end has sent and the other has yet to take, and what the other has answered. Whoever changes a wire tells
//! the other end by a notice in its *inbox*, which has a descriptor to sleep on. A connection as one end has it is a *link*
//! (`link`), with its operations on remote memory (`remote`). This module is the seam: what the engine calls, and how connections
//! come about.

mod link;
mod remote;
mod wire;

use self::link::Link;
use self::wire::{Handshake, Inbox, Notice, Wire, find};
use cci::seam::{
    About, Activity, Armed, Core, Decision, Dial, LinkState, Operation, OperationOp, Poller, Report,
    RequestBody, SendOp, Setting, Started, Transport,
};
use cci::{
    AcceptError, ConnectError, ConnectFailure, Connection, CreateError, Endpoint, Options, SendError,
    TransportKind,
};
use cci_sys::clock;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

/// How URIs begin: behind it stands the number of an endpoint.
pub const SCHEME: &str = "loop://";
/// The longest message, bytes.
const MESSAGE_BYTES_MAX: u32 = 8192;
/// How soon to look again for a receive buffer, which a program gives back without a word.
const BUFFER_RETRY_NS: u64 = 1_000_000;
/// Of the memory cap, what messages on their way may take: one part in so many.
const MEMORY_SHARE: u64 = 4;
/// The inbox's place in the endpoint's descriptor.
const TOKEN_INBOX: u64 = 0;

/// Opens an endpoint that reaches those of this process.
///
/// # Errors
/// As [`Endpoint::create`].
pub fn open(options: Options) -> Result<Endpoint, CreateError> {
    cci::seam::open("loop", MESSAGE_BYTES_MAX, options, |options, poller| {
        let transport: Box<dyn Transport> = Box::new(Loop::new(options, poller)?);
        Ok(transport)
    })
}

/// One endpoint's transport.
struct Loop {
    uri: String,
    inbox: Arc<Inbox>,
    /// By number. Numbers are never used again, so that a link that is gone is not taken for another one.
    links: HashMap<u64, Link>,
    next_link: u64,
    /// Links that wait for something: time, a receive buffer, or what the other end is to do.
    busy: BTreeSet<u64>,
    /// For links made from now on.
    send_timeout_ns: u64,
    keepalive_ns: u64,
    /// What messages on their way may take, bytes, and what of it the engine has borrowed.
    memory_bytes_max: u64,
    lent_bytes: u64,
}

/// What a request carries through the program.
struct Asked {
    wire: Arc<Mutex<Wire>>,
}

impl Loop {
    fn new(options: &Options, poller: &Arc<Poller>) -> Result<Loop, CreateError> {
        let inbox = Inbox::open()?;
        poller.watch(inbox.bell().as_fd(), TOKEN_INBOX)?;
        Ok(Loop {
            uri: format!("{SCHEME}{}", inbox.number()),
            inbox,
            links: HashMap::new(),
            next_link: 0,
            busy: BTreeSet::new(),
            send_timeout_ns: u64::try_from(options.send_timeout.as_nanos()).unwrap_or(u64::MAX),
            keepalive_ns: options
                .keepalive
                .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            memory_bytes_max: options.memory_bytes_max / MEMORY_SHARE,
            lent_bytes: 0,
        })
    }

    /// Enters a link, which is looked at with the next progress.
    fn enter(&mut self, connection: Connection, wire: &Arc<Mutex<Wire>>, end: usize, until_ns: u64) -> u64 {
        let number = self.next_link;
        self.next_link += 1;
        let mut link = Link::new(connection, wire.clone(), end, until_ns, clock::now_ns());
        (link.send_timeout_ns, link.keepalive_ns) = (self.send_timeout_ns, self.keepalive_ns);
        self.links.insert(number, link);
        self.busy.insert(number);
        number
    }

    fn held_bytes(&self) -> u64 {
        self.links.values().map(Link::held_bytes).sum()
    }

    /// Looks at one link. It stays among the busy for as long as it waits for something.
    fn service(&mut self, core: &mut Core, number: u64, now_ns: u64) {
        self.busy.remove(&number);
        let Some(link) = self.links.get_mut(&number) else { return };
        link.service(core, now_ns);
        if link.is_over {
            self.links.remove(&number);
        } else if link.deadline_ns(now_ns).is_some() {
            self.busy.insert(number);
        }
    }

    /// Shows the program a request.
    fn request(&self, core: &mut Core, wire: Arc<Mutex<Wire>>) {
        let (payload, attribute, peer) = {
            let mut wire = wire::lock(&wire);
            (std::mem::take(&mut wire.request), wire.attribute, wire.asker.clone())
        };
        core.requested(RequestBody {
            payload,
            attribute,
            peer,
            identity: None,
            via: TransportKind::Shm,
            ticket: 0,
            inner: Box::new(Asked { wire }),
            inbox: core.requests.clone(),
        });
    }
}

impl Transport for Loop {
    fn about(&self) -> About<'_> {
        About { uri: &self.uri, offers_multicast: false }
    }

    fn connect(&mut self, _: &mut Core, connection: Connection, to: Dial<'_>) -> Result<u64, ConnectError> {
        let bad = || ConnectError::BadUri {
            uri: to.uri.to_owned(),
            reason: format!("write {SCHEME} and a number"),
        };
        if let Some(name) = to.expected {
            let reason = "a transport within one process proves no names".to_owned();
            return Err(ConnectError::CannotExpect { name: name.to_owned(), reason });
        }
        let number: u64 =
            to.uri.strip_prefix(SCHEME).and_then(|number| number.parse().ok()).ok_or_else(bad)?;
        let until_ns = to.timeout_ns.map_or(u64::MAX, |ns| clock::now_ns().saturating_add(ns));
        let wire = Arc::new(Mutex::new(Wire::new(to.request.to_vec(), to.attribute, self.uri.clone())));
        let link = self.enter(connection, &wire, wire::CLIENT, until_ns);
        wire::lock(&wire).ends[wire::CLIENT].inbox = Some((self.inbox.clone(), link));
        match find(number) {
            Some(inbox) => inbox.put(Notice::Request(wire)),
            // Progress will find it so, and report the end of the attempt.
            None => wire::lock(&wire).handshake = Handshake::Refused,
        }
        Ok(link)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        let wire = match request.inner.downcast::<Asked>() {
            Ok(asked) => asked.wire,
            Err(other) => {
                RequestBody { inner: other, ..request }.refuse();
                return Err(AcceptError::OtherDevice);
            }
        };
        let number = self.enter(connection, &wire, wire::SERVER, u64::MAX);
        let mut shared = wire::lock(&wire);
        shared.ends[wire::SERVER].inbox = Some((self.inbox.clone(), number));
        if shared.handshake == Handshake::Asked {
            shared.handshake = Handshake::Accepted;
            shared.tell(wire::CLIENT);
            drop(shared);
            core.opened(connection, MESSAGE_BYTES_MAX);
        }
        // Otherwise progress will find that the client has given up.
        Ok(number)
    }

    fn decided(&mut self, _: &mut Core, decision: Decision) {
        if let Decision::Refused { inner, .. } = decision
            && let Ok(asked) = inner.downcast::<Asked>()
        {
            wire::lock(&asked.wire).refuse();
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        match self.links.get_mut(&link) {
            Some(link) => link.is_closing = true,
            None => return core.closed(connection),
        }
        self.service(core, link, clock::now_ns());
    }

    fn send(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let held: usize = self.links.values().map(|link| link.sends.len()).sum();
        let len: usize = segments.iter().map(|segment| segment.len()).sum();
        let memory_bytes_max = self.memory_bytes_max - self.lent_bytes.min(self.memory_bytes_max);
        if held >= core.options.send_buffers as usize || self.held_bytes() + len as u64 > memory_bytes_max {
            return Err(SendError::WouldBlock);
        }
        let entry = self.links.get_mut(&link).ok_or(SendError::UnknownConnection)?;
        entry.send(segments.concat(), op, clock::now_ns())?;
        self.busy.insert(link);
        Ok(())
    }

    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        let entry = self.links.get_mut(&link).ok_or(SendError::UnknownConnection)?;
        let op: OperationOp = operation.op;
        let id = core.begin_operation(connection, op, || entry.sends_unreported())?;
        entry.start(core, id, &operation.action, clock::now_ns());
        self.busy.insert(link);
        Ok(Started::Pending)
    }

    fn progress(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        self.inbox.polled(now_ns);
        for notice in self.inbox.take() {
            match notice {
                Notice::Request(wire) => self.request(core, wire),
                Notice::Look(link) => self.service(core, link, now_ns),
            }
        }
        let busy: Vec<u64> = self.busy.iter().copied().collect();
        for link in busy {
            self.service(core, link, now_ns);
        }
    }

    fn arm(&mut self, _: &mut Core) -> Armed {
        let now_ns = clock::now_ns();
        if !self.inbox.is_empty() {
            return Armed::Pending;
        }
        // A notice that comes from now on makes the bell readable, which the endpoint's descriptor watches.
        let due = |number: &u64| self.links.get(number).and_then(|link| link.deadline_ns(now_ns));
        Armed::Sleep { deadline_ns: self.busy.iter().filter_map(due).min() }
    }

    fn activity(&self) -> Activity {
        if self.links.is_empty() {
            Activity::Idle
        } else if self.links.values().any(|link| link.has_sends_or_operations()) {
            Activity::Active
        } else if self.links.values().any(|link| link.is_closing) {
            Activity::Delivered
        } else {
            Activity::Drained
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let link = self.links.get(&link)?;
        Some(LinkState {
            unreported: link.sends_unreported(),
            held: link.sends.len() as u32,
            drains_by_itself: false,
            send_timeout_ns: link.send_timeout_ns,
            keepalive_ns: link.keepalive_ns,
        })
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.send_timeout_ns = timeout_ns;
                }
            }
            Setting::Keepalive { link: number, timeout_ns } => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.keepalive(timeout_ns, clock::now_ns());
                    self.busy.insert(number);
                }
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                (self.send_timeout_ns, self.keepalive_ns) = (send_timeout_ns, keepalive_ns);
            }
            Setting::Lent { bytes } => self.lent_bytes = bytes,
            Setting::SetApart { .. } => {}
        }
    }

    fn report(&self, _: &Core, report: Report<'_>) {
        match report {
            Report::Counters { .. } => {}
            Report::Memory(into) => into.push(("messages on their way", self.held_bytes())),
            Report::SpareBytes(into) => *into += self.memory_bytes_max / 2,
            Report::SendsHeld(into) => {
                *into += self.links.values().map(|link| link.sends.len() as u32).sum::<u32>();
            }
            Report::Connection { link, into } => {
                if let Some(link) = self.links.get(&link) {
                    (into.messages_sent, into.messages_received) = (link.sent, link.received);
                    into.sends_in_progress = link.sends_unreported().into();
                }
            }
            Report::Explanation { link, into } => {
                if let Some(link) = self.links.get(&link) {
                    link.explain(into);
                }
            }
            Report::Peer { link, into } => {
                if let Some(link) = self.links.get(&link) {
                    into.refuses = link.is_refused();
                }
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for notice in self.inbox.close() {
            if let Notice::Request(wire) = notice {
                wire::lock(&wire).refuse();
            }
        }
        for link in self.links.values() {
            link.abandon();
        }
    }
}

/// Why an attempt failed, once it has.
fn failure(handshake: Handshake) -> Option<ConnectFailure> {
    match handshake {
        Handshake::Refused => Some(ConnectFailure::Refused),
        Handshake::GivenUp => Some(ConnectFailure::Disconnected),
        Handshake::Asked | Handshake::Accepted => None,
    }
}
