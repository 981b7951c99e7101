//! The endpoint: all connections, and what they share. Split by event.

mod close;
mod elsewhere;
mod handshake;
mod handshakes;
mod idle;
mod in_parts;
mod on_ack;
mod on_data;
mod on_datagram;
mod parts;
mod paths;
mod replies;
mod rma;
mod send;
mod shared;
#[cfg(test)]
mod tests;
mod timeout;
mod transmit;
mod unended;
use crate::conn::ActiveConn;
use crate::conn::table::Table;
use crate::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, INDEX_MAX};
use crate::secret::Secret;
use crate::{
    Address, Config, ConfigError, ConnKey, ConnState, ConnectionInfo, Counters, MemoryUse, Time, Unknown,
};

use handshakes::Handshakes;
use replies::Replies;
use shared::Shared;

/// One side of any number of connections. Driven by its owner: it never waits and never calls the system.
///
/// The owner calls [`Endpoint::handle_datagram`] for what arrives, [`Endpoint::handle_timeout`] when
/// [`Endpoint::next_deadline`] has passed, and after either, and after sends, [`Endpoint::poll_transmit`].
pub struct Endpoint {
    table: Table,
    shared: Shared,
    handshakes: Handshakes,
    replies: Replies,
    secret: Secret,
    /// The latest time that a datagram brought.
    seen: Time,
    walk: idle::Walk,
}

impl Endpoint {
    /// Makes an endpoint. The packet buffers and the room for sends are allocated here; the connection table and
    /// the states of active connections grow with their number, under `memory_bytes_max`.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        let size = config.datagram_bytes_max;
        if !size.is_multiple_of(8) || !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&size) {
            return Err(ConfigError::DatagramBytes);
        }
        let counts = [config.connections_max, config.requests_max, config.sends_max, config.operations_max];
        if counts.iter().any(|&count| count == 0 || count > INDEX_MAX) {
            return Err(ConfigError::Count);
        }
        let mut secret = Secret::new(&config.secret);
        Ok(Endpoint {
            table: Table::new(config.connections_max),
            handshakes: Handshakes::new(secret.table_hash(), config.requests_max, config.memory_bytes_max),
            replies: Replies::new().ok_or(ConfigError::OutOfMemory { bytes: 64 << 10 })?,
            shared: Shared::new(config)?,
            secret,
            seen: Time(0),
            walk: idle::Walk::new(),
        })
    }

    /// When `handle_timeout` is to be called at the latest; `None`: nothing is pending. May be earlier than what is
    /// really due: then the call only looks.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let at = self.shared.timers.next().unwrap_or(Time::FAR).min(self.walk.due);
        (at != Time::FAR).then_some(at)
    }

    /// True if `poll_transmit` has something to do now.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.shared.ready.is_empty() || !self.replies.is_empty()
    }

    /// True if nothing that was sent on a connection waits to leave or to be acknowledged; also if the key names
    /// none.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, key: ConnKey) -> bool {
        let active = self.table.get(key).and_then(|conn| conn.active.as_deref());
        active.is_none_or(|active| active.tx.is_empty() && active.operations() == 0)
    }

    /// A connection seen from outside; `None` if the key names none.
    #[must_use]
    pub fn connection(&self, key: ConnKey) -> Option<ConnectionInfo> {
        let conn = self.table.get(key)?;
        let active = conn.active.as_deref();
        let idle_window_bytes = u64::from(conn.base.idle_window.kib()) << 10;
        Some(ConnectionInfo {
            attribute: conn.base.attribute,
            state: conn.base.state,
            heard: conn.base.state != ConnState::Dialing
                || active.and_then(|active| active.dial.as_deref()).is_some_and(|dial| dial.cookie.is_some()),
            peer: conn.base.peer,
            token: conn.base.token,
            message_bytes_max: conn.base.message_bytes_max(),
            datagram_bytes_max: conn.base.datagram_bytes,
            rtt_ns: active
                .map_or(conn.base.idle_rtt.ns(), |active| active.best_path().rtt.smoothed_ns_or_zero()),
            rtt_ns_min: active.map_or(0, |active| active.best_path().rtt.min_ns()),
            congestion_window_bytes: active
                .map_or(idle_window_bytes, |active| u64::from(active.window_bytes())),
            peer_window_bytes: u64::from(conn.base.peer_window_kib) << 10,
            in_flight_bytes: active.map_or(0, |active| u64::from(active.in_flight_bytes())),
            bundles_unacked: active.map_or(0, |active| active.tx.len()),
            bundles_held: active.map_or(0, |active| active.rx.held),
            send_timeout_ns: self.shared.send_timeout_ns(conn.base.send_timeout_ms),
            keepalive_ns: active.map_or(0, |active| active.keepalive_ns),
            blocked: active.and_then(|active| active.blocked),
            counters: active.map(|active| active.counters).unwrap_or_default(),
        })
    }

    /// The nonce that the peer's datagrams carry, to be checked before they get here; `None` if the key names no
    /// connection.
    #[must_use]
    pub fn nonce(&self, key: ConnKey) -> Option<u64> {
        self.table.get(key).map(|conn| conn.base.nonce)
    }

    /// Sets how long a send on this connection may take, in nanoseconds (kept in milliseconds, rounded up);
    /// 0: the endpoint's default. Holds for sends that are already waiting, too.
    pub fn set_send_timeout(&mut self, key: ConnKey, timeout_ns: u64) -> Result<(), Unknown> {
        let conn = self.table.get_mut(key).ok_or(Unknown)?;
        conn.base.send_timeout_ms = timeout_ns.div_ceil(1_000_000).min(u64::from(u32::MAX)) as u32;
        if let Some(active) = conn.active.as_deref_mut()
            && (!active.tx.is_empty() || active.operations() != 0)
        {
            active.send_due = Time(0); // looked at, and set right, at once
            self.shared.arm(active);
        }
        Ok(())
    }

    /// Sets after how much silence, in nanoseconds, `KeepaliveTimedOut` is raised; 0: never. From half of it on
    /// the peer is asked. A connection with keepalive on does not give its active state back.
    pub fn set_keepalive(&mut self, now: Time, key: ConnKey, keepalive_ns: u64) -> Result<(), Unknown> {
        let conn = self.table.get_mut(key).ok_or(Unknown)?;
        let conn = if keepalive_ns == 0 {
            conn.awake()
        } else {
            Some(self.shared.wake(conn, key.index, now).ok_or(Unknown)?)
        };
        if let Some(ActiveConn { base, active, .. }) = conn {
            active.start_keepalive(now, keepalive_ns, base.state);
            self.shared.arm(active);
        }
        Ok(())
    }

    /// Sets the send timeout of connections that have none of their own, in nanoseconds; 0: the built-in default.
    pub fn set_default_send_timeout(&mut self, timeout_ns: u64) {
        self.shared.config.send_timeout_ns = timeout_ns;
    }

    /// Sets the keepalive of connections made from now on, in nanoseconds; 0: off.
    pub fn set_default_keepalive(&mut self, keepalive_ns: u64) {
        self.shared.config.keepalive_ns = keepalive_ns;
    }

    /// How many connections there are, in whatever state.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.table.used()
    }

    /// Sends that have not completed, silent ones included.
    #[must_use]
    pub fn sends_in_progress(&self) -> u32 {
        self.shared.sends.in_progress()
    }

    /// Sends of a connection that have not completed, the silent ones included.
    #[must_use]
    pub fn sends_held_by(&self, key: ConnKey) -> u32 {
        self.table.get(key).and_then(|conn| conn.active.as_deref()).map_or(0, |active| active.tx.sends)
    }

    /// Whether the peer says that its program has no receive buffer free.
    #[must_use]
    pub fn is_refused(&self, key: ConnKey) -> bool {
        self.table.get(key).and_then(|conn| conn.active.as_deref()).is_some_and(|active| active.rnr)
    }

    /// Of the memory cap, the bytes that can be lent to somebody else for now. One part in `kept_share` of the cap is not.
    #[must_use]
    pub fn spare_bytes(&self, kept_share: u64) -> u64 {
        let kept_bytes = self.shared.config.memory_bytes_max / kept_share;
        self.shared.left_bytes().saturating_sub(kept_bytes)
    }

    /// Of the memory cap, somebody else has so many bytes from now on: no more than [`Endpoint::spare_bytes`] and what it had.
    pub fn lend(&mut self, bytes: u64) {
        self.shared.lent_bytes = bytes;
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// What is held now, in bytes by kind.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.shared.memory()
    }

    /// The path to `to` carries only datagrams of this size: later bundles are smaller, older bigger ones go with
    /// fragmentation allowed. Looks at every connection, so not for every packet.
    pub fn path_mtu_changed(&mut self, now: Time, to: Address, datagram_bytes_max: u16) {
        let bytes = (datagram_bytes_max & !7).max(DATAGRAM_BYTES_MIN);
        for index in self.table.indices() {
            if let Some(conn) = self.table.at_mut(index)
                && conn.base.state != ConnState::Free
                && conn.leads_to(to)
            {
                self.shared.counters.paths_narrowed += u64::from(bytes < conn.base.datagram_bytes);
                conn.base.datagram_bytes = conn.base.datagram_bytes.min(bytes);
                if matches!(conn.base.state, ConnState::Dialing | ConnState::Accepting) {
                    // How long messages may be has not been told yet.
                    conn.base.bundle_bytes = conn.base.datagram_bytes;
                }
                if let Some(active) = conn.active.as_deref_mut() {
                    active.size.was_told(now);
                }
            }
        }
    }
}
