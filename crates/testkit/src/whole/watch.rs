//! What a test may see of a run while it goes on.

use super::judge::Judge;
use super::machine::Host;
use super::network::Net;
use super::scenario::End;
use super::side::Side;
use cci::{Endpoint, Explanation, Status};

/// A run at one moment.
pub struct Watched<'a> {
    pub(super) judge: &'a Judge,
    pub(super) hosts: &'a mut [Host],
    pub(super) net: &'a Net,
    pub(super) now_ns: u64,
}

/// Whoever looks at a run, and when.
pub(super) struct Watch<'a> {
    pub at_ns: &'a [u64],
    pub look: &'a mut dyn FnMut(usize, Watched<'_>),
}

impl Watched<'_> {
    /// The simulation's clock, nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Datagrams that were sent and that were lost so far, and of those the ones that found the queue of a link full.
    #[must_use]
    pub fn datagrams(&self) -> [u64; 3] {
        [self.net.sent, self.net.lost, self.net.overflowed]
    }

    fn side(&self, talk: u32, end: End) -> Option<&Side> {
        self.judge.sides.get(self.judge.side_of(talk, end)?)
    }

    /// How many messages of one end of a talk have come so far, and how many bytes.
    #[must_use]
    pub fn delivered(&self, talk: u32, end: End) -> (u64, u64) {
        self.side(talk, end).map_or((0, 0), |side| side.delivered)
    }

    /// How many messages one end of a talk has sent so far.
    #[must_use]
    pub fn sent(&self, talk: u32, end: End) -> u64 {
        self.side(talk, end).map_or(0, |side| side.flow.sent.len() as u64)
    }

    /// How many sends and operations of one end of a talk have not ended.
    #[must_use]
    pub fn outstanding(&self, talk: u32, end: End) -> u64 {
        self.side(talk, end).map_or(0, |side| side.outstanding)
    }

    /// How the sends and operations of one end of a talk ended so far, and when.
    #[must_use]
    pub fn ended(&self, talk: u32, end: End) -> Vec<(u64, Status)> {
        self.side(talk, end).map_or_else(Vec::new, |side| side.ended.clone())
    }

    /// How many operations of one end of a talk have completed.
    #[must_use]
    pub fn operations_ended(&self, talk: u32, end: End) -> usize {
        let work = self.side(talk, end).and_then(|side| side.work.as_ref());
        work.map_or(0, |work| work.ops.iter().filter(|op| op.sent.status.is_some()).count())
    }

    /// How often the keepalive of one end of a talk may still time out.
    #[must_use]
    pub fn keepalives_left(&self, talk: u32, end: End) -> u32 {
        self.side(talk, end).map_or(0, |side| side.keepalives)
    }

    /// Whether the attempt to connect, or to accept, of this end has not ended (None), succeeded or failed.
    #[must_use]
    pub fn is_connected(&self, talk: u32, end: End) -> Option<bool> {
        use super::side::Life;
        match self.side(talk, end)?.life {
            Life::Pending => None,
            Life::Failed => Some(false),
            Life::Up | Life::Closed | Life::Crashed => Some(true),
        }
    }

    /// What one end's endpoint says of its connection.
    #[must_use]
    pub fn explain(&self, talk: u32, end: End) -> Option<Explanation> {
        let side = self.side(talk, end)?;
        self.hosts[side.machine].endpoint.as_ref()?.explain(side.connection?)
    }

    /// A machine's endpoint, while there is one.
    pub fn endpoint(&mut self, machine: usize) -> Option<&mut Endpoint> {
        self.hosts[machine].endpoint.as_mut()
    }

    /// One of the counters of a machine's device.
    pub fn counter(&mut self, machine: usize, name: &str) -> u64 {
        let counters = self.endpoint(machine).map(|endpoint| endpoint.counters().device.clone());
        let found = counters.into_iter().flatten().find(|(of, _)| *of == name);
        found.map_or(0, |(_, count)| count)
    }
}
