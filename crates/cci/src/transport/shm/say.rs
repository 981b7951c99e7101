//! What a link says that is not a message: whether we are there, and that a connection ends.

use super::link::Link;
use super::out::Control;
use super::table::Conn;
use super::wire::{PeerConn, kind};
use cci_memory::ring::Corrupt;

pub(super) const NOBODY: PeerConn = PeerConn { index: u32::MAX, generation: 0 };

/// Answers a PING. Not if the ring is full: then the peer hears of us by our reading.
pub(super) fn say_pong(link: &mut Link) -> Result<(), Corrupt> {
    if !link.out.control.is_empty() {
        return Ok(());
    }
    link.say(Control::about(kind::PONG, NOBODY, NOBODY))
}

pub(super) fn say_ping(link: &mut Link) -> Result<(), Corrupt> {
    if !link.out.control.is_empty() {
        return Ok(());
    }
    link.say(Control::about(kind::PING, NOBODY, NOBODY))
}

/// Says that nothing more comes for a connection.
pub(super) fn say_close(link: &mut Link, conn: &Conn) -> Result<(), Corrupt> {
    link.say(Control::about(kind::CLOSE, peer_of(conn), NOBODY))
}

/// A connection as its peer names it.
pub(super) fn peer_of(conn: &Conn) -> PeerConn {
    PeerConn { index: conn.peer_index, generation: u32::from(conn.peer_generation) }
}
