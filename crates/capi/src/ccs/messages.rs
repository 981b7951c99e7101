//! Active messages.

use super::contexts;
use super::descriptions::Data;
use super::dispatch::until_space;
use super::here::Here;
use super::live::{Live, lock};
use super::status::{Code, Result, as_int, call, place};
use super::types::*;
use cci_am::Token;
use cci_am::description::Readable;
use cci_am::limits::{ARGS_MAX, DATA_BYTES_MAX};
use cci_am::process::Starter;
use libc::{c_int, c_void};

const _: () = assert!(size_of::<CCS_arg_t>() == 8, "arguments travel as 64 bits");

/// What is to be sent.
struct Sending<'a> {
    handler: u16,
    args: &'a [i64],
    data: Data,
}

impl Sending<'_> {
    /// # Safety
    /// `args` has `nargs` entries, if that is a number of arguments that there may be.
    unsafe fn new<'a>(
        (data, count, desc): (*const c_void, usize, CCS_datadesc_t),
        handler: c_int,
        (nargs, args): (c_int, *const CCS_arg_t),
    ) -> Result<Sending<'a>> {
        let data = Data::new(data, count, desc)?;
        if data.len_bytes > DATA_BYTES_MAX {
            return Err(Code::TOO_LONG);
        }
        // SAFETY: as the caller promises.
        let (handler, args) = unsafe { handler_and_args(handler, (nargs, args)) }?;
        Ok(Sending { handler, args, data })
    }

    /// # Safety
    /// The data are readable, and nobody writes to them meanwhile.
    unsafe fn request(&self, live: &mut Live, context: CCS_context_t, rank: c_int) -> Result<()> {
        let context = contexts::find(live, context)?;
        let rank = u32::try_from(rank).map_err(|_| Code::RANGE)?;
        let starter = if Here::get().is_closed() { Starter::Handler } else { Starter::Program };
        let Sending { handler, args, data } = self;
        // SAFETY: as the caller promises.
        if let Some(bytes) = unsafe { data.in_a_row() } {
            return Ok(live.process.request(starter, context, rank, *handler, args, bytes)?);
        }
        // SAFETY: as the caller promises.
        let (bytes, origin) = unsafe { data.bytes() }.ok_or(Code::ARG)?;
        let (memory, described) = ((Readable::from(bytes), origin), &data.described.description);
        let process = &mut live.process;
        Ok(process
            .request_described(starter, context, rank, *handler, args, memory, data.count, described)?)
    }

    /// # Safety
    /// The data are readable, and nobody writes to them meanwhile.
    unsafe fn reply(&self, live: &mut Live, token: Token) -> Result<()> {
        let Sending { handler, args, data } = self;
        // SAFETY: as the caller promises.
        if let Some(bytes) = unsafe { data.in_a_row() } {
            return Ok(live.process.reply(token, *handler, args, bytes)?);
        }
        // SAFETY: as the caller promises.
        let (bytes, origin) = unsafe { data.bytes() }.ok_or(Code::ARG)?;
        let (memory, described) = ((Readable::from(bytes), origin), &data.described.description);
        Ok(live.process.reply_described(token, *handler, args, memory, data.count, described)?)
    }
}

/// Which handler is to be called, and with what.
///
/// # Safety
/// `args` has `nargs` entries, if that is a number of arguments that there may be.
pub(super) unsafe fn handler_and_args<'a>(
    handler: c_int,
    (nargs, args): (c_int, *const CCS_arg_t),
) -> Result<(u16, &'a [i64])> {
    let handler = u16::try_from(handler).map_err(|_| Code::RANGE)?;
    let count = usize::try_from(nargs).ok().filter(|&count| count <= ARGS_MAX).ok_or(Code::ARG)?;
    let args = match count {
        0 => &[][..],
        // SAFETY: as the caller promises; both are 64 bits.
        _ => unsafe { std::slice::from_raw_parts(place(args.cast_mut())?.as_ptr().cast::<i64>(), count) },
    };
    Ok((handler, args))
}

/// The message whose handler runs, if the program means that.
pub(super) fn token_of(live: &Live, token: CCS_token_t) -> Result<Token> {
    let token = Token::from_number(token.addr() as u64);
    live.process.message(token).map(|_| token).map_err(|_| Code::ARG)
}

/// Sends a message; waits where there is no space.
///
/// # Safety
/// What is described at `data` is readable; `args` has `nargs` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_amrequestv(
    context: CCS_context_t,
    node: c_int,
    data: *const c_void,
    count: usize,
    desc: CCS_datadesc_t,
    handler_id: c_int,
    nargs: c_int,
    args: *const CCS_arg_t,
) -> c_int {
    call(|| {
        // SAFETY: as the caller promises.
        let sending = unsafe { Sending::new((data, count, desc), handler_id, (nargs, args)) };
        let sending = lock().and(sending)?;
        // SAFETY: as the caller promises.
        until_space(|live| unsafe { sending.request(live, context, node) })
    })
}

/// Sends a message, if there is space.
///
/// # Safety
/// What is described at `data` is readable; `args` has `nargs` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_try_amrequestv(
    context: CCS_context_t,
    node: c_int,
    data: *const c_void,
    count: usize,
    desc: CCS_datadesc_t,
    handler_id: c_int,
    nargs: c_int,
    args: *const CCS_arg_t,
) -> c_int {
    call(|| {
        let mut live = lock()?;
        // SAFETY: as the caller promises.
        let sending = unsafe { Sending::new((data, count, desc), handler_id, (nargs, args)) }?;
        // SAFETY: as the caller promises.
        unsafe { sending.request(&mut live, context, node) }
    })
}

/// Replies to the message whose handler runs.
///
/// # Safety
/// What is described at `data` is readable; `args` has `nargs` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_amreplyv(
    token: CCS_token_t,
    data: *const c_void,
    count: usize,
    desc: CCS_datadesc_t,
    handler_id: c_int,
    nargs: c_int,
    args: *const CCS_arg_t,
) -> c_int {
    call(|| {
        let mut live = lock()?;
        // SAFETY: as the caller promises.
        let sending = unsafe { Sending::new((data, count, desc), handler_id, (nargs, args)) }?;
        let token = token_of(&live, token)?;
        // SAFETY: as the caller promises.
        unsafe { sending.reply(&mut live, token) }
    })
}

/// The longest data of one message.
///
/// # Safety
/// `bytes` is NULL or a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_am_max(bytes: *mut usize) -> c_int {
    call(|| {
        let bytes = place(bytes)?;
        lock()?;
        // SAFETY: the caller's to be written.
        unsafe { bytes.write(DATA_BYTES_MAX) };
        Ok(())
    })
}

/// Who has sent the message whose handler runs.
///
/// # Safety
/// `rank` is NULL or a place for a rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_sender_rank(token: CCS_token_t, rank: *mut c_int) -> c_int {
    call(|| {
        let (rank, live) = (place(rank)?, lock()?);
        let token = token_of(&live, token)?;
        let (sender, _) = live.process.message(token)?;
        // SAFETY: the caller's to be written.
        unsafe { rank.write(as_int(sender)) };
        Ok(())
    })
}

/// The context of the message whose handler runs.
///
/// # Safety
/// `context` is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_token_context(token: CCS_token_t, context: *mut CCS_context_t) -> c_int {
    call(|| {
        let (out, live) = (place(context)?, lock()?);
        let token = token_of(&live, token)?;
        let (_, context) = live.process.message(token)?;
        let number = contexts::number(&live, context).ok_or(Code::ARG)?;
        // SAFETY: the caller's to be written.
        unsafe { out.write(number) };
        Ok(())
    })
}
