//! Attempts to connect that somebody follows: one who tries several ways to a peer, one after the other, and decides what the program
//! hears. What becomes of such an attempt is recorded here, and its failure goes no further.

use crate::ConnectFailure;
use crate::connection::Connection;
use std::collections::HashMap;

/// Who has answered an attempt.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nobody yet.
    #[default]
    None,
    /// The peer's library: what it says from now on is the peer's word.
    Peer,
    /// Somebody else than the peer.
    Stranger,
}

/// What became of an attempt.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Outcome {
    pub connection: Connection,
    /// `None`: the connection is open, and the program knows. Otherwise the handle is gone.
    pub failure: Option<(Answer, ConnectFailure)>,
}

/// The attempts that are followed. Empty on endpoints that have one way to connect.
#[derive(Default)]
pub(crate) struct Attempts {
    /// By the connection's handle.
    followed: HashMap<u64, Answer>,
    outcomes: Vec<Outcome>,
}

impl Attempts {
    /// What becomes of this attempt is recorded from now on.
    pub fn follow(&mut self, connection: Connection) {
        self.followed.insert(connection.to_bits(), Answer::None);
    }

    /// The attempt is given up: nothing is recorded of it any more.
    pub fn leave(&mut self, connection: Connection) {
        self.followed.remove(&connection.to_bits());
    }

    /// Notes who has answered.
    pub(super) fn answered(&mut self, connection: Connection, by: Answer) {
        if let Some(answer) = self.followed.get_mut(&connection.to_bits()) {
            *answer = by;
        }
    }

    /// Who has answered so far.
    pub fn answer(&self, connection: Connection) -> Answer {
        self.followed.get(&connection.to_bits()).copied().unwrap_or_default()
    }

    /// The connection is open.
    pub(super) fn opened(&mut self, connection: Connection) {
        if self.followed.remove(&connection.to_bits()).is_some() {
            self.outcomes.push(Outcome { connection, failure: None });
        }
    }

    /// The attempt has failed. False: nobody follows it, and the program has to get the event.
    pub(super) fn failed(&mut self, connection: Connection, why: ConnectFailure) -> bool {
        let Some(answer) = self.followed.remove(&connection.to_bits()) else { return false };
        self.outcomes.push(Outcome { connection, failure: Some((answer, why)) });
        true
    }

    /// Something was recorded that nobody has looked at.
    #[inline]
    pub fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// One of them.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop()
    }
}
