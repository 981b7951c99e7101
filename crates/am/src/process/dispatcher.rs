//! Which messages are due, and the one whose handler runs.

use super::contexts::{Context, Contexts, Found, Handler, Space};
use super::due::{Batch, Delivery, Token};
use super::inbox::{Aligned, Entry, Inbox};
use super::link::{Nonsense, Reach};
use super::links::Links;
use crate::error::{AmError, Result};
use crate::wire::{Args, Header, Kind, Offer};
use std::collections::VecDeque;

pub(crate) struct Dispatcher {
    pub contexts: Contexts,
    /// A context or a handler is new, so that records that wait may wait no more.
    pub has_new_handlers: bool,
    /// Ranks of which records may be due that waited.
    holding: VecDeque<u32>,
    /// What has been taken to be handled. Its memory is used again.
    spare: Option<Box<Inbox>>,
    /// The message that is being handled.
    running: Option<Running>,
    /// So many messages have been handled.
    handled: u64,
}

/// The message whose handler runs.
pub(crate) struct Running {
    pub token: Token,
    pub sender: u32,
    pub context: Context,
    /// The credit is this process's own: the message is an answer, of which the first of the row was this process's.
    pub is_own: bool,
    pub has_replied: bool,
    /// What a large message offers, if its handler has not taken it.
    pub offer: Option<Offer>,
}

/// What becomes of a record that has come.
enum Outcome {
    Due(Header, Context, Handler),
    Done,
    /// It has to wait, and so has all that comes after it from that rank.
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
    /// Takes what is due. None: the last batch was not put back.
    #[inline]
    pub fn take(&mut self, links: &mut Links) -> Option<Batch> {
        let mut inbox = self.spare.take()?;
        links.swap_inbox(&mut inbox);
        if std::mem::take(&mut self.has_new_handlers) {
            self.holding = links.holding().into();
        }
        Some(Batch { inbox, alone: None })
    }

    /// [`Process::put_back`](super::Process::put_back). No handler runs any more.
    #[inline]
    pub fn put_back(&mut self, links: &mut Links, mut batch: Batch) {
        while let Some(entry) = batch.inbox.pop() {
            self.hold(links, entry, &batch.inbox);
        }
        batch.inbox.clear();
        self.spare = Some(batch.inbox);
    }

    /// Has a record wait that was taken to be handled.
    #[cold]
    fn hold(&mut self, links: &mut Links, entry: Entry, inbox: &Inbox) {
        self.has_new_handlers = true;
        let record = Aligned::new(inbox.bytes(entry));
        let header = Header::decode(record.bytes()).filter(|header| header.is_whole(record.bytes()));
        if header.is_some_and(|header| links.arrive(entry.rank, header.flag).is_err()) {
            return links.refuse_rank(entry.rank);
        }
        links.link(entry.rank).held.push_back(record);
    }

    /// The next message of a batch whose handler is to be called.
    #[inline]
    pub fn next<'a>(&mut self, links: &mut Links, batch: &'a mut Batch) -> Option<Delivery<'a>> {
        while let Some(rank) = self.holding.front().copied() {
            if let Some(message) = self.next_held(links, rank, batch) {
                return batch.alone.as_ref().map(|alone| self.begin(rank, message, alone.bytes()));
            }
            self.holding.pop_front();
        }
        loop {
            let entry = batch.inbox.pop()?;
            if let Some((context, handler)) = self.due_at_once(links, &entry, batch.inbox.bytes(entry)) {
                let message = (entry.header, context, handler);
                return Some(self.begin(entry.rank, message, batch.inbox.bytes(entry)));
            }
            match self.outcome(links, entry, &batch.inbox) {
                Outcome::Due(header, context, handler) => {
                    let message = (header, context, handler);
                    return Some(self.begin(entry.rank, message, batch.inbox.bytes(entry)));
                }
                Outcome::Done => {}
                Outcome::NotYet => {
                    let record = Aligned::new(batch.inbox.bytes(entry));
                    links.link(entry.rank).held.push_back(record);
                }
                Outcome::Assembled(header, record) => {
                    match self.examine_new(links, entry.rank, header, &record) {
                        Ok(Outcome::Due(header, context, handler)) => {
                            let alone = batch.alone.insert(Aligned::new(&record));
                            let message = (header, context, handler);
                            return Some(self.begin(entry.rank, message, alone.bytes()));
                        }
                        Ok(Outcome::NotYet) => links.link(entry.rank).held.push_back(Aligned::new(&record)),
                        Ok(_) => {}
                        Err(Nonsense) => links.refuse_rank(entry.rank),
                    }
                }
            }
        }
    }

    /// The handler of a short message that has come whole, waits behind nothing, and is for a context that its sender has used before, as almost
    /// all are. None: it is looked at by [`Dispatcher::outcome`], and nothing has changed.
    #[inline]
    fn due_at_once(&self, links: &mut Links, entry: &Entry, record: &[u8]) -> Option<(Context, Handler)> {
        let header = &entry.header;
        if header.kind != Kind::Message || record.len() != header.record_bytes() {
            return None;
        }
        let credits = links.credits_of_each();
        let link = links.link(entry.rank);
        let context = link.context_in_use(header.context)?;
        match self.contexts.find(context, Space::Messages, header.handler)? {
            Found::Handler(context, handler) => {
                let is_own = matches!(link.reach, Reach::Own);
                (is_own || link.arrive(header.flag, credits).is_ok()).then_some((context, handler))
            }
            Found::NotYet => None,
        }
    }

    /// What becomes of a record of an inbox: it waits behind those that do.
    #[cold]
    fn outcome(&mut self, links: &mut Links, entry: Entry, inbox: &Inbox) -> Outcome {
        self.examine_new(links, entry.rank, entry.header, inbox.bytes(entry)).unwrap_or_else(|Nonsense| {
            links.refuse_rank(entry.rank);
            Outcome::Done
        })
    }

    /// What becomes of a record that was not looked at before.
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

    /// The next record of a rank that has waited, as what is alone in the batch, if it is due now.
    fn next_held(
        &mut self,
        links: &mut Links,
        rank: u32,
        batch: &mut Batch,
    ) -> Option<(Header, Context, Handler)> {
        while let Some(record) = links.link(rank).held.pop_front() {
            let header = Header::decode(record.bytes());
            let outcome =
                header.map_or(Err(Nonsense), |header| self.examine(links, rank, header, record.bytes()));
            match outcome {
                Ok(Outcome::Due(header, context, handler)) => {
                    batch.alone = Some(record);
                    return Some((header, context, handler));
                }
                Ok(Outcome::NotYet) => {
                    links.link(rank).held.push_front(record);
                    return None;
                }
                Ok(Outcome::Assembled(header, record)) => {
                    // It is complete, and so looked at again.
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
            Some(Found::Handler(context, handler)) => Outcome::Due(header, context, handler),
            Some(Found::NotYet) => Outcome::NotYet,
            None => {
                links.end_chain(rank, header.flag);
                Outcome::Done
            }
        })
    }

    #[inline(always)]
    fn begin<'a>(
        &mut self,
        sender: u32,
        (header, context, handler): (Header, Context, Handler),
        record: &'a [u8],
    ) -> Delivery<'a> {
        debug_assert!(self.running.is_none(), "one handler at a time");
        self.handled += 1;
        let token = Token(self.handled);
        let args = Args::of(&header, record);
        let data = record.get(header.data_at()..).unwrap_or_default();
        let (data, offer) =
            if header.kind == Kind::Large { (&[][..], Offer::decode(data)) } else { (data, None) };
        let large_bytes = offer.map(|offer| offer.len_bytes());
        let is_own = header.flag;
        self.running = Some(Running { token, sender, context, is_own, has_replied: false, offer });
        Delivery { handler, token, sender, context, args, data, large_bytes }
    }

    /// The handler of a message has returned. What it has not taken of a large one is returned, with the sender.
    #[inline(always)]
    pub fn end(&mut self, links: &mut Links, token: Token) -> Option<(u32, Offer)> {
        let running = self.running.take_if(|running| running.token == token)?;
        if !running.has_replied {
            links.end_chain(running.sender, running.is_own);
        }
        running.offer.map(|offer| (running.sender, offer))
    }

    /// The message whose handler runs, whatever that is.
    pub fn running_token(&self) -> Option<Token> {
        self.running.as_ref().map(|running| running.token)
    }

    /// Takes what the large message offers whose handler runs: once.
    pub fn take_offer(&mut self, token: Token) -> Result<(u32, Offer)> {
        self.running(token)?;
        let taken = self.running.as_mut().and_then(|running| Some((running.sender, running.offer.take()?)));
        taken.ok_or(AmError::State("this is no large message, or what becomes of it was said before"))
    }

    pub fn is_handling(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a handler of a message of this rank's runs.
    pub fn handles(&self, rank: u32) -> bool {
        self.running.as_ref().is_some_and(|running| running.sender == rank)
    }

    /// The message of this token.
    pub fn running(&self, token: Token) -> Result<&Running> {
        let running = self.running.as_ref().filter(|running| running.token == token);
        running.ok_or(AmError::State("the handler of this message has returned"))
    }

    /// Whom the one reply to a message goes to, in which context, and whether its credit is this process's own.
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
