//! Receiving.

use super::live::{Awaited, Live, Result, wrong};
use super::shared::{guarded, with};
use super::waiting::{Wait, Waited, wait};
use cci_ripc::{Event, LongItem, Message};
use libc::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

const DONE: u8 = 0;
/// A signal was handled, not all long items are there, or the call failed.
const FAILED: u8 = 1;
const TIMED_OUT: u8 = 2;
const NOT_OURS: u8 = 255;

/// Where a program wants a message.
#[derive(Copy, Clone)]
struct Places {
    from: *mut u16,
    short_items: *mut *mut *mut c_void,
    short_sizes: *mut *mut u32,
    num_short: *mut u16,
    long_items: *mut *mut *mut c_void,
    long_sizes: *mut *mut u32,
    num_long: *mut u16,
}

impl Places {
    fn are_there(&self) -> bool {
        !(self.from.is_null()
            || self.short_items.is_null()
            || self.short_sizes.is_null()
            || self.num_short.is_null()
            || self.long_items.is_null()
            || self.long_sizes.is_null()
            || self.num_long.is_null())
    }

    /// Writes that there is no message.
    ///
    /// # Safety
    /// Each is the caller's to be written.
    unsafe fn clear(&self) {
        // SAFETY: as the caller promises.
        unsafe {
            self.from.write(u16::MAX);
            Items::NONE.write(self.short_items, self.short_sizes, self.num_short);
            Items::NONE.write(self.long_items, self.long_sizes, self.num_long);
        }
    }
}

/// Arrays that the program frees.
struct Items {
    places: *mut *mut c_void,
    sizes: *mut u32,
    count: u16,
}

impl Items {
    const NONE: Items = Items { places: ptr::null_mut(), sizes: ptr::null_mut(), count: 0 };

    /// Makes them of items. `None`: there is no memory.
    fn of(items: impl ExactSizeIterator<Item = (*mut u8, u32)>) -> Option<Items> {
        let count = items.len();
        if count == 0 {
            return Some(Items::NONE);
        }
        // SAFETY: plain allocations, which are the program's to free.
        let (places, sizes) = unsafe {
            (
                libc::malloc(count * size_of::<*mut c_void>()).cast::<*mut c_void>(),
                libc::malloc(count * size_of::<u32>()).cast::<u32>(),
            )
        };
        if places.is_null() || sizes.is_null() {
            // SAFETY: they were allocated so, or are NULL.
            unsafe {
                libc::free(places.cast());
                libc::free(sizes.cast());
            }
            return None;
        }
        for (index, (place, size)) in items.enumerate().take(count) {
            // SAFETY: so many elements are there.
            unsafe {
                places.add(index).write(place.cast());
                sizes.add(index).write(size);
            }
        }
        Some(Items { places, sizes, count: u16::try_from(count).unwrap_or(u16::MAX) })
    }

    /// # Safety
    /// Each is the caller's to be written.
    unsafe fn write(self, places: *mut *mut *mut c_void, sizes: *mut *mut u32, count: *mut u16) {
        // SAFETY: as the caller promises.
        unsafe {
            places.write(self.places);
            sizes.write(self.sizes);
            count.write(self.count);
        }
    }
}

/// Where a long item is, and how long it is.
fn long_item(live: &mut Live, item: &LongItem) -> Option<(*mut u8, u32)> {
    let (memory, offset) = item.place()?;
    let place = memory.as_ptr().wrapping_add(offset);
    live.buffers.filled(place.addr(), item.len());
    Some((place, u32::try_from(item.len()).ok()?))
}

/// Gives a message to the program. Returns what the call returns.
///
/// # Safety
/// The places are the caller's to be written.
unsafe fn give(live: &mut Live, message: &Message, places: Places) -> Result<u8> {
    let no_memory = || super::live::Wrong("a message was lost, since there is no memory".to_owned());
    let len_bytes: usize = message.items().map(<[u8]>::len).sum();
    let short = if message.items().next().is_none() {
        Items::NONE
    } else {
        let payload = live.buffers.take(&mut live.node, len_bytes.max(1)).ok_or_else(no_memory)?.as_ptr();
        let mut offset = 0;
        let items: Vec<(*mut u8, u32)> = message
            .items()
            .map(|item| {
                // SAFETY: the buffer is as long as all items, and nobody else's.
                let place = unsafe {
                    let place = payload.add(offset);
                    ptr::copy_nonoverlapping(item.as_ptr(), place, item.len());
                    place
                };
                offset += item.len();
                (place, item.len() as u32)
            })
            .collect();
        Items::of(items.into_iter()).ok_or_else(no_memory)?
    };
    let long: Vec<Option<(*mut u8, u32)>> =
        message.long_items().iter().map(|item| long_item(live, item.as_ref()?)).collect();
    let is_complete = long.iter().all(Option::is_some);
    let long = long.into_iter().map(|item| item.unwrap_or((ptr::null_mut(), 0)));
    let long = Items::of(long).ok_or_else(no_memory)?;
    let Live { numbers, services, .. } = live;
    let from = numbers.of_sender(message.from(), message.partner(), |number| services.contains_key(&number));
    // SAFETY: as the caller promises.
    unsafe {
        places.from.write(from.unwrap_or(u16::MAX));
        short.write(places.short_items, places.short_sizes, places.num_short);
        long.write(places.long_items, places.long_sizes, places.num_long);
    }
    if is_complete {
        return Ok(DONE);
    }
    crate::guard::remember(
        "not all long items were fetched: there was no window large enough, or the sender is gone".to_owned(),
    );
    Ok(FAILED)
}

/// Takes the next message of a service, if there is one.
fn take(live: &mut Live, service: cci_ripc::Service) -> Option<Message> {
    while let Some(event) = live.node.next_event(service) {
        match event {
            Event::Message(message) => return Some(message),
            Event::Request(request) | Event::TakeOver(request) => {
                // Who asks learns at once that nobody will answer, unless it is gone.
                let _refused =
                    live.node.refuse(request.ticket(), b"this service takes messages, and no calls");
            }
            // What the program does not wait for.
            _ => {}
        }
    }
    None
}

/// # Safety
/// The places are NULL, or the caller's to be written.
unsafe fn receive(id: u16, timeout: Option<Duration>, places: Places) -> u8 {
    guarded(FAILED, || {
        if !places.are_there() {
            return wrong("a place for what is received is NULL");
        }
        // SAFETY: as the caller promises.
        unsafe { places.clear() };
        let Ok(service) = with(|live| live.registered(id).map(|registered| registered.service)) else {
            crate::guard::remember(format!("{id} is no service of this process: register it first"));
            return Ok(NOT_OURS);
        };
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let waits = Wait { awaited: Awaited::Event(service), until, is_interruptible: true };
        let waited = wait(waits, |live| {
            if live.services.get(&id).is_none_or(|registered| registered.service != service) {
                return Ok(Some(NOT_OURS));
            }
            match take(live, service) {
                // SAFETY: as the caller promises.
                Some(message) => unsafe { give(live, &message, places) }.map(Some),
                None => Ok(None),
            }
        })?;
        match waited {
            Waited::Done(result) => Ok(result),
            Waited::TimedOut => Ok(TIMED_OUT),
            Waited::Interrupted => wrong("a signal was handled meanwhile"),
        }
    })
}

/// Receives one message, and waits for it.
///
/// # Safety
/// Each place is NULL, or the caller's to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_receive(
    service_id: u16,
    from_service_id: *mut u16,
    short_items: *mut *mut *mut c_void,
    short_item_sizes: *mut *mut u32,
    num_short_items: *mut u16,
    long_items: *mut *mut *mut c_void,
    long_item_sizes: *mut *mut u32,
    num_long_items: *mut u16,
) -> u8 {
    let places = Places {
        from: from_service_id,
        short_items,
        short_sizes: short_item_sizes,
        num_short: num_short_items,
        long_items,
        long_sizes: long_item_sizes,
        num_long: num_long_items,
    };
    // SAFETY: as the caller promises.
    unsafe { receive(service_id, None, places) }
}

/// Receives one message, and waits for it for some time.
///
/// # Safety
/// Each place is NULL, or the caller's to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_receive_within(
    timeout_ms: c_int,
    service_id: u16,
    from_service_id: *mut u16,
    short_items: *mut *mut *mut c_void,
    short_item_sizes: *mut *mut u32,
    num_short_items: *mut u16,
    long_items: *mut *mut *mut c_void,
    long_item_sizes: *mut *mut u32,
    num_long_items: *mut u16,
) -> u8 {
    let places = Places {
        from: from_service_id,
        short_items,
        short_sizes: short_item_sizes,
        num_short: num_short_items,
        long_items,
        long_sizes: long_item_sizes,
        num_long: num_long_items,
    };
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    // SAFETY: as the caller promises.
    unsafe { receive(service_id, timeout, places) }
}
