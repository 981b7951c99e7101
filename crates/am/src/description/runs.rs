//! The runs of blocks of described data, for direct copies between two descriptions.

use super::Description;
use super::walk::{self, Visitor};
use std::ops::ControlFlow;

/// Blocks of one length at equal distances.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    /// Bytes from the origin of the first element to the first byte.
    pub at: isize,
    /// Bytes from the beginning of a block to that of the next one.
    pub stride: isize,
    pub len_bytes: usize,
    pub count: usize,
}

impl Description {
    /// Adds the next runs of `count` elements to a list, from byte `first_byte` of the packed row on: up to `max` runs, and
    /// `len_bytes` in total. Returns how many bytes these are.
    pub(crate) fn runs(
        &self,
        count: usize,
        first_byte: usize,
        len_bytes: usize,
        max: usize,
        runs: &mut Vec<Run>,
    ) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        let left = self.packed_bytes(count).unwrap_or_default().saturating_sub(first_byte);
        let mut collect = Collect { runs, max, bytes: 0 };
        let (elements, len) = ((count, self.extent()), len_bytes.min(left));
        // The walk breaks when the list is full.
        let _ = walk::walk(&layout.layout, layout.at, elements, first_byte, len, &mut collect);
        collect.bytes
    }
}

struct Collect<'a> {
    runs: &'a mut Vec<Run>,
    max: usize,
    bytes: usize,
}

impl Visitor for Collect<'_> {
    fn block(&mut self, at: isize, len: usize) -> ControlFlow<()> {
        self.blocks(at, 0, len, 1)
    }

    fn blocks(&mut self, at: isize, stride: isize, len: usize, count: usize) -> ControlFlow<()> {
        if self.runs.len() >= self.max {
            return ControlFlow::Break(());
        }
        self.runs.push(Run { at, stride, len_bytes: len, count });
        self.bytes += len * count;
        ControlFlow::Continue(())
    }
}

/// Divides two lists of runs in the same way, and calls `each` with runs of both that have the same blocks, to the end of the
/// shorter list. It breaks if `each` does.
pub(crate) fn pair_runs(
    one: &[Run],
    other: &[Run],
    mut each: impl FnMut(Run, Run) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let (mut one, mut other) = (Cursor::new(one), Cursor::new(other));
    while let (Some(first), Some(second)) = (one.first(), other.first()) {
        let len = first.len_bytes.min(second.len_bytes);
        let count = blocks_of(first, len).min(blocks_of(second, len));
        each(one.take(len, count), other.take(len, count))?;
    }
    ControlFlow::Continue(())
}

/// How many blocks of this length, which is at most its own, a run begins with.
fn blocks_of(run: Run, len_bytes: usize) -> usize {
    if run.len_bytes == len_bytes { run.count } else { run.len_bytes / len_bytes }
}

/// The rest of a list of runs.
struct Cursor<'a> {
    /// The rest of a block, or whole ones.
    first: Run,
    /// The blocks after the one of which `first` is the rest.
    then: Run,
    more: std::slice::Iter<'a, Run>,
}

impl<'a> Cursor<'a> {
    fn new(runs: &'a [Run]) -> Cursor<'a> {
        Cursor { first: Run::default(), then: Run::default(), more: runs.iter() }
    }

    /// The next run; `None` at the end.
    fn first(&mut self) -> Option<Run> {
        while self.first.count == 0 || self.first.len_bytes == 0 {
            self.first = std::mem::take(&mut self.then);
            if self.first.count == 0 {
                self.first = *self.more.next()?;
            }
        }
        Some(self.first)
    }

    /// Takes blocks off the next run, which [begins with](blocks_of) that many.
    fn take(&mut self, len_bytes: usize, count: usize) -> Run {
        let Run { at, stride, len_bytes: whole, count: all } = self.first;
        let steps = |stride: isize, count: usize| at.wrapping_add(stride.wrapping_mul(count.cast_signed()));
        if len_bytes == whole {
            self.first = Run { at: steps(stride, count), count: all - count, ..self.first };
            return Run { at, stride, len_bytes, count };
        }
        if all > 1 {
            self.then = Run { at: steps(stride, 1), count: all - 1, ..self.first };
        }
        let used = len_bytes * count;
        self.first = Run { at: at.wrapping_add_unsigned(used), stride: 0, len_bytes: whole - used, count: 1 };
        Run { at, stride: len_bytes.cast_signed(), len_bytes, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of all bytes, in the order of the packed row, from runs taken `max` at a time.
    fn runs_of(description: &Description, count: usize, max: usize) -> Vec<Run> {
        let (mut all, mut done) = (Vec::new(), 0);
        let size = description.packed_bytes(count).unwrap();
        while done < size {
            let mut some = Vec::new();
            let bytes = description.runs(count, done, size, max, &mut some);
            assert!(bytes > 0 && some.len() <= max);
            all.extend(some);
            done += bytes;
        }
        all
    }

    fn places(run: &Run) -> Vec<isize> {
        let block = |turn: usize| run.at + run.stride * turn as isize;
        (0..run.count)
            .flat_map(|turn| (0..run.len_bytes as isize).map(move |byte| block(turn) + byte))
            .collect()
    }

    #[test]
    fn runs_of_two_descriptions_are_divided_alike() {
        let byte = Description::bytes(1).unwrap();
        let row = Description::bytes(360).unwrap();
        let column = Description::strided(&[3, 120], &[8]).unwrap();
        let backwards = Description::strided(&[2, 180], &[-6]).unwrap();
        let nested = Description::strided(&[6, 4, 15], &[10, 70]).unwrap();
        let lens: Vec<usize> = (0..45).map(|block| [9, 0, 5, 10, 16][block % 5]).collect();
        let at: Vec<isize> = (0..45).map(|block| block * 20 + 3).collect();
        let indexed = Description::hindexed(&lens, &at, &byte).unwrap();
        let all = [row, column, backwards, nested, indexed];
        for one in &all {
            for other in &all {
                for max in [1, 3, 1_000] {
                    let (one, other) = (runs_of(one, 2, max), runs_of(other, 2, max));
                    let (mut ones, mut others) = (Vec::new(), Vec::new());
                    let end = pair_runs(&one, &other, |one, other| {
                        assert_eq!((one.len_bytes, one.count), (other.len_bytes, other.count));
                        ones.extend(places(&one));
                        others.extend(places(&other));
                        ControlFlow::Continue(())
                    });
                    assert!(end.is_continue());
                    assert_eq!(ones, one.iter().flat_map(places).collect::<Vec<_>>());
                    assert_eq!(others, other.iter().flat_map(places).collect::<Vec<_>>());
                }
            }
        }
    }
}
