//! What happens to a service.

use crate::content::Message;
use crate::directory::Instance;
use crate::error::{CallError, ReachError};
use crate::handles::{CallId, Partner, Service};
use crate::name::ServiceName;

/// A request that wants an answer, by [`Node::answer`](crate::Node::answer) or [`Node::refuse`](crate::Node::refuse), in any order.
#[derive(Debug)]
pub struct Request {
    pub(crate) message: Message,
    pub(crate) ticket: Ticket,
}

/// What is needed to answer a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) service: Service,
    pub(crate) client: Instance,
    pub(crate) number: u64,
}

impl Request {
    /// The request's content.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The content, and what is needed to answer later.
    pub fn into_parts(self) -> (Message, Ticket) {
        (self.message, self.ticket)
    }

    /// What is needed to answer it.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

/// What happens to a service. Later versions may report more: a program ignores what it does not know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message came.
    Message(Message),
    /// A request came.
    Request(Request),
    /// A call ended: exactly once for each.
    Answer {
        /// Which.
        call: CallId,
        /// As given to the call.
        context: u64,
        /// The answer, or why there is none.
        result: Result<Message, CallError>,
    },
    /// Long items that were lent are this program's again.
    Returned {
        /// To whom they were lent.
        partner: Partner,
        /// As given with them.
        context: u64,
        /// Whether the partner has fetched all of them. Otherwise it did not want them, is gone, or the lease has ended.
        fetched: bool,
    },
    /// A partner was not reached, and messages to it are dropped.
    Unreachable {
        /// Which.
        partner: Partner,
        /// Its name.
        name: ServiceName,
        /// Why.
        error: ReachError,
        /// How many messages are dropped.
        messages: usize,
    },
    /// The service's name belongs to somebody else now: partners will go there.
    NameLost {
        /// To whom, for people.
        to: String,
    },
    /// Another process wants to be this service from now on: [`Node::hand_over`](crate::Node::hand_over) gives it away.
    TakeOver(Request),
    /// The node's device failed. Nothing will come any more.
    DeviceFailed,
}
