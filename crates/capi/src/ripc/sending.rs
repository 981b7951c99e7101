//! Sending.

use super::buffers::Problem;
use super::live::{Awaited, Live, Result, Wrong, wrong};
use super::shared::{guarded, with};
use super::waiting::{Wait, Waited, wait};
use cci_ripc::{Content, Part, Partner, SendError};
use libc::c_void;
use std::time::{Duration, Instant};

/// Short items of one message, and their bytes.
const ITEMS_MAX: usize = 9;
const BYTES_MAX: usize = 2_000;
/// Long items of one message, and return buffers.
const LONG_ITEMS_MAX: usize = cci_ripc::limits::LONG_ITEMS_MAX;
/// How long a service is looked for.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a program wants to send, as it says.
#[derive(Copy, Clone)]
struct Given {
    src: u16,
    dest: u16,
    items: *mut *mut c_void,
    lens: *mut u32,
    count: u16,
    returns: *mut *mut c_void,
    return_lens: *mut u32,
    return_count: u16,
}

/// The places that two arrays tell, with their lengths.
///
/// # Safety
/// The arrays have so many elements, where they are not NULL.
unsafe fn places(
    what: &str,
    addresses: *mut *mut c_void,
    lens: *mut u32,
    count: u16,
) -> Result<Vec<(*mut u8, usize)>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if addresses.is_null() || lens.is_null() {
        return wrong(format!("there are {count} {what}, and an array of them is NULL"));
    }
    // SAFETY: as the caller promises.
    let at = |index: usize| unsafe { (addresses.add(index).read().cast(), lens.add(index).read() as usize) };
    Ok((0..usize::from(count)).map(at).collect())
}

impl Given {
    /// # Safety
    /// The arrays are as the header says.
    unsafe fn items(&self, max: usize) -> Result<Vec<(*mut u8, usize)>> {
        if usize::from(self.count) > max {
            return wrong(format!("{} items are more than {max}", self.count));
        }
        // SAFETY: as the caller promises.
        unsafe { places("items", self.items, self.lens, self.count) }
    }

    /// Return buffers that are offered.
    ///
    /// # Safety
    /// The arrays are as the header says.
    unsafe fn returns(&self) -> Result<Vec<(*mut u8, usize)>> {
        // SAFETY: as the caller promises.
        let mut returns =
            unsafe { places("return buffers", self.returns, self.return_lens, self.return_count) }?;
        returns.retain(|(_, len)| *len != 0);
        if returns.len() > LONG_ITEMS_MAX {
            return wrong(format!("{} return buffers are more than {LONG_ITEMS_MAX}", returns.len()));
        }
        Ok(returns)
    }
}

/// The return buffers of a message, as parts of memory.
fn offered(live: &mut Live, returns: &[(*mut u8, usize)]) -> Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(returns.len());
    for &(base, len) in returns {
        if base.is_null() {
            let part = live.buffers.take_for_partners(&mut live.node, len);
            parts.push(part.ok_or_else(|| Wrong("there is no memory for return buffers".to_owned()))?);
        } else if live.buffers.is_registered(base.addr(), len) != Some(false) {
            match live.buffers.part(base.expose_provenance(), len) {
                Ok(part) => parts.push(part),
                // As the published library does.
                Err(Problem::TooShort) => {}
                Err(problem) => return wrong(explain("return buffer", &problem)),
            }
        }
    }
    Ok(parts)
}

fn explain(what: &str, problem: &Problem) -> String {
    match problem {
        Problem::Freed => format!("a {what} is in a buffer that was freed"),
        Problem::TooShort => format!("a {what} reaches beyond its buffer"),
        Problem::NoMemory => format!("a {what} is empty, NULL, or reaches beyond any address"),
    }
}

/// Sends to one partner, which is looked for where it is not known. `send` is called with the lock, when it is connected.
fn send_to(
    src: u16,
    dest: u16,
    mut send: impl FnMut(&mut Live, Partner) -> Result<std::result::Result<(), SendError>>,
) -> Result<Partner> {
    let began = Instant::now();
    loop {
        let partner = with(|live| live.partner(src, dest))?;
        let look = |live: &mut Live| {
            if live.node.is_reached(partner) || live.node.seek(partner) {
                return Ok(Some(send(live, partner)?));
            }
            live.registered(src)?;
            if live.node.has_partner(partner) { Ok(None) } else { Ok(Some(Err(SendError::Gone))) }
        };
        let until = Some(began + RESOLVE_TIMEOUT);
        let waits = Wait { awaited: Awaited::Reached(partner), until, is_interruptible: false };
        match wait(waits, look)? {
            Waited::Done(Ok(())) => return Ok(partner),
            // It has gone at this very moment, and may be back.
            Waited::Done(Err(SendError::Gone | SendError::Unknown)) if began.elapsed() < RESOLVE_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Waited::Done(Err(error)) => return wrong(error.to_string()),
            Waited::TimedOut | Waited::Interrupted => {
                return with(|live| wrong(live.node.obstacle(partner, began.elapsed()).to_string()));
            }
        }
    }
}

/// # Safety
/// The arrays and what they tell are as the header says.
unsafe fn send_short(given: Given) -> Result<u8> {
    // SAFETY: as the caller promises.
    let (items, returns) = unsafe { (given.items(ITEMS_MAX)?, given.returns()?) };
    let len_bytes: usize = items.iter().map(|(_, len)| len).sum();
    if len_bytes > BYTES_MAX {
        return wrong(format!("{len_bytes} bytes are more than {BYTES_MAX}: send them as long items"));
    }
    let mut slices: [&[u8]; ITEMS_MAX] = [&[]; ITEMS_MAX];
    for (slice, &(base, len)) in slices.iter_mut().zip(&items) {
        if base.is_null() && len != 0 {
            return wrong("an item is NULL");
        }
        if len != 0 {
            // SAFETY: so long is the item, as the caller promises.
            *slice = unsafe { std::slice::from_raw_parts(base, len) };
        }
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
/// The arrays and what they tell are as the header says.
unsafe fn send_long(given: Given) -> Result<u8> {
    // SAFETY: as the caller promises.
    let (items, returns) = unsafe { (given.items(LONG_ITEMS_MAX)?, given.returns()?) };
    with(
        |live| {
            if live.registered(given.src)?.is_group { wrong("a group has no long items") } else { Ok(()) }
        },
    )?;
    let partner = send_to(given.src, given.dest, |live, partner| {
        let mut parts = Vec::with_capacity(items.len());
        for &(base, len) in &items {
            match live.buffers.part(base.expose_provenance(), len) {
                Ok(part) => parts.push(part),
                Err(problem) => return wrong(explain("long item", &problem)),
            }
        }
        let offered = offered(live, &returns)?;
        let content = Content::default().long_items(&parts).return_buffers(&offered);
        let sent = live.node.send(partner, content);
        live.drop_notices();
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

/// Sends items in one message.
///
/// # Safety
/// The arrays have as many elements as the counts say, and each item as many bytes as its length says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_send_short(
    src: u16,
    dest: u16,
    buf: *mut *mut c_void,
    length: *mut u32,
    num_items: u16,
    return_bufs: *mut *mut c_void,
    return_buf_lengths: *mut u32,
    num_return_bufs: u16,
) -> u8 {
    let given = Given {
        src,
        dest,
        items: buf,
        lens: length,
        count: num_items,
        returns: return_bufs,
        return_lens: return_buf_lengths,
        return_count: num_return_bufs,
    };
    // SAFETY: as the caller promises.
    guarded(1, || unsafe { send_short(given) })
}

/// Lends items, which the receiver fetches, or which are put into its return buffers.
///
/// # Safety
/// As for [`ripc_send_short`]; the items stay mapped until the receiver has them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_send_long(
    src: u16,
    dest: u16,
    buf: *mut *mut c_void,
    length: *mut u32,
    num_items: u16,
    return_bufs: *mut *mut c_void,
    return_buf_lengths: *mut u32,
    num_return_bufs: u16,
) -> u8 {
    let given = Given {
        src,
        dest,
        items: buf,
        lens: length,
        count: num_items,
        returns: return_bufs,
        return_lens: return_buf_lengths,
        return_count: num_return_bufs,
    };
    // SAFETY: as the caller promises.
    guarded(1, || unsafe { send_long(given) })
}
