//! An endpoint of the library in a scene, and the book that its program keeps of what it has started.

use super::script::Site;
use cci::{
    Access, Atomic, Attribute, ConnectFailure, Connection, DisconnectReason, Endpoint, Event, Memory,
    RegionAddress, RegionHandle, Rma, RmaError, RmaFlags, RmaKind, Segment, SendError, SendFlags, Status,
};
use std::collections::HashMap;

/// Of the region that peers may work on, and of the one beside it that is this side's own.
pub const REGION_BYTES: usize = 256 << 10;
/// Numbers of groups among those of peers.
const GROUPS: u64 = 1 << 32;
/// The number of whoever says none.
pub const STRANGER: u64 = u64::MAX;
/// Events that one turn takes.
const EVENTS_PER_TURN: u32 = 32;

/// Something that this side's program has started.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Started {
    /// Towards whom.
    to: Connection,
    /// How it ended.
    status: Option<Status>,
}

/// What happened to the connections of one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Its requests that the program was shown.
    pub requests: u32,
    /// The newest connection with it.
    pub connection: Option<Connection>,
    /// Attempts that failed.
    pub failed: u32,
    /// Why the last of them did, where it went on the wire.
    pub failure: Option<ConnectFailure>,
}

/// An endpoint, its memory, and the book of its program.
pub struct Side {
    /// The endpoint itself.
    pub endpoint: Endpoint,
    /// What peers may work on.
    pub shared: Memory,
    /// The handle of that.
    pub shared_handle: RegionHandle,
    /// What takes part in this side's own operations.
    pub own: Memory,
    /// The handle of that.
    pub own_handle: RegionHandle,
    /// All that was started. The place in the list is the context.
    started: Vec<Started>,
    /// How many of those have not ended, by connection.
    open: HashMap<Connection, u64>,
    /// How many have ended well and badly, by connection.
    ended: HashMap<Connection, [u64; 2]>,
    /// By the number in the request: 0 is the honest peer.
    pub met: HashMap<u64, Met>,
    /// Messages that came, by connection.
    pub received: HashMap<Connection, u64>,
    /// The messages of these are kept until a test has looked at them.
    pub keep_messages_of: Option<Connection>,
    /// Those messages.
    pub kept: Vec<Vec<u8>>,
    /// Connections that ended without a word of this side's program.
    pub disconnected: HashMap<Connection, DisconnectReason>,
    /// The program answers requests.
    pub accepts: bool,
}

impl Side {
    /// Opens the two regions of an endpoint.
    pub fn new(mut endpoint: Endpoint) -> Side {
        let mut region = |access| {
            let memory = endpoint.allocate(REGION_BYTES).expect("memory for a region");
            let handle = endpoint.register(&memory, access).expect("a place for a region");
            (memory, handle)
        };
        let ((shared, shared_handle), (own, own_handle)) = (region(Access::ALL), region(Access::LOCAL));
        Side {
            endpoint,
            shared,
            shared_handle,
            own,
            own_handle,
            started: Vec::new(),
            open: HashMap::new(),
            ended: HashMap::new(),
            met: HashMap::new(),
            received: HashMap::new(),
            keep_messages_of: None,
            kept: Vec::new(),
            disconnected: HashMap::new(),
            accepts: true,
        }
    }

    /// What a peer of this side may know.
    pub fn site(&self, number: u64) -> Site {
        Site { uri: self.endpoint.uri().to_owned(), number, region: self.shared_handle }
    }

    /// Takes what there is of events. Whether there was one.
    pub fn turn(&mut self) -> bool {
        for taken in 0..EVENTS_PER_TURN {
            let Some(event) = self.endpoint.next_event() else { return taken > 0 };
            self.take(event);
        }
        true
    }

    /// Writes an event into the book.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => {
                let number = number_in(request.data());
                self.met.entry(number).or_default().requests += 1;
                if self.accepts && self.endpoint.accept(request, number).is_err() {
                    self.met.entry(number).or_default().failed += 1;
                }
            }
            Event::Accept { context, result } | Event::Connect { context, result } => {
                let met = self.met.entry(context).or_default();
                match result {
                    Ok(connection) => met.connection = Some(connection),
                    Err(failure) => (met.failed, met.failure) = (met.failed + 1, Some(failure)),
                }
            }
            Event::Recv(message) => {
                let from = message.connection();
                *self.received.entry(from).or_default() += 1;
                if self.keep_messages_of == Some(from) {
                    self.kept.push(message.to_vec());
                }
            }
            Event::Send { connection, context, status } => {
                let place = usize::try_from(context).ok().and_then(|at| self.started.get_mut(at));
                let started = place.unwrap_or_else(|| panic!("context {context} was never given"));
                assert_eq!(started.to, connection, "context {context} ended on another connection");
                let before = started.status.replace(status);
                assert_eq!(before, None, "context {context} has ended before, and now with {status}");
                *self.open.entry(connection).or_default() -= 1;
                self.ended.entry(connection).or_default()[usize::from(status != Status::Success)] += 1;
            }
            Event::KeepaliveTimedOut { .. } => {}
            Event::Disconnected { connection, reason, .. } => {
                let open = self.open.get(&connection).copied().unwrap_or(0);
                assert_eq!(open, 0, "{connection:?} has ended ({reason}) before what was started on it");
                let before = self.disconnected.insert(connection, reason);
                assert_eq!(before, None, "{connection:?} has ended before, and now: {reason}");
            }
            Event::DeviceFailed => panic!("the device failed: {:#?}", self.endpoint.counters()),
            other => panic!("an event that this suite does not know: {other:?}"),
        }
    }

    /// Sends to a multicast group, or receives what is sent to it.
    pub fn group(&mut self, uri: &str, attribute: Attribute) -> Connection {
        let number = GROUPS + self.met.len() as u64;
        self.endpoint.connect(uri, &[], attribute, number, None).expect("a group to join");
        while self.turn() || !self.met.contains_key(&number) {}
        self.met[&number].connection.expect("a group that was joined")
    }

    fn next_context(&self) -> u64 {
        self.started.len() as u64
    }

    fn enter(&mut self, to: Connection) {
        self.started.push(Started { to, status: None });
        *self.open.entry(to).or_default() += 1;
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn send(&mut self, to: Connection, message: &[u8]) -> Result<(), SendError> {
        self.endpoint.send(to, message, self.next_context(), SendFlags::NONE)?;
        self.enter(to);
        Ok(())
    }

    /// Starts a remote operation on the first bytes of a region, with a message behind it or none.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn operate(
        &mut self,
        to: Connection,
        kind: RmaKind,
        theirs: RegionHandle,
        len_bytes: u64,
        message: Option<&[u8]>,
    ) -> Result<(), RmaError> {
        // What is written comes from the first half of its own region, what is read goes to the second.
        let half = if kind == RmaKind::Read { REGION_BYTES as u64 / 2 } else { 0 };
        let local = [Segment { address: RegionAddress::new(self.own_handle, half), len_bytes }];
        let remote = [Segment { address: RegionAddress::new(theirs, 0), len_bytes }];
        let (context, flags) = (self.next_context(), RmaFlags::NONE);
        let rma = Rma { kind, local: &local, remote: &remote, message, context, flags };
        self.endpoint.rma(to, &rma)?;
        self.enter(to);
        Ok(())
    }

    /// Changes a word of a region atomically. What was there before goes to the start of this side's own memory.
    ///
    /// # Errors
    /// Those of [`Endpoint::atomic`].
    pub fn change(&mut self, to: Connection, atomic: Atomic, target: RegionAddress) -> Result<(), RmaError> {
        let result = Some(RegionAddress::new(self.own_handle, 0));
        self.endpoint.atomic(to, atomic, target, result, self.next_context(), RmaFlags::NONE)?;
        self.enter(to);
        Ok(())
    }

    /// How all that was started towards a peer has ended so far.
    pub fn ends_of(&self, to: Connection) -> Vec<Option<Status>> {
        self.started.iter().filter(|started| started.to == to).map(|started| started.status).collect()
    }

    /// Messages that have come from anybody.
    pub fn received_in_all(&self) -> u64 {
        self.received.values().sum()
    }

    /// How much that was started towards a peer has not ended.
    pub fn open(&self, to: Connection) -> u64 {
        self.open.get(&to).copied().unwrap_or(0)
    }

    /// How much that was started towards a peer has ended well, and how much badly.
    pub fn ended(&self, to: Connection) -> [u64; 2] {
        self.ended.get(&to).copied().unwrap_or_default()
    }

    /// How much has not ended in all.
    pub fn open_in_all(&self) -> u64 {
        self.open.values().sum()
    }

    /// How the last `count` that were started towards a peer have ended so far, the last one first.
    pub fn last_ends_of(&self, to: Connection, count: usize) -> Vec<Option<Status>> {
        let to_it = self.started.iter().rev().filter(|started| started.to == to);
        to_it.take(count).map(|started| started.status).collect()
    }

    /// Memory held, and the cap of that.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let memory = self.endpoint.counters().memory;
        (memory.total_bytes, memory.cap_bytes)
    }

    /// A counter of the device, or the drops of that name.
    pub fn count(&self, name: &str) -> u64 {
        let counters = self.endpoint.counters();
        let device = counters.device.iter().filter(|(known, _)| *known == name).map(|(_, count)| count);
        let drops = counters.drops.iter().filter(|drop| drop.name == name).map(|drop| &drop.count);
        device.chain(drops).sum()
    }
}

/// The number of the peer in its request: 0 is the honest one's.
fn number_in(request: &[u8]) -> u64 {
    let text = std::str::from_utf8(request).unwrap_or_default();
    let number = text.strip_prefix("hostile ").and_then(|number| number.parse().ok());
    number.unwrap_or(if text == "honest" { 0 } else { STRANGER })
}
