//! A connection: 88 bytes while idle, and what it borrows while active.

pub(crate) mod active;
pub(crate) mod path;
pub(crate) mod paths;
pub(crate) mod send_timeouts;
pub(crate) mod size;
pub(crate) mod split;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod unended;

use crate::limits::message_bytes_max;
use crate::wire::Accept;
use crate::{Address, Attribute, ConnKey, ConnState, Seq, Time};

pub(crate) use active::Active;
use path::FIRST;

/// A connection as the table holds it.
pub(crate) struct Conn {
    pub base: Base,
    /// What it borrows while something is going on.
    pub active: Option<Box<Active>>,
}

/// What a connection always has: all that an idle one needs.
pub(crate) struct Base {
    pub peer: Address,
    /// What proves that a datagram to us belongs to this connection.
    pub nonce: u64,
    /// What proves to the peer that a datagram belongs to this connection.
    pub peer_nonce: u64,
    pub token: u64,
    pub peer_index: u32,
    pub peer_generation: u32,
    pub generation: u32,
    /// Next bundle to send, while idle.
    pub idle_tx: Seq,
    /// Next bundle to come, while idle.
    pub idle_rx: Seq,
    /// Smoothed round trip while idle.
    pub idle_rtt: IdleRtt,
    /// The largest datagram that the path is known to take, in bytes.
    pub datagram_bytes: u16,
    /// The longest bundle, as a datagram: the smaller of the two sides'.
    pub bundle_bytes: u16,
    /// The receiver-not-ready epoch in which we send.
    pub tx_epoch: u16,
    /// The epoch in which we take data.
    pub rx_epoch: u16,
    /// What the peer lets be in flight.
    pub peer_window_kib: u16,
    /// Congestion window while idle, and whether the peer was heard of.
    pub idle_window: IdleWindow,
    pub state: ConnState,
    pub attribute: Attribute,
}

/// An active connection: found once in each call, where the call begins, and passed to whatever needs one.
pub(crate) struct ActiveConn<'a> {
    pub base: &'a mut Base,
    pub active: &'a mut Active,
}

impl ActiveConn<'_> {
    #[inline]
    pub fn key(&self) -> ConnKey {
        self.base.key(self.active.index)
    }

    /// True if this side has closed, and nothing of its own is still to be answered.
    #[inline]
    pub fn takes_no_more(&self) -> bool {
        match self.base.state {
            ConnState::Closing => true,
            ConnState::Lingering => self.active.operations() == 0,
            _ => false,
        }
    }

    /// Where a path leads.
    #[inline]
    pub fn address(&self, which: u8) -> Address {
        let second = || self.active.paths.bond.as_deref().and_then(|bond| bond.to);
        if which == FIRST { self.base.peer } else { second().unwrap_or(self.base.peer) }
    }
}

/// The congestion window of an idle connection, in KiB, in 15 bits, which is more than is ever restored. The last bit: whether
/// something has come from the peer since the connection was last looked at.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleWindow(u16);

impl IdleWindow {
    const HEARD: u16 = 1 << 15;

    pub fn kib(self) -> u16 {
        self.0 & !IdleWindow::HEARD
    }

    pub fn set_kib(&mut self, kib: u16) {
        self.0 = self.0 & IdleWindow::HEARD | kib.min(!IdleWindow::HEARD);
    }

    #[inline]
    pub fn note_heard(&mut self) {
        self.0 |= IdleWindow::HEARD;
    }

    pub fn is_heard(self) -> bool {
        self.0 & IdleWindow::HEARD != 0
    }

    /// Whether something has come since the last look; the next look starts anew.
    pub fn take_heard(&mut self) -> bool {
        let heard = self.is_heard();
        self.0 &= !IdleWindow::HEARD;
        heard
    }
}

/// A round-trip time in two bytes, exact to a thousandth: 11 bits shifted left by the upper 5, in units of 64 ns. 0: not measured.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleRtt(u16);

impl IdleRtt {
    pub fn new(rtt_ns: u64) -> IdleRtt {
        let units = (rtt_ns >> 6).min(u64::from(u32::MAX));
        let shift = (64 - units.leading_zeros()).saturating_sub(11);
        IdleRtt((shift << 11) as u16 | (units >> shift) as u16)
    }

    pub fn ns(self) -> u64 {
        (u64::from(self.0 & 0x7ff) << (self.0 >> 11)) << 6
    }
}

const _: () = {
    assert!(size_of::<Conn>() <= 88, "a whole idle connection");
    assert!(size_of::<Active>() <= 768, "an active one without its windows");
};

/// What a connection has to send besides data.
pub(crate) mod want {
    /// An acknowledgement that leaves now.
    pub const ACK: u8 = 1;
    /// The next step of asking for a connection.
    pub const DIAL: u8 = 2;
    pub const ACCEPT: u8 = 4;
    /// A question that asks for an answer: keepalive, receiver-not-ready probe, confirmation.
    pub const PING: u8 = 8;
    pub const CLOSE: u8 = 16;
    /// A question or an answer about a path to the peer.
    pub const PATH: u8 = 32;
}

/// A connection being asked for.
pub(crate) struct Dial {
    pub request: Box<[u8]>,
    pub cookie: Option<(u32, u64)>,
    pub give_up_at: Time,
    /// The peer's other address, if it has one: asked in turn with the first until one answers.
    pub other: Option<Address>,
    /// An acceptance that came from elsewhere.
    pub unproved: Option<Unproved>,
}

/// An acceptance from where nothing was asked, until whoever is there has answered.
#[derive(Copy, Clone)]
pub(crate) struct Unproved {
    pub from: Address,
    pub accept: Accept,
    pub challenge: u64,
    /// No question goes out before this.
    pub ask_due: Time,
    pub ask_ns: u64,
}

impl Conn {
    pub fn key(&self, index: u32) -> ConnKey {
        self.base.key(index)
    }

    /// Whether a path of this connection leads there.
    pub fn leads_to(&self, to: Address) -> bool {
        let bond = self.active.as_deref().and_then(|active| active.paths.bond.as_deref());
        self.base.peer == to || bond.is_some_and(|bond| bond.to == Some(to))
    }

    /// The connection with what it has borrowed; `None` while it is idle.
    #[inline]
    pub fn awake(&mut self) -> Option<ActiveConn<'_>> {
        let active = self.active.as_deref_mut()?;
        Some(ActiveConn { base: &mut self.base, active })
    }
}

impl Base {
    pub fn key(&self, index: u32) -> ConnKey {
        ConnKey { index, generation: self.generation }
    }

    /// The longest message: stays what it was when the connection opened, whatever the path takes.
    //= wire.md R-MTU-1
    pub fn message_bytes_max(&self) -> usize {
        message_bytes_max(self.bundle_bytes)
    }

    /// Datagrams for this connection are expected and answered.
    pub fn is_established(&self) -> bool {
        use ConnState::{Accepting, Closing, Lingering, PeerClosed, Up};
        matches!(self.state, Accepting | Up | PeerClosed | Lingering | Closing)
    }

    /// Whether the peer may still be answered.
    pub fn serves(&self) -> bool {
        matches!(self.state, ConnState::Up | ConnState::Lingering)
    }

    pub fn is_ordered(&self) -> bool {
        self.attribute == Attribute::ReliableOrdered
    }
}

#[cfg(test)]
mod tests {
    use super::IdleRtt;

    #[test]
    fn an_idle_round_trip_is_kept_to_a_thousandth() {
        for rtt_ns in [0, 64, 1_000, 131_008, 131_072, 20_000_000, 3_000_000_000, 200_000_000_000] {
            let kept_ns = IdleRtt::new(rtt_ns).ns();
            assert!(kept_ns <= rtt_ns && rtt_ns - kept_ns <= 64 + rtt_ns / 1_000, "{rtt_ns}: {kept_ns}");
        }
        assert!(IdleRtt::new(u64::MAX).ns() > 200_000_000_000);
    }
}
