//! Descriptions of data that do not lie in one piece (the paper's *datadescs*, CCS section 3.5).
//!
//! A [`Description`] says which bytes belong to one element of data, and in which order, relative to the element's
//! origin. It is built from others, as in MPI, whose rules on extents and lower bounds hold (MPI 4.0, chapter 5). It
//! knows bytes only: no types, no alignment. [`pack`](Description::pack) copies the described bytes to a row, and
//! [`unpack`](Description::unpack) copies a row back; both work on any part of the row, so that a pipeline can.
//!
//! A description is unrolled when it is made: nested ones become a few loops, and what is contiguous is merged. Packing
//! runs these loops and never recurses.

mod bounds;
mod build;
mod encoded;
mod error;
mod layout;
mod pack;
mod pieces;
mod runs;
mod walk;

use bounds::Bounds;
use layout::Placed;
use std::ops::Range;

pub use cci_memory::bytes::{Readable, Writable};
pub use error::{DescriptionError, PackError};
pub(crate) use pieces::Piece;
pub(crate) use runs::{Run, pair_runs};

/// Which bytes belong to one element of data, and in which order.
///
/// It never changes. A clone is cheap, and any thread may use it.
#[derive(Debug, Clone)]
pub struct Description {
    /// `None` if there are no bytes.
    layout: Option<Placed>,
    /// `None` if there are no bytes and no bounds were set.
    bounds: Option<Bounds>,
}

impl Description {
    /// How many bytes an element has, packed.
    pub fn size(&self) -> usize {
        self.layout.as_ref().map_or(0, Placed::size)
    }

    /// Where an element begins, in bytes from its origin. It may be negative.
    pub fn lower_bound(&self) -> isize {
        self.bounds.map_or(0, |bounds| bounds.lower)
    }

    /// From the origin of an element to that of the next one, in bytes.
    ///
    /// Negative only where [`resized`](Self::resized) or a negative bound of a nested description made it so.
    pub fn extent(&self) -> isize {
        self.bounds.map_or(0, |bounds| bounds.extent())
    }

    /// The bytes of an element that are used, relative to its origin: from the first one to behind the last one. Empty,
    /// at 0, if there are none.
    pub fn true_bounds(&self) -> Range<isize> {
        self.layout.as_ref().map_or(0..0, Placed::true_bounds)
    }

    /// Whether the bytes of `count` elements lie in one piece, in order.
    pub fn is_contiguous(&self, count: usize) -> bool {
        match &self.layout {
            None => true,
            Some(layout) => {
                let in_a_row = usize::try_from(self.extent()).is_ok_and(|extent| extent == layout.size());
                layout.is_block() && (count <= 1 || in_a_row)
            }
        }
    }
}
