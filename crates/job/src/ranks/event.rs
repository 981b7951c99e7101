//! What happens to ranks.

use super::peer::Peer;
use crate::error::Result;
use cci::{ConnectFailure, Connection, DisconnectReason, Event};

/// What [`super::Ranks`] report. Later versions may report more.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankEvent {
    /// A connection is open, whoever has asked for it.
    Connected {
        /// Which.
        peer: Peer,
        /// Its handle, for calls of the endpoint.
        connection: Connection,
    },
    /// A connection that this rank or its peer has asked for did not open: the rank is dead or does not answer.
    Failed {
        /// Which.
        peer: Peer,
        /// Why.
        why: ConnectFailure,
    },
    /// A connection has ended: its peer has closed or died. Nothing comes from it any more.
    Ended {
        /// Which.
        peer: Peer,
        /// What its handle was.
        connection: Connection,
        /// Why.
        reason: DisconnectReason,
    },
    /// A rank has died: its process has ended, and not with exit code 0. It comes once for each such rank, whether this one was connected
    /// with it or not, if the launcher shows deaths and this rank survives them ([`crate::Job::survive`]). The ends of connections with it come
    /// before.
    Died {
        /// Which.
        rank: u32,
    },
    /// The barrier that [`super::Ranks::barrier`] has started has ended: all ranks have called it, or it fails with [`crate::JobError::Gone`].
    Barrier(Result<()>),
    /// An event of the endpoint: a message, a completion, a failure of the device. [`super::Ranks::peer`] says whose it is.
    Endpoint(Event),
}
