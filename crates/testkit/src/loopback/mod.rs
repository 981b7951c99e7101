//! A transport that shows how one is written: endpoints of one process, in memory.
//!
//! Nothing here is fast, and everything is plain. What two endpoints share is a *wire* (`wire`), one for each connection, behind a
//! lock: what each end asks of the other, and what was answered. Whoever changes a wire rings the other endpoint's bell, a
//! descriptor to sleep on. A connection as one end has it is a *link* (`link`); what it has to do for the program, a message or an
//! operation on remote memory, is a *task* (`task`). This module is the seam: what the engine calls, and how connections come about.

mod link;
mod task;
mod wire;

use self::link::{Link, Times};
use self::task::Task;
use self::wire::{Asked, CLIENT, End, Inbox, SERVER, Wire, lock};
use cci::seam::{
    About, Activity, Armed, Core, Dial, LinkState, Operation, Report, RequestBody, SendOp, Setting, Started,
    Transport, chosen_path,
};
use cci::{AcceptError, ConnectError, Connection, CreateError, Endpoint, Options, SendError, TransportKind};
use cci_sys::clock;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How URIs begin: behind it stands the number of an endpoint.
pub const SCHEME: &str = "loop://";
/// The longest message, bytes.
const MESSAGE_BYTES_MAX: u32 = 8192;
/// How soon to look again for a receive buffer, which a program gives back without a word.
const BUFFER_RETRY_NS: u64 = 1_000_000;

/// Opens an endpoint that reaches those of this process.
///
/// # Errors
/// [`CreateError`]: an option is out of its range, or there is no memory for its buffers or no descriptor to sleep on.
pub fn open(options: Options) -> Result<Endpoint, CreateError> {
    cci::seam::open("loop", MESSAGE_BYTES_MAX, options, |options, poller| {
        let (inbox, number) = wire::open()?;
        poller.watch(inbox.bell.as_fd(), 0)?;
        let as_ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let keepalive_ns = options.keepalive.map_or(0, as_ns);
        Ok(Box::new(Loop {
            uri: format!("{SCHEME}{number}"),
            inbox,
            links: BTreeMap::new(),
            next_link: 0,
            times: Times { send_timeout_ns: as_ns(options.send_timeout), keepalive_ns },
        }))
    })
}

/// One endpoint's transport.
struct Loop {
    uri: String,
    inbox: Arc<Inbox>,
    /// By number. Numbers are never used again, so that a link that is gone is not taken for another one.
    links: BTreeMap<u64, Link>,
    next_link: u64,
    /// For links made from now on.
    times: Times,
}

impl Loop {
    /// Enters a link, which is looked at with the next progress.
    fn enter(&mut self, link: Link) -> u64 {
        self.next_link += 1;
        self.links.insert(self.next_link, link);
        self.next_link
    }

    fn sends(&self) -> u32 {
        self.links.values().map(Link::sends).sum()
    }
}

impl Transport for Loop {
    fn about(&self) -> About<'_> {
        About { uri: &self.uri, offers_multicast: false }
    }

    fn connect(&mut self, _: &mut Core, connection: Connection, to: Dial<'_>) -> Result<u64, ConnectError> {
        if let Some(name) = to.expected {
            let reason = "a transport within one process proves no names".to_owned();
            return Err(ConnectError::CannotExpect { name: name.to_owned(), reason });
        }
        let Some(number) = to.uri.strip_prefix(SCHEME).and_then(|number| number.parse().ok()) else {
            let reason = format!("write {SCHEME} and a number");
            return Err(ConnectError::BadUri { uri: to.uri.to_owned(), reason });
        };
        let own = End { bell: Some(self.inbox.bell.clone()), ..End::default() };
        let wire = Arc::new(Wire {
            ends: Mutex::new([own, End::default()]),
            payload: to.request.to_vec(),
            attribute: to.attribute,
            client: self.uri.clone(),
        });
        let asked = Asked(wire.clone());
        let until_ns = to.timeout_ns.map_or(u64::MAX, |ns| clock::now_ns().saturating_add(ns));
        // If there is no such endpoint, the request is dropped, and so refused.
        if let Some(inbox) = wire::find(number) {
            lock(&inbox.requests).push(asked);
            let _ = inbox.bell.signal();
        }
        Ok(self.enter(Link::new(connection, wire, CLIENT, self.times, Some(until_ns))))
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        let (asked, _) = request.claim::<Asked>()?;
        let mut ends = lock(&asked.0.ends);
        if ends[CLIENT].left.is_some() {
            return Err(AcceptError::Gone);
        }
        ends[SERVER].bell = Some(self.inbox.bell.clone());
        ends[CLIENT].ring();
        drop(ends);
        core.opened(connection, MESSAGE_BYTES_MAX);
        Ok(self.enter(Link::new(connection, asked.0.clone(), SERVER, self.times, None)))
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        let Some(entry) = self.links.get_mut(&link) else { return core.closed(connection) };
        entry.is_closing = true;
        if entry.service(core, clock::now_ns()) {
            self.links.remove(&link);
        }
    }

    fn send(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        if self.sends() >= core.options.send_buffers {
            return Err(SendError::WouldBlock);
        }
        let link = self.links.get_mut(&link).ok_or(SendError::UnknownConnection)?;
        link.start(core, Task::send(segments.concat(), op), clock::now_ns());
        Ok(())
    }

    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        let link = self.links.get_mut(&link).ok_or(SendError::UnknownConnection)?;
        let id = core.begin_operation(connection, operation.op, || link.sends_unreported())?;
        link.start(core, Task::operation(id, &operation.action), clock::now_ns());
        Ok(Started::Pending)
    }

    fn progress(&mut self, core: &mut Core) {
        // Whatever comes from here on rings again.
        let _ = self.inbox.bell.drain();
        for asked in std::mem::take(&mut *lock(&self.inbox.requests)) {
            core.requested(RequestBody {
                payload: asked.0.payload.clone(),
                attribute: asked.0.attribute,
                peer: asked.0.client.clone(),
                identity: None,
                via: TransportKind::Shm,
                ticket: 0,
                inner: Box::new(asked),
                inbox: core.requests.clone(),
            });
        }
        let now_ns = clock::now_ns();
        self.links.retain(|_, link| !link.service(core, now_ns));
    }

    fn arm(&mut self, _: &mut Core) -> Armed {
        // What has come since the last progress has made the bell readable.
        let now_ns = clock::now_ns();
        Armed::Sleep { deadline_ns: self.links.values().filter_map(|link| link.deadline_ns(now_ns)).min() }
    }

    fn activity(&self) -> Activity {
        if self.links.is_empty() {
            Activity::Idle
        } else if self.links.values().any(|link| !link.tasks.is_empty()) {
            Activity::Active
        } else {
            Activity::Drained
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let link = self.links.get(&link)?;
        Some(LinkState {
            held: link.sends(),
            drains_by_itself: false,
            send_timeout_ns: link.times.send_timeout_ns,
            keepalive_ns: link.times.keepalive_ns,
        })
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        self.links.get(&link).map(Link::sends_unreported)
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.times.send_timeout_ns = timeout_ns;
                }
            }
            Setting::Keepalive { link, timeout_ns } => {
                if let Some(link) = self.links.get_mut(&link) {
                    (link.times.keepalive_ns, link.heard_ns) = (timeout_ns, clock::now_ns());
                }
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.times = Times { send_timeout_ns, keepalive_ns };
            }
            Setting::Lent { .. } | Setting::SetApart { .. } | Setting::Loans { .. } => {}
        }
    }

    fn report(&self, core: &Core, report: Report<'_>) {
        match report {
            Report::SpareBytes(into) => {
                let held_bytes: u64 = core.memory().iter().map(|(_, bytes)| bytes).sum();
                *into += core.options.memory_bytes_max.saturating_sub(held_bytes);
            }
            Report::SendsHeld(into) => *into += self.sends(),
            Report::Explanation { link, into } => {
                into.transport = "loop".to_owned();
                into.paths.push(chosen_path("memory", "both endpoints are in one process"));
                if self.links.get(&link).is_some_and(Link::is_refused) {
                    into.blocked_on = Some("the peer's program has no receive buffer free".to_owned());
                }
            }
            _ => {}
        }
    }
}
