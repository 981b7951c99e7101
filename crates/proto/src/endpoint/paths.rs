//! Two paths to one peer: which one a datagram came by, and how the second becomes known.

use crate::conn::Conn;
use crate::conn::path::{FIRST, SECOND};
use crate::wire::PathBody;
use crate::{Address, PathState, PeerFault, Time};

/// By which path a datagram of this connection came from there; `None`: it is none of them.
#[inline]
pub(super) fn path_from(conn: &Conn, from: Address) -> Option<u8> {
    if conn.base.peer == from {
        return Some(FIRST);
    }
    let bond = conn.active.as_deref()?.paths.bond.as_deref()?;
    (bond.to == Some(from)).then_some(SECOND)
}

/// A peer asks from an address that is not known: is it the second path of a bonded connection that has none yet?
///
/// A proved path never moves: whoever repeats a datagram from elsewhere changes nothing. One that is not proved gives way
/// to whoever asks later, or someone could take its place for good by a question that he never answers for.
//= wire.md R-PATH-3
pub(super) fn learn_path(
    conn: &mut Conn,
    from: Address,
    body: &[u8],
    now: Time,
    draw: impl FnOnce() -> u64,
) -> Result<u8, PeerFault> {
    let bond = conn.active.as_deref_mut().and_then(|active| active.paths.bond.as_deref_mut());
    let alike = conn.base.peer.is_secured() == from.is_secured();
    let bond = bond.filter(|bond| alike && !bond.dialed && bond.paths[1].state == PathState::Unproved);
    match (bond, PathBody::parse(body)) {
        (Some(bond), Ok(asked)) if asked.challenge != 0 => {
            bond.learn(from, draw(), now);
            Ok(SECOND)
        }
        _ => Err(PeerFault::Source),
    }
}

// Only for the bound of what one datagram may cause.
const _: () = assert!(PathBody::BYTES == 16, "R-PATH-2: an answer is as long as its question");
