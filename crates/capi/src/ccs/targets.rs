//! Where data of large messages go: what their handlers say.

use super::descriptions::Data;
use super::here::called;
use super::live::{Call, Live};
use super::local::{Local, start};
use super::operations::{Callback, Ending, Outcome, Pointer};
use super::status::Result;
use super::types::*;
use cci::{Foreign, Memory};
use cci_am::description::Description;
use cci_am::process::Transfer;
use cci_am::{Elements, Held, Token};
use libc::c_int;

/// What the program calls a message.
pub(super) fn token_to_c(token: Token) -> CCS_token_t {
    std::ptr::without_provenance_mut(token.number() as usize)
}

/// What a handler has said.
pub(super) enum Decision {
    Accept(CCS_target_t),
    /// What it has not held is aborted.
    Else,
}

/// Calls a handler of large messages, which is the program's.
pub(super) fn ask(
    handler: Option<(LargeHandler, Pointer)>,
    token: Token,
    bytes: u64,
    args: &[i64],
) -> Decision {
    let nothing = std::ptr::null_mut();
    let mut target = CCS_target_t { buffer: nothing, count: 0, desc: nothing, done: None, arg: nothing };
    let mut said = CCS_LARGE_ABORT;
    let Some((handler, user)) = handler else { return Decision::Else };
    let (nargs, args) = (args.len() as c_int, args.as_ptr().cast());
    called(|| {
        // SAFETY: the program has registered this function for such calls; the target and the arguments live until it returns.
        said = unsafe { handler(token_to_c(token), bytes as usize, &raw mut target, nargs, args, user.0) }
    });
    if said == CCS_LARGE_ACCEPT { Decision::Accept(target) } else { Decision::Else }
}

/// Does what a handler has said.
pub(super) fn decide(live: &mut Live, token: Token, decision: Decision) {
    let Decision::Accept(target) = decision else { return };
    // If it has held the message too, that is for later.
    let Ok(held) = live.process.hold(token) else { return };
    if let Err(code) = accept(live, held, &target) {
        // Nothing can go there: both sides get an error.
        let aborted = live.process.abort(held);
        debug_assert!(aborted.is_ok(), "it was held just now");
        if let Some(done) = target.done {
            let (callback, arg, status) = (Callback::WithStatus(done), Pointer(target.arg), code.number());
            live.due.push_back(Call::Callback { callback, arg, status });
        }
    }
}

/// Has the data of a held message go to a target.
pub(super) fn accept(live: &mut Live, held: Held, target: &CCS_target_t) -> Result<()> {
    let here = Data::new(target.buffer, target.count, target.desc)?;
    // SAFETY: the program promises, by the description of `CCS_target_t`, that what it describes is there until its end was reported.
    let local = unsafe { Local::new(Transfer::Get, &here) }?;
    let nothing = Memory::foreign(Foreign::owned(Box::default()));
    let into = local.elements(&here)?;
    let (memory, origin, elements) =
        into.unwrap_or((&nothing, 0, Elements { count: 0, description: Description::null() }));
    let result = match &local {
        Local::Packed(packed) => Outcome::Unpack {
            packed: packed.clone(),
            to: Pointer(here.buffer.cast_mut()),
            count: here.count,
            description: here.described.description.clone(),
        },
        _ => Outcome::Nothing,
    };
    let (callback, arg) = (target.done.map(Callback::WithStatus), Pointer(target.arg));
    start(live, Ending { callback, arg, result, then: None }, |live, cookie| {
        Ok(live.process.accept(held, (memory, origin, elements), cookie)?)
    })
}
