//! Vectors and deques: bytes in a row on one rank. C has the same calls for both.

use super::{Element, Pair, int, number};
use crate::acp::failure::{Result, wrong};
use crate::acp::live::{Live, call};
use crate::acp::management::address;
use cci_acp::{Deque, Vector};
use libc::c_int;

/// The handle of a vector or a deque (`acp_vector_t`, `acp_deque_t`).
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct Row {
    ga: u64,
}

/// A byte of it (`acp_vector_it_t`, `acp_deque_it_t`).
#[derive(Copy, Clone)]
#[repr(C)]
pub struct RowPosition {
    row: Row,
    index: c_int,
}

impl RowPosition {
    const NONE: RowPosition = RowPosition { row: Row { ga: 0 }, index: 0 };

    /// Where bytes begin and how many they are, from this one to another one of the same row.
    fn to(self, end: RowPosition) -> Result<(u64, usize)> {
        match (
            number(self.index),
            end.index.checked_sub(self.index).and_then(|len| usize::try_from(len).ok()),
        ) {
            (Ok(at), Some(len)) if self.row == end.row => Ok((at, len)),
            _ => wrong("the range does not begin and end in the same container, in this order"),
        }
    }
}

macro_rules! row {
    (
        $kind:ident, $push:ident, $pop:ident: $assign:ident $assign_range:ident $at:ident $begin:ident $capacity:ident $clear:ident $create:ident
        $destroy:ident $empty:ident $end:ident $erase:ident $erase_range:ident $insert:ident $insert_range:ident $pop_back:ident
        $push_back:ident $reserve:ident $size:ident $swap:ident $advance:ident $distance:ident $open:ident $bytes_of:ident
    ) => {
        fn $open(live: &Live, row: Row) -> Result<$kind> {
            Ok($kind::open(address(live, row.ga)?))
        }

        /// The bytes of a range.
        fn $bytes_of(live: &mut Live, start: RowPosition, end: RowPosition) -> Result<Vec<u8>> {
            let (at, len) = start.to(end)?;
            let row = $open(live, start.row)?;
            if at + len as u64 > row.len(&mut live.global)? {
                return wrong("the range ends behind the end of the container");
            }
            let mut bytes = vec![0; len];
            row.read(&mut live.global, at, &mut bytes)?;
            Ok(bytes)
        }

        /// Makes its bytes those of another one.
        #[unsafe(no_mangle)]
        pub extern "C" fn $assign(one: Row, other: Row) {
            call((), |live| {
                let (one, other) = ($open(live, one)?, $open(live, other)?);
                Ok(one.assign(&mut live.global, other)?)
            });
        }

        /// Makes its bytes those of a range.
        #[unsafe(no_mangle)]
        pub extern "C" fn $assign_range(row: Row, start: RowPosition, end: RowPosition) {
            call((), |live| {
                let (row, bytes) = ($open(live, row)?, $bytes_of(live, start, end)?);
                Ok(row.set(&mut live.global, &bytes)?)
            });
        }

        /// Where a byte is.
        #[unsafe(no_mangle)]
        pub extern "C" fn $at(row: Row, index: c_int) -> u64 {
            call(0, |live| {
                let found = $open(live, row)?.address(&mut live.global, number(index)?)?;
                Ok(found.map_or(0, |at| at.to_bits()))
            })
        }

        /// Its first byte.
        #[unsafe(no_mangle)]
        pub extern "C" fn $begin(row: Row) -> RowPosition {
            RowPosition { row, index: 0 }
        }

        /// Behind its last byte.
        #[unsafe(no_mangle)]
        pub extern "C" fn $end(row: Row) -> RowPosition {
            call(RowPosition::NONE, |live| {
                let index = int($open(live, row)?.len(&mut live.global)?)?;
                Ok(RowPosition { row, index })
            })
        }

        /// For how many bytes it has space.
        #[unsafe(no_mangle)]
        pub extern "C" fn $capacity(row: Row) -> usize {
            call(0, |live| Ok($open(live, row)?.capacity(&mut live.global)? as usize))
        }

        /// Takes all bytes off.
        #[unsafe(no_mangle)]
        pub extern "C" fn $clear(row: Row) {
            call((), |live| Ok($open(live, row)?.clear(&mut live.global)?));
        }

        /// Makes one on a rank.
        #[unsafe(no_mangle)]
        pub extern "C" fn $create(size: usize, rank: c_int) -> Row {
            call(Row { ga: 0 }, |live| {
                let row = $kind::create(&mut live.global, size as u64, rank.cast_unsigned())?;
                Ok(Row { ga: row.handle().to_bits() })
            })
        }

        /// Frees it.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(row: Row) {
            call((), |live| Ok($open(live, row)?.destroy(&mut live.global)?));
        }

        /// Whether it has no bytes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $empty(row: Row) -> c_int {
            call(1, |live| Ok(($open(live, row)?.len(&mut live.global)? == 0).into()))
        }

        /// Takes bytes out.
        #[unsafe(no_mangle)]
        pub extern "C" fn $erase(it: RowPosition, size: usize) -> RowPosition {
            call(RowPosition::NONE, |live| {
                $open(live, it.row)?.remove(&mut live.global, number(it.index)?, size as u64)?;
                Ok(it)
            })
        }

        /// Takes a range out.
        #[unsafe(no_mangle)]
        pub extern "C" fn $erase_range(start: RowPosition, end: RowPosition) -> RowPosition {
            call(RowPosition::NONE, |live| {
                let (at, len) = start.to(end)?;
                $open(live, start.row)?.remove(&mut live.global, at, len as u64)?;
                Ok(start)
            })
        }

        /// Puts bytes in.
        #[unsafe(no_mangle)]
        pub extern "C" fn $insert(it: RowPosition, ga: u64, size: usize) -> RowPosition {
            call(RowPosition::NONE, |live| {
                let (row, bytes) = ($open(live, it.row)?, Element { ga, size }.fetch(live)?);
                row.insert(&mut live.global, number(it.index)?, &bytes)?;
                Ok(it)
            })
        }

        /// Puts a range in.
        #[unsafe(no_mangle)]
        pub extern "C" fn $insert_range(
            it: RowPosition,
            start: RowPosition,
            end: RowPosition,
        ) -> RowPosition {
            call(RowPosition::NONE, |live| {
                let (row, bytes) = ($open(live, it.row)?, $bytes_of(live, start, end)?);
                row.insert(&mut live.global, number(it.index)?, &bytes)?;
                Ok(it)
            })
        }

        /// Takes bytes off the end.
        #[unsafe(no_mangle)]
        pub extern "C" fn $pop_back(row: Row, size: usize) {
            call((), |live| {
                $open(live, row)?.$pop(&mut live.global, size as u64)?;
                Ok(())
            });
        }

        /// Appends bytes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $push_back(row: Row, ga: u64, size: usize) {
            call((), |live| {
                let (row, bytes) = ($open(live, row)?, Element { ga, size }.fetch(live)?);
                Ok(row.$push(&mut live.global, &bytes)?)
            });
        }

        /// Makes space.
        #[unsafe(no_mangle)]
        pub extern "C" fn $reserve(row: Row, size: usize) {
            call((), |live| Ok($open(live, row)?.reserve(&mut live.global, size as u64)?));
        }

        /// How many bytes it has.
        #[unsafe(no_mangle)]
        pub extern "C" fn $size(row: Row) -> usize {
            call(0, |live| Ok($open(live, row)?.len(&mut live.global)? as usize))
        }

        /// Gives two each other's bytes.
        #[unsafe(no_mangle)]
        pub extern "C" fn $swap(one: Row, other: Row) {
            call((), |live| {
                let (one, other) = ($open(live, one)?, $open(live, other)?);
                Ok(one.swap(&mut live.global, other)?)
            });
        }

        /// A byte so many further on.
        #[unsafe(no_mangle)]
        pub extern "C" fn $advance(it: RowPosition, n: c_int) -> RowPosition {
            RowPosition { index: it.index.saturating_add(n), ..it }
        }

        /// How many bytes there are between two.
        #[unsafe(no_mangle)]
        pub extern "C" fn $distance(first: RowPosition, last: RowPosition) -> c_int {
            last.index.saturating_sub(first.index)
        }
    };
}

row!(Vector, push, pop: acp_assign_vector acp_assign_range_vector acp_at_vector acp_begin_vector acp_capacity_vector acp_clear_vector
    acp_create_vector acp_destroy_vector acp_empty_vector acp_end_vector acp_erase_vector acp_erase_range_vector acp_insert_vector
    acp_insert_range_vector acp_pop_back_vector acp_push_back_vector acp_reserve_vector acp_size_vector acp_swap_vector
    acp_advance_vector_it acp_distance_vector_it open_vector vector_bytes);
row!(Deque, push_back, pop_back: acp_assign_deque acp_assign_range_deque acp_at_deque acp_begin_deque acp_capacity_deque acp_clear_deque
    acp_create_deque acp_destroy_deque acp_empty_deque acp_end_deque acp_erase_deque acp_erase_range_deque acp_insert_deque
    acp_insert_range_deque acp_pop_back_deque acp_push_back_deque acp_reserve_deque acp_size_deque acp_swap_deque
    acp_advance_deque_it acp_distance_deque_it open_deque deque_bytes);

/// Where a byte of a vector is.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_vector_it(it: RowPosition) -> u64 {
    acp_at_vector(it.row, it.index)
}

/// Where bytes of a deque are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_dereference_deque_it(it: RowPosition, size: usize) -> Pair {
    call(Pair { first: Element::NONE, second: Element::NONE }, |live| {
        let pieces = open_deque(live, it.row)?.pieces(&mut live.global, number(it.index)?, size as u64)?;
        let mut pieces = pieces.into_iter().map(Element::at);
        let mut next = || pieces.next().unwrap_or(Element::NONE);
        Ok(Pair { first: next(), second: next() })
    })
}

/// Takes bytes off the front of a deque.
#[unsafe(no_mangle)]
pub extern "C" fn acp_pop_front_deque(deque: Row, size: usize) {
    call((), |live| {
        open_deque(live, deque)?.pop_front(&mut live.global, size as u64)?;
        Ok(())
    });
}

/// Puts bytes before all others of a deque.
#[unsafe(no_mangle)]
pub extern "C" fn acp_push_front_deque(deque: Row, ga: u64, size: usize) {
    call((), |live| {
        let (deque, bytes) = (open_deque(live, deque)?, Element { ga, size }.fetch(live)?);
        Ok(deque.push_front(&mut live.global, &bytes)?)
    });
}
