//! The state of another rank with which a process exchanges active messages.
//!
//! **Credits** limit what is under way. Each message that a program or a handler starts takes one of its process's credits with
//! the target. The credit comes back when the handler has returned. If the handler replied, the credit comes back when the
//! handler of the reply has returned, and so on. So each process must keep no more messages of a rank than there are credits, its
//! own and that rank's, and every reply has space. Receiving never waits for sending, and handlers that flood each other's
//! processes neither block nor use more and more memory.

use super::contexts::Context;
use super::inbox::Aligned;
use crate::limits::HEADER_BYTES;
use crate::wire::{ContextName, Header, Kind};
use cci::Connection;
use std::collections::VecDeque;

/// How a rank is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing was sent to it yet.
    Unused,
    Connecting,
    Open(Connection),
    /// This process.
    Own,
    /// Nothing comes from it any more.
    Gone(String),
}

pub(crate) struct Link {
    pub reach: Reach,
    /// How many messages this process may start now.
    pub credits: u32,
    /// How many credits must be given back to the rank.
    pub owed: u32,
    /// Whether the rank waits for its credits.
    pub is_wanted: bool,
    /// Whether the rank has announced that it leaves.
    pub is_leaving: bool,
    /// Parts of collectives that the rank has not acknowledged, and taken parts of the rank that this process has not
    /// acknowledged.
    pub collective_sent: u32,
    pub collective_taken: u32,
    /// Changes of its memory that the rank was asked for and has not made.
    pub updates_asked: u32,
    /// Large messages to the rank that have not ended, and those of the rank that are held here.
    pub large_sent: u32,
    pub large_here: u32,
    /// Messages that are here: those with a credit of the rank, and those with one of this process.
    here: [u32; 2],
    /// Records that wait for space in the core, with their arguments and data.
    pub outbox: VecDeque<Box<[u8]>>,
    /// For each of this process's contexts, whether the rank knows it.
    known: Vec<bool>,
    /// The rank's contexts by its numbers, and for each the last known context of this process.
    theirs: Vec<Option<(ContextName, Option<Context>)>>,
    /// Records that wait for their handler, or behind such records.
    pub held: VecDeque<Aligned>,
    /// The beginning of a record that comes in parts.
    assembly: Vec<u8>,
    /// The full length of that record.
    assembly_bytes: usize,
}

/// The rank breaks the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

impl Link {
    pub fn new(reach: Reach, credits: u32) -> Link {
        Link {
            reach,
            credits,
            owed: 0,
            is_wanted: false,
            is_leaving: false,
            collective_sent: 0,
            collective_taken: 0,
            updates_asked: 0,
            large_sent: 0,
            large_here: 0,
            here: [0; 2],
            outbox: VecDeque::new(),
            known: Vec::new(),
            theirs: Vec::new(),
            held: VecDeque::new(),
            assembly: Vec::new(),
            assembly_bytes: 0,
        }
    }

    /// Notes that credits of this process are back, of `all` that there are.
    #[inline]
    pub fn regain(&mut self, credits: u16, all: u32) {
        self.credits = (self.credits + u32::from(credits)).min(all);
    }

    //= wire.md R-AM-5
    /// A message has come, with a credit of this process's or of the rank's, which has as many in all: there are no more messages than
    /// credits, whatever the rank sends.
    #[inline]
    pub fn arrive(&mut self, is_own: bool, all: u32) -> Result<(), Nonsense> {
        let most = if is_own { all - self.credits } else { all };
        let here = &mut self.here[usize::from(is_own)];
        if *here >= most {
            return Err(Nonsense);
        }
        *here += 1;
        Ok(())
    }

    /// Notes that a message has come, and the credits that the rank gives back with it. If the message may not come, the credits
    /// do not count either.
    #[inline(always)]
    pub fn arrive_with(&mut self, credits: u16, is_own: bool, all: u32) -> Result<(), Nonsense> {
        let before = self.credits;
        if credits > 0 {
            self.regain(credits, all);
        }
        self.arrive(is_own, all).inspect_err(|Nonsense| self.credits = before)
    }

    /// Notes that a message is not here any more: its handler has replied or returned, or it was discarded.
    #[inline]
    pub fn depart(&mut self, is_own: bool) {
        let here = &mut self.here[usize::from(is_own)];
        *here = here.saturating_sub(1);
    }

    /// Whether a message in this context may be sent at once: no records wait, and the rank knows the context.
    #[inline(always)]
    pub fn is_ready(&self, context: Context) -> bool {
        self.outbox.is_empty() && self.known.get(usize::from(context.number())).is_some_and(|&known| known)
    }

    /// Whether the rank knows this context. From now on it does.
    pub fn introduce(&mut self, context: Context) -> bool {
        let at = usize::from(context.number());
        if self.known.len() <= at {
            self.known.resize(at + 1, false);
        }
        self.known.get_mut(at).is_none_or(|known| std::mem::replace(known, true))
    }

    /// Handles the rank's record about the context of a number.
    pub fn name_context(&mut self, header: &Header, body: &[u8]) -> Result<(), Nonsense> {
        let name = ContextName::decode(body).ok_or(Nonsense)?;
        let at = usize::from(header.context);
        if self.theirs.len() <= at {
            self.theirs.resize(at + 1, None);
        }
        match self.theirs.get_mut(at) {
            Some(free @ None) => {
                *free = Some((name, None));
                Ok(())
            }
            _ => Err(Nonsense),
        }
    }

    /// The context of this process for the rank's number, if it was found before and nothing of the rank waits.
    #[inline]
    pub fn context_in_use(&self, number: u16) -> Option<Context> {
        match self.theirs.get(usize::from(number)) {
            Some(Some((_, context))) if self.held.is_empty() => *context,
            _ => None,
        }
    }

    /// The context of the rank's number.
    #[inline]
    pub fn context(&mut self, number: u16) -> Result<(&ContextName, &mut Option<Context>), Nonsense> {
        match self.theirs.get_mut(usize::from(number)) {
            Some(Some((name, context))) => Ok((name, context)),
            _ => Err(Nonsense),
        }
    }

    //= wire.md R-AM-3
    /// Adds what came to the record that comes in parts. Returns the record when it is complete.
    pub fn assemble(&mut self, header: &Header, bytes: &[u8]) -> Result<Option<Vec<u8>>, Nonsense> {
        let part = match header.kind {
            Kind::Part => bytes.get(HEADER_BYTES..).unwrap_or_default(),
            _ if self.assembly_bytes > 0 => return Err(Nonsense),
            _ => {
                self.assembly_bytes = header.record_bytes();
                bytes
            }
        };
        if part.is_empty() || self.assembly.len() + part.len() > self.assembly_bytes {
            return Err(Nonsense);
        }
        self.assembly.extend_from_slice(part);
        if self.assembly.len() < self.assembly_bytes {
            return Ok(None);
        }
        self.assembly_bytes = 0;
        Ok(Some(std::mem::take(&mut self.assembly)))
    }

    /// Credits that the next record could carry.
    #[inline(always)]
    pub fn owed_now(&self) -> u16 {
        u16::try_from(self.owed).unwrap_or(u16::MAX)
    }

    /// Takes the credits that the next record carries.
    #[inline]
    pub fn take_owed(&mut self) -> u16 {
        let credits = self.owed_now();
        self.owed -= u32::from(credits);
        credits
    }

    //= wire.md R-AM-6
    /// Whether credits are to be given back without a message that they go with. `all`: as many as the rank has in all.
    pub fn must_return(&self, all: u32) -> bool {
        self.owed > 0 && (self.is_wanted || self.owed >= all / 2)
    }

    /// Whether nothing more may come from the rank, or go to it.
    pub fn is_idle(&self, all: u32) -> bool {
        self.credits >= all && self.outbox.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: u32) -> Vec<u8> {
        let header = Header { value: len, ..Header::new(Kind::Message) };
        [&header.encode()[..], &vec![5; len as usize]].concat()
    }

    fn part(bytes: &[u8]) -> Vec<u8> {
        [&Header::new(Kind::Part).encode()[..], bytes].concat()
    }

    fn take(link: &mut Link, bytes: &[u8]) -> Result<Option<Vec<u8>>, Nonsense> {
        link.assemble(&Header::decode(bytes).unwrap(), bytes)
    }

    #[test]
    fn parts_become_records() {
        let mut link = Link::new(Reach::Unused, 16);
        let whole = message(1000);
        assert_eq!(take(&mut link, &whole[..300]), Ok(None));
        assert_eq!(take(&mut link, &part(&whole[300..999])), Ok(None));
        assert_eq!(take(&mut link, &part(&whole[999..])), Ok(Some(whole.clone())));
        assert_eq!(take(&mut link, &whole), Ok(Some(whole)));
    }

    #[test]
    fn parts_of_nothing_too_many_and_none_are_nonsense() {
        assert_eq!(take(&mut Link::new(Reach::Unused, 16), &part(&[1])), Err(Nonsense));
        for next in [message(3), part(&[]), part(&[0; 1000])] {
            let mut link = Link::new(Reach::Unused, 16);
            assert_eq!(take(&mut link, &message(1000)[..HEADER_BYTES + 1]), Ok(None));
            assert_eq!(take(&mut link, &next), Err(Nonsense));
        }
    }

    #[test]
    fn more_messages_than_credits_are_nonsense() {
        let mut link = Link::new(Reach::Unused, 16);
        assert_eq!(link.arrive(true, 16), Err(Nonsense), "an answer to nothing");
        link.credits -= 1;
        assert_eq!(link.arrive(true, 16), Ok(()));
        assert_eq!(link.arrive(true, 16), Err(Nonsense), "a second answer");
        for _ in 0..16 {
            assert_eq!(link.arrive(false, 16), Ok(()));
        }
        assert_eq!(link.arrive(false, 16), Err(Nonsense), "one more than it has credits");
        link.depart(false);
        assert_eq!(link.arrive(false, 16), Ok(()));
    }

    #[test]
    fn a_number_stands_for_one_context() {
        let mut link = Link::new(Reach::Unused, 16);
        let header = Header { context: 3, ..Header::new(Kind::Context) };
        let name = ContextName::Named("a".into());
        assert_eq!(link.context(3).err(), Some(Nonsense));
        assert_eq!(link.name_context(&header, &name.encode()), Ok(()));
        assert_eq!(link.context(3), Ok((&name, &mut None)));
        assert_eq!(link.name_context(&header, &name.encode()), Err(Nonsense));
    }
}
