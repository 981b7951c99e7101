//! Starting operations and waiting for their completion.

use super::{Region, STUCK_AFTER_NS};
use crate::client::{Client, no_failure};
use crate::dial;
use crate::failure::{Failure, Outcome};
use crate::signals;
use cci::{Atomic, Event, RegionAddress, RmaError, RmaFlags, Status};
use cci_measure::statistics::Times;
use cci_measure::transfer::Direction;
use cci_sys::clock;

/// What is done over and over: to the `nth` of a batch of places.
pub trait Batch {
    /// Starts it.
    fn start(&self, client: &mut Client, region: &Region, nth: u64) -> Result<(), RmaError>;
}

/// A transfer of so many bytes, one behind the other.
pub struct Transfers {
    /// In which direction.
    pub direction: Direction,
    /// Bytes in each.
    pub size: u64,
}

impl Batch for Transfers {
    #[inline]
    fn start(&self, client: &mut Client, region: &Region, nth: u64) -> Result<(), RmaError> {
        let offset = nth * self.size;
        let (here, there) =
            (RegionAddress::new(region.local, offset), RegionAddress::new(region.remote, offset));
        let endpoint = &mut client.endpoint;
        match self.direction {
            Direction::Write => {
                endpoint.rma_write(region.connection, here, there, self.size, 0, RmaFlags::NONE)
            }
            Direction::Read => {
                endpoint.rma_read(region.connection, here, there, self.size, 0, RmaFlags::NONE)
            }
        }
    }
}

/// An atomic on the first word, or each on one of its own; its result goes to its own word here.
pub struct Atomics {
    /// What.
    pub atomic: Atomic,
    /// The words from here on.
    pub first: u64,
    /// A word for each.
    pub spread: bool,
}

impl Batch for Atomics {
    #[inline]
    fn start(&self, client: &mut Client, region: &Region, nth: u64) -> Result<(), RmaError> {
        let own = (self.first + nth) * 8;
        let target = RegionAddress::new(region.remote, if self.spread { own } else { 0 });
        let result = Some(RegionAddress::new(region.local, own));
        client.endpoint.atomic(region.connection, self.atomic, target, result, 0, RmaFlags::NONE)
    }
}

impl Client {
    /// One after the other, each started when the one before is complete.
    pub(super) fn one_by_one(
        &mut self,
        region: &Region,
        batch: &impl Batch,
        count: u64,
        times: Option<&mut Times>,
    ) -> Outcome {
        let mut ignored = Times::default();
        let times = times.unwrap_or(&mut ignored);
        for nth in 0..count {
            signals::go_on()?;
            let start_ns = clock::now_ns();
            let until_ns = start_ns + STUCK_AFTER_NS;
            while !self.try_start(region, batch, nth)? {
                self.endpoint.progress();
                if clock::now_ns() > until_ns {
                    return Err(self.silent("no room for an operation"));
                }
            }
            self.completed(until_ns)?;
            times.record(clock::now_ns() - start_ns);
        }
        Ok(())
    }

    /// All of them, at most `window` under way at once. Nanoseconds from the first start to the last completion.
    pub(super) fn all_at_once(
        &mut self,
        region: &Region,
        batch: &impl Batch,
        count: u64,
        window: u64,
    ) -> Outcome<u64> {
        let begin_ns = clock::now_ns();
        let (mut started, mut done) = (0, 0);
        while done < count {
            while started < count && started - done < window && self.try_start(region, batch, started)? {
                started += 1;
            }
            // Without any under way, room comes by progress alone.
            if started > done {
                self.completed(clock::now_ns() + STUCK_AFTER_NS)?;
                done += 1;
            } else {
                self.endpoint.progress();
                if clock::now_ns() > begin_ns + STUCK_AFTER_NS {
                    return Err(self.silent("no room for an operation"));
                }
            }
            while done < started
                && let Some(event) = self.endpoint.next_event()
            {
                done += u64::from(is_completion(&event)?);
            }
        }
        Ok(clock::now_ns() - begin_ns)
    }

    #[inline]
    fn try_start(&mut self, region: &Region, batch: &impl Batch, nth: u64) -> Outcome<bool> {
        match batch.start(self, region, nth) {
            Ok(()) => Ok(true),
            Err(RmaError::WouldBlock) => Ok(false),
            Err(RmaError::Disconnected) => Err(dial::not_sent(cci::SendError::Disconnected)),
            Err(error) => Err(Failure::new(format!("starting an operation: {error}"))),
        }
    }

    #[inline]
    fn completed(&mut self, until_ns: u64) -> Outcome {
        loop {
            match self.next(until_ns)? {
                Some(event) if is_completion(&event)? => return Ok(()),
                Some(_) => {}
                None => return Err(self.silent("an operation does not complete")),
            }
        }
    }
}

#[inline]
fn is_completion(event: &Event) -> Outcome<bool> {
    match event {
        Event::Send { status: Status::Success, .. } => Ok(true),
        other => no_failure(other).map(|()| false),
    }
}
