//! Large messages: a handler says where their data go, before any have come.

use super::contexts;
use super::descriptions::{Data, Described};
use super::dispatch::until_space;
use super::here::Here;
use super::live::lock;
use super::local::{Local, start};
use super::messages::{handler_and_args, token_of};
use super::operations::{Callback, Ending, Outcome, Pointer};
use super::status::{Code, Result, call, place};
use super::targets::accept;
use super::types::*;
use cci::{Foreign, Memory};
use cci_am::description::Readable;
use cci_am::process::{Starter, Transfer};
use cci_am::{Held, Part};
use libc::{c_int, c_void};

/// Has large messages for a number in a context call a function.
///
/// # Safety
/// The function takes these arguments, and can be called with `user` as long as the context exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_register_large_handler(
    context: CCS_context_t,
    id: c_int,
    handler: Option<LargeHandler>,
    user: *mut c_void,
) -> c_int {
    call(|| {
        let handler = handler.ok_or(Code::ARG)?;
        let id = u16::try_from(id).map_err(|_| Code::RANGE)?;
        let mut live = lock()?;
        let context = contexts::find(&live, context)?;
        let number = live.large_handlers.len() as u64;
        live.process.register_large(context, id, number)?;
        live.large_handlers.push((handler, Pointer(user)));
        Ok(())
    })
}

/// Data in a row, as others can read them: where they lie, or a packed copy.
///
/// # Safety
/// They stay as they are as long as the value lives.
unsafe fn row(data: &Data) -> Result<Part> {
    let Described { description, .. } = &data.described;
    let len_bytes = data.len_bytes;
    // SAFETY: as the caller promises.
    let memory = match unsafe { Local::new(Transfer::Put, data) }? {
        Local::Nothing => Memory::foreign(Foreign::owned(Box::default())),
        Local::InPlace(memory) if description.is_contiguous(data.count) => memory,
        Local::InPlace(_) => {
            let mut packed = vec![0; len_bytes];
            // SAFETY: as the caller promises.
            let (bytes, origin) = unsafe { data.bytes() }.ok_or(Code::ARG)?;
            description.pack(Readable::from(bytes), origin, data.count, 0, &mut packed)?;
            Memory::foreign(Foreign::owned(packed.into_boxed_slice()))
        }
        Local::Packed(memory) => memory,
    };
    Ok(Part { memory, offset: 0, len_bytes })
}

/// Sends a large message.
///
/// # Safety
/// What is described at `data` stays as it is until its end was reported; `args` has `nargs` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_amlarge(
    context: CCS_context_t,
    node: c_int,
    data: *const c_void,
    count: usize,
    desc: CCS_datadesc_t,
    handler_id: c_int,
    done: CCS_done_t,
    arg: *mut c_void,
    nargs: c_int,
    args: *const CCS_arg_t,
) -> c_int {
    call(|| {
        let context = contexts::find(&*lock()?, context)?;
        let data = Data::new(data, count, desc)?;
        // SAFETY: as the caller promises.
        let (handler, args) = unsafe { handler_and_args(handler_id, (nargs, args)) }?;
        let rank = u32::try_from(node).map_err(|_| Code::RANGE)?;
        // SAFETY: as the caller promises.
        let part = unsafe { row(&data) }?;
        let starter = if Here::get().is_closed() { Starter::Handler } else { Starter::Program };
        let (callback, arg) = (done.map(Callback::WithStatus), Pointer(arg));
        until_space(|live| {
            start(live, Ending { callback, arg, result: Outcome::Nothing, then: None }, |live, cookie| {
                Ok(live.process.send_large(starter, context, rank, handler, args, part.clone(), cookie)?)
            })
        })
    })
}

fn held_of(held: CCS_held_t) -> Held {
    Held::from_number(held.addr() as u64)
}

/// Keeps the large message whose handler runs, to be decided on later.
///
/// # Safety
/// `held` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_large_hold(token: CCS_token_t, held: *mut CCS_held_t) -> c_int {
    call(|| {
        let (out, mut live) = (place(held)?, lock()?);
        let token = token_of(&live, token)?;
        let held = live.process.hold(token)?;
        // SAFETY: the caller's to be written.
        unsafe { out.write(std::ptr::without_provenance_mut(held.number() as usize)) };
        Ok(())
    })
}

/// Has the data of a held message go to a target.
///
/// # Safety
/// `target` is NULL, or describes memory that is the message's until its end was reported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_large_accept(held: CCS_held_t, target: *const CCS_target_t) -> c_int {
    call(|| {
        let (target, mut live) = (place(target.cast_mut())?, lock()?);
        // SAFETY: as the caller promises.
        accept(&mut live, held_of(held), unsafe { target.as_ref() })
    })
}

/// Ends a held message, of which nothing comes.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_large_abort(held: CCS_held_t) -> c_int {
    call(|| Ok(lock()?.process.abort(held_of(held))?))
}
