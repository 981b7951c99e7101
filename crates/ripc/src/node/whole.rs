//! A message as it came, before it reaches its service.

use crate::content::{LongItem, Message};
use crate::directory::Instance;
use crate::event::{Event, Request, Ticket};
use crate::handles::{Partner, Service};
use crate::name::ServiceName;
use crate::wire::{self, Head};
use cci::Connection;

/// A message as it came, to be delivered with its long items.
pub struct Whole {
    pub partner: Partner,
    pub connection: Connection,
    pub from: ServiceName,
    pub head: Head,
    pub frame: cci::Message,
    pub long_items: Vec<Option<LongItem>>,
    /// The client, if it is a request.
    pub client: Option<Instance>,
    /// Whether the connection ended before all long items were here.
    pub is_lost: bool,
    /// The service that receives it now and waits for its long items, if they are not fetched earlier.
    pub received_by: Option<Service>,
}

impl Whole {
    /// A frame of a partner's, as it came.
    pub fn new(
        (partner, connection): (Partner, Connection),
        from: ServiceName,
        head: Head,
        frame: cci::Message,
    ) -> Whole {
        let long_items = Vec::new();
        Whole {
            partner,
            connection,
            from,
            head,
            frame,
            long_items,
            client: None,
            is_lost: false,
            received_by: None,
        }
    }

    /// Whether it has long items that are still at the sender.
    pub fn is_to_be_fetched(&self) -> bool {
        self.head.long_items(&self.frame).any(|item| matches!(item, wire::LongItem::There { .. }))
    }

    /// Makes the message, without the long items that are not here.
    pub fn into_message(self) -> Message {
        let Whole { partner, from, frame, long_items, .. } = self;
        Message { frame, from, partner, long_items }
    }

    /// Makes the event for the program: a message, or a request.
    pub fn into_event(self, service: Service) -> Event {
        match self.client {
            Some(client) => {
                let ticket = Ticket { service, client, number: self.head.number };
                Event::Request(Request { message: self.into_message(), ticket })
            }
            None => Event::Message(self.into_message()),
        }
    }

    /// Makes the message of a sender that is gone with its long items.
    pub fn into_message_without(mut self) -> Message {
        self.long_items = (0..self.head.long_items).map(|_| None).collect();
        self.into_message()
    }
}
