//! The server's side of calls: requests, and their answers.

use super::base::{Base, Due};
use super::event::Event;
use super::request::{Posted, ReplyError, Request, RequestId};
use super::send::{Payload, SendError};
use super::sending::Sending;
use super::wire::{CallNumber, NoReply, Purpose};
use crate::connection::Connection;
use std::collections::VecDeque;

/// Answers of other threads that could not be sent yet.
#[derive(Default)]
pub struct Serving {
    posted: VecDeque<(RequestId, Posted)>,
}

impl Serving {
    /// A client does not wait for an answer any more.
    pub fn given_up(base: &mut Base, connection: Connection, call: CallNumber) {
        let ended = base.peers.get_mut(connection).and_then(|peer| peer.end_request(call));
        let Some(is_shown) = ended else {
            base.counters.late += 1;
            return;
        };
        base.no_reply(connection, call, NoReply::GivenUp);
        if is_shown {
            base.raise(Event::RequestCancelled(RequestId { connection, call }));
        }
    }

    /// Answers a request.
    pub fn reply(
        base: &mut Base,
        sending: &mut Sending,
        mut request: Request,
        code: Option<u32>,
        payload: Payload<'_>,
    ) -> Result<(), ReplyError> {
        Serving::answer(base, sending, &mut request, code, payload).map_err(|error| match error {
            Some(error) => ReplyError::NotSent { request, error },
            None => ReplyError::Ended,
        })
    }

    /// Answers a request, whose bytes stay with the caller. `Err(None)`: nobody waits for the answer.
    pub fn answer(
        base: &mut Base,
        sending: &mut Sending,
        request: &mut Request,
        code: Option<u32>,
        payload: Payload<'_>,
    ) -> Result<(), Option<SendError>> {
        if !request.is_unanswered(&base.inbox) {
            return Err(None);
        }
        // A result that is passed on whole is read back by words that were just written by halves, behind the store to the ring.
        match answer(base, sending, request.id(), code, payload) {
            Ok(()) => {
                base.put_back(request.answered());
                Ok(())
            }
            Err(None) => {
                base.put_back(request.answered());
                Err(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends answers that were given on other threads, and those for which there was no space before.
    pub fn send_posted(&mut self, base: &mut Base, sending: &mut Sending) {
        self.posted.extend(base.inbox.take());
        for _ in 0..self.posted.len() {
            let Some((id, posted)) = self.posted.pop_front() else { break };
            let sent = match &posted {
                Posted::Reply(bytes) => answer(base, sending, id, None, bytes.into()),
                Posted::Error(code, bytes) => answer(base, sending, id, Some(*code), bytes.into()),
                Posted::Dropped => {
                    refuse(base, id, NoReply::Dropped);
                    Ok(())
                }
            };
            match sent {
                Err(Some(SendError::WouldBlock)) => self.posted.push_back((id, posted)),
                // Nobody is there to be given the error, so the client is.
                Err(Some(_)) => refuse(base, id, NoReply::Lost),
                Ok(()) | Err(None) => {}
            }
        }
        if !self.posted.is_empty() && !base.due.contains(&Due::Posted) {
            base.due.push_back(Due::Posted);
        }
    }
}

/// Sends an answer. `None`: nobody waits for it.
fn answer(
    base: &mut Base,
    sending: &mut Sending,
    RequestId { connection, call }: RequestId,
    code: Option<u32>,
    payload: Payload<'_>,
) -> Result<(), Option<SendError>> {
    let purpose = match code {
        None => Purpose::Reply(call),
        Some(code) => Purpose::Error { call, code },
    };
    sending.answer(base, connection, purpose, payload)
}

/// Ends a request without an answer.
fn refuse(base: &mut Base, RequestId { connection, call }: RequestId, why: NoReply) {
    if base.peers.get_mut(connection).and_then(|peer| peer.end_request(call)).is_some() {
        base.no_reply(connection, call, why);
    }
}
