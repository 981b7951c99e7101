//! A handler while it runs.

use super::{HandlerFn, Runtime};
use crate::message::Message;

/// A handler that was taken out of its place, since it gets all of the runtime. It is put back when this is dropped, also if it
/// panics.
pub(super) struct RunningHandler<'a> {
    runtime: &'a mut Runtime,
    at: usize,
    handler: Option<Box<HandlerFn>>,
}

impl RunningHandler<'_> {
    /// Takes a handler. `None` if there is none of this number, or it runs.
    #[inline(always)]
    pub fn take(runtime: &mut Runtime, at: usize) -> Option<RunningHandler<'_>> {
        let handler = runtime.handlers.get_mut(at)?.take()?;
        Some(RunningHandler { runtime, at, handler: Some(handler) })
    }

    #[inline(always)]
    pub fn call(&mut self, message: &Message<'_>) {
        if let Some(handler) = &mut self.handler {
            handler(self.runtime, message);
        }
    }
}

impl Drop for RunningHandler<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody else has put a handler there.
        if let Some(place @ None) = self.runtime.handlers.get_mut(self.at) {
            *place = self.handler.take();
        }
    }
}
