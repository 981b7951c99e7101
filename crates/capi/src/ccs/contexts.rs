//! Contexts and handlers.

use super::dispatch::until_space;
use super::here::check_may_wait;
use super::live::{Live, lock};
use super::status::{Code, Result, call, place};
use super::types::*;
use cci_am::Context;
use libc::{c_char, c_int};
use std::ffi::CStr;

/// The number of a context, which the program gets.
fn keep(live: &mut Live, context: Context) -> CCS_context_t {
    let known = live.contexts.iter().position(|&known| known == Some(context));
    let at = known.unwrap_or_else(|| {
        live.contexts.push(Some(context));
        live.contexts.len() - 1
    });
    std::ptr::without_provenance_mut(at + 1)
}

/// What the program means by a context.
#[inline]
pub(super) fn find(live: &Live, context: CCS_context_t) -> Result<Context> {
    let at = context.addr().checked_sub(1).ok_or(Code::ARG)?;
    live.contexts.get(at).copied().flatten().ok_or(Code::ARG)
}

/// What the program calls a context.
pub(super) fn number(live: &Live, context: Context) -> Option<CCS_context_t> {
    let at = live.contexts.iter().position(|&known| known == Some(context))?;
    Some(std::ptr::without_provenance_mut(at + 1))
}

/// Makes a context.
///
/// # Safety
/// `context` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_new_context(context: *mut CCS_context_t) -> c_int {
    call(|| {
        let (out, mut live) = (place(context)?, lock()?);
        let made = live.process.context()?;
        // SAFETY: the caller's to be written.
        unsafe { out.write(keep(&mut live, made)) };
        Ok(())
    })
}

/// Makes a context with a name, or returns it.
///
/// # Safety
/// `name` is NULL or a string; `context` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_new_named_context(name: *const c_char, context: *mut CCS_context_t) -> c_int {
    call(|| {
        let (out, name) = (place(context)?, place(name.cast_mut())?);
        // SAFETY: as the caller promises.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        let mut live = lock()?;
        let made = live.process.named_context(name.to_str().map_err(|_| Code::ARG)?)?;
        // SAFETY: the caller's to be written.
        unsafe { out.write(keep(&mut live, made)) };
        Ok(())
    })
}

/// Frees a context, when its messages are on their way.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_free_context(context: CCS_context_t) -> c_int {
    call(|| {
        check_may_wait()?;
        until_space(|live| {
            let found = find(live, context)?;
            live.process.free(found)?;
            live.contexts.iter_mut().filter(|known| **known == Some(found)).for_each(|known| *known = None);
            Ok(())
        })
    })
}

/// Has messages for a number in a context call a function.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_register_handler_(
    context: CCS_context_t,
    id: c_int,
    handler: Option<Handler>,
) -> c_int {
    call(|| {
        let handler = handler.ok_or(Code::ARG)?;
        let id = u16::try_from(id).map_err(|_| Code::RANGE)?;
        let mut live = lock()?;
        let context = find(&live, context)?;
        live.process.register(context, id, handler as usize as u64)?;
        Ok(())
    })
}
