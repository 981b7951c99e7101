//! A carrier whose datagrams nobody else can read or forge. It seals the datagrams of another carrier, with an association
//! (`cci_secure`) for each address.
//!
//! A datagram to an address that is marked as secured goes through an association. Without the mark the address is one of the
//! carrier beneath. To the protocol both are plain addresses; it knows nothing of seals.
//!
//! **Invariant:** nothing here reads the clock. No datagram gets through that is not proved to be from a peer, unless the device
//! allows plain ones.

mod held;
mod report;

use self::held::Held;
use super::carrier::{Carrier, Dead, Identities, Narrow, Paths, Report, Who};
use super::open::Setup;
use crate::engine::peer::Peer;
use crate::engine::poller::Poller;
use crate::error::{AcceptError, ConnectError, ConnectFailure, CreateError};
use crate::sealing::Sealing;
use cci_memory::fallible;
use cci_proto::{Address, ConnKey, ConnectionInfo, Time, Transmit};
use cci_secure::limits::{HANDSHAKE_MEMORY_BYTES, HEADER_BYTES, OVERHEAD_BYTES};
use cci_secure::{
    Association, Associations, Config, Failure, Identity, Method, Opened, Rights, Route, UpdateLimits,
};
use std::ops::ControlFlow;

/// Space for any datagram that arrives, bytes.
const DATAGRAM_BYTES: usize = 1 << 16;
/// The least number of handshakes that may be in progress in each direction, however small the memory cap is.
const HANDSHAKES_MIN: u64 = 4;
/// The most handshakes that may be in progress in each direction.
const HANDSHAKES_MAX: u64 = 256;
/// About how many bytes a handshake with pre-shared keys takes.
const NOISE_BYTES: u64 = 16 << 10;
/// About how many bytes an association takes.
const ASSOCIATION_BYTES: u64 = 2 << 10;
/// The least number of associations, however small the memory cap is.
const ASSOCIATIONS_MIN: u64 = 16;
/// The most associations that an endpoint may have.
const ASSOCIATIONS_MAX: u64 = 1 << 16;
/// The part of the memory cap that associations and handshakes may take.
pub(super) const MEMORY_SHARE: u64 = 16;
/// The part of that memory that handshakes may take.
const HANDSHAKES_SHARE: u64 = 2;

/// A carrier that seals the datagrams of another one.
pub(super) struct Sealed<C> {
    inner: C,
    associations: Associations<Address>,
    sealing: Sealing,
    /// The address at which datagrams come back to this endpoint, if there is one.
    own: Option<Address>,
    held: Held,
    /// The buffer that was handed out last.
    open: Open,
    /// The buffer in which arrived datagrams are opened, and in which datagrams are written that can't be sealed yet.
    scratch: Scratch,
    now: Time,
    /// Whether there may be datagrams of handshakes to send, or others that waited for their handshakes.
    unsent: bool,
    /// Connections that this side has dialled and that can't succeed any more.
    refused: Vec<(ConnKey, ConnectFailure)>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    /// Datagrams that came plain although this endpoint requires a seal.
    plain: u64,
    /// Datagrams from or to an address that somebody other than the peer of its connections has taken over.
    other_identity: u64,
    /// Datagrams that could not be sealed, and got lost.
    unsealed: u64,
}

/// A buffer that [`Transmit::begin`] handed out.
#[derive(Copy, Clone)]
enum Open {
    /// No buffer is handed out.
    Nothing,
    /// The buffer is the inner carrier's, for a plain datagram.
    Plain,
    /// The buffer is the inner carrier's, with space for the header and the tag of a sealed datagram around it.
    Sealing { by: Association, to: Address, len_max: usize, fragment: bool },
    /// The buffer is `scratch`: the datagram waits for an association with this address.
    Waiting(Address),
    /// The buffer is `scratch`: the datagram is lost.
    Lost,
}

/// A buffer that begins on an 8-byte boundary, since messages are read in place.
struct Scratch {
    bytes: Box<[u8]>,
    start: usize,
}

impl Scratch {
    fn new() -> Option<Scratch> {
        let bytes = fallible::zeroed::<u8>(DATAGRAM_BYTES + 8)?;
        let start = bytes.as_ptr().align_offset(8).min(8);
        Some(Scratch { bytes, start })
    }

    #[inline]
    fn get(&mut self, len: usize) -> Option<&mut [u8]> {
        self.bytes.get_mut(self.start..self.start + len)
    }
}

impl<C: Carrier> Sealed<C> {
    /// Makes a carrier that seals the datagrams of `inner`. `own` is the address at which datagrams come back to this endpoint,
    /// if there is one. Associations take a share of `memory_bytes_max`.
    pub fn new(
        inner: C,
        sealing: Sealing,
        own: Option<Address>,
        setup: &Setup,
        memory_bytes_max: u64,
    ) -> Result<Sealed<C>, CreateError> {
        let now = Time(inner.now_ns());
        let (associations_max, handshakes_max) = table_sizes(memory_bytes_max, sealing.credentials.method());
        let config = Config {
            credentials: sealing.credentials.clone(),
            authorisation: sealing.authorisation.clone(),
            associations_max,
            handshakes_max,
            datagram_bytes_max: setup.datagram_bytes_max.into(),
            update: update_limits(),
            host_of: Address::host,
        };
        let no_memory = || CreateError::without_memory("have memory for handshakes", DATAGRAM_BYTES);
        Ok(Sealed {
            inner,
            associations: Associations::with_secret(config, now.0, &setup.secret).ok_or_else(no_memory)?,
            sealing,
            own,
            held: Held::default(),
            open: Open::Nothing,
            scratch: Scratch::new().ok_or_else(no_memory)?,
            now,
            unsent: false,
            refused: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Finds the dialled connections that can't succeed any more, since their handshakes have failed.
    fn take_failures(&mut self) {
        while let Some((at, failure)) = self.associations.poll_failure() {
            let Some(why) = connect_failure(&failure) else { continue };
            let expected = match &failure {
                Failure::NotExpected(_, expected) => Some(&**expected),
                _ => None,
            };
            self.refused.extend(self.held.dials_at(at, expected).map(|key| (key, why)));
        }
    }

    /// Forgets that a connection was dialled, and the name that it expected.
    fn end_dial(&mut self, key: ConnKey) {
        if let Some((at, Some(name))) = self.held.end_dial(key) {
            self.associations.unexpect(at, &name);
        }
    }

    /// Gives the inner carrier the datagrams of handshakes, and those that waited for handshakes.
    fn send_own(&mut self) {
        while self.unsent && self.inner.has_space() {
            let Some(out) = self.scratch.get(DATAGRAM_BYTES) else { return };
            let Some((to, len)) = self.associations.poll_transmit(self.now.0, out) else {
                self.unsent = false;
                return;
            };
            let (Some(datagram), Some(buffer)) = (out.get(..len), self.inner.begin(to, len, false)) else {
                // The datagram is lost, and will be repeated in time.
                continue;
            };
            if let Some(buffer) = buffer.get_mut(..len) {
                buffer.copy_from_slice(datagram);
                self.inner.commit(len);
            }
        }
    }
}

/// How many associations there may be, and how many handshakes may be in progress in each direction.
fn table_sizes(memory_bytes_max: u64, method: Method) -> (usize, usize) {
    let share_bytes = memory_bytes_max / MEMORY_SHARE;
    let handshake_bytes = match method {
        Method::Psk => NOISE_BYTES,
        Method::Certificate => HANDSHAKE_MEMORY_BYTES as u64,
    };
    let handshakes = (share_bytes / HANDSHAKES_SHARE / handshake_bytes).clamp(HANDSHAKES_MIN, HANDSHAKES_MAX);
    let remaining_bytes = share_bytes.saturating_sub(handshakes * handshake_bytes);
    let associations = (remaining_bytes / ASSOCIATION_BYTES).clamp(ASSOCIATIONS_MIN, ASSOCIATIONS_MAX);
    (associations as usize, handshakes as usize)
}

/// What the failure of a handshake means for connections that dialled its address; `None` if another handshake may succeed.
fn connect_failure(failure: &Failure) -> Option<ConnectFailure> {
    match failure {
        Failure::NotExpected(..) => Some(ConnectFailure::WrongPeer),
        Failure::Version(theirs) => Some(ConnectFailure::Version { theirs: *theirs }),
        Failure::NotAllowed(_) | Failure::NoName => Some(ConnectFailure::NotPermitted),
        _ => None,
    }
}

#[cfg(not(test))]
fn update_limits() -> UpdateLimits {
    UpdateLimits::default()
}

#[cfg(test)]
fn update_limits() -> UpdateLimits {
    super::tests::sealed::update_limits()
}

/// The sender of a plain datagram, where plain ones are allowed.
struct Plain<'a>(&'a Sealing);

impl Who for Plain<'_> {
    fn peer(&self) -> Option<Peer> {
        Some(Peer { identity: None, rights: self.0.rights(None) })
    }
}

/// The error for an interface whose datagrams are too small for what sealing adds.
pub(super) fn mtu_too_small(mtu_bytes: u32, plain_bytes_min: u32) -> CreateError {
    let min_bytes = plain_bytes_min + OVERHEAD_BYTES as u32;
    CreateError::BadOption {
        name: "security",
        reason: format!(
            "the device's MTU is {mtu_bytes} bytes, and sealed datagrams take {min_bytes} at least"
        ),
    }
}

/// The sender of a sealed datagram. If its association is gone, the sender is a peer without any right. It is not `None`, since
/// then rights would not be checked.
struct SealedBy<'a> {
    associations: &'a Associations<Address>,
    by: Association,
}

impl Who for SealedBy<'_> {
    fn peer(&self) -> Option<Peer> {
        let known = self.associations.peer_by(self.by);
        let nobody = Peer { identity: None, rights: Rights::NONE };
        Some(known.map_or(nobody, |(identity, rights)| Peer { identity: Some(identity.clone()), rights }))
    }
}

impl<C: Carrier> Carrier for Sealed<C> {
    type Identities = Sealed<C>;

    #[inline]
    fn receive(&mut self) -> Result<usize, Dead> {
        self.inner.receive()
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn arrived(
        &mut self,
        mut datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Sealed { inner, associations, held, scratch, now, unsent, counts, sealing, .. } = self;
        let flow = inner.arrived(|from, bytes, _| {
            let Some(copy) = scratch.get(bytes.len()) else { return ControlFlow::Continue(()) };
            copy.copy_from_slice(bytes);
            let known = associations.counters().handshakes;
            let opened = associations.open(from, copy, now.0);
            if associations.counters().handshakes != known {
                held.met(from, associations.peer(from).map(|(identity, _)| identity));
            }
            match opened {
                Opened::Datagram { .. } if held.is_other(from) => counts.other_identity += 1,
                Opened::Datagram { body, by } if !body.is_empty() => {
                    let who = SealedBy { associations, by };
                    return datagram(from.with_secured(true), body, &who);
                }
                Opened::Datagram { .. } | Opened::Taken => *unsent = true,
                //= wire.md R-SEC-5
                Opened::Plain if sealing.required => counts.plain += 1,
                Opened::Plain => return datagram(from, bytes, &Plain(sealing)),
                Opened::Dropped => {}
            }
            ControlFlow::Continue(())
        });
        self.take_failures();
        flow
    }

    fn flush(&mut self, mut narrowed: impl FnMut(Narrow)) -> Result<(), Dead> {
        // Connections with and without a seal take the same path.
        let plain = !self.sealing.required;
        let mut both = |narrow: Narrow| {
            narrowed(Narrow {
                to: narrow.to.with_secured(true),
                datagram_bytes_max: narrow.datagram_bytes_max.saturating_sub(OVERHEAD_BYTES as u16),
            });
            if plain {
                narrowed(narrow);
            }
        };
        self.send_own();
        self.inner.flush(&mut both)?;
        if self.unsent {
            self.send_own();
            self.inner.flush(&mut both)?;
        }
        Ok(())
    }

    #[inline]
    fn has_pending(&self) -> bool {
        self.unsent || self.inner.has_pending()
    }

    fn arm(&mut self, poller: &Poller, watch: bool) -> Result<bool, Dead> {
        self.inner.arm(poller, watch)
    }

    fn parse(&self, uri: &str) -> Result<Paths, String> {
        let (Paths::One(to) | Paths::Bonded([to, _])) = self.inner.parse(uri)?;
        if self.own == Some(to) {
            // One address would need two associations.
            return Err(
                "that is this endpoint itself, which can't shake hands with itself: give it what it has \
                        without a connection, or use an endpoint of shared memory"
                    .to_owned(),
            );
        }
        // This side seals everything that it requests. Bonded connections can't be sealed yet.
        Ok(Paths::One(to.with_secured(true)))
    }

    fn reaches(&self, peer: Address) -> bool {
        (peer.is_secured() || !self.sealing.required) && self.inner.reaches(peer.with_secured(false))
    }

    fn set_nonce(&mut self, key: ConnKey, nonce: Option<u64>) {
        // The inner carrier does not get the nonce, since it can't see the nonces in sealed datagrams.
        if nonce.is_some() {
            return;
        }
        self.end_dial(key);
        if let Some(at) = self.held.remove(key) {
            self.associations.release(at);
        }
    }

    fn report(&self, report: Report<'_>) {
        match report {
            Report::Memory(into) => {
                self.inner.report(Report::Memory(&mut *into));
                into.push(("associations", self.associations.memory_bytes() + self.held.bytes()));
                into.push(("room for opening datagrams", self.scratch.bytes.len() as u64));
            }
            Report::Counters { into, drops } => {
                self.inner.report(Report::Counters { into: &mut *into, drops: &mut *drops });
                report::counters(self, into, drops);
            }
            Report::Explanation { connection, paths, into } => {
                let plain = ConnectionInfo { peer: connection.peer.with_secured(false), ..*connection };
                self.inner.report(Report::Explanation { connection: &plain, paths, into: &mut *into });
                report::explain(self, connection, into);
            }
        }
    }

    #[inline]
    fn identities(&mut self) -> Option<&mut Sealed<C>> {
        Some(self)
    }
}

impl<C: Carrier> Identities for Sealed<C> {
    #[inline]
    fn at(&mut self, now: Time) {
        self.now = now;
    }

    #[inline]
    fn next_deadline(&self) -> Option<Time> {
        self.associations.next_deadline_ns().map(Time)
    }

    fn time_out(&mut self) {
        self.associations.handle_timeout(self.now.0);
        self.unsent = true;
        self.take_failures();
    }

    fn can_expect(&self, name: &str) -> Result<(), ConnectError> {
        self.sealing.can_expect(name)
    }

    fn dialled(&mut self, key: ConnKey, at: Address, expected: Option<&str>) {
        if !at.is_secured() {
            return;
        }
        let at = at.with_secured(false);
        if let Some(name) = expected
            && !self.associations.expect(at, name, self.now.0)
        {
            self.refused.push((key, ConnectFailure::WrongPeer));
            return;
        }
        self.held.dial(key, at, expected);
        self.unsent = true;
    }

    fn take_refused(&mut self) -> Option<(ConnKey, ConnectFailure)> {
        self.refused.pop()
    }

    fn admit(&self, at: Address, identity: Option<&Identity>) -> Result<Peer, AcceptError> {
        let plain = at.with_secured(false);
        if self.own == Some(plain) {
            return Err(AcceptError::Itself);
        }
        let rights = self.sealing.rights(identity);
        let is_there = match identity {
            Some(identity) => {
                let remote = self.associations.peer(plain);
                at.is_secured() && remote.is_none_or(|(remote, _)| remote == identity)
            }
            None => !at.is_secured(),
        };
        if is_there && rights.connect {
            Ok(Peer { identity: identity.cloned(), rights })
        } else {
            Err(AcceptError::NotPermitted)
        }
    }

    fn hold(&mut self, key: ConnKey, at: Address, identity: &Identity) {
        let at = at.with_secured(false);
        self.held.add(key, at, identity);
        self.held.met(at, self.associations.peer(at).map(|(identity, _)| identity));
        self.associations.retain(at);
        // From now on the address belongs to the identity, so no name need be expected any more.
        self.end_dial(key);
    }
}

impl<C: Carrier> Transmit for Sealed<C> {
    #[inline]
    fn has_space(&self) -> bool {
        self.inner.has_space()
    }

    #[inline]
    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        if !to.is_secured() {
            if self.sealing.required {
                // On such an endpoint the protocol never has a plain address. If it had one, the datagram must not leave.
                self.open = Open::Lost;
                return self.scratch.get(len_max);
            }
            self.open = Open::Plain;
            return self.inner.begin(to, len_max, fragment);
        }
        let to = to.with_secured(false);
        let by = match self.associations.route(to) {
            Route::Ready(_) if self.held.is_other(to) => {
                self.open = Open::Lost;
                return self.scratch.get(len_max);
            }
            Route::Ready(by) => by,
            Route::Wait => {
                self.open = Open::Waiting(to);
                return self.scratch.get(len_max);
            }
        };
        self.open = Open::Sealing { by, to, len_max, fragment };
        self.inner
            .begin(to, len_max + OVERHEAD_BYTES, fragment)?
            .get_mut(HEADER_BYTES..HEADER_BYTES + len_max)
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Sealing { by, to, len_max, fragment } => {
                // This is the memory that `begin` got from the inner carrier.
                let whole = self.inner.begin(to, len_max + OVERHEAD_BYTES, fragment);
                let whole = whole.and_then(|whole| whole.get_mut(..len + OVERHEAD_BYTES));
                if whole.is_some_and(|whole| self.associations.seal(by, whole, self.now.0)) {
                    self.inner.commit(len + OVERHEAD_BYTES);
                } else {
                    self.counts.unsealed += 1;
                }
            }
            Open::Plain => self.inner.commit(len),
            Open::Waiting(to) => {
                if let Some(body) = self.scratch.get(len) {
                    self.associations.hold(to, body, self.now.0);
                    self.unsent = true;
                }
            }
            Open::Lost => self.counts.other_identity += 1,
            Open::Nothing => {}
        }
    }
}
