//! Bounds of elements: MPI's lower and upper bounds.

use std::ops::Range;

/// The bounds of an element, relative to its origin, in bytes.
///
/// MPI 4.0, section 5.1.7: a bound is that of the bytes, unless a resized description is inside. Then only the bounds of
/// those that were resized count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lower: isize,
    pub(super) upper: isize,
    /// Whether the bounds were set by resizing, here or in a nested description.
    pub(super) explicit: bool,
}

impl Bounds {
    /// The bounds of bytes in this range.
    pub(super) fn of_bytes(range: Range<isize>) -> Bounds {
        Bounds { lower: range.start, upper: range.end, explicit: false }
    }

    pub(super) fn extent(&self) -> isize {
        self.upper.saturating_sub(self.lower)
    }

    /// The bounds of elements with these bounds, of which the first and the last are at these places. `None` if they exceed
    /// `isize`.
    pub(super) fn spread(self, first: isize, last: isize) -> Option<Bounds> {
        let (low, high) = (first.min(last), first.max(last));
        let bounds =
            Bounds { lower: self.lower.checked_add(low)?, upper: self.upper.checked_add(high)?, ..self };
        bounds.upper.checked_sub(bounds.lower)?;
        Some(bounds)
    }

    /// The bounds of both together.
    pub(super) fn join(self, other: Bounds) -> Bounds {
        match (self.explicit, other.explicit) {
            (true, false) => self,
            (false, true) => other,
            _ => Bounds {
                lower: self.lower.min(other.lower),
                upper: self.upper.max(other.upper),
                explicit: self.explicit,
            },
        }
    }
}
