//! What the program on an interface is asked for, and what it counts.

/// Where the program runs as a frame comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// Behind the driver, for every interface.
    Generic,
}

/// What to do about an interface whose driver has no XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// In the driver where that works, else behind it.
    #[default]
    Auto,
    /// In the driver or not at all.
    Native,
    /// Behind the driver.
    Generic,
}

/// What the program has done with frames of our ethertype on an interface, whoever's they were. The interface has them
/// for as long as the program stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteerCounters {
    /// Left to packet sockets: the endpoint has no ring on that queue.
    pub passed: u64,
    /// Put into an endpoint's ring.
    pub redirected: u64,
    /// Dropped: the nonce is not that of the connection.
    pub wrong_nonce: u64,
    /// Dropped: no such connection.
    pub unknown_connection: u64,
    /// Left alone: for no endpoint of this interface.
    pub no_endpoint: u64,
    /// Too short, or of another version: dropped when they are for an endpoint of this interface, else left alone.
    pub malformed: u64,
}

/// What the program demands of frames that belong to established connections (DATA, ACK, PING, CLOSE, CLOSE_ACK), before
/// they cost the process anything (CCI 2013, IV.B.1: nonce, id and generation). Handshakes always come through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Nothing is checked.
    #[default]
    Nothing,
    /// The nonce, of connections that [`Attachment::connected`](super::Attachment::connected) announced. Frames for others come through, so that the process
    /// can say that they do not exist (RESET).
    Nonce,
    /// Also that there is such a connection: announce it before the peer knows its nonce, or the first frames are lost.
    NonceAndId,
}
