//! The task that gets a messenger's events.

use super::state::Shared;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// How an executor's reactor shows that the descriptor of one messenger is readable.
pub trait Reactor: Send + Unpin + 'static {
    /// If the descriptor may be readable, calls `look`, and returns `Ready` if that finds something. Otherwise it has the task woken when
    /// the descriptor becomes readable, and returns `Pending`. A reactor that reports edges must not forget one that came while
    /// `look` ran.
    ///
    /// # Errors
    /// The reactor's own. The driver ends, and with it everything that waits.
    fn poll_readable(
        &mut self,
        context: &mut Context<'_>,
        look: &mut dyn FnMut() -> bool,
    ) -> Poll<io::Result<()>>;
}

/// Gets the events of a messenger, and wakes the tasks that they concern. To be spawned as a task. It is ready when the messenger and all its
/// connections have been dropped, or with an error of the reactor.
#[must_use = "nothing happens unless the driver is polled: spawn it"]
pub struct Driver<R> {
    shared: Arc<Shared>,
    reactor: R,
}

impl<R: Reactor> Driver<R> {
    pub(super) fn new(shared: Arc<Shared>, reactor: R) -> Driver<R> {
        Driver { shared, reactor }
    }
}

impl<R: Reactor> Future for Driver<R> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Driver { shared, reactor } = self.get_mut();
        {
            let mut state = shared.lock();
            state.set_driver(context);
            // What tasks have started goes on its way here, whether anything has come or not.
            let has_more = state.turn();
            if state.handles == 0 || state.is_over {
                return Poll::Ready(Ok(()));
            }
            if has_more {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        // Only now is the descriptor certain to become readable when something comes.
        match ready!(reactor.poll_readable(context, &mut || shared.lock().turn())) {
            Ok(()) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<R> Drop for Driver<R> {
    fn drop(&mut self) {
        self.shared.lock().end();
    }
}
