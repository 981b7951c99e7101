//! The seam below the protocol: what moves its datagrams, such as UDP sockets or raw Ethernet.
//!
//! There is one carrier for each endpoint. The transport is compiled for each kind of carrier: none of these calls is dynamic.
//! What stays the same for as long as the endpoint is open is not asked for here; whoever makes the carrier gives it to the
//! transport as a [`Setup`](super::open::Setup).

use crate::counters::DropReason;
use crate::engine::peer::Peer;
use crate::engine::poller::Poller;
use crate::error::{AcceptError, ConnectError, ConnectFailure};
use crate::explain::Explanation;
use cci_proto::{Address, ConnKey, ConnectionInfo, PathInfo, Time, Transmit};
use cci_secure::Identity;
use cci_sys::clock;
use std::ops::ControlFlow;

/// Moves batches of datagrams, which may get lost, repeated or reordered on their way.
///
/// What is to be sent is written by way of [`Transmit`] and collected in a batch, which leaves with [`Carrier::flush`].
pub(super) trait Carrier: Transmit + Send {
    /// Identifies peers: [`Anonymous`], except for the sealed carrier.
    type Identities: Identities;

    /// The clock of this endpoint, in nanoseconds: the system's, except in simulations.
    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// Makes one receive call. Returns how many datagrams it brought, at most; 0 means that there are none. If some of the call before
    /// were not handed over, these are what it returns.
    fn receive(&mut self) -> Result<usize, Dead>;

    /// Hands over the datagrams of the last receive call, each once. If `datagram` breaks off, or panics (the program's handler
    /// may), the remaining ones can still be handed over.
    fn arrived(
        &mut self,
        datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()>;

    /// Gives the system the datagrams that wait, as far as it has space for them. Calls `narrowed` for each path that turned out to
    /// take only smaller ones.
    fn flush(&mut self, narrowed: impl FnMut(Narrow)) -> Result<(), Dead>;

    /// Whether any datagrams wait because the system had no space for them yet.
    fn has_pending(&self) -> bool;

    /// Prepares for sleep: puts the carrier's descriptors into the endpoint's epoll set if `watch` is true, else takes them out.
    /// Returns whether they are in it; where the system refuses, the next call tries again.
    fn arm(&mut self, poller: &Poller, watch: bool) -> Result<bool, Dead>;

    /// Finds out where a URI leads. The error says what is wrong with the URI and what a good one looks like.
    fn parse(&self, uri: &str) -> Result<Paths, String>;

    /// Whether this endpoint can send to that address. It may not be able to if a request came to another endpoint.
    fn reaches(&self, peer: Address) -> bool;

    /// Sets the nonce of a connection that has begun. Datagrams with another nonce for the same index are old or forged, and the
    /// carrier may drop them before the protocol does. `None` says that the connection has ended.
    fn set_nonce(&mut self, key: ConnKey, nonce: Option<u64>) {
        let _ = (key, nonce);
    }

    /// Answers a question about memory, counters or a connection.
    fn report(&self, report: Report<'_>);

    /// The identities of peers; `None` if the carrier does not know any.
    #[inline]
    fn identities(&mut self) -> Option<&mut Self::Identities> {
        None
    }
}

/// The carrier is dead, and will never move a datagram again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Dead;

/// A path that turned out to take only smaller datagrams.
#[derive(Copy, Clone, Debug)]
pub(super) struct Narrow {
    /// Where the path leads.
    pub to: Address,
    /// The largest datagram that it takes, bytes.
    pub datagram_bytes_max: u16,
}

/// Where a URI leads.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// One path leads to the peer.
    One(Address),
    /// Two paths lead to the peer, for a bonded connection.
    Bonded([Address; 2]),
}

/// A question to a carrier, and where the answer goes. Answers are added to what is there.
pub(super) enum Report<'a> {
    /// How many bytes the carrier holds, by kind.
    Memory(&'a mut Vec<(&'static str, u64)>),
    /// The carrier's own counters, and the datagrams that it dropped, by reason.
    Counters { into: &'a mut Vec<(&'static str, u64)>, drops: &'a mut Vec<DropReason> },
    /// The peer's address as a URI, the paths that were looked at for a connection, the chosen one first, and facts.
    Explanation {
        connection: &'a ConnectionInfo,
        /// The two paths of a bonded connection.
        paths: Option<&'a [PathInfo; 2]>,
        into: &'a mut Explanation,
    },
}

/// Identifies the sender of a datagram. This is expensive, so it is asked only where it matters.
pub(super) trait Who {
    /// Who the peer is; `None` on carriers that never know.
    fn peer(&self) -> Option<Peer>;
}

/// The sender of every datagram on a carrier that does not know who its peers are.
pub(super) struct Nobody;

impl Who for Nobody {
    fn peer(&self) -> Option<Peer> {
        None
    }
}

/// Identifies the peers of a carrier by handshakes, which end at a deadline. Only the sealed carrier does.
pub(super) trait Identities {
    /// Sets the time, before anything is received or sent.
    fn at(&mut self, now: Time);

    /// When [`Identities::time_out`] has something to do next.
    fn next_deadline(&self) -> Option<Time>;

    /// Ends or repeats the handshakes that are due at the time of the last [`Identities::at`].
    fn time_out(&mut self);

    /// Whether this side can make sure that somebody of that name, and nobody else, is at the other end of a connection.
    fn can_expect(&self, name: &str) -> Result<(), ConnectError>;

    /// Notes that this side begins a connection with an address, before anything of that connection is sent. If a name is
    /// `expected`, nobody else may be there.
    fn dialled(&mut self, key: ConnKey, at: Address, expected: Option<&str>);

    /// Takes out a connection that this side has begun and that can't succeed any more, with the reason.
    fn take_refused(&mut self) -> Option<(ConnKey, ConnectFailure)>;

    /// Decides whether this endpoint accepts a request from that address by a peer with that identity, and returns the peer with
    /// its rights here. It refuses its own requests, those of peers that may not connect here, and those from an address that
    /// another peer has now.
    fn admit(&self, at: Address, identity: Option<&Identity>) -> Result<Peer, AcceptError>;

    /// Reserves an address for an identity until the connection has ended ([`Carrier::set_nonce`]). Nobody else at that address
    /// may take part in the connection.
    fn hold(&mut self, key: ConnKey, at: Address, identity: &Identity);
}

/// The identities of carriers that do not know who their peers are. There is no value of this type.
pub(super) enum Anonymous {}

impl Identities for Anonymous {
    fn at(&mut self, _: Time) {
        match *self {}
    }

    fn next_deadline(&self) -> Option<Time> {
        match *self {}
    }

    fn time_out(&mut self) {
        match *self {}
    }

    fn can_expect(&self, _: &str) -> Result<(), ConnectError> {
        match *self {}
    }

    fn dialled(&mut self, _: ConnKey, _: Address, _: Option<&str>) {
        match *self {}
    }

    fn take_refused(&mut self) -> Option<(ConnKey, ConnectFailure)> {
        match *self {}
    }

    fn admit(&self, _: Address, _: Option<&Identity>) -> Result<Peer, AcceptError> {
        match *self {}
    }

    fn hold(&mut self, _: ConnKey, _: Address, _: &Identity) {
        match *self {}
    }
}
