//! Channels and their requests.

use super::ends::End;
use super::failure::{Result, Wrong, wrong};
use super::live::{Live, call};
use super::management::foreign;
use cci_acp::{AcpError, ChannelRequest, Receiver, Sender, Slots};
use libc::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// What the published library has, with our header.
const SENDER_SLOTS: Slots = Slots { count: 2, bytes: 2_048 };
const RECEIVER_SLOTS: Slots = Slots { count: 8, bytes: 2_048 + 16 };
/// What a wait returns where it fails.
const FAILED: usize = usize::MAX;

/// Makes this process's end of a channel.
#[unsafe(no_mangle)]
pub extern "C" fn acp_create_ch(sender: c_int, receiver: c_int) -> *mut c_void {
    call(null_mut(), |live| {
        let rank = live.global.rank();
        let end = match (sender.cast_unsigned(), receiver.cast_unsigned()) {
            (from, to) if from == rank => End::Sender(Sender::create(&mut live.global, to, SENDER_SLOTS)?),
            (from, to) if to == rank => {
                End::Receiver(Receiver::create(&mut live.global, from, RECEIVER_SLOTS)?)
            }
            _ => return wrong("this process is neither the sender nor the receiver"),
        };
        let number = live.ends.number();
        live.ends.channels.insert(number, (end, 0));
        Ok(without_provenance_mut(number))
    })
}

/// Starts to send.
///
/// # Safety
/// The memory stays mapped and is not changed until the request was waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_nbsend_ch(ch: *mut c_void, buf: *mut c_void, size: usize) -> *mut c_void {
    call(null_mut(), |live| {
        let (End::Sender(sender), requests) = live.ends.channel(ch)? else {
            return wrong("this process receives on this channel");
        };
        // SAFETY: as the caller promises; nothing writes to it.
        let memory = unsafe { foreign(buf, size) }?;
        let request = sender.start(&mut live.global, &memory)?;
        *requests += 1;
        Ok(live.ends.requested(request, ch.addr()))
    })
}

/// Starts to receive.
///
/// # Safety
/// The memory stays mapped, and belongs to the library until the request was waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_nbrecv_ch(ch: *mut c_void, buf: *mut c_void, size: usize) -> *mut c_void {
    call(null_mut(), |live| {
        let (End::Receiver(receiver), requests) = live.ends.channel(ch)? else {
            return wrong("this process sends on this channel");
        };
        // SAFETY: as the caller promises.
        let memory = unsafe { foreign(buf, size) }?;
        let request = receiver.start(&mut live.global, &memory)?;
        *requests += 1;
        Ok(live.ends.requested(request, ch.addr()))
    })
}

fn free(live: &mut Live, ch: *mut c_void) -> Result<ChannelRequest> {
    let found = live.ends.channels.remove(&ch.addr());
    let (end, _) = found.ok_or_else(|| Wrong("there is no such channel, or it was freed".into()))?;
    Ok(match end {
        End::Sender(sender) => sender.free(&mut live.global)?,
        End::Receiver(receiver) => receiver.free(&mut live.global)?,
    })
}

/// Starts to free an end.
#[unsafe(no_mangle)]
pub extern "C" fn acp_nbfree_ch(ch: *mut c_void) -> *mut c_void {
    call(null_mut(), |live| {
        let request = free(live, ch)?;
        Ok(live.ends.requested(request, ch.addr()))
    })
}

/// Frees an end.
#[unsafe(no_mangle)]
pub extern "C" fn acp_free_ch(ch: *mut c_void) -> c_int {
    call(-1, |live| {
        let request = free(live, ch)?;
        request.wait(&mut live.global)?;
        Ok(0)
    })
}

/// What an end takes of memory.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_ch_bytes(ch: *mut c_void) -> usize {
    call(0, |live| match live.ends.channels.get(&ch.addr()) {
        Some((End::Sender(sender), _)) => Ok(sender.held_bytes(&live.global)),
        Some((End::Receiver(receiver), _)) => Ok(receiver.held_bytes(&live.global)),
        None => wrong("there is no such channel, or it was freed"),
    })
}

fn wait(live: &mut Live, request: *mut c_void) -> Result<usize> {
    let found = live.ends.requests.remove(&request.addr());
    let found = found.ok_or_else(|| Wrong("there is no such request, or it was waited for".into()))?;
    if let Some((_, requests)) = live.ends.channels.get_mut(&found.channel) {
        *requests = requests.saturating_sub(1);
    }
    match found.request.wait(&mut live.global) {
        Err(AcpError::Truncated { space_bytes, .. }) => Ok(space_bytes),
        result => Ok(result?),
    }
}

/// Waits for a request.
#[unsafe(no_mangle)]
pub extern "C" fn acp_wait_ch(request: *mut c_void) -> usize {
    call(FAILED, |live| wait(live, request))
}

/// Waits for several requests.
///
/// # Safety
/// There are `n` requests, and places for as many sizes, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_waitall_ch(requests: *mut *mut c_void, n: c_int, sizes: *mut usize) -> c_int {
    let Ok(count) = usize::try_from(n) else { return -1 };
    if requests.is_null() && count > 0 {
        return -1;
    }
    let mut result = 0;
    for at in 0..count {
        // SAFETY: as the caller promises.
        let size = acp_wait_ch(unsafe { requests.wrapping_add(at).read() });
        if size == FAILED {
            result = -1;
        }
        if !sizes.is_null() {
            // SAFETY: as the caller promises.
            unsafe { sizes.wrapping_add(at).write(size) };
        }
    }
    result
}
