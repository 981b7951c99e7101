//! The task that gets a messenger's events.

use super::state::{Shared, Turn};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How an executor's reactor tells that the descriptor of one messenger is readable.
pub trait Reactor: Send + Unpin + 'static {
    /// If the descriptor may be readable, calls `look`, and returns `Ready` if that finds something. Otherwise it has the task woken when
    /// the descriptor becomes readable, and returns `Pending`: the driver looks by itself then, unless `look` was called. A reactor that
    /// reports edges must not forget one that came while `look` ran.
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
        let waker = context.waker();
        let mut last = None;
        // Each look is a whole turn, so there need be no other one.
        let polled = reactor.poll_readable(context, &mut || {
            let turn = shared.lock().turn(waker);
            last = Some(turn);
            turn != Turn::Idle
        })?;
        // What tasks have started goes on its way here, whether anything has come or not. Something that comes after it makes the
        // descriptor readable, which the reactor watches already.
        match last.unwrap_or_else(|| shared.lock().turn(waker)) {
            Turn::Over => return Poll::Ready(Ok(())),
            Turn::More => waker.wake_by_ref(),
            Turn::Idle if polled.is_ready() => waker.wake_by_ref(),
            Turn::Idle => {}
        }
        Poll::Pending
    }
}

impl<R> Drop for Driver<R> {
    fn drop(&mut self) {
        self.shared.lock().end();
    }
}
