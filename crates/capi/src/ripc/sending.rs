//! Sending.

use super::given::{Array, BYTES_MAX, ITEMS_MAX, check_len, long_parts, offered, slice};
use super::live::{Awaited, Live, Result, guarded, wrong};
use super::services::write_text;
use super::shared::with;
use super::waiting::{Wait, Waited, wait};
use cci_ripc::{Content, Partner, SendError};
use libc::{c_char, c_void};
use std::time::{Duration, Instant};

/// What a program wants to send, as it says.
#[derive(Copy, Clone)]
struct Given {
    src: u16,
    dest: u16,
    items: Array,
    returns: Array,
}

/// Sends to one partner, which is looked for where it is not known. `send` is called with the lock, when it is connected.
fn send_to(
    src: u16,
    dest: u16,
    mut send: impl FnMut(&mut Live, Partner) -> Result<std::result::Result<(), SendError>>,
) -> Result<Partner> {
    let began = Instant::now();
    let resolve_timeout = with(|live| Ok(live.registered(src)?.resolve_timeout))?;
    loop {
        let partner = with(|live| live.partner(src, dest))?;
        let look = |live: &mut Live| {
            if live.node.is_reached(partner) || live.node.try_reach(partner) {
                return Ok(Some(send(live, partner)?));
            }
            live.registered(src)?;
            if live.node.has_partner(partner) { Ok(None) } else { Ok(Some(Err(SendError::Gone))) }
        };
        let until = Some(began + resolve_timeout);
        let waits = Wait { awaited: Awaited::Reached(partner), until, is_interruptible: false };
        match wait(waits, look)? {
            Waited::Done(Ok(())) => return Ok(partner),
            // It has gone at this very moment, and may be back.
            Waited::Done(Err(SendError::Gone | SendError::Unknown)) if began.elapsed() < resolve_timeout => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Waited::Done(Err(error)) => return wrong(error.to_string()),
            Waited::TimedOut | Waited::Interrupted => {
                return with(|live| wrong(live.node.reach_error(partner, began.elapsed()).to_string()));
            }
        }
    }
}

/// # Safety
/// The arrays and their lengths are as the header says.
unsafe fn send_short(given: Given) -> Result<u8> {
    // SAFETY: as the caller promises.
    let (items, returns) = unsafe { (given.items.short_items()?, given.returns.returns()?) };
    check_len(&items)?;
    let mut slices: [&[u8]; ITEMS_MAX] = [&[]; ITEMS_MAX];
    for (place, &item) in slices.iter_mut().zip(&items) {
        // SAFETY: so long is the item, as the caller promises.
        *place = unsafe { slice(item) }?;
    }
    let slices = slices.get(..items.len()).unwrap_or_default();
    let is_group = with(|live| {
        let registered = live.registered(given.src)?;
        let (service, is_group) = (registered.service, registered.is_group);
        if !is_group {
            return Ok(false);
        }
        if !returns.is_empty() {
            return wrong("a group is offered no return buffers");
        }
        // Members discard what is for another service.
        if given.dest == given.src {
            live.node.publish(service, slices)?;
        }
        Ok(true)
    })?;
    if is_group {
        return Ok(0);
    }
    send_to(given.src, given.dest, |live, partner| {
        if returns.is_empty() {
            return Ok(live.node.send(partner, slices));
        }
        let offered = offered(live, &returns)?;
        Ok(live.node.send(partner, Content::from(slices).return_buffers(&offered)))
    })?;
    Ok(0)
}

/// # Safety
/// The arrays and their lengths are as the header says.
unsafe fn send_long(given: Given) -> Result<u8> {
    // SAFETY: as the caller promises.
    let (items, returns) = unsafe { (given.items.long_items()?, given.returns.returns()?) };
    with(
        |live| {
            if live.registered(given.src)?.is_group { wrong("a group has no long items") } else { Ok(()) }
        },
    )?;
    let partner = send_to(given.src, given.dest, |live, partner| {
        let parts = long_parts(live, &items)?;
        let offered = offered(live, &returns)?;
        let content = Content::default().long_items(&parts).return_buffers(&offered);
        let sent = live.node.send(partner, content);
        live.take_notices();
        Ok(sent)
    })?;
    // What is sent next comes after it.
    let waits = Wait { awaited: Awaited::Written(partner), until: None, is_interruptible: false };
    wait(waits, |live| {
        if live.node.is_writing(partner) {
            live.node.progress();
        }
        Ok((!live.node.is_writing(partner)).then_some(()))
    })?;
    Ok(0)
}

/// How long the only item of a short message may be. A partner that is not connected is looked for from then on.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_short_item_size_max(src: u16, dest: u16) -> u32 {
    guarded(0, || {
        with(|live| {
            let partner = live.partner(src, dest)?;
            if !live.node.is_reached(partner) {
                live.node.try_reach(partner);
            }
            let bytes = live.node.short_item_bytes_max(partner).unwrap_or(0).min(BYTES_MAX);
            Ok(u32::try_from(bytes).unwrap_or(0))
        })
    })
}

/// What carries messages to another service.
///
/// # Safety
/// `transport` is NULL or has space for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_transport(src: u16, dest: u16, transport: *mut c_char, size: usize) -> u8 {
    guarded(1, || {
        let kind = with(|live| {
            let partner = live.partner(src, dest)?;
            let kind = live.node.transport(partner);
            kind.map_or_else(|| wrong(format!("the service {dest} is not connected")), Ok)
        })?;
        // SAFETY: as the caller promises.
        unsafe { write_text(kind.name(), transport, size) }
    })
}

/// Defines a call that sends what is given in the published form.
macro_rules! sends {
    ($(#[$doc:meta])* $name:ident, $send:ident) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            src: u16,
            dest: u16,
            buf: *mut *mut c_void,
            length: *mut u32,
            num_items: u16,
            return_bufs: *mut *mut c_void,
            return_buf_lengths: *mut u32,
            num_return_bufs: u16,
        ) -> u8 {
            let items = Array { places: buf, lens: length, count: num_items };
            let returns = Array { places: return_bufs, lens: return_buf_lengths, count: num_return_bufs };
            let given = Given { src, dest, items, returns };
            // SAFETY: as the caller promises.
            guarded(1, || unsafe { $send(given) })
        }
    };
}

sends! {
    /// Sends items in one message.
    ///
    /// # Safety
    /// The arrays have as many elements as the counts say, and each item as many bytes as its length says.
    ripc_send_short, send_short
}

sends! {
    /// Lends items, which the receiver fetches, or which are put into its return buffers.
    ///
    /// # Safety
    /// As for [`ripc_send_short`]; the items stay mapped until the receiver has them.
    ripc_send_long, send_long
}
