//! A service as tasks see it.

use super::partner::Partner;
use super::state::Shared;
use crate::content::{Content, Part};
use crate::error::SendError;
use crate::event::{Event, Request, Ticket};
use crate::handles;
use crate::name::ServiceName;
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A service of a node, and a [`Stream`] of its events. Dropping it withdraws the service.
pub struct Service {
    shared: Arc<Shared>,
    service: handles::Service,
}

impl Service {
    pub(super) fn new(shared: &Arc<Shared>, service: handles::Service) -> Service {
        Service { shared: shared.clone(), service }
    }

    /// The next event. The ends of calls are not among them: they go to the tasks that wait for them. `None` means that the
    /// driver has ended, and nothing will come. Several tasks may wait; each event goes to one of them.
    pub async fn next(&self) -> Option<Event> {
        poll_fn(|context| self.shared.lock().poll_event(self.service, context)).await
    }

    /// Another service, as this one sees it: see [`cci_ripc::Node::partner`](crate::Node::partner).
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if there are as many partners as there may be.
    pub fn partner(&self, name: &ServiceName) -> Result<Partner, SendError> {
        let partner = self.shared.lock().node.partner(self.service, name)?;
        Ok(Partner::new(&self.shared, self.service, partner))
    }

    /// The sender of a message or request of this service.
    pub fn sender(&self, partner: handles::Partner) -> Partner {
        Partner::new(&self.shared, self.service, partner)
    }

    /// Answers a request: see [`cci_ripc::Node::answer`](crate::Node::answer).
    ///
    /// # Errors
    /// After any [`SendError`], the request has no answer yet.
    pub fn answer<'a>(&self, ticket: Ticket, content: impl Into<Content<'a>>) -> Result<(), SendError> {
        self.act(|node| node.answer(ticket, content))
    }

    /// Answers that a request can't be carried out, and why.
    ///
    /// # Errors
    /// Those of [`Service::answer`].
    pub fn refuse(&self, ticket: Ticket, reason: &[u8]) -> Result<(), SendError> {
        self.act(|node| node.refuse(ticket, reason))
    }

    /// Gives the service away to the process that asked for it: see [`cci_ripc::Node::hand_over`](crate::Node::hand_over).
    ///
    /// # Errors
    /// Those of [`Service::answer`]; the service is still this process's then.
    pub fn hand_over<'a>(&self, request: Request, content: impl Into<Content<'a>>) -> Result<(), SendError> {
        self.act(|node| node.hand_over(request, content))
    }

    /// Sends short items to all other members of a group: see [`cci_ripc::Node::publish`](crate::Node::publish).
    ///
    /// # Errors
    /// [`SendError::Unknown`] if this is no member of a group, and those that concern the content.
    pub fn publish(&self, items: &[&[u8]]) -> Result<usize, SendError> {
        self.act(|node| node.publish(self.service, items))
    }

    /// Gives a window, which one long item of a message is fetched into: see [`cci_ripc::Node::give_window`](crate::Node::give_window).
    ///
    /// # Errors
    /// [`SendError::Range`] if the part is empty or reaches beyond its memory.
    pub fn give_window(&self, window: Part) -> Result<(), SendError> {
        self.act(|node| node.give_window_part(Some(self.service), window))
    }

    fn act<T>(&self, act: impl FnOnce(&mut crate::Node) -> T) -> T {
        let mut state = self.shared.lock();
        let done = act(&mut state.node);
        state.wake_driver();
        done
    }
}

impl Stream for Service {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.shared.lock().poll_event(self.service, context)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.lock().close(self.service);
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("service", &self.service).finish_non_exhaustive()
    }
}
