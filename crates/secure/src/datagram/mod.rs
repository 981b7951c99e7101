//! Sealed datagrams: one association for each address of a peer, which all connections between the two endpoints share.

use crate::credentials::Credentials;
use crate::identity::{Authorisation, Identity, Rights};
use crate::keys::UpdateLimits;
use std::hash::Hash;
use std::marker::PhantomData;

/// What associations are made by.
#[derive(Clone, Debug)]
pub struct Config {
    /// What this side proves with who it is, and by which it knows others.
    pub credentials: Credentials,
    /// Who may do what.
    pub authorisation: Authorisation,
    /// Associations at once; those that no connection uses give way to new ones.
    pub associations_max: usize,
    /// Handshakes under way at once, those asked for by others and those asked for here each.
    pub handshakes_max: usize,
    /// How long what waits for an association may be, bytes: the longest datagram.
    pub datagram_bytes_max: usize,
    /// When a sender takes its next key.
    pub update: UpdateLimits,
}

/// Names an association that is ready, until something else than [`Associations::seal`] is called.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Association(u32);

/// What to do with a datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Seal it.
    Ready(Association),
    /// There is no association yet: [`Associations::hold`] asks for one and may keep the datagram until there is.
    Wait,
}

/// What an arrived datagram was.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'d> {
    /// Sealed by the peer at the address it came from; this was in it. May be empty: nothing for the layer above.
    Datagram(&'d mut [u8]),
    /// Part of a handshake, or sealed and without content. There may be something to transmit now.
    Taken,
    /// Not sealed: its first byte is another type's.
    Plain,
    /// Wrong, old, a repeat or not for us; counted.
    Dropped,
}

/// What happened, counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Handshakes that became an association.
    pub handshakes: u64,
    /// Handshakes that ran out of time.
    pub timeouts: u64,
    /// Handshakes refused: wrong key or certificate, no right to connect, another identity at an address in use.
    pub refused: u64,
    /// Handshakes for which there was no room.
    pub no_room: u64,
    /// Cookies given out.
    pub cookies: u64,
    /// Datagrams that were not sealed by whom they seemed to come from.
    pub forged: u64,
    /// Datagrams that had come already, or are so old that nobody knows.
    pub replayed: u64,
    /// Sealed datagrams of an association that is not (any more).
    pub unknown: u64,
    /// Datagrams that don't parse.
    pub malformed: u64,
    /// Datagrams dropped because there was no association yet.
    pub waited: u64,
}

/// All associations of one endpoint. `A` is an address: where datagrams go and come from.
///
/// To send: [`Associations::route`] says whether the address has an association. If so, write the datagram at
/// [`crate::limits::HEADER_BYTES`] of a buffer that has [`crate::limits::TAG_BYTES`] more behind it and
/// [`Associations::seal`] the whole. If not, [`Associations::hold`] it. What arrives goes through
/// [`Associations::open`]. After these, and when [`Associations::next_deadline_ns`] has come
/// ([`Associations::handle_timeout`]), ask [`Associations::poll_transmit`] until it has nothing more.
///
/// Times are nanoseconds of one clock that never goes back.
pub struct Associations<A> {
    config: Config,
    counters: Counters,
    addresses: PhantomData<A>,
}

impl<A: Copy + Eq + Hash> Associations<A> {
    /// None yet.
    #[must_use]
    pub fn new(config: Config, now_ns: u64) -> Associations<A> {
        let _ = now_ns;
        Associations { config, counters: Counters::default(), addresses: PhantomData }
    }

    /// Whether a datagram to that address can be sealed now.
    pub fn route(&mut self, to: A) -> Route {
        let _ = to;
        Route::Wait
    }

    /// Seals a whole datagram in place: room for the header, the body, room for the tag. Allocates nothing. False: the
    /// association is no more, or the lengths are wrong; the datagram must not be sent.
    #[must_use]
    pub fn seal(&mut self, by: Association, datagram: &mut [u8], now_ns: u64) -> bool {
        let _ = (by, datagram, now_ns);
        false
    }

    /// A datagram (its body alone) for an address without an association: begins a handshake if none is under way, and
    /// keeps the first datagram until it is done. Others are dropped: the protocol above repeats them.
    pub fn hold(&mut self, to: A, body: &[u8], now_ns: u64) {
        let _ = (to, body, now_ns);
    }

    /// Takes an arrived datagram; opens it in place. Allocates nothing unless it is part of a handshake.
    pub fn open<'d>(&mut self, from: A, datagram: &'d mut [u8], now_ns: u64) -> Opened<'d> {
        let _ = (from, datagram, now_ns);
        Opened::Plain
    }

    /// Writes the next datagram that this layer has to send itself (handshakes, and what was held for them) into `out`,
    /// which takes [`Config::datagram_bytes_max`] and [`crate::limits::OVERHEAD_BYTES`]; where to, and its length.
    pub fn poll_transmit(&mut self, now_ns: u64, out: &mut [u8]) -> Option<(A, usize)> {
        let _ = (now_ns, out);
        None
    }

    /// When [`Associations::handle_timeout`] wants to be called.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        None
    }

    /// Does what is due: repeats, gives up, forgets.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Who is at that address and what it may do; `None` without an association.
    #[must_use]
    pub fn peer(&self, address: A) -> Option<(&Identity, Rights)> {
        let _ = address;
        None
    }

    /// Why the last handshake with that address failed, if one did since there was an association: for people.
    #[must_use]
    pub fn failure(&self, address: A) -> Option<&str> {
        let _ = address;
        None
    }

    /// A connection uses the address's association: it is kept, and belongs to this identity alone, until as many calls
    /// of [`Associations::release`].
    pub fn retain(&mut self, address: A) {
        let _ = address;
    }

    /// A connection has ended.
    pub fn release(&mut self, address: A) {
        let _ = address;
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What they were made by.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes held.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        0
    }
}
