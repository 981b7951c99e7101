//! The data library: heaps, workspaces and containers, which are in the memory of any ranks.

mod heap;
mod list;
mod rows;
mod tables;
mod workspace;

pub use heap::{acp_free, acp_malloc};
pub use list::*;
pub use rows::*;
pub use tables::*;
pub use workspace::{acp_create_ws, acp_destroy_ws, acp_read_ws, acp_setparams_ws, acp_write_ws};

use super::failure::{Result, Wrong, wrong};
use super::live::Live;
use super::management::address;
use cci_acp::{GlobalAddress, Space};
use libc::c_int;

/// Bytes in global memory (`acp_element_t`).
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Element {
    ga: u64,
    size: usize,
}

/// A key and a value, or the two pieces of a range of a deque (`acp_pair_t`).
#[derive(Copy, Clone)]
#[repr(C)]
pub struct Pair {
    first: Element,
    second: Element,
}

impl Element {
    const NONE: Element = Element { ga: 0, size: 0 };

    fn at((at, len_bytes): (GlobalAddress, u64)) -> Element {
        Element { ga: at.to_bits(), size: len_bytes as usize }
    }

    /// Its bytes, wherever they are. All heaps together have as many at least, since that is where they go.
    fn fetch(self, live: &mut Live) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.size as u64 > live.global.heap_bytes().saturating_mul(live.global.size().into()) {
            return wrong("the heaps of all ranks have not so many bytes");
        }
        let got = bytes.try_reserve_exact(self.size);
        got.map_err(|_| Wrong(format!("there is no memory for {} bytes", self.size)))?;
        bytes.resize(self.size, 0);
        if self.size > 0 {
            let at = address(live, self.ga)?;
            live.global.read(at, &mut bytes)?;
        }
        Ok(bytes)
    }
}

/// A number of C's that is not negative.
fn number<T: TryFrom<c_int>>(value: c_int) -> Result<T> {
    T::try_from(value).map_err(|_| Wrong(format!("{value} is negative")))
}

/// A length as C's `int`.
fn int(value: u64) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| Wrong(format!("{value} is too much for an int")))
}
