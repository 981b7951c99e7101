//! What a program gives to be sent.

use super::buffers::Problem;
use super::live::{Live, Result, Wrong, wrong};
use cci_ripc::Part;
use libc::c_void;

/// Short items of one message, and their bytes.
pub(super) const ITEMS_MAX: usize = 9;
pub(super) const BYTES_MAX: usize = 2_000;
/// Long items of one message, and return buffers.
const LONG_ITEMS_MAX: usize = cci_ripc::limits::LONG_ITEMS_MAX;

/// Items or buffers: where they are, and how long each is.
#[derive(Copy, Clone)]
pub(super) struct Array {
    pub places: *mut *mut c_void,
    pub lens: *mut u32,
    pub count: u16,
}

/// Where something is, and how long it is.
pub(super) type Place = (*mut u8, usize);

impl Array {
    /// # Safety
    /// The arrays have so many elements, where they are not NULL.
    unsafe fn read(&self, what: &str) -> Result<Vec<Place>> {
        if self.count == 0 {
            return Ok(Vec::new());
        }
        if self.places.is_null() || self.lens.is_null() {
            return wrong(format!("there are {} {what}, and an array of them is NULL", self.count));
        }
        // SAFETY: as the caller promises.
        let at = |index: usize| unsafe {
            (self.places.add(index).read().cast(), self.lens.add(index).read() as usize)
        };
        Ok((0..usize::from(self.count)).map(at).collect())
    }

    /// # Safety
    /// The arrays have so many elements, where they are not NULL.
    unsafe fn items(&self, max: usize) -> Result<Vec<Place>> {
        if usize::from(self.count) > max {
            return wrong(format!(
                "{} items are too many for one message, which has {max} at most",
                self.count
            ));
        }
        // SAFETY: as the caller promises.
        unsafe { self.read("items") }
    }

    /// # Safety
    /// The arrays have so many elements, where they are not NULL.
    pub unsafe fn short_items(&self) -> Result<Vec<Place>> {
        // SAFETY: as the caller promises.
        unsafe { self.items(ITEMS_MAX) }
    }

    /// # Safety
    /// The arrays have so many elements, where they are not NULL.
    pub unsafe fn long_items(&self) -> Result<Vec<Place>> {
        // SAFETY: as the caller promises.
        unsafe { self.items(LONG_ITEMS_MAX) }
    }

    /// Return buffers that are offered.
    ///
    /// # Safety
    /// The arrays have so many elements, where they are not NULL.
    pub unsafe fn returns(&self) -> Result<Vec<Place>> {
        // SAFETY: as the caller promises.
        let mut returns = unsafe { self.read("return buffers") }?;
        returns.retain(|(_, len)| *len != 0);
        if returns.len() > LONG_ITEMS_MAX {
            return wrong(format!("{} return buffers are more than {LONG_ITEMS_MAX}", returns.len()));
        }
        Ok(returns)
    }
}

/// Checks the bytes of all short items of a message.
pub(super) fn check_len(items: &[Place]) -> Result<()> {
    let len_bytes: usize = items.iter().map(|(_, len)| len).sum();
    if len_bytes > BYTES_MAX {
        return wrong(format!("{len_bytes} bytes are more than {BYTES_MAX}: send them as long items"));
    }
    Ok(())
}

/// A short item.
///
/// # Safety
/// So many bytes are there, and stay as they are for as long as the slice is used.
pub(super) unsafe fn slice<'a>((base, len): Place) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if base.is_null() {
        return wrong("an item is NULL");
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(base, len) })
}

/// The long items of a message, as parts of memory.
pub(super) fn long_parts(live: &mut Live, items: &[Place]) -> Result<Vec<Part>> {
    let part = |&(base, len): &Place| {
        let part = live.buffers.part(base.expose_provenance(), len);
        part.map_err(|problem| Wrong(explain("long item", &problem)))
    };
    items.iter().map(part).collect()
}

/// The return buffers of a message, as parts of memory.
pub(super) fn offered(live: &mut Live, returns: &[Place]) -> Result<Vec<Part>> {
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
