//! A collective of all ranks through memory which all of them map. Each rank writes what the others need to its own slot there,
//! adds to a count, and reads what it needs when all have come.
//!
//! Short data take one step, in which each rank reads the slots of all. Longer data go in segments, one in each step. For a
//! reduction, each rank computes a piece of a segment, and publishes it in the next step.

use super::place::Set;
use crate::arithmetic::{Number, Reduction};
use crate::limits::{
    COUNTED_PIECE_BYTES_MAX, COUNTED_SEGMENT_BYTES_MAX, COUNTED_SHORT_BYTES, COUNTED_SLOTS_BYTES,
};
use std::ops::Range;

/// Bytes at the beginning of each slot: the number of the collective, its kind, and the length of each rank's data.
const HEAD_BYTES: usize = 16;
/// A slot has whole lines.
const LINE_BYTES: usize = 64;

/// A collective of all ranks in which no part ends before all have come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Barrier,
    Allgather,
    Allreduce(Number, Reduction),
}

/// The result of a step at which all have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Step,
    Last,
    /// Another rank has called something else, or has other data.
    Differs,
}

pub(crate) struct CountedCollective {
    pub number: u32,
    pub kind: Kind,
    pub cookie: u64,
    /// This rank's data. In a reduction, this becomes the result, as far as it is known.
    pub data: Vec<u8>,
    /// The data of all ranks, if they are gathered.
    gathered: Vec<u8>,
    layout: Layout,
    step: usize,
    /// Whether this rank has arrived at the step.
    pub has_arrived: bool,
}

/// The places in the memory of a step.
#[derive(Copy, Clone)]
struct Layout {
    rank: usize,
    size: usize,
    /// Whether the data are one segment, of which each rank reads those of all.
    is_short: bool,
    /// The length of a segment; the last one may be shorter.
    segment_bytes: usize,
    segments: usize,
}

impl Layout {
    fn new((rank, size): (u32, u32), len: usize) -> Layout {
        let (rank, size) = (rank as usize, size as usize);
        let short = Layout { rank, size, is_short: true, segment_bytes: len, segments: 1 };
        if len <= COUNTED_SHORT_BYTES && size * short.slot_bytes() <= COUNTED_SHORT_BYTES {
            return short;
        }
        let most = (COUNTED_SLOTS_BYTES / size - LINE_BYTES)
            .min(COUNTED_PIECE_BYTES_MAX * size)
            .min(COUNTED_SEGMENT_BYTES_MAX);
        let segment_bytes = most / LINE_BYTES * LINE_BYTES;
        Layout { is_short: false, segment_bytes, segments: len.div_ceil(segment_bytes), ..short }
    }

    fn slot_bytes(self) -> usize {
        (HEAD_BYTES + self.segment_bytes).next_multiple_of(LINE_BYTES)
    }

    fn slot(self, rank: usize) -> u64 {
        (rank * self.slot_bytes()) as u64
    }

    /// The part of a segment that a rank reduces.
    fn piece(self, rank: usize, segment: &Range<usize>, element_bytes: usize) -> Range<usize> {
        let elements = segment.len() / element_bytes;
        let bound = |rank: usize| segment.start + elements * rank / self.size * element_bytes;
        bound(rank)..bound(rank + 1)
    }
}

impl CountedCollective {
    /// Makes a collective of `me.1` ranks, of which this is `me.0`.
    pub fn new(number: u32, kind: Kind, data: Vec<u8>, cookie: u64, me: (u32, u32)) -> CountedCollective {
        let layout = Layout::new(me, data.len());
        CountedCollective {
            number,
            kind,
            cookie,
            data,
            gathered: Vec::new(),
            layout,
            step: 0,
            has_arrived: false,
        }
    }

    /// The result of this rank.
    pub fn into_result(self) -> Vec<u8> {
        match self.kind {
            Kind::Barrier => Vec::new(),
            Kind::Allgather => self.gathered,
            Kind::Allreduce(..) => self.data,
        }
    }

    /// Writes what others need of the next step, and arrives there. Returns whether all have arrived. `None` if the memory is not
    /// there, or not now.
    pub(super) fn arrive(&mut self, set: &mut Set<'_>, target: u64) -> Option<bool> {
        self.write(set)?;
        let before = set.arrive()?;
        self.has_arrived = true;
        Some(before.wrapping_add(1) == target)
    }

    /// Takes a step at which all have arrived. `None` if the memory is not there, or not now.
    pub(super) fn take(&mut self, set: &mut Set<'_>, scratch: &mut Vec<u8>) -> Option<Taken> {
        if !self.read(set, scratch)? {
            return Some(Taken::Differs);
        }
        self.step += 1;
        self.has_arrived = false;
        Some(if self.step == self.steps() { Taken::Last } else { Taken::Step })
    }

    fn steps(&self) -> usize {
        // The pieces of the last segment are published in a step of their own.
        let is_reduced = matches!(self.kind, Kind::Allreduce(..)) && !self.layout.is_short;
        self.layout.segments + usize::from(is_reduced)
    }

    /// A segment of the data, by its number. `None` if there is no such segment.
    fn segment(&self, number: usize) -> Option<Range<usize>> {
        let layout = self.layout;
        let start = number * layout.segment_bytes;
        let end = self.data.len().min(start + layout.segment_bytes);
        (number < layout.segments).then_some(start..end)
    }

    /// The beginning of each slot.
    fn head(&self) -> [u8; HEAD_BYTES] {
        let [kind, number, reduction] = match self.kind {
            Kind::Barrier => [0; 3],
            Kind::Allgather => [1, 0, 0],
            Kind::Allreduce(number, reduction) => [2, number as u8, reduction as u8],
        };
        let what = u64::from(u32::from_le_bytes([kind, number, reduction, 0]));
        let (first, second) = (u64::from(self.number) | what << 32, self.data.len() as u64);
        (u128::from(first) | u128::from(second) << 64).to_le_bytes()
    }

    //= wire.md R-AM-16
    /// Writes what others need of this step.
    fn write(&self, set: &mut Set<'_>) -> Option<()> {
        let layout = self.layout;
        if self.kind == Kind::Barrier {
            return Some(());
        }
        if let Some(segment) = self.segment(self.step) {
            let [before, after] = self.reduced_by_others(&segment);
            let at = |place: usize| layout.slot(layout.rank) + (HEAD_BYTES + place - segment.start) as u64;
            let mut line = [0; LINE_BYTES];
            line[..HEAD_BYTES].copy_from_slice(&self.head());
            // Data that fit into a line are written at once.
            let begin = self.data.get(before.clone())?;
            if let Some(place) = line.get_mut(HEAD_BYTES..HEAD_BYTES + begin.len()) {
                place.copy_from_slice(begin);
                set.write(layout.slot(layout.rank), &line[..HEAD_BYTES + begin.len()])?;
            } else {
                set.write(layout.slot(layout.rank), &line[..HEAD_BYTES])?;
                set.write(at(before.start), begin)?;
            }
            if !after.is_empty() {
                set.write(at(after.start), self.data.get(after)?)?;
            }
        }
        let (Kind::Allreduce(number, _), Some(last)) = (self.kind, self.last_segment()) else {
            return Some(());
        };
        let mine = layout.piece(layout.rank, &last, number.len_bytes());
        set.write_results(mine.start - last.start, self.data.get(mine)?)
    }

    /// The parts of a segment that others reduce, for which they need this rank's data: all but its own piece.
    fn reduced_by_others(&self, segment: &Range<usize>) -> [Range<usize>; 2] {
        let layout = self.layout;
        match self.kind {
            Kind::Allreduce(number, _) if !layout.is_short => {
                let mine = layout.piece(layout.rank, segment, number.len_bytes());
                [segment.start..mine.start, mine.end..segment.end]
            }
            _ => [segment.clone(), segment.end..segment.end],
        }
    }

    /// The segment of the previous step, if its pieces are published in this one.
    fn last_segment(&self) -> Option<Range<usize>> {
        let last = self.step.checked_sub(1)?;
        if self.layout.is_short { None } else { self.segment(last) }
    }

    /// Reads what this rank needs of this step. `Some(false)` means that others do something else.
    fn read(&mut self, set: &mut Set<'_>, scratch: &mut Vec<u8>) -> Option<bool> {
        let layout = self.layout;
        if self.kind == Kind::Barrier {
            return Some(true);
        }
        if layout.is_short {
            return self.read_short(set, scratch);
        }
        let segment = self.segment(self.step);
        if segment.is_some() && !self.are_heads_right(set)? {
            return Some(false);
        }
        match (self.kind, segment) {
            (Kind::Allgather, Some(segment)) => self.gather(set, segment)?,
            (Kind::Allreduce(number, reduction), segment) => {
                // Everything is read before anything is reduced, so that it can be read again.
                if let Some(last) = self.last_segment() {
                    for part in self.reduced_by_others(&last) {
                        set.read_results(part.start - last.start, self.data.get_mut(part)?)?;
                    }
                }
                if let Some(segment) = segment {
                    let mine = layout.piece(layout.rank, &segment, number.len_bytes());
                    let at = (HEAD_BYTES + mine.start - segment.start) as u64;
                    scratch.resize(mine.len() * layout.size, 0);
                    for rank in (0..layout.size).filter(|&rank| rank != layout.rank) {
                        let piece = scratch.get_mut(mine.len() * rank..mine.len() * (rank + 1))?;
                        set.read(layout.slot(rank) + at, piece)?;
                    }
                    reduce(number, reduction, self.data.get_mut(mine)?, scratch, layout.rank);
                }
            }
            _ => {}
        }
        Some(true)
    }

    fn are_heads_right(&self, set: &mut Set<'_>) -> Option<bool> {
        let layout = self.layout;
        let expected = self.head();
        for rank in 0..layout.size {
            let mut head = [0; HEAD_BYTES];
            set.read(layout.slot(rank), &mut head)?;
            if head != expected {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Reads the data of all ranks at once.
    fn read_short(&mut self, set: &mut Set<'_>, scratch: &mut Vec<u8>) -> Option<bool> {
        let layout = self.layout;
        let (len, slot_bytes, expected) = (self.data.len(), layout.slot_bytes(), self.head());
        scratch.resize(layout.size * slot_bytes, 0);
        set.read(0, scratch)?;
        for (rank, slot) in scratch.chunks_exact(slot_bytes).enumerate() {
            let (head, data) = slot.split_at(HEAD_BYTES);
            if head != expected {
                return Some(false);
            }
            let data = data.get(..len)?;
            match self.kind {
                Kind::Barrier => {}
                Kind::Allgather => self.gathered.extend_from_slice(data),
                Kind::Allreduce(..) if rank == 0 => self.data.copy_from_slice(data),
                Kind::Allreduce(number, reduction) => number.combine(reduction, &mut self.data, data, false),
            }
        }
        Some(true)
    }

    fn gather(&mut self, set: &mut Set<'_>, segment: Range<usize>) -> Option<()> {
        let layout = self.layout;
        let len = self.data.len();
        self.gathered.resize(len * layout.size, 0);
        for (rank, whole) in self.gathered.chunks_exact_mut(len).enumerate() {
            set.read(layout.slot(rank) + HEAD_BYTES as u64, whole.get_mut(segment.clone())?)?;
        }
        Some(())
    }
}

/// Reduces a piece, in the order of ranks. This rank has its own data, and `all` has those of the others.
fn reduce(number: Number, reduction: Reduction, piece: &mut [u8], all: &mut [u8], rank: usize) {
    let len = piece.len().max(1);
    let (below, others) = all.split_at_mut(rank * piece.len());
    let mut below = below.chunks_exact_mut(len);
    if let Some(first) = below.next() {
        below.for_each(|next| number.combine(reduction, first, next, false));
        number.combine(reduction, piece, first, true);
    }
    others.chunks_exact(len).skip(1).for_each(|next| number.combine(reduction, piece, next, false));
}
