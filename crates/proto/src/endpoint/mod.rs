//! The endpoint: all connections, and what they share.

use crate::{
    AcceptError, Address, Attribute, Config, ConfigError, ConnKey, ConnectError, ConnectionInfo, Counters,
    Memory, Request, RequestTicket, SendError, Sink, Time, Transmit, Unknown,
};

/// One side of any number of connections. Driven by its owner: it never waits, never calls the system.
pub struct Endpoint {
    config: Config,
    counters: Counters,
}

impl Endpoint {
    /// Makes an endpoint. All memory of the data path is allocated here; the connection table grows with the
    /// connections.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        Ok(Endpoint { config, counters: Counters::default() })
    }

    /// Starts a connection. Ends in exactly one `Event::Connected` or `Event::ConnectFailed` with `token`.
    /// `timeout_ns` `None`: asks for ever, ever more rarely.
    pub fn connect(
        &mut self,
        now: Time,
        to: Address,
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        let _ = (now, to, request, attribute, token, timeout_ns);
        Err(ConnectError::NoMemory)
    }

    /// Accepts a request, which may have come to another endpoint (then tell that one by `request_taken`). Ends
    /// in exactly one `Event::Accepted` or `Event::AcceptFailed` with `token`.
    pub fn accept(
        &mut self,
        now: Time,
        request: Request,
        token: u64,
    ) -> Result<ConnKey, (AcceptError, Request)> {
        let _ = (now, token);
        Err((AcceptError::NoMemory, request))
    }

    /// Refuses a request; the client learns it.
    pub fn reject(&mut self, now: Time, request: Request) {
        let _ = (now, request);
    }

    /// Another endpoint accepted this request: repeats of it are ignored from now on.
    pub fn request_taken(&mut self, ticket: RequestTicket) {
        let _ = ticket;
    }

    /// Closes a connection in an orderly way: what was sent before is still delivered or times out, then the
    /// peer is told. The key is dead to `send` at once; `Event::Closed` when all is over.
    pub fn disconnect(&mut self, now: Time, conn: ConnKey) -> Result<(), Unknown> {
        let _ = (now, conn);
        Err(Unknown)
    }

    /// Queues one message made of `segments`, copied before return. Reliable: completes when the peer has stored
    /// it; unreliable: when it has left. `silent`: no completion event.
    pub fn send(
        &mut self,
        now: Time,
        conn: ConnKey,
        segments: &[&[u8]],
        context: u64,
        silent: bool,
    ) -> Result<(), SendError> {
        let _ = (now, conn, segments, context, silent);
        Err(SendError::Unknown)
    }

    /// Takes one datagram from the network. Never panics; a bad one is a counter and nothing else.
    pub fn handle_datagram(&mut self, now: Time, from: Address, datagram: &[u8], sink: &mut impl Sink) {
        let _ = (now, from, datagram, sink);
    }

    /// Does what is due by `now`. Call it when `next_deadline` has passed.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        let _ = (now, sink);
    }

    /// When `handle_timeout` is to be called at the latest; `None`: nothing is pending.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Receive buffers came back: held messages are delivered, and senders that were told receiver-not-ready may
    /// go on.
    pub fn buffers_returned(&mut self, now: Time, sink: &mut impl Sink) {
        let _ = (now, sink);
    }

    /// Writes datagrams while the carrier has room, round robin over the connections that have something to send.
    pub fn poll_transmit(&mut self, now: Time, out: &mut impl Transmit, sink: &mut impl Sink) {
        let _ = (now, out, sink);
    }

    /// True if `poll_transmit` has something to do now.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        false
    }

    /// A connection seen from outside; `None` if the key names none.
    #[must_use]
    pub fn connection(&self, conn: ConnKey) -> Option<ConnectionInfo> {
        let _ = conn;
        None
    }

    /// Sets how long a send on this connection may take, in nanoseconds; 0: the endpoint's default.
    pub fn set_send_timeout(&mut self, conn: ConnKey, timeout_ns: u64) -> Result<(), Unknown> {
        let _ = (conn, timeout_ns);
        Err(Unknown)
    }

    /// Sets after how much silence, in nanoseconds, the peer is asked whether it lives; 0: never.
    pub fn set_keepalive(&mut self, now: Time, conn: ConnKey, keepalive_ns: u64) -> Result<(), Unknown> {
        let _ = (now, conn, keepalive_ns);
        Err(Unknown)
    }

    /// Sets the send timeout of connections that have none of their own, in nanoseconds; 0: the built-in default.
    pub fn set_default_send_timeout(&mut self, timeout_ns: u64) {
        self.config.send_timeout_ns = timeout_ns;
    }

    /// Sets the keepalive of connections made from now on, in nanoseconds; 0: off.
    pub fn set_default_keepalive(&mut self, keepalive_ns: u64) {
        self.config.keepalive_ns = keepalive_ns;
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is held now, in bytes by kind.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory::default()
    }

    /// The path to `to` carries only datagrams of this size: later bundles are smaller, older bigger ones go with
    /// fragmentation allowed.
    pub fn path_mtu_changed(&mut self, now: Time, to: Address, datagram_bytes_max: u16) {
        let _ = (now, to, datagram_bytes_max);
    }
}
