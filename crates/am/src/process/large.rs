//! Large messages (CCS section 3.2). The handler runs first and chooses where the data go. Then they are fetched from the
//! sender's memory.

use super::links::Links;
use super::onesided::{OneSided, describe};
use super::part::{Elements, Part, Transfer};
use super::registered::address;
use crate::description::Description;
use crate::error::{AmError, Result};
use crate::limits::LARGE_MESSAGES_MAX;
use crate::wire::{LargeOutcome, Offer, Range, Region, Word};
use cci::{Access, Memory, RegionHandle, Registration};
use cci_job::numbered::Numbered;

/// Identifies a large message whose receiver has yet to choose where the data go.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held(u64);

impl Held {
    /// Its number, from 1 on.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The held message of a number. If there is none, calls refuse it.
    pub fn from_number(number: u64) -> Held {
        Held(number)
    }
}

#[derive(Default)]
pub(crate) struct LargeMessages {
    /// Messages of this process, by its numbers of them.
    sent: Numbered<u64, Sent>,
    /// Messages of others, by this process's numbers of them, with their senders.
    held: Numbered<u64, (u32, Offer)>,
    last_number: u64,
}

/// A large message of this process, until it has ended.
struct Sent {
    rank: u32,
    local: Part,
    /// The region by which others read it.
    handle: Option<RegionHandle>,
    cookie: u64,
}

impl LargeMessages {
    /// Offers data to a rank.
    pub fn offer(&mut self, links: &mut Links, rank: u32, local: Part, cookie: u64) -> Result<Offer> {
        let Part { memory, offset, len_bytes } = &local;
        let end = offset.checked_add(*len_bytes).filter(|&end| end <= memory.len());
        let end = end.ok_or(AmError::Range("the local part ends behind its memory"))?;
        if links.link(rank).large_sent >= LARGE_MESSAGES_MAX {
            return Err(AmError::WouldBlock);
        }
        let (mut handle, mut source) = (None, None);
        if *len_bytes > 0 {
            let what = Registration { range: Some(*offset..end), access: Access::READ, only: None };
            let region = links.endpoint().register(memory, what)?;
            let start = address(memory) + *offset as u64;
            handle = Some(region);
            source = Some((Range { start, len_bytes: *len_bytes as u64 }, Region { start, handle: region }));
        }
        links.link(rank).large_sent += 1;
        self.last_number += 1;
        self.sent.insert(self.last_number, Sent { rank, local, handle, cookie });
        Ok(Offer { number: self.last_number, source })
    }

    /// Takes back an offer that could not be sent.
    pub fn withdraw(&mut self, links: &mut Links, offer: Offer) {
        self.remove(links, offer.number);
    }

    fn remove(&mut self, links: &mut Links, number: u64) -> Option<Sent> {
        let sent = self.sent.remove(&number)?;
        if let Some(handle) = sent.handle {
            let done = links.endpoint().deregister(&handle);
            debug_assert!(done.is_ok());
        }
        let link = links.link(sent.rank);
        link.large_sent = link.large_sent.saturating_sub(1);
        Some(sent)
    }

    /// Keeps the offer of a rank.
    pub fn hold(&mut self, links: &mut Links, rank: u32, offer: Offer) -> Result<Held> {
        let here = &mut links.link(rank).large_here;
        if *here >= LARGE_MESSAGES_MAX {
            links.refuse_rank(rank);
            return Err(AmError::Gone { rank, why: "it sends more large messages than it may".into() });
        }
        *here += 1;
        self.last_number += 1;
        self.held.insert(self.last_number, (rank, offer));
        Ok(Held(self.last_number))
    }

    /// Has the data of a held message fetched to described memory, or ends the message if that has another length.
    /// [`OneSided::next_ended`] reports the end once.
    pub fn accept(
        &mut self,
        links: &mut Links,
        onesided: &mut OneSided,
        held: Held,
        (memory, origin, elements): (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<()> {
        let &(rank, offer) = self.held.get(&held.0).ok_or(NOT_HELD)?;
        let space = elements.description.packed_bytes(elements.count);
        if space.map(|bytes| bytes as u64) != Some(offer.len_bytes()) {
            self.decide(links, onesided, held, LargeOutcome::Differs);
            onesided.report_ended(cookie, Err(AmError::Differs { len_bytes: offer.len_bytes() }));
            return Ok(());
        }
        let Some((source, region)) = offer.source else {
            self.decide(links, onesided, held, LargeOutcome::Fetched);
            onesided.report_ended(cookie, Ok(0));
            return Ok(());
        };
        let there = Elements { count: 1, description: row(source.len_bytes)? };
        let (mut into, _) = describe(Transfer::Get, (source.start, there), (memory, origin, elements))?;
        if rank != links.rank() {
            self.release(links, held);
            onesided.fetch(links, rank, (source, region), into, (offer.number, cookie));
            return Ok(());
        }
        let result = {
            let sent = self.sent.get(&offer.number);
            let find = |range: Range| {
                let offset = region.offset(range)? as usize;
                sent.map(|sent| (sent.local.memory.clone(), sent.local.offset + offset))
            };
            into.run_here(find).map(|()| 0).map_err(|error| error.unwrap_or(NOT_HELD))
        };
        let outcome = if result.is_ok() { LargeOutcome::Fetched } else { LargeOutcome::Unreadable };
        self.decide(links, onesided, held, outcome);
        onesided.report_ended(cookie, result);
        Ok(())
    }

    /// Ends a held message.
    pub fn abort(&mut self, links: &mut Links, onesided: &mut OneSided, held: Held) -> Result<()> {
        self.held.get(&held.0).ok_or(NOT_HELD)?;
        self.decide(links, onesided, held, LargeOutcome::Aborted);
        Ok(())
    }

    /// Ends a message that was not held.
    pub fn refuse(&mut self, links: &mut Links, onesided: &mut OneSided, rank: u32, offer: Offer) {
        self.report(links, onesided, rank, offer.number, LargeOutcome::Aborted);
    }

    fn release(&mut self, links: &mut Links, held: Held) -> Option<(u32, Offer)> {
        let (rank, offer) = self.held.remove(&held.0)?;
        let link = links.link(rank);
        link.large_here = link.large_here.saturating_sub(1);
        Some((rank, offer))
    }

    fn decide(&mut self, links: &mut Links, onesided: &mut OneSided, held: Held, outcome: LargeOutcome) {
        if let Some((rank, offer)) = self.release(links, held) {
            self.report(links, onesided, rank, offer.number, outcome);
        }
    }

    fn report(
        &mut self,
        links: &mut Links,
        onesided: &mut OneSided,
        rank: u32,
        number: u64,
        outcome: LargeOutcome,
    ) {
        if rank == links.rank() {
            self.ended(links, onesided, rank, number, outcome);
        } else {
            links.say(rank, &Word::LargeEnded(number, outcome));
        }
    }

    /// Handles a rank's report about a message of this process. Returns false if it was sent none by this number.
    pub fn ended(
        &mut self,
        links: &mut Links,
        onesided: &mut OneSided,
        rank: u32,
        number: u64,
        outcome: LargeOutcome,
    ) -> bool {
        if self.sent.get(&number).is_none_or(|sent| sent.rank != rank) {
            return false;
        }
        let Some(Sent { local, cookie, .. }) = self.remove(links, number) else { return false };
        let result = match outcome {
            LargeOutcome::Fetched => Ok(0),
            LargeOutcome::Aborted => Err(AmError::Aborted),
            LargeOutcome::Differs => Err(AmError::Differs { len_bytes: local.len_bytes as u64 }),
            LargeOutcome::Unreadable => {
                Err(AmError::Gone { rank, why: "it could not read the data of a large message".into() })
            }
        };
        onesided.report_ended(cookie, result);
        true
    }

    /// Handles the loss of a rank. Its held messages end when they are accepted.
    pub fn lose(&mut self, links: &mut Links, onesided: &mut OneSided, lost: u32, why: &str) {
        let to_lost = |(&number, sent): (&u64, &Sent)| (sent.rank == lost).then_some(number);
        let mut numbers: Vec<u64> = self.sent.iter().filter_map(to_lost).collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some(sent) = self.remove(links, number) {
                onesided.report_ended(sent.cookie, Err(AmError::Gone { rank: lost, why: why.to_owned() }));
            }
        }
    }

    /// Whether all messages of this process have ended.
    pub fn are_idle(&self) -> bool {
        self.sent.is_empty()
    }
}

const NOT_HELD: AmError = AmError::State("this is no large message that is held, or not any more");

/// A description of this many consecutive bytes.
fn row(len_bytes: u64) -> Result<Description> {
    let len = usize::try_from(len_bytes).ok();
    let row = len.and_then(|len| Description::bytes(len).ok());
    row.ok_or(AmError::Argument("the described data exceed the address space"))
}
