//! Messages that are due, and the one whose handler runs.

use super::contexts::{Context, Contexts, Found, Handler, Space};
use super::due::{Batch, Delivery, Token};
use super::inbox::{Aligned, Inbox, Taken};
use super::link::Nonsense;
use super::links::Links;
use crate::error::{AmError, Result};
use crate::wire::{Args, Header, Kind, Offer, WholeHead};
use std::collections::VecDeque;

pub(crate) struct Dispatcher {
    pub contexts: Contexts,
    /// Whether a context or a handler is new, so that records that wait may be due now.
    pub has_new_handlers: bool,
    /// Ranks whose waiting records may be due.
    holding: VecDeque<u32>,
    /// An inbox that was taken to be handled. Its memory is reused.
    spare: Option<Box<Inbox>>,
    /// The message that is being handled.
    running: Option<Running>,
    /// How many messages have been handled.
    handled: u64,
}

/// The message whose handler runs.
pub(crate) struct Running {
    pub token: Token,
    pub sender: u32,
    pub context: Context,
    /// Whether the credit belongs to this process: the message is a reply in a chain that this process began.
    pub is_own: bool,
    pub has_replied: bool,
    /// The data that a large message offers, if its handler has not taken them.
    pub offer: Option<Offer>,
}

/// A message and its handler.
type Addressed = (Header, Context, Handler);

/// What happens to a record that has come.
enum Outcome {
    Due(Addressed),
    Done,
    /// It must wait, and so must everything after it from that rank.
    NotYet,
    /// It was the last part of this record.
    Assembled(Header, Vec<u8>),
}

impl Default for Dispatcher {
    fn default() -> Dispatcher {
        Dispatcher {
            contexts: Contexts::default(),
            has_new_handlers: false,
            holding: VecDeque::new(),
            spare: Some(Box::default()),
            running: None,
            handled: 0,
        }
    }
}

impl Dispatcher {
    /// Takes what is due. `None` if the last batch was not put back.
    #[inline(always)]
    pub fn take(&mut self, links: &mut Links) -> Option<Batch> {
        let mut inbox = self.spare.take()?;
        links.swap_inbox(&mut inbox);
        if std::mem::take(&mut self.has_new_handlers) {
            self.holding = links.holding().into();
        }
        Some(Batch { inbox })
    }

    /// [`Process::put_back`](super::Process::put_back). No handler may run any more.
    #[inline(always)]
    pub fn put_back(&mut self, links: &mut Links, mut batch: Batch) {
        if !batch.inbox.is_empty() {
            self.hold_rest(links, &mut batch.inbox);
        }
        batch.inbox.clear();
        self.spare = Some(batch.inbox);
    }

    /// Makes records wait that were taken to be handled.
    #[cold]
    fn hold_rest(&mut self, links: &mut Links, inbox: &mut Inbox) {
        self.has_new_handlers = true;
        while let Some(taken) = inbox.pop() {
            let (rank, record) = (inbox.rank(taken), Aligned::new(inbox.bytes(taken)));
            let header = Header::decode(record.bytes()).filter(|header| header.is_whole(record.bytes()));
            match header.map(|header| links.arrive(rank, header.flag)) {
                Some(Err(Nonsense)) => links.refuse_rank(rank),
                _ => links.link(rank).held.push_back(record),
            }
        }
    }

    /// The next message of a batch whose handler is to be called.
    pub fn next<'a>(&mut self, links: &mut Links, batch: &'a mut Batch) -> Option<Delivery<'a>> {
        if !self.holding.is_empty() {
            let held = self.next_held_of_all(links, batch);
            if let Some((rank, message)) = held {
                return batch.inbox.alone.as_ref().map(|alone| self.begin(rank, message, alone.bytes()));
            }
        }
        let taken = batch.inbox.pop()?;
        self.next_otherwise(links, taken, batch)
    }

    /// Whether records that have waited may be due.
    #[inline(always)]
    pub fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// The next message of a batch, if it has come whole, waits behind nothing, and is for a context that its sender has used
    /// before, as almost all are. `None` if not; then nothing has changed.
    #[inline(always)]
    pub fn next_at_once<'a>(&mut self, links: &mut Links, batch: &'a mut Batch) -> Option<Delivery<'a>> {
        if !self.holding.is_empty() {
            return None;
        }
        let first = batch.inbox.first()?;
        let (rank, head) = (first.rank(), first.whole()?);
        let credits = links.credits_of_each();
        let link = links.known(rank)?;
        let context = link.context_in_use(head.context())?;
        let handler = self.contexts.handler(context, head.handler())?;
        link.arrive(head.is_own(), credits).ok()?;
        let content = head.content(first.take());
        Some(self.begin_whole((rank, head.is_own()), context, handler, content, None))
    }

    /// Begins a message that has come alone, if [`Dispatcher::next_at_once`] would return it. `None` if not; then nothing has
    /// changed.
    #[inline(always)]
    pub fn begin_alone<'a>(
        &mut self,
        links: &mut Links,
        rank: u32,
        record: &'a [u8],
    ) -> Option<Delivery<'a>> {
        let head = WholeHead::of(record)?;
        let all = links.credits_of_each();
        let link = links.known(rank)?;
        let context = link.context_in_use(head.context())?;
        let handler = self.contexts.handler(context, head.handler())?;
        link.arrive_with(head.credits(), head.is_own(), all).ok()?;
        Some(self.begin_whole((rank, head.is_own()), context, handler, head.content(record), None))
    }

    /// The next waiting message of all ranks, if it is due now, with its rank. It becomes the single record of the batch.
    #[cold]
    fn next_held_of_all(&mut self, links: &mut Links, batch: &mut Batch) -> Option<(u32, Addressed)> {
        while let Some(rank) = self.holding.front().copied() {
            if let Some(message) = self.next_held(links, rank, batch) {
                return Some((rank, message));
            }
            self.holding.pop_front();
        }
        None
    }

    /// The next message of a batch, from this one on. It and all after it are examined in detail.
    #[inline(never)]
    fn next_otherwise<'a>(
        &mut self,
        links: &mut Links,
        mut taken: Taken,
        batch: &'a mut Batch,
    ) -> Option<Delivery<'a>> {
        loop {
            let rank = batch.inbox.rank(taken);
            match self.outcome(links, rank, batch.inbox.bytes(taken)) {
                Outcome::Due(message) => {
                    return Some(self.begin(rank, message, batch.inbox.bytes(taken)));
                }
                Outcome::Done => {}
                Outcome::NotYet => {
                    let record = Aligned::new(batch.inbox.bytes(taken));
                    links.link(rank).held.push_back(record);
                }
                Outcome::Assembled(header, record) => match self.examine_new(links, rank, header, &record) {
                    Ok(Outcome::Due(message)) => {
                        let alone = batch.inbox.alone.insert(Aligned::new(&record));
                        return Some(self.begin(rank, message, alone.bytes()));
                    }
                    Ok(Outcome::NotYet) => links.link(rank).held.push_back(Aligned::new(&record)),
                    Ok(_) => {}
                    Err(Nonsense) => links.refuse_rank(rank),
                },
            }
            taken = batch.inbox.pop()?;
        }
    }

    /// Decides what happens to a record of an inbox. It waits behind records that do.
    fn outcome(&mut self, links: &mut Links, rank: u32, record: &[u8]) -> Outcome {
        let header = Header::decode(record).ok_or(Nonsense);
        let outcome = header.and_then(|header| self.examine_new(links, rank, header, record));
        outcome.unwrap_or_else(|Nonsense| {
            links.refuse_rank(rank);
            Outcome::Done
        })
    }

    /// Decides what happens to a record that was not examined before.
    fn examine_new(
        &mut self,
        links: &mut Links,
        rank: u32,
        header: Header,
        record: &[u8],
    ) -> Result<Outcome, Nonsense> {
        if header.is_whole(record) {
            links.arrive(rank, header.flag)?;
        }
        if !links.link(rank).held.is_empty() {
            return Ok(Outcome::NotYet);
        }
        self.examine(links, rank, header, record)
    }

    /// The next waiting record of a rank, if it is due now. It becomes the single record of the batch.
    fn next_held(&mut self, links: &mut Links, rank: u32, batch: &mut Batch) -> Option<Addressed> {
        while let Some(record) = links.link(rank).held.pop_front() {
            let header = Header::decode(record.bytes());
            let outcome =
                header.map_or(Err(Nonsense), |header| self.examine(links, rank, header, record.bytes()));
            match outcome {
                Ok(Outcome::Due(message)) => {
                    batch.inbox.alone = Some(record);
                    return Some(message);
                }
                Ok(Outcome::NotYet) => {
                    links.link(rank).held.push_front(record);
                    return None;
                }
                Ok(Outcome::Assembled(header, record)) => {
                    // The record is complete now, and is checked again.
                    if links.arrive(rank, header.flag).is_err() {
                        links.refuse_rank(rank);
                        return None;
                    }
                    links.link(rank).held.push_front(Aligned::new(&record));
                }
                Ok(Outcome::Done) => {}
                Err(Nonsense) => {
                    links.refuse_rank(rank);
                    return None;
                }
            }
        }
        None
    }

    fn examine(
        &mut self,
        links: &mut Links,
        rank: u32,
        header: Header,
        record: &[u8],
    ) -> Result<Outcome, Nonsense> {
        if header.kind == Kind::Part || record.len() != header.record_bytes() {
            let Some(whole) = links.link(rank).assemble(&header, record)? else {
                return Ok(Outcome::Done);
            };
            let header = Header::decode(&whole).ok_or(Nonsense)?;
            return Ok(Outcome::Assembled(header, whole));
        }
        if header.kind == Kind::Context {
            let body = record.get(header.record_bytes() - header.value as usize..).unwrap_or_default();
            links.link(rank).name_context(&header, body)?;
            return Ok(Outcome::Done);
        }
        let space = match header.kind {
            Kind::Large => {
                Offer::decode(record.get(header.data_at()..).unwrap_or_default()).ok_or(Nonsense)?;
                Space::Large
            }
            _ => Space::Messages,
        };
        let (name, cached) = links.link(rank).context(header.context)?;
        let found = match cached.and_then(|context| self.contexts.find(context, space, header.handler)) {
            Some(found) => Some(found),
            None => match self.contexts.by_name(name) {
                None => Some(Found::NotYet),
                Some(context) => {
                    *cached = Some(context);
                    self.contexts.find(context, space, header.handler)
                }
            },
        };
        Ok(match found {
            Some(Found::Handler(context, handler)) => Outcome::Due((header, context, handler)),
            Some(Found::NotYet) => Outcome::NotYet,
            None => {
                links.end_chain(rank, header.flag);
                Outcome::Done
            }
        })
    }

    fn begin<'a>(
        &mut self,
        sender: u32,
        (header, context, handler): Addressed,
        record: &'a [u8],
    ) -> Delivery<'a> {
        let data = record.get(header.data_at()..).unwrap_or_default();
        let (data, offer) =
            if header.kind == Kind::Large { (&[][..], Offer::decode(data)) } else { (data, None) };
        let content = (Args::of(&header, record), data);
        self.begin_whole((sender, header.flag), context, handler, content, offer)
    }

    /// Begins the handling of a message. `is_own` says whether its credit belongs to this process.
    #[inline(always)]
    fn begin_whole<'a>(
        &mut self,
        (sender, is_own): (u32, bool),
        context: Context,
        handler: Handler,
        (args, data): (Args<'a>, &'a [u8]),
        offer: Option<Offer>,
    ) -> Delivery<'a> {
        debug_assert!(self.running.is_none(), "one handler at a time");
        self.handled += 1;
        let token = Token(self.handled);
        let large_bytes = offer.map(|offer| offer.len_bytes());
        self.running = Some(Running { token, sender, context, is_own, has_replied: false, offer });
        Delivery { handler, token, sender, context, args, data, large_bytes }
    }

    /// Ends a message whose handler has returned. Returns what it has not taken of a large one, with the sender.
    #[inline(always)]
    pub fn end(&mut self, links: &mut Links, token: Token) -> Option<(u32, Offer)> {
        // It is not moved as a whole, since most messages have no offer.
        let running = self.running.as_mut().filter(|running| running.token == token)?;
        let (sender, is_own, has_replied) = (running.sender, running.is_own, running.has_replied);
        let offer = if running.offer.is_some() { running.offer.take() } else { None };
        self.running = None;
        if !has_replied {
            links.end_chain(sender, is_own);
        }
        offer.map(|offer| (sender, offer))
    }

    /// The token of the message whose handler runs, of any kind.
    pub fn running_token(&self) -> Option<Token> {
        self.running.as_ref().map(|running| running.token)
    }

    /// Takes the offer of the large message whose handler runs. This is possible once.
    pub fn take_offer(&mut self, token: Token) -> Result<(u32, Offer)> {
        self.running(token)?;
        let taken = self.running.as_mut().and_then(|running| Some((running.sender, running.offer.take()?)));
        taken.ok_or(AmError::State("this is no large message, or what becomes of it was said before"))
    }

    pub fn is_handling(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a handler of a message of this rank runs.
    pub fn handles(&self, rank: u32) -> bool {
        self.running.as_ref().is_some_and(|running| running.sender == rank)
    }

    /// The message of this token.
    pub fn running(&self, token: Token) -> Result<&Running> {
        let running = self.running.as_ref().filter(|running| running.token == token);
        running.ok_or(AmError::State("the handler of this message has returned"))
    }

    /// The receiver and the context of the only reply to a message, and whether its credit belongs to this process.
    pub fn take_reply(&mut self, token: Token) -> Result<(u32, Context, bool)> {
        let &Running { sender, context, is_own, .. } = self.running(token)?;
        self.contexts.check(context)?;
        let has_replied =
            self.running.as_mut().is_some_and(|one| std::mem::replace(&mut one.has_replied, true));
        if has_replied {
            return Err(AmError::State("a handler replies once; send a request for more"));
        }
        Ok((sender, context, is_own))
    }
}
