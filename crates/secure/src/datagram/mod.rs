//! Sealed datagrams: one association for each address of a peer, which all connections between the two endpoints share.

mod answer;
mod ask;
mod cookie;
mod entries;
mod expect;
mod ids;
mod in_progress;
mod link;
mod quota;
mod table;
#[cfg(test)]
mod tests;
mod timeout;
mod transmit;
mod wire;

use self::cookie::Jar;
use self::ids::Ids;
use self::link::Link;
use self::table::{AddressState, SLOTS_MAX, Table};
use self::transmit::Answer;
use self::wire::{Datagram, EPOCH_MASK, FIRST_BYTE, sealed_head};
use crate::endpoint_id::EndpointId;
use crate::failure::Failure;
use crate::identity::{Identity, Rights};
use crate::limits::{HEADER_BYTES, OVERHEAD_BYTES, TAG_BYTES};
use crate::types::{Association, Config, Counters, Opened, Route};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// All associations of one endpoint. `A` is an address: where datagrams go and come from.
///
/// To send: [`Associations::route`] says whether the address has an association. If so, write the datagram at
/// [`crate::limits::HEADER_BYTES`] of a buffer that has [`crate::limits::TAG_BYTES`] more behind it and
/// [`Associations::seal`] the whole. If not, [`Associations::hold`] it. What arrives goes through
/// [`Associations::open`]. After these, and when [`Associations::next_deadline_ns`] has come
/// ([`Associations::handle_timeout`]), ask [`Associations::poll_transmit`] until it has nothing more.
///
/// Whoever remembers anything of a peer (a request, a connection) calls [`Associations::retain`] first: from then on the
/// address is that identity's, and nobody else's.
///
/// Times are nanoseconds of one clock that never goes back.
pub struct Associations<A> {
    config: Config<A>,
    own: EndpointId,
    counters: Counters,
    jar: Jar,
    ids: Ids,
    table: Table<A>,
    addresses: HashMap<A, AddressState>,
    /// The association that was asked for last.
    last: Option<(A, u32)>,
    /// Entries with a handshake.
    in_progress: Vec<u32>,
    /// How many of the entries are associations.
    links: usize,
    /// Those with something to transmit.
    ready: VecDeque<u32>,
    /// Short answers to strangers, of which nothing else is kept.
    answers: VecDeque<Answer<A>>,
    /// How many associations each host has.
    by_host: HashMap<A, u32>,
    /// Handshakes that this side began and that are final failures, which have not been reported yet.
    failures: VecDeque<(A, Failure)>,
    /// Associations whose peers have not answered for long.
    silent: Vec<u32>,
    /// Handshakes whose first message got a cookie; handshakes that were begun with one: neither happens twice.
    asked: Recent,
    begun: Recent,
    due_ns: u64,
    sweep_ns: u64,
}

/// Answers to strangers that wait to be sent; further ones are not given.
const ANSWERS_MAX: usize = 64;
/// Associations whose silence is noted at once; others get their turn later.
const SILENT_MAX: usize = 64;
/// How often everything is looked through.
const SWEEP_NS: u64 = 5_000_000_000;
/// How long an association without connections is kept.
const IDLE_NS_MAX: u64 = 60_000_000_000;
/// How long the peer may use an association after this side uses the next one.
const BEFORE_NS: u64 = 5_000_000_000;
/// When to look after one that has failed.
const FAREWELL_LOOK_NS: u64 = 250_000_000;
/// How long it is remembered why a handshake failed.
const FAILURE_NS: u64 = 30_000_000_000;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// None yet. `None`: there is no memory, or no randomness.
    #[must_use]
    pub fn new(config: Config<A>, now_ns: u64) -> Option<Associations<A>> {
        Associations::with_ids(config, now_ns, Ids::random(), EndpointId::random()?)
    }

    /// None yet; and what others see of handshakes, besides the keys, follows from a secret: random, except where a run is
    /// to be repeated. `None`: there is no memory.
    #[must_use]
    pub fn with_secret(config: Config<A>, now_ns: u64, secret: &[u8; 32]) -> Option<Associations<A>> {
        Associations::with_ids(config, now_ns, Ids::new(secret), EndpointId::of_secret(secret))
    }

    fn with_ids(config: Config<A>, now_ns: u64, ids: Ids, own: EndpointId) -> Option<Associations<A>> {
        let slots = config.associations_max.saturating_add(config.handshakes_max.saturating_mul(2));
        assert!(slots <= SLOTS_MAX as usize, "more associations and handshakes than indices: {slots}");
        Some(Associations {
            config,
            own,
            counters: Counters::default(),
            jar: Jar::new(),
            ids,
            table: Table::new(),
            addresses: HashMap::new(),
            last: None,
            in_progress: Vec::new(),
            links: 0,
            ready: VecDeque::new(),
            answers: VecDeque::with_capacity(ANSWERS_MAX),
            by_host: HashMap::new(),
            failures: VecDeque::new(),
            silent: Vec::with_capacity(SILENT_MAX),
            asked: Recent::new()?,
            begun: Recent::new()?,
            due_ns: u64::MAX,
            sweep_ns: now_ns.saturating_add(SWEEP_NS),
        })
    }

    /// Whether a datagram to that address can be sealed now.
    #[inline]
    pub fn route(&mut self, to: A) -> Route {
        if let Some((address, index)) = self.last
            && address == to
        {
            return Route::Ready(Association(index));
        }
        match self.addresses.get(&to).and_then(|state| state.current) {
            None => Route::Wait,
            Some(index) => {
                self.last = Some((to, index));
                Route::Ready(Association(index))
            }
        }
    }

    /// Seals a whole datagram in place: room for the header, the body, room for the tag; together a multiple of 8 bytes.
    /// Allocates nothing. False: the association is no more, or the length is wrong; the datagram must not be sent.
    #[must_use]
    #[inline]
    pub fn seal(&mut self, by: Association, datagram: &mut [u8], now_ns: u64) -> bool {
        let Some(entry) = self.table.get_mut(by.0) else { return false };
        let peer_index = entry.peer_index;
        let Some(link) = &mut entry.link else { return false };
        if !seal_by(link, peer_index, datagram, now_ns) {
            return false;
        }
        if link.sends(now_ns) && self.silent.len() < SILENT_MAX {
            self.silent.push(by.0);
            self.due_ns = now_ns;
        }
        true
    }

    /// Takes an arrived datagram; opens it in place. Allocates nothing unless it is part of a handshake.
    pub fn open<'d>(&mut self, from: A, datagram: &'d mut [u8], now_ns: u64) -> Opened<'d> {
        if datagram.first() != Some(&FIRST_BYTE) {
            return Opened::Plain;
        }
        match wire::parse(datagram) {
            None => {
                self.counters.malformed += 1;
                Opened::Dropped
            }
            Some(Datagram::Sealed { epoch, receiver, counter, len }) => {
                let Some(datagram) = datagram.get_mut(..len) else { return Opened::Dropped };
                self.open_sealed(from, receiver, (epoch, counter), datagram, now_ns)
            }
            Some(Datagram::Handshake(fragment)) if fragment.from_initiator => {
                self.answer(from, &fragment, now_ns)
            }
            Some(Datagram::Handshake(fragment)) => self.answered(from, &fragment, now_ns),
            Some(Datagram::Cookie { receiver, id, cookie, tag }) => {
                self.take_cookie(from, (receiver, id), cookie, &tag)
            }
            Some(Datagram::OtherVersion { sender, id, begins: true, .. }) => {
                self.refuse_version(from, sender, id)
            }
            Some(Datagram::OtherVersion { theirs, receiver, id, .. }) => {
                self.hear_version(from, (receiver, id), theirs, now_ns)
            }
        }
    }

    fn open_sealed<'d>(
        &mut self,
        from: A,
        receiver: u32,
        (epoch, counter): (u64, u64),
        datagram: &'d mut [u8],
        now_ns: u64,
    ) -> Opened<'d> {
        let entry = self.table.get_mut(receiver).filter(|entry| entry.address == from);
        let Some(link) = entry.and_then(|entry| entry.link.as_mut()) else {
            self.counters.unknown += 1;
            return Opened::Dropped;
        };
        //= wire.md R-SEC-6
        if !link.window.is_new(counter) {
            self.counters.replayed += 1;
            return Opened::Dropped;
        }
        let Some((head, sealed)) = datagram.split_at_mut_checked(HEADER_BYTES) else {
            return Opened::Dropped;
        };
        let Some(body) = link.opener.open(epoch, EPOCH_MASK, counter, head, sealed) else {
            self.counters.forged += 1;
            return Opened::Dropped;
        };
        link.window.insert(counter);
        link.received(now_ns, !body.is_empty());
        if !link.is_confirmed && !self.confirmed(receiver, now_ns) {
            return Opened::Dropped;
        }
        if body.is_empty() { Opened::Taken } else { Opened::Datagram { body, by: Association(receiver) } }
    }

    /// When [`Associations::handle_timeout`] wants to be called.
    #[must_use]
    #[inline]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        (self.due_ns != u64::MAX).then_some(self.due_ns)
    }

    /// Who is at that address and what it may do; `None` without an association.
    #[must_use]
    pub fn peer(&self, address: A) -> Option<(&Identity, Rights)> {
        let link = self.table.get(self.addresses.get(&address)?.current?)?.link.as_ref()?;
        Some((&link.peer, link.rights))
    }

    /// Who seals by that association, and what it may do. Whom a datagram is from is asked here: what there is at its address by now
    /// may be another association, or none.
    #[must_use]
    pub fn peer_by(&self, by: Association) -> Option<(&Identity, Rights)> {
        let link = self.table.get(by.0)?.link.as_ref()?;
        Some((&link.peer, link.rights))
    }

    /// Why the last handshake with that address failed, if one did of late: for people.
    #[must_use]
    pub fn failure(&self, address: A) -> Option<&str> {
        let (why, _) = self.addresses.get(&address)?.failure.as_ref()?;
        Some(why)
    }

    /// A connection, or a request for one, uses the address's association: it is kept, and belongs to this identity
    /// alone, until as many calls of [`Associations::release`].
    pub fn retain(&mut self, address: A) {
        let state = self.addresses.entry(address).or_default();
        // Where the last association has just gone, the one before it may be what is used.
        let before = state.before.map(|(before, _)| before);
        let used = state.current.or(before).and_then(|index| self.table.get(index)?.link.as_ref());
        let identity = used.map(|link| link.peer.clone());
        state.users = state.users.saturating_add(1);
        if state.identity.is_none() {
            state.identity = identity;
        }
    }

    /// A connection has ended.
    pub fn release(&mut self, address: A) {
        if let Some(state) = self.addresses.get_mut(&address) {
            state.users = state.users.saturating_sub(1);
            state.identity.take_if(|_| state.users == 0);
            if state.is_empty() {
                self.addresses.remove(&address);
            }
        }
    }

    /// The next handshake of those that this side began of which it is certain that it leads nowhere, and why: who is there
    /// has proved to be somebody else, or may not be there, or speaks another version.
    pub fn poll_failure(&mut self) -> Option<(A, Failure)> {
        self.failures.pop_front()
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What they were made by.
    #[must_use]
    pub fn config(&self) -> &Config<A> {
        &self.config
    }

    /// Associations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.links
    }

    /// No association.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.links == 0
    }

    /// Bytes held, about.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let in_progress: usize = self
            .in_progress
            .iter()
            .filter_map(|index| self.table.get(*index)?.in_progress.as_ref())
            .map(|in_progress| in_progress.bytes())
            .sum();
        let held: usize =
            self.addresses.values().filter_map(|state| state.held.as_ref()).map(Vec::capacity).sum();
        let addresses = self.addresses.capacity() * (size_of::<A>() + size_of::<AddressState>() + 1);
        let hosts = self.by_host.capacity() * (size_of::<A>() + size_of::<u32>() + 1);
        let answers = self.answers.capacity() * size_of::<Answer<A>>();
        let bytes = self.table.bytes()
            + self.links * size_of::<Link>()
            + addresses
            + in_progress
            + held
            + hosts
            + answers;
        bytes as u64 + 2 * Recent::BYTES
    }
}

//= wire.md R-SEC-2
#[inline]
fn seal_by(link: &mut Link, peer_index: u32, datagram: &mut [u8], now_ns: u64) -> bool {
    let len = datagram.len();
    if len < OVERHEAD_BYTES || !len.is_multiple_of(8) || len > usize::from(u16::MAX) {
        return false;
    }
    let (epoch, counter) = link.sealer.next(now_ns);
    let head = sealed_head(epoch, len, peer_index, counter);
    let (head_space, remainder) = datagram.split_at_mut(HEADER_BYTES);
    let (body, tag_space) = remainder.split_at_mut(len - OVERHEAD_BYTES);
    head_space.copy_from_slice(&head);
    let tag: [u8; TAG_BYTES] = link.sealer.seal(&head, body);
    tag_space.copy_from_slice(&tag);
    true
}

/// The last so many numbers, to know them again.
struct Recent {
    numbers: Box<[u64]>,
    next: usize,
}

impl Recent {
    const NUMBERS: usize = 2048;
    const BYTES: u64 = (Recent::NUMBERS * size_of::<u64>()) as u64;

    fn new() -> Option<Recent> {
        let mut numbers = Vec::new();
        numbers.try_reserve_exact(Recent::NUMBERS).ok()?;
        numbers.resize(Recent::NUMBERS, 0);
        Some(Recent { numbers: numbers.into(), next: 0 })
    }

    fn contains(&self, number: u64) -> bool {
        number == 0 || self.numbers.contains(&number)
    }

    /// True if it is not among them; now it is.
    fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        if let Some(slot) = self.numbers.get_mut(self.next) {
            *slot = number;
        }
        self.next = (self.next + 1) % Recent::NUMBERS;
        true
    }
}
