//! Ranks that have ended, as the launcher shows them: what follows for connections with them.
//!
//! Shared memory and TCP say at once that a process has ended. Over datagrams one that is silent may just be computing, so that only the launcher
//! knows. A rank that survives others looks at its table now and then. Connections with a rank that has ended get a grace, in which what it
//! has sent still arrives. Then what is under way to it fails, and the connection is disconnected if it has not ended by that. A death is
//! reported without a connection, too: this rank may wait for something that only a chain of other ranks would bring.

#[cfg(test)]
mod tests;

use super::connections::Connections;
use super::event::RankEvent;
use super::peer::Peer;
use crate::ended::{Ended, Known};
use crate::limits::{ENDED_GRACE, ENDED_LOOK_EVERY, ENDED_PARTING, ENDED_PARTING_MAX, POLLS_PER_CLOCK};
use cci::{ConnectFailure, Connection, DisconnectReason, Endpoint};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is under way when the grace is over fails after so long: at once, but not without a look for what has come meanwhile.
const NO_TIME: Duration = Duration::from_millis(1);

/// Looks at the launcher's table.
pub struct Watch {
    ended: Arc<Ended>,
    known: Known,
    polls: u32,
    /// When something is to be done next.
    next_at: Instant,
    /// When the table is looked at next.
    look_at: Instant,
    /// Open connections with ranks that have ended.
    parting: Vec<Parting>,
    /// Ranks that have died, and when that is reported.
    reports: Vec<(Instant, u32)>,
    /// What follows, and nobody has got yet.
    events: VecDeque<RankEvent>,
}

struct Parting {
    peer: Peer,
    connection: Connection,
    /// When its grace is over.
    grace_end: Instant,
    stage: Stage,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Stage {
    /// What the rank has sent may still arrive.
    Grace,
    /// What was under way fails.
    Failing,
    /// It is disconnected as soon as the program has got all events that are there.
    Over,
}

impl Watch {
    pub fn new(ended: Arc<Ended>) -> Watch {
        let now = Instant::now();
        let (known, parting, reports, events) = (Known::default(), Vec::new(), Vec::new(), VecDeque::new());
        Watch { ended, known, polls: 0, next_at: now, look_at: now, parting, reports, events }
    }

    /// Whether the rank has ended, as far as this one knows.
    pub fn has_ended(&self, rank: u32) -> bool {
        self.known.has(rank)
    }

    /// Counts a poll. Returns whether it is one of those with which the clock is read.
    #[inline]
    pub fn counts(&mut self) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_PER_CLOCK)
    }

    /// Whether there is something for the program, or will be once it has got all else.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.events.is_empty() || self.parting.iter().any(|parting| parting.stage == Stage::Over)
    }

    /// Does what is due. Returns how long until something is due again; none where this rank does not survive others, or is the last one.
    pub fn look(&mut self, connections: &mut Connections, endpoint: &mut Endpoint) -> Option<Duration> {
        if !self.ended.is_wanted() || self.is_over(connections) {
            return None;
        }
        let now = Instant::now();
        if now >= self.next_at {
            self.look_at_table(connections, now);
            self.part(connections, endpoint, now);
            self.report_due(now);
            let parting = self.parting.iter().filter_map(Parting::next_at);
            // One that is due waits for the ends of connections.
            let reports = self.reports.iter().map(|&(due, _)| due).filter(|&due| due > now);
            self.next_at = parting.chain(reports).fold(self.look_at, Instant::min);
        }
        Some(self.next_at.saturating_duration_since(now))
    }

    /// Whether all other ranks have ended, and nothing follows from that any more.
    fn is_over(&self, connections: &Connections) -> bool {
        let others = u64::from(connections.size()).saturating_sub(1);
        self.known.count() >= others && self.parting.is_empty() && self.reports.is_empty()
    }

    fn look_at_table(&mut self, connections: &mut Connections, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + ENDED_LOOK_EVERY;
        let Watch { ended, known, parting, reports, events, .. } = self;
        ended.look(known, |rank, has_died| {
            if has_died {
                reports.push((now + ENDED_GRACE + ENDED_PARTING, rank));
            }
            for (peer, connection) in connections.give_up(rank) {
                match connection {
                    Some(connection) => parting.push(Parting {
                        peer,
                        connection,
                        grace_end: now + ENDED_GRACE,
                        stage: Stage::Grace,
                    }),
                    None => events.push_back(failed(peer)),
                }
            }
        });
    }

    /// Reports ranks that have died, each behind the ends of all connections with it.
    fn report_due(&mut self, now: Instant) {
        let Watch { parting, reports, events, .. } = self;
        let is_parting = |rank| parting.iter().any(|parting| parting.peer.rank() == rank);
        for (_, rank) in reports.extract_if(.., |&mut (due, rank)| due <= now && !is_parting(rank)) {
            events.push_back(RankEvent::Died { rank });
        }
    }

    fn part(&mut self, connections: &mut Connections, endpoint: &mut Endpoint, now: Instant) {
        // Most connections end by themselves.
        self.parting.retain(|parting| connections.get(parting.peer) == Some(parting.connection));
        for parting in &mut self.parting {
            let since = now.saturating_duration_since(parting.grace_end);
            if parting.stage == Stage::Grace && now >= parting.grace_end {
                parting.stage = Stage::Failing;
                // A connection that is unknown now has ended, and an event says so.
                let _ = endpoint.set_send_timeout(parting.connection, NO_TIME);
            }
            if parting.stage == Stage::Failing && since >= ENDED_PARTING {
                parting.stage = Stage::Over;
            }
        }
        if self.parting.iter().any(|parting| parting.is_late(now)) {
            self.end(connections, endpoint);
        }
    }

    /// Ends what is over. The program has got all other events, or there is no end of them.
    pub fn end(&mut self, connections: &mut Connections, endpoint: &mut Endpoint) {
        let Watch { parting, events, .. } = self;
        parting.retain(|&Parting { peer, connection, stage, .. }| {
            if stage != Stage::Over {
                return true;
            }
            if connections.get(peer) == Some(connection) {
                connections.closed(peer, connection);
                endpoint.disconnect(connection);
                events.push_back(RankEvent::Ended { peer, connection, reason: DisconnectReason::Died });
            }
            false
        });
    }

    /// The program has asked for a connection with a rank that has ended.
    pub fn refuse(&mut self, peer: Peer) {
        let is_said =
            |event: &RankEvent| matches!(event, RankEvent::Failed { peer: failed, .. } if *failed == peer);
        if !self.events.iter().any(is_said) {
            self.events.push_back(failed(peer));
        }
    }

    pub fn next_event(&mut self) -> Option<RankEvent> {
        self.events.pop_front()
    }
}

impl Parting {
    /// When its next stage comes.
    fn next_at(&self) -> Option<Instant> {
        match self.stage {
            Stage::Grace => Some(self.grace_end),
            Stage::Failing => Some(self.grace_end + ENDED_PARTING),
            Stage::Over => Some(self.grace_end + ENDED_PARTING_MAX),
        }
    }

    /// Whether other events have kept its end from the program for too long.
    fn is_late(&self, now: Instant) -> bool {
        self.stage == Stage::Over && now >= self.grace_end + ENDED_PARTING_MAX
    }
}

fn failed(peer: Peer) -> RankEvent {
    RankEvent::Failed { peer, why: ConnectFailure::Disconnected }
}
