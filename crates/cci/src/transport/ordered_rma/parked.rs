//! A flow on which nothing moves gives its memory to others, and leaves behind what the peer still relies on: a few bits for each
//! slot. So a peer that has begun something, and goes on with it later or never, costs no more than one that is idle.

use super::flow::Flow;
use super::slots::{Job, Slot};

/// What is left of a flow while another connection has its memory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parked {
    /// Slots of this side whose operations have ended, and whose answers are still to come.
    abandoned: u128,
    /// Slots of the peer's in which writes have come, and more will; and of these, those that were refused.
    writes: u128,
    refused: u128,
}

impl Flow {
    /// What has to be kept of it, if that is so little. None: something is to be done, or is awaited, that needs more.
    pub fn parked(&self) -> Option<Parked> {
        let is_quiet = self.ops == 0 && !self.has_work() && self.held == 0 && self.holding.is_empty();
        if !is_quiet {
            return None;
        }
        let mut parked = Parked::default();
        for slot in bits(!self.free) {
            match self.slot(slot) {
                Slot::Abandoned => parked.abandoned |= 1 << slot,
                Slot::Free => {}
                _ => return None,
            }
        }
        for slot in bits(self.busy) {
            match self.job(slot) {
                Job::Writes { refused } => {
                    parked.writes |= 1 << slot;
                    parked.refused |= u128::from(refused) << slot;
                }
                Job::Free => {}
                _ => return None,
            }
        }
        Some(parked)
    }

    /// Goes on where a flow was parked. This one is new.
    pub fn resume(&mut self, parked: Parked) {
        for slot in bits(parked.abandoned) {
            self.set_slot(slot, Slot::Abandoned);
        }
        for slot in bits(parked.writes) {
            self.set_job(slot, Job::Writes { refused: parked.refused & 1 << slot != 0 });
        }
    }

    /// What reads of the peer's are still to be sent, bytes.
    pub fn unsent_bytes(&self) -> u64 {
        let left = |slot: &u16| match self.job(*slot) {
            Job::Read { len_bytes, sent_bytes, .. } => len_bytes - sent_bytes,
            _ => 0,
        };
        self.line.iter().map(left).fold(0, u64::saturating_add)
    }
}

/// The numbers of the bits that are set.
fn bits(mut set: u128) -> impl Iterator<Item = u16> {
    std::iter::from_fn(move || {
        let at = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (at < u128::BITS).then_some(at as u16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Connection;
    use crate::transport::ordered_rma::Flows;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_parked_goes_on(abandoned: u128, writes: u128, refused: u128) {
            let mut flows = Flows::new(1);
            let key = flows.lend(Connection { index: 0, generation: 0 }, 0).unwrap();
            let (flow, _) = flows.get_mut(key).unwrap();
            prop_assert_eq!(flow.parked(), Some(Parked::default()));
            let parked = Parked { abandoned, writes, refused: refused & writes };
            flow.resume(parked);
            prop_assert_eq!(flow.parked(), Some(parked));
            prop_assert_eq!(flow.is_idle(), abandoned | writes == 0);
        }
    }

    #[test]
    fn what_is_under_way_is_not_parked() {
        let mut flows = Flows::new(1);
        let key = flows.lend(Connection { index: 0, generation: 0 }, 0).unwrap();
        let (flow, _) = flows.get_mut(key).unwrap();
        for job in [Job::Hold, Job::Held, Job::Again, Job::Done(Ok(None))] {
            flow.set_job(3, job);
            assert_eq!(flow.parked(), None, "{job:?}");
            flow.set_job(3, Job::Free);
            flow.answers = 0;
        }
        flow.set_slot(5, Slot::Atomic { op: 0 });
        assert_eq!(flow.parked(), None);
    }
}
