//! Events of a service.

use crate::content::Message;
use crate::directory::Instance;
use crate::error::{CallError, ReachError};
use crate::handles::{CallId, Partner, Service};
use crate::name::ServiceName;

/// A request that expects an answer, by [`Node::answer`](crate::Node::answer) or [`Node::refuse`](crate::Node::refuse). Requests
/// may be answered in any order.
#[derive(Debug)]
pub struct Request {
    pub(crate) message: Message,
    pub(crate) ticket: Ticket,
}

/// Identifies a request that is to be answered.
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

    /// The content, and the ticket to answer later.
    pub fn into_parts(self) -> (Message, Ticket) {
        (self.message, self.ticket)
    }

    /// The ticket to answer the request.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

/// An event of a service. Later versions may report more, so a program ignores events that it does not know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message came.
    Message(Message),
    /// A request came.
    Request(Request),
    /// A call ended. Each call ends exactly once.
    Answer {
        /// The call.
        call: CallId,
        /// The number that was given to the call.
        context: u64,
        /// The answer, or why there is none.
        result: Result<Message, CallError>,
    },
    /// Long items that were lent belong to this program again.
    Returned {
        /// The partner to which they were lent.
        partner: Partner,
        /// The number that was given with them.
        context: u64,
        /// Whether the partner has fetched all of them. If not, it did not want them, is gone, or the lease has ended.
        fetched: bool,
    },
    /// A partner was not reached, and messages to it are dropped.
    Unreachable {
        /// The partner.
        partner: Partner,
        /// Its name.
        name: ServiceName,
        /// Why it was not reached.
        error: ReachError,
        /// How many messages are dropped.
        messages: usize,
    },
    /// The service's name belongs to another process now, and partners will connect to that one.
    NameLost {
        /// The new owner, as a text for people.
        to: String,
    },
    /// Another process wants to be this service from now on. [`Node::hand_over`](crate::Node::hand_over) gives it the service.
    TakeOver(Request),
    /// The node's device failed. Nothing will come any more.
    DeviceFailed,
}
