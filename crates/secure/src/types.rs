//! What this crate has with sealing and without it: what associations and streams are made by, and what they say.

use crate::identity::Authorisation;
use crate::limits::UpdateLimits;
use crate::{Credentials, EndpointId};

/// What every sealed stream begins with, from the side that dials; its version and method follow, and two zeros.
pub const STREAM_MAGIC: [u8; 4] = *b"CCIs";

/// What associations are made by.
#[derive(Clone, Debug)]
pub struct Config<A> {
    /// What this side proves with who it is, and by which it knows others.
    pub credentials: Credentials,
    /// Who may do what.
    pub authorisation: Authorisation,
    /// Associations at once; those that no connection uses give way to new ones.
    pub associations_max: usize,
    /// Most handshakes in progress at once: as many as initiator, and as many as responder.
    pub handshakes_max: usize,
    /// How long what waits for an association may be, bytes: the longest datagram.
    pub datagram_bytes_max: usize,
    /// When a sender takes its next key.
    pub update: UpdateLimits,
    /// The host of an address, as an address that all of that host's have: hosts share handshakes and associations.
    pub host_of: fn(&A) -> A,
}

/// Names an association that is ready, until something else than [`crate::Associations::seal`] is called.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Association(pub(crate) u32);

/// What to do with a datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Seal it.
    Ready(Association),
    /// There is no association yet: [`Associations::hold`](crate::Associations::hold) asks for one and may keep the datagram until there is.
    Wait,
}

/// What an arrived datagram was.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'d> {
    /// Sealed by the peer at the address it came from; this was in it. May be empty: nothing for the layer above.
    Datagram {
        /// What was sealed.
        body: &'d mut [u8],
        /// The association by which it was sealed: [`Associations::peer_by`](crate::Associations::peer_by) says whose that is.
        by: Association,
    },
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
    /// Handshakes refused because there were too many, of all hosts or of theirs.
    pub no_space: u64,
    /// Handshakes of other versions.
    pub versions: u64,
    /// Handshakes that this endpoint began itself, and that somebody gave back to it.
    pub own: u64,
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

/// What the streams of an endpoint are made by.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// What this side proves with who it is, and by which it knows others.
    pub credentials: Credentials,
    /// Who may do what.
    pub authorisation: Authorisation,
    /// When a sender takes its next key.
    pub update: UpdateLimits,
    /// Which endpoint this is.
    pub own: EndpointId,
}

/// What [`SealedStream::open_ahead`](crate::SealedStream::open_ahead) found.
#[derive(Debug, PartialEq, Eq)]
pub enum Ahead<'r> {
    /// What was in the record.
    Opened(&'r mut [u8]),
    /// The peer has not sealed that at this position of the stream.
    Forged,
    /// It can be opened once [`SealedStream::advance`](crate::SealedStream::advance) has gone beyond the records of the key before.
    Later,
}
