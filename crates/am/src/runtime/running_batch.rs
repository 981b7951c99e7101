//! Runs handlers and callbacks that are due.

use super::Runtime;
use super::running_handler::RunningHandler;
use crate::error::Result;
use crate::limits::ARGS_MAX;
use crate::message::Message;
use crate::process::{Batch, Delivery, Due};

/// Runs the callbacks of operations that had ended when they were started. Returns whether there were any.
#[inline]
pub(super) fn run_ended(runtime: &mut Runtime) -> bool {
    if runtime.callbacks.ended() == 0 {
        return false;
    }
    runtime.is_handling = true;
    let handling = Handling(runtime);
    while let Some((done, value)) = handling.0.callbacks.next_ended() {
        done.ended_well(handling.0, value);
    }
    true
}

/// Marks that callbacks run, while this lives, also if one panics.
struct Handling<'a>(&'a mut Runtime);

impl Drop for Handling<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.is_handling = false;
    }
}

/// Puts a batch back when it is done, also if a handler panics.
pub(super) struct RunningBatch<'a> {
    runtime: &'a mut Runtime,
    batch: Option<Batch>,
}

impl RunningBatch<'_> {
    pub(super) fn of(runtime: &mut Runtime, batch: Option<Batch>) -> RunningBatch<'_> {
        RunningBatch { runtime, batch }
    }

    /// Runs the callback of a collective that has ended, or keeps its result for the call that waits for it.
    #[inline]
    pub(super) fn end_collective(&mut self, cookie: u64, result: Result<Vec<u8>>) {
        if let Some(done) = self.runtime.collecting.remove(&cookie) {
            self.runtime.is_handling = true;
            done(self.runtime, result);
            self.runtime.is_handling = false;
        } else {
            self.runtime.awaited = Some((cookie, result));
        }
    }

    /// Runs the batch. Returns whether any handler has run.
    #[inline(always)]
    pub(super) fn run(mut self) -> bool {
        let mut ran = false;
        while let Some(batch) = &mut self.batch {
            if let Some(message) = self.runtime.process.next_at_once(batch) {
                ran = true;
                handle(self.runtime, message);
            } else if self.runtime.process.has_more(batch) && self.run_next() {
                ran = true;
            } else {
                break;
            }
        }
        if let Some(batch) = self.batch.take() {
            self.runtime.process.put_back(batch);
        }
        ran
    }

    /// Runs the next thing that is due. Returns whether there was any.
    #[inline(never)]
    fn run_next(&mut self) -> bool {
        let Some(due) = self.batch.as_mut().and_then(|batch| self.runtime.process.next(batch)) else {
            return false;
        };
        match due {
            Due::Message(message) => handle(self.runtime, message),
            Due::Done { cookie, result } => {
                if let Some(done) = self.runtime.callbacks.take(cookie) {
                    self.runtime.is_handling = true;
                    done.ended(self.runtime, result);
                    self.runtime.is_handling = false;
                }
            }
            Due::Collected { cookie, result } => self.end_collective(cookie, result),
            Due::Gone { rank, why } => {
                if let Some(report) = &mut self.runtime.on_gone {
                    report(rank, &why);
                }
            }
        }
        true
    }

    /// Puts a batch back after a handler has panicked.
    #[cold]
    fn put_back(&mut self, batch: Batch) {
        self.runtime.process.put_back(batch);
    }
}

/// Calls the handler of a message.
#[inline(always)]
fn handle(runtime: &mut Runtime, delivery: Delivery<'_>) {
    if delivery.args.count() > 0 {
        return handle_with_args(runtime, &delivery);
    }
    call(runtime, &delivery, &[]);
}

#[inline(never)]
fn handle_with_args(runtime: &mut Runtime, delivery: &Delivery<'_>) {
    let mut args = [0; ARGS_MAX];
    call(runtime, delivery, delivery.args.decode(&mut args));
}

#[inline(always)]
fn call(runtime: &mut Runtime, delivery: &Delivery<'_>, args: &[i64]) {
    let &Delivery { handler, token, sender, context, data, large_bytes, .. } = delivery;
    runtime.is_handling = true;
    if let Some(mut running) = RunningHandler::take(runtime, handler as usize) {
        running.call(&Message { token, sender, context, args, data, large_bytes });
    }
    runtime.is_handling = false;
    runtime.process.end(token);
}

/// Calls the handler of a message that is in no batch.
#[inline(always)]
pub(super) fn handle_alone(runtime: &mut Runtime, delivery: Delivery<'_>) {
    let if_it_panics = EndHandling(runtime);
    handle(if_it_panics.0, delivery);
    std::mem::forget(if_it_panics);
}

/// Ends a message whose handler has panicked.
struct EndHandling<'a>(&'a mut Runtime);

impl Drop for EndHandling<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.is_handling = false;
        self.0.process.end_running();
    }
}

impl Drop for RunningBatch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.runtime.is_handling = false;
        if let Some(batch) = self.batch.take() {
            self.put_back(batch);
        }
    }
}
