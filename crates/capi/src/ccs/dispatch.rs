//! Progress: handlers and callbacks of the program, called as C wants it.

use super::errors;
use super::here::{Here, called, check_may_wait};
use super::live::{Call, Live, Locked, lock};
use super::operations::Callback;
use super::status::{Code, Result};
use super::targets::{self, token_to_c};
use super::types::*;
use cci_am::Token;
use cci_am::limits::ARGS_MAX;
use cci_am::process::Due;
use libc::{c_uint, c_void};
use std::time::{Duration, Instant};

/// Makes progress, and runs what is due on this thread, if it may. Returns whether anything ran.
pub(super) fn poll() -> Result<bool> {
    let mut live = lock()?;
    live.progress();
    if Here::get().is_closed() { Ok(false) } else { run_due(live) }
}

/// Waits until `look` has an answer, with handlers running meanwhile.
pub(super) fn wait_until<R>(look: impl FnMut(&mut Live) -> Result<Option<R>>) -> Result<R> {
    wait_until_at_most(None, Live::progress, look).and_then(|found| found.ok_or(Code::AGAIN))
}

/// Waits until a collective has ended, of which `look` knows.
pub(super) fn wait_for_collective<R>(look: impl FnMut(&mut Live) -> Result<Option<R>>) -> Result<R> {
    wait_until_at_most(None, Live::progress_collective, look).and_then(|found| found.ok_or(Code::AGAIN))
}

/// Waits until `look` has an answer, for up to `timeout`.
pub(super) fn wait_until_at_most<R>(
    timeout: Option<Duration>,
    progress: fn(&mut Live),
    mut look: impl FnMut(&mut Live) -> Result<Option<R>>,
) -> Result<Option<R>> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let mut live = lock()?;
        progress(&mut live);
        if let Some(found) = look(&mut live)? {
            return Ok(Some(found));
        }
        if !Here::get().is_closed() && live.has_due() {
            run_due(live)?;
            // What ran may have brought the answer: look before the next sleep.
            continue;
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
        live.sleep(left)?;
    }
}

/// Tries again what there is no space for, with handlers running meanwhile. Where none may run, it is tried once.
pub(super) fn until_space(mut start: impl FnMut(&mut Live) -> Result<()>) -> Result<()> {
    let mut live = lock()?;
    match start(&mut live) {
        Err(Code::AGAIN) if !Here::get().is_closed() => drop(live),
        done => return done,
    }
    wait_until(|live| match start(live) {
        Ok(()) => Ok(Some(())),
        Err(Code::AGAIN) => Ok(None),
        Err(code) => Err(code),
    })
}

/// Runs what is due, of which all but the handler's own state is unlocked.
fn run_due(mut live: Locked) -> Result<bool> {
    let mut ran = false;
    if live.is_calling {
        return Ok(false);
    }
    live.is_calling = live.threads != CCS_THREAD_MULTIPLE;
    while let Some(call) = live.due.pop_front() {
        ran = true;
        live.ran += 1;
        live = live.outside(|| run(call)).0.ok_or(Code::STATE)?;
    }
    let Some(mut batch) = live.take_batch() else {
        live.is_calling = false;
        return Ok(ran);
    };
    loop {
        let mut args = [0; ARGS_MAX];
        let at_once = live.process.next_at_once(&mut batch);
        let delivery = match at_once {
            Some(delivery) => delivery,
            None => match live.process.next(&mut batch) {
                None => break,
                Some(Due::Message(delivery)) => delivery,
                Some(Due::Done { cookie, result }) => {
                    live.end(cookie, result);
                    continue;
                }
                Some(Due::Collected { cookie, result }) => {
                    live.end_collective(cookie, result);
                    continue;
                }
                Some(Due::Gone { rank, why }) => {
                    live.report(Code::PEER, rank, why);
                    continue;
                }
            },
        };
        ran = true;
        live.ran += 1;
        let token = delivery.token;
        let args = delivery.args.decode(&mut args);
        if let Some(bytes) = delivery.large_bytes {
            let handler = live.large_handlers.get(delivery.handler as usize).copied();
            let decision = live.outside(|| targets::ask(handler, token, bytes, args));
            live = decision.0.ok_or(Code::STATE)?;
            targets::decide(&mut live, token, decision.1);
            live.process.end(token);
            continue;
        }
        let run = || {
            // SAFETY: the program promises that its handler takes these arguments, by the description of `CCS_register_handler`.
            called(|| unsafe { invoke(delivery.handler as usize, token, delivery.data, args) });
        };
        live = live.outside(run).0.ok_or(Code::STATE)?;
        live.process.end(token);
    }
    live.process.put_back(batch);
    live.is_dispatching = false;
    live.is_calling = false;
    Ok(ran)
}

/// Makes progress and runs what is due, and sleeps in between, until `is_over` or the end of the runtime.
pub(super) fn serve(is_over: impl Fn() -> bool) {
    while !is_over() {
        let Ok(mut live) = lock() else { return };
        live.progress();
        let served = if live.has_due() { run_due(live).map(drop) } else { live.sleep(None) };
        if served.is_err() {
            return;
        }
    }
}

/// Runs a call into the program.
fn run(call: Call) {
    match call {
        Call::Callback { callback, arg, status } => {
            Here::change(|here| here.status = Some(status));
            match callback {
                // SAFETY: the program gave both for this one call.
                Callback::Plain(callback) => called(|| unsafe { callback(arg.0) }),
                // SAFETY: as above.
                Callback::WithStatus(done) => called(|| unsafe { done(arg.0, status) }),
            }
            Here::change(|here| here.status = None);
        }
        Call::Error { code, rank, what } => errors::raise(code, rank, &what),
    }
}

/// Calls a handler with as many arguments as there are, each in its register or on the stack.
///
/// # Safety
/// `handler` is the address of a function that takes a token, a buffer, its length and these arguments, each an integer or a pointer.
unsafe fn invoke(handler: usize, token: Token, data: &[u8], args: &[i64]) {
    let token = token_to_c(token);
    let len = data.len() as c_uint;
    let data: *mut c_void =
        if data.is_empty() { std::ptr::null_mut() } else { data.as_ptr().cast_mut().cast() };
    macro_rules! arg {
        ($at:tt) => {
            isize
        };
    }
    macro_rules! by_count {
        ($($count:literal: [$($at:tt)*];)+) => {
            match args.len() {
                $($count => {
                    type With = unsafe extern "C" fn(CCS_token_t, *mut c_void, c_uint $(, arg!($at))*);
                    // SAFETY: as the caller promises.
                    let handler = unsafe { std::mem::transmute::<usize, With>(handler) };
                    // SAFETY: as the caller promises; there are so many arguments.
                    unsafe { handler(token, data, len $(, args[$at] as isize)*) }
                })+
                // No message has more.
                _ => {}
            }
        };
    }
    by_count! {
        0: [];
        1: [0];
        2: [0 1];
        3: [0 1 2];
        4: [0 1 2 3];
        5: [0 1 2 3 4];
        6: [0 1 2 3 4 5];
        7: [0 1 2 3 4 5 6];
        8: [0 1 2 3 4 5 6 7];
        9: [0 1 2 3 4 5 6 7 8];
        10: [0 1 2 3 4 5 6 7 8 9];
        11: [0 1 2 3 4 5 6 7 8 9 10];
        12: [0 1 2 3 4 5 6 7 8 9 10 11];
        13: [0 1 2 3 4 5 6 7 8 9 10 11 12];
        14: [0 1 2 3 4 5 6 7 8 9 10 11 12 13];
        15: [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14];
        16: [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15];
    }
}

/// Waits until something ran, on any thread, since this thread's last return.
pub(super) fn wait_for_run(timeout: Option<Duration>) -> Result<()> {
    check_may_wait()?;
    let seen = Here::get().seen;
    let look = |live: &mut Live| Ok(Some(live.ran).filter(|&ran| ran != seen));
    match wait_until_at_most(timeout, Live::progress, look)? {
        Some(ran) => {
            Here::change(|here| here.seen = ran);
            Ok(())
        }
        None => Err(Code::AGAIN),
    }
}
