//! Where a program wants what it receives, and how it gets there.

use super::live::{Live, Result, Wrong};
use cci_ripc::{LongItem, Message};
use libc::c_void;
use std::ptr;

/// Where a program wants a message.
#[derive(Copy, Clone)]
pub(super) struct Places {
    pub from: *mut u16,
    pub short_items: *mut *mut *mut c_void,
    pub short_sizes: *mut *mut u32,
    pub num_short: *mut u16,
    pub long_items: *mut *mut *mut c_void,
    pub long_sizes: *mut *mut u32,
    pub num_long: *mut u16,
}

impl Places {
    pub fn are_there(&self) -> bool {
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
    pub unsafe fn clear(&self) {
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

fn no_memory() -> Wrong {
    Wrong("a message was lost, since there is no memory".to_owned())
}

/// Short items, in one buffer of the library's.
fn short_items<'a>(live: &mut Live, items: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Items> {
    if items.clone().next().is_none() {
        return Ok(Items::NONE);
    }
    let len_bytes: usize = items.clone().map(<[u8]>::len).sum();
    let payload = live.buffers.take(&mut live.node, len_bytes.max(1)).ok_or_else(no_memory)?.as_ptr();
    let mut offset = 0;
    let items: Vec<(*mut u8, u32)> = items
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
    Items::of(items.into_iter()).ok_or_else(no_memory)
}

/// Gives a message of the service `id` to the program. Returns whether all long items are there; if not, the last error says so.
///
/// # Safety
/// The places are the caller's to be written.
pub(super) unsafe fn give(live: &mut Live, id: u16, message: &Message, places: Places) -> Result<bool> {
    let short = short_items(live, message.items())?;
    let long: Vec<Option<(*mut u8, u32)>> =
        message.long_items().iter().map(|item| long_item(live, item.as_ref()?)).collect();
    let is_complete = long.iter().all(Option::is_some);
    let long = long.into_iter().map(|item| item.unwrap_or((ptr::null_mut(), 0)));
    let long = Items::of(long).ok_or_else(no_memory)?;
    let Live { numbers, services, .. } = live;
    let is_taken = |number| services.contains_key(&number);
    let from = numbers.of_sender(message.from(), message.partner(), id, is_taken);
    // SAFETY: as the caller promises.
    unsafe {
        places.from.write(from.unwrap_or(u16::MAX));
        short.write(places.short_items, places.short_sizes, places.num_short);
        long.write(places.long_items, places.long_sizes, places.num_long);
    }
    if !is_complete {
        crate::guard::remember(
            "not all long items were fetched: there was no window large enough, or the sender is gone"
                .to_owned(),
        );
    }
    Ok(is_complete)
}

/// Gives the program one short item, which no message has brought.
///
/// # Safety
/// The places are the caller's to be written.
pub(super) unsafe fn give_one(live: &mut Live, item: &[u8], places: Places) -> Result<()> {
    let short = short_items(live, std::iter::once(item))?;
    // SAFETY: as the caller promises.
    unsafe { short.write(places.short_items, places.short_sizes, places.num_short) };
    Ok(())
}
