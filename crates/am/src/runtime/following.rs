//! Messages that follow puts which have ended.

use super::Runtime;
use super::callback::{Callback, Done};
use super::{operating, waiting};
use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use crate::process::{Elements, Following, Starter, Transfer};
use cci::Memory;

/// [`Runtime::put_am`].
pub(super) fn put(
    runtime: &mut Runtime,
    remote: (u64, Elements),
    local: (&Memory, isize, Elements),
    message: Following,
    done: Callback,
) -> Result<()> {
    message.check(&runtime.process)?;
    let rank = message.rank;
    let written = move |runtime: &mut Runtime, result: Result<()>| match result {
        Ok(()) => {
            runtime.following.push(message, done);
            send(runtime);
        }
        Err(error) => done.ended(runtime, Err(error)),
    };
    waiting::for_space(runtime, |runtime| {
        if runtime.following.count() < OPERATIONS_MAX { Ok(()) } else { Err(AmError::WouldBlock) }
    })?;
    operating::transfer_described(runtime, Transfer::Put, rank, remote, local, Box::new(Done(written)))
}

/// Sends the messages for which there is space, and calls the callbacks of their operations. Returns whether any was sent.
pub(super) fn send(runtime: &mut Runtime) -> bool {
    let Runtime { following, process, .. } = runtime;
    let sent = following.send(|Following { context, rank, handler, args }| {
        match process.request(Starter::Handler, *context, *rank, *handler, args, &[]) {
            Err(AmError::WouldBlock) => None,
            result => Some(result),
        }
    });
    let any = !sent.is_empty();
    let was_handling = std::mem::replace(&mut runtime.is_handling, true);
    for (result, done) in sent {
        done.ended(runtime, result.map(|()| 0));
    }
    runtime.is_handling = was_handling;
    any
}
