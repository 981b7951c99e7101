//! A partner as tasks see it: messages, calls, and reaching it.

use super::state::Shared;
use crate::content::{Content, Message};
use crate::error::{CallError, ReachError, SendError};
use crate::handles::{self, CallId, Service};
use crate::node::CallOptions;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Another service, as one of a node's services sees it. Clones are the same partner.
#[derive(Clone)]
pub struct Partner {
    shared: Arc<Shared>,
    service: Service,
    partner: handles::Partner,
}

impl Partner {
    pub(super) fn new(shared: &Arc<Shared>, service: Service, partner: handles::Partner) -> Partner {
        Partner { shared: shared.clone(), service, partner }
    }

    /// Sends a message, without waiting: see [`cci_ripc::Node::send`](crate::Node::send).
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent.
    pub fn send<'a>(&self, content: impl Into<Content<'a>>) -> Result<(), SendError> {
        let mut state = self.shared.lock();
        let sent = state.node.send(self.partner, content);
        state.wake_driver();
        sent
    }

    /// Asks the partner, and waits for the answer: see [`cci_ripc::Node::call`](crate::Node::call). It waits for space, too, while the service
    /// has as many calls under way as it may have; that counts towards the time that `options` gives.
    ///
    /// # Errors
    /// [`CallError`], also where the call was not begun.
    pub async fn call<'a>(
        &self,
        content: impl Into<Content<'a>>,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let content = content.into();
        let began = Instant::now();
        let call = poll_fn(|context| self.poll_begin(&content, options, began, context)).await?;
        Wait { shared: &self.shared, service: self.service, call: Some(call) }.await
    }

    fn poll_begin(
        &self,
        content: &Content<'_>,
        options: CallOptions,
        began: Instant,
        context: &Context<'_>,
    ) -> Poll<Result<CallId, CallError>> {
        let mut state = self.shared.lock();
        if state.is_over {
            return Poll::Ready(Err(CallError::Closed));
        }
        let timeout = options.timeout.saturating_sub(began.elapsed());
        if timeout.is_zero() && !options.timeout.is_zero() {
            return Poll::Ready(Err(CallError::TimedOut { reached: false, reason: None }));
        }
        match state.node.call(self.partner, *content, options.timeout(timeout)) {
            Ok(call) => {
                state.called(self.service, call);
                Poll::Ready(Ok(call))
            }
            Err(SendError::WouldBlock) if state.wait_for_space(self.service, context) => Poll::Pending,
            Err(error) => Poll::Ready(Err(CallError::Fetch(error.to_string()))),
        }
    }

    /// Looks for the partner and connects to it, unless that is done. Waits for `timeout`, and half a second longer at most.
    ///
    /// # Errors
    /// [`ReachError`] says what stood in the way.
    pub async fn reach(&self, timeout: Duration) -> Result<(), ReachError> {
        let began = Instant::now();
        poll_fn(|context| {
            let mut state = self.shared.lock();
            if state.node.try_reach(self.partner) {
                state.wake_driver();
                return Poll::Ready(Ok(()));
            }
            if state.is_over || began.elapsed() >= timeout || !state.node.has_partner(self.partner) {
                return Poll::Ready(Err(state.node.reach_error(self.partner, timeout)));
            }
            state.wait_for_turn(context);
            state.wake_driver();
            Poll::Pending
        })
        .await
    }
}

impl fmt::Debug for Partner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partner").field("partner", &self.partner).finish_non_exhaustive()
    }
}

/// Waits for the end of a call, and gives the call up if it is dropped before.
struct Wait<'a> {
    shared: &'a Shared,
    service: Service,
    /// `None` after the call has ended.
    call: Option<CallId>,
}

impl Future for Wait<'_> {
    type Output = Result<Message, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Message, CallError>> {
        let Some(call) = self.call else { return Poll::Ready(Err(CallError::Closed)) };
        let polled = self.shared.lock().poll_call(self.service, call, context);
        if polled.is_ready() {
            self.call = None;
        }
        polled
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.shared.lock().give_up(self.service, call);
        }
    }
}
