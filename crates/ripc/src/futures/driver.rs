//! The task that makes a node's progress.

use super::state::Shared;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How an executor's reactor watches the descriptor of one node.
pub trait Reactor: Send + Unpin + 'static {
    /// Returns `Ready` if the descriptor has become readable since it last did so, or if `within` is over. Otherwise it has the task woken
    /// when the first of the two happens, and returns `Pending`. It may watch edges: the driver takes all that has come after each `Ready`.
    ///
    /// # Errors
    /// The reactor's own. The driver ends, and with it everything that waits.
    fn poll_wake(&mut self, context: &mut Context<'_>, within: Duration) -> Poll<io::Result<()>>;
}

/// Makes the progress of a node, and wakes the tasks that it concerns. To be spawned as a task. It is ready when the node and all its
/// services have been dropped, or with an error of the reactor.
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
        let within = {
            let mut state = shared.lock();
            state.set_driver(context);
            let has_more = state.turn();
            if state.handles == 0 || state.is_over {
                return Poll::Ready(Ok(()));
            }
            if has_more { Duration::ZERO } else { state.node.next_due() }
        };
        // The descriptor is certain to become readable only when nothing more was there to take.
        if !within.is_zero() {
            ready!(reactor.poll_wake(context, within))?;
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<R> Drop for Driver<R> {
    fn drop(&mut self) {
        self.shared.lock().end();
    }
}
