//! A connection as tasks see it: futures for what is sent and asked, a stream of what comes, and a sink.

use super::error::{CallError, SendError};
use super::operations::Outcome;
use super::received::Received;
use super::state::{Posted, Shared};
use super::wait::{Wait, start};
use crate::connection::Connection as Handle;
use crate::messages::{self, Message, Offer, Payload, ReceiveError, ReceiveFailure};
use crate::options::SendFlags;
use crate::rma::Memory;
use futures_core::Stream;
use futures_sink::Sink;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A connection to another messenger. Dropping it closes it: see [`messages::Messenger::disconnect`].
///
/// It is a `Stream` of what comes, which ends with the connection, and a `Sink` of messages.
pub struct Connection {
    shared: Arc<Shared>,
    handle: Handle,
    /// A message that the sink has taken and that found no space.
    queued: Option<Vec<u8>>,
}

impl Connection {
    pub(super) fn new(shared: &Arc<Shared>, handle: Handle) -> Connection {
        shared.lock().handles += 1;
        Connection { shared: shared.clone(), handle, queued: None }
    }

    /// The connection's name in [`messages::Messenger`].
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Sends a message of any length, and waits until the peer has it. Waits for space first, if there is none.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send<'a>(&self, payload: impl Into<Payload<'a>>) -> Result<(), SendError> {
        let payload = payload.into();
        let begin = |messenger: &mut messages::Messenger, context| {
            messenger.send(self.handle, payload, context, SendFlags::NONE)
        };
        let started = start(&self.shared, Some(self.handle), begin).await;
        let (key, _) = started.ok_or(SendError::Over)?.map_err(SendError::NotTaken)?;
        match Wait::new(&self.shared, key).await {
            Some(Outcome::Sent(result)) => result.map_err(SendError::Failed),
            _ => Err(SendError::Over),
        }
    }

    /// Hands a message over for sending, as verbs' post does, and waits for space only. [`Connection::flush`] waits for the end of all that
    /// were posted; until then, memory must not change. This takes the fewest instructions where many messages are on their way.
    ///
    /// # Errors
    /// The message was not taken. [`SendError::Failed`]: one that was posted before has failed.
    pub async fn post<'a>(&self, payload: impl Into<Payload<'a>>) -> Result<(), SendError> {
        let payload = payload.into();
        poll_fn(|context| self.poll_post(payload, context)).await
    }

    /// Waits until the peer has all messages that were posted, also meanwhile, and those that the sink has sent.
    ///
    /// # Errors
    /// [`SendError::Failed`]: one of them did not arrive. [`SendError::Over`]: the driver has ended before them.
    pub async fn flush(&self) -> Result<(), SendError> {
        poll_fn(|context| self.poll_flushed(context)).await
    }

    /// Asks the peer, and waits for the reply: see [`messages::Messenger::call`]. Waits for space first, if there is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call<'a>(
        &self,
        request: impl Into<Payload<'a>>,
        timeout: Option<Duration>,
    ) -> Result<Message, CallError> {
        let request = request.into();
        let begin = |messenger: &mut messages::Messenger, context| {
            messenger.call(self.handle, request, timeout, context)
        };
        let started = start(&self.shared, Some(self.handle), begin).await;
        let (key, call) = started.ok_or(CallError::Over)?.map_err(CallError::NotTaken)?;
        match Wait::of_call(&self.shared, key, call).await {
            Some(Outcome::Replied(result)) => result.map_err(CallError::Failed),
            _ => Err(CallError::Over),
        }
    }

    /// What comes next. `None`: the connection has ended.
    pub async fn receive(&self) -> Option<Received> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// Takes an offered message into memory of the program's, from `offset` on, and waits until all of it is there; until then the
    /// memory must not be used.
    ///
    /// # Errors
    /// Why it was not accepted, or why it was not received.
    pub async fn receive_into(
        &self,
        offer: Offer,
        memory: &Memory,
        offset: usize,
    ) -> Result<Result<(), ReceiveFailure>, ReceiveError> {
        let begin = |messenger: &mut messages::Messenger, context| {
            messenger.receive_into(offer, memory, offset, context)
        };
        let started = start(&self.shared, Some(self.handle), begin).await;
        let (key, ()) = started.ok_or(ReceiveError::Ended)??;
        match Wait::of_offer(&self.shared, key, offer).await {
            Some(Outcome::Received(result)) => Ok(result),
            _ => Err(ReceiveError::Ended),
        }
    }

    /// Takes an offered message into memory that the library lends. It comes as [`Received::Message`].
    ///
    /// # Errors
    /// [`ReceiveError`].
    pub fn receive_lent(&self, offer: Offer) -> Result<(), ReceiveError> {
        let mut state = self.shared.lock();
        state.wake_driver();
        state.messenger.receive(offer)
    }

    /// Refuses an offered message with a code of the program's.
    ///
    /// # Errors
    /// [`ReceiveError::Ended`].
    pub fn refuse(&self, offer: Offer, code: u32) -> Result<(), ReceiveError> {
        let mut state = self.shared.lock();
        state.wake_driver();
        state.messenger.refuse(offer, code)
    }

    #[inline]
    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<Option<Received>> {
        self.shared.lock().next_received(self.handle, context)
    }

    #[inline]
    fn poll_post(&self, payload: Payload<'_>, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        match self.shared.lock().post(self.handle, payload, context) {
            Posted::Taken => Poll::Ready(Ok(())),
            Posted::WouldBlock => Poll::Pending,
            Posted::Refused(error) => Poll::Ready(Err(SendError::NotTaken(error))),
            Posted::Failed(failure) => Poll::Ready(Err(SendError::Failed(failure))),
            Posted::Over => Poll::Ready(Err(SendError::Over)),
        }
    }

    fn poll_flushed(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        let flushed = self.shared.lock().poll_flushed(self.handle, context);
        flushed.map_err(|failure| failure.map_or(SendError::Over, SendError::Failed))
    }

    /// Sends what the sink has taken.
    fn poll_queued(&mut self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        let Some(bytes) = &self.queued else { return Poll::Ready(Ok(())) };
        let posted = ready!(self.poll_post(Payload::Bytes(bytes), context));
        // The failure of a message before this one says nothing of this one, which can still be sent.
        if !matches!(posted, Err(SendError::Failed(_))) {
            self.queued = None;
        }
        Poll::Ready(posted)
    }
}

impl Stream for Connection {
    type Item = Received;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received>> {
        self.poll_receive(context)
    }
}

/// Messages leave in order. The sink is ready when the last one was taken for sending, and flushed when the peer has all of them.
impl<T: Into<Vec<u8>>> Sink<T> for Connection {
    type Error = SendError;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.get_mut().poll_queued(context)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), SendError> {
        self.get_mut().queued = Some(item.into());
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let this = self.get_mut();
        ready!(this.poll_queued(context))?;
        this.poll_flushed(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let this = self.get_mut();
        ready!(Sink::<T>::poll_flush(Pin::new(&mut *this), context))?;
        this.shared.lock().close(this.handle);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handles -= 1;
        state.close(self.handle);
        state.wake_driver();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("handle", &self.handle).finish_non_exhaustive()
    }
}
