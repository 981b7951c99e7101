//! What carries the protocol's datagrams: UDP sockets, raw Ethernet. The second seam, below the protocol.

use crate::counters::DropReason;
use crate::engine::peer::Peer;
use crate::engine::poller::Poller;
use crate::error::{ConnectError, ConnectFailure};
use crate::explain::Explanation;
use cci_proto::{Address, ConnKey, ConnectionInfo, Time, Transmit};
use cci_secure::Identity;
use cci_sys::{SysError, clock, random};

/// What a receive call brought.
pub(super) enum Received {
    /// So many datagrams; 0: nothing is there.
    Datagrams(usize),
    /// The carrier is dead; `first`: it was not before.
    Failed {
        /// To be told to the program.
        first: bool,
    },
}

/// A path that turned out to take only smaller datagrams.
#[derive(Copy, Clone, Debug)]
pub(super) struct Narrow {
    /// Where it leads.
    pub to: Address,
    /// What it takes.
    pub datagram_bytes_max: u16,
}

/// Whom an arrived datagram came from, to be asked where that matters.
pub(super) trait Who {
    /// None: nobody knows.
    fn peer(&self) -> Option<Peer>;
}

/// Of carriers that do not know whom they speak to.
pub(super) struct Nobody;

impl Who for Nobody {
    fn peer(&self) -> Option<Peer> {
        None
    }
}

/// Moves batches of datagrams, which may be lost, repeated or reordered. One for each endpoint. What leaves is written
/// by way of [`Transmit`]; a batch is bounded by `room`.
pub(super) trait Carrier: Transmit + Send {
    /// One receive call. What the last one brought is given back.
    fn receive(&mut self) -> Received;

    /// The clock of this endpoint, nanoseconds: the system's, except in simulations.
    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    /// What the protocol derives nonces and cookies from: different for every endpoint and every start.
    fn secret(&self) -> Result<[u8; 32], SysError> {
        let mut secret = [0; 32];
        random::fill(&mut secret)?;
        Ok(secret)
    }

    /// Gives the datagrams of the last call, once.
    fn arrived(&mut self, datagram: impl FnMut(Address, &[u8], &dyn Who));

    /// What time it is, for carriers that go by it. Said before anything is received or sent.
    #[inline]
    fn at(&mut self, now: Time) {
        let _ = now;
    }

    /// When [`Carrier::time_out`] wants to be called, if it does.
    #[inline]
    fn due(&self) -> Option<Time> {
        None
    }

    /// Does what is due.
    #[inline]
    fn time_out(&mut self) {}

    /// Who the peers are, for a carrier that knows.
    #[inline]
    fn identities(&mut self) -> Option<&mut dyn Identities> {
        None
    }

    /// A connection has begun: datagrams of established connections with its index carry this nonce, or are old or
    /// forged. For a carrier that can drop those earlier than the protocol does.
    fn opened(&mut self, key: ConnKey, nonce: u64) {
        let _ = (key, nonce);
    }

    /// It has ended.
    fn closed(&mut self, key: ConnKey) {
        let _ = key;
    }

    /// Gives the system what waits. True: the carrier has just died.
    fn flush(&mut self) -> bool;

    /// Datagrams that the system had no room for yet.
    fn pending(&self) -> usize;

    /// The last datagram given up for its length.
    fn take_too_big(&mut self) -> Option<Narrow>;

    /// Where a URI leads from here. The error says what is wrong with it and what one looks like.
    fn parse(&self, uri: &str) -> Result<Address, String>;

    /// Where a URI leads from here, and a second path there if there is one.
    fn parse_paths(&self, uri: &str) -> Result<(Address, Option<Address>), String> {
        self.parse(uri).map(|to| (to, None))
    }

    /// What to call this side's end of a path of a bonded connection, if there are such.
    fn local_name(&self, via: u8) -> Option<String> {
        let _ = via;
        None
    }

    /// The address as a URI.
    fn uri_of(&self, peer: Address) -> String;

    /// Whether that address can be sent to from here: a request may have come to another endpoint.
    fn reaches(&self, peer: Address) -> bool;

    /// Puts what becomes readable into the endpoint's epoll set, or takes it out, and says whether it is there. What the system
    /// refuses is tried again by the next call.
    fn watch(&mut self, poller: &Poller, watch: bool) -> bool;

    /// Before a sleep: looks for what makes a descriptor readable and is no datagram. True: the carrier has just died.
    fn look(&mut self) -> bool {
        false
    }

    /// Bytes held, by kind.
    fn memory(&self, into: &mut Vec<(&'static str, u64)>);

    /// Its own counters, by name.
    fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>);

    /// The paths looked at for a connection, the chosen one first, and facts.
    fn explain(&self, info: &ConnectionInfo, into: &mut Explanation);
}

/// Who the peers of a carrier are. Only the sealed carrier knows.
pub(super) trait Identities {
    /// Whether this side can see to it that somebody of that name, and nobody else, is at the other end of a connection.
    fn can_expect(&self, name: &str) -> Result<(), ConnectError>;

    /// This side begins a connection with that address, before anything of it is sent. `expected` is the name of who must be there.
    fn dialled(&mut self, key: ConnKey, at: Address, expected: Option<&str>);

    /// A connection that this side has begun and that is certain to lead nowhere, and why.
    fn take_refused(&mut self) -> Option<(ConnKey, ConnectFailure)>;

    /// Whether a request from there is this endpoint's own: it can't have a connection with itself.
    fn is_itself(&self, at: Address) -> bool;

    /// This endpoint accepts a request from there by somebody with that identity. Returns who it is to this endpoint. `None`: it
    /// may not be connected here, or somebody else is there now.
    fn meet(&self, at: Address, identity: Option<&Identity>) -> Option<Peer>;

    /// Until it is [`closed`](Carrier::closed), this connection is with that identity at that address, and nobody else there may
    /// take part in it.
    fn hold(&mut self, key: ConnKey, at: Address, identity: &Identity);
}
