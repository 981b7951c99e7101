//! One end of a talk, and the messages that it sends.

use super::memory::Work;
use super::scenario::{End, Job, Talk};
use super::sent::Sent;
use crate::whole::contents;
use cci::{Attribute, Connection, Status};
use std::collections::VecDeque;

/// Where one end is in its life.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// `connect` or `accept` was called and has not ended.
    Pending,
    Up,
    /// It ended badly.
    Failed,
    /// The program has disconnected.
    Closed,
    /// The machine's endpoint is gone.
    Crashed,
}

/// The messages of one side.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub sent: Vec<Sent>,
    /// A message may be given up before its sender knows.
    pub may_complete_late: bool,
    /// Ordered: the first that has not come and was not skipped.
    next: u32,
    /// Ordered: messages that came and were taken for others, which did not come.
    pub misplaced: u64,
    /// Unordered: messages too short to say which they are.
    shorts_sent: u64,
    shorts_delivered: u64,
}

/// A job under way.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub job: Job,
    pub left: u32,
    pub in_burst: u32,
    pub next_ns: u64,
}

/// One end of a talk.
#[derive(Debug)]
pub(super) struct Side {
    pub talk: Talk,
    pub end: End,
    pub machine: usize,
    pub send_timeout_ns: u64,
    pub connection: Option<Connection>,
    pub life: Life,
    /// The other end, once something was heard of it.
    pub peer: Option<usize>,
    /// The program disconnected before the end of the run.
    pub hung_up: bool,
    /// Its request can't succeed: it was given to its own endpoint, which can't take it.
    pub asks_itself: bool,
    /// The clock of one of the two hosts has jumped by more than what is under way may take.
    pub jumped: bool,
    /// It heard that the connection is over.
    pub reported_dead: bool,
    /// The library has said so by an event, behind which nothing more comes.
    pub disconnected: bool,
    pub flow: Flow,
    /// Messages and bytes of this side's that have come.
    pub delivered: (u64, u64),
    /// When its sends and operations ended, and how.
    pub ended: Vec<(u64, Status)>,
    pub jobs: VecDeque<Doing>,
    pub work: Option<Work>,
    /// Messages and operations started.
    pub tickets: u32,
    /// Ordered: the last that completed.
    pub completed: Option<u32>,
    /// Without those that are silent.
    pub outstanding: u64,
    pub silent: bool,
    /// When something of this side's was last done, or begun with nothing else under way.
    pub progress_ns: u64,
    /// A message came when its send timeout was over: it may have ended the connection, although it came.
    pub was_overdue: bool,
    /// Times that the keepalive may still time out.
    pub keepalives: u32,
}

impl Side {
    pub fn new(talk: &Talk, end: End, (machine, send_timeout_ns): (usize, u64), peer: Option<usize>) -> Side {
        Side {
            talk: talk.clone(),
            end,
            machine,
            send_timeout_ns,
            connection: None,
            life: Life::Pending,
            peer,
            hung_up: false,
            asks_itself: false,
            jumped: false,
            reported_dead: false,
            disconnected: false,
            flow: Flow::default(),
            delivered: (0, 0),
            ended: Vec::new(),
            jobs: VecDeque::new(),
            work: None,
            tickets: 0,
            completed: None,
            outstanding: 0,
            silent: false,
            progress_ns: 0,
            was_overdue: false,
            keepalives: 0,
        }
    }

    pub fn attribute(&self) -> Attribute {
        self.talk.attribute
    }

    pub fn is_ordered(&self) -> bool {
        self.attribute() == Attribute::ReliableOrdered
    }

    /// The send timeout of something that is under way may be over.
    pub fn is_overdue(&self, now_ns: u64) -> bool {
        self.outstanding > 0 && now_ns >= self.progress_ns + self.send_timeout_ns
    }

    /// Something is left to be started or waited for.
    pub fn is_busy(&self) -> bool {
        match self.life {
            Life::Pending => true,
            Life::Up => self.outstanding > 0 || self.has_more(),
            Life::Failed | Life::Closed | Life::Crashed => false,
        }
    }

    /// Something is left to be started.
    pub fn has_more(&self) -> bool {
        !self.jobs.is_empty() || self.work.as_ref().is_some_and(Work::has_more)
    }

    /// The place of the next message or operation among all.
    pub fn ticket(&mut self, now_ns: u64, silent: bool) -> u32 {
        self.tickets += 1;
        if silent {
            self.silent = true;
        } else {
            if self.outstanding == 0 {
                self.progress_ns = now_ns;
            }
            self.outstanding += 1;
        }
        self.tickets
    }

    /// A completion came for this ticket.
    pub fn completes(&mut self, now_ns: u64, ticket: u32, status: Status) -> Result<(), String> {
        self.progress_ns = now_ns;
        self.ended.push((now_ns, status));
        let Some(outstanding) = self.outstanding.checked_sub(1) else {
            return Err("more completions than operations".into());
        };
        self.outstanding = outstanding;
        self.reported_dead |= matches!(status, Status::TimedOut | Status::Disconnected);
        let last = self.completed.replace(ticket);
        if self.is_ordered() && last.is_some_and(|last| last >= ticket) {
            return Err(format!("number {ticket} completed behind {last:?}"));
        }
        Ok(())
    }
}

impl Flow {
    pub fn push(&mut self, len: usize, silent: bool, ticket: u32, ordered: bool) {
        self.shorts_sent += u64::from(!ordered && len < contents::NAMED_BYTES_MIN);
        self.sent.push(Sent { len_bytes: len as u32, silent, ticket, ..Sent::default() });
    }

    /// A message of side `from` came.
    pub fn deliver(&mut self, from: usize, payload: &[u8], ordered: bool) -> Result<(), String> {
        let index = if ordered {
            self.take_next(from, payload)?
        } else if let Some((_, index)) = contents::identify(payload) {
            index
        } else {
            self.shorts_delivered += 1;
            let too_many = self.shorts_delivered > self.shorts_sent;
            return if too_many { Err("more short messages than were sent".into()) } else { Ok(()) };
        };
        let sent = self.sent.get_mut(index as usize).ok_or(format!("message {index} was never sent"))?;
        sent.delivered = sent.delivered.saturating_add(1);
        match sent {
            _ if sent.len_bytes as usize != payload.len() => {
                Err(format!("message {index} had {} bytes", sent.len_bytes))
            }
            Sent { delivered: 2.., .. } => Err(format!("message {index} for the second time")),
            Sent { status: Some(Status::ReceiverNotReady), .. } => {
                Err(format!("message {index}, after its sender got ReceiverNotReady"))
            }
            _ => Ok(()),
        }
    }

    /// Ordered: which message this must be. Those whose send ended with an error may be missing.
    fn take_next(&mut self, from: usize, payload: &[u8]) -> Result<u32, String> {
        let named = contents::identify(payload).map(|(_, index)| index);
        let first = self.next;
        loop {
            let index = self.next;
            let Some(sent) = self.sent.get(index as usize) else {
                return Err(format!("nothing after message {first} matches {named:?}"));
            };
            let this = match named {
                Some(named) => named == index,
                None if sent.status == Some(Status::ReceiverNotReady) => false,
                None => {
                    sent.len_bytes as usize == payload.len()
                        && contents::is_short(from as u32, index, payload)
                }
            };
            self.next += 1;
            if this {
                return Ok(index);
            }
            // A silent send that fails says nothing, so one may be missing without a word. And the completion of a send may wait for
            // an operation before it: how it ended is judged when it comes. A send that waited in the engine until its time was over
            // leaves its connection open (ADR 26).
            let may_be_missing = match sent.status {
                Some(status) => matches!(status, Status::ReceiverNotReady | Status::TimedOut),
                None => sent.silent || self.may_complete_late,
            };
            if !may_be_missing
                && self.misplaced > 0
                && named.is_some()
                && (sent.len_bytes as usize) < contents::NAMED_BYTES_MIN
            {
                self.misplaced -= 1;
                self.sent[index as usize].delivered = 1;
                continue;
            }
            if !may_be_missing {
                return Err(format!("message {named:?} came though {index} did not ({sent:?})"));
            }
        }
    }

    /// A message that succeeded and never came.
    pub fn missing(&self, ordered: bool, all: bool) -> Option<String> {
        let owed = |sent: &Sent| sent.status == Some(Status::Success) || (all && sent.silent);
        // A silent send may have failed without a word, and one that timed out may have come or not: what came behind it may have
        // been taken for it, if it is too short to say which it is.
        let is_uncertain = |sent: &Sent| sent.silent || sent.status == Some(Status::TimedOut);
        let all_known = ordered && self.misplaced == 0 && !self.sent.iter().any(is_uncertain);
        let named = |sent: &Sent| all_known || sent.len_bytes as usize >= contents::NAMED_BYTES_MIN;
        let shorts = || self.sent.iter().filter(|sent| !named(sent));
        let owed_count = shorts().filter(|sent| owed(sent)).count() as u64;
        let came = if ordered {
            shorts().map(|sent| u64::from(sent.delivered)).sum::<u64>() + self.misplaced
        } else {
            self.shorts_delivered
        };
        if owed_count > came {
            return Some(format!("{owed_count} short messages succeeded, {came} came"));
        }
        let lost = self.sent.iter().position(|sent| named(sent) && owed(sent) && sent.delivered == 0)?;
        Some(format!("message {lost} succeeded and never came ({:?})", self.sent[lost]))
    }
}
