//! Where records lie in a ring.

use super::LINE_BYTES;

/// Where records of one size lie, one right behind the other. It gives the place of each without a look at the ring, which the peer may
/// have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    end: u64,
    records: u32,
    lines_each: u32,
}

impl Span {
    /// So many records of `bytes_each`.
    #[inline]
    pub(super) fn of_alike(end: u64, records: u32, bytes_each: u64) -> Span {
        Span { end, records, lines_each: (bytes_each / LINE_BYTES as u64) as u32 }
    }

    /// The position behind the last record: all have been consumed when [`Producer::consumed`](super::Producer::consumed) is this or
    /// more.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many records there are.
    #[inline]
    pub fn records(&self) -> u32 {
        self.records
    }

    fn record_bytes(&self) -> u64 {
        u64::from(self.lines_each) * LINE_BYTES as u64
    }

    /// The position of the first record.
    pub fn start(&self) -> u64 {
        self.end - u64::from(self.records) * self.record_bytes()
    }

    /// Adds records that lie right behind these and have their size. False: they do not.
    #[inline]
    pub fn append(&mut self, behind: Span) -> bool {
        let fits = behind.lines_each == self.lines_each && behind.start() == self.end;
        if fits {
            self.end = behind.end;
            self.records += behind.records;
        }
        fits
    }

    /// Takes out the records that end at `position` or before, and answers how many these were.
    pub fn consume_to(&mut self, position: u64) -> u32 {
        let records = position.saturating_sub(self.start()) / self.record_bytes().max(1);
        let records = u32::try_from(records).unwrap_or(u32::MAX).min(self.records);
        self.records -= records;
        records
    }

    /// Takes out the last record.
    pub fn pop(&mut self) -> Option<Span> {
        let last = Span { records: 1, ..*self };
        self.records = self.records.checked_sub(1)?;
        self.end = last.start();
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(start: u64, end: u64) -> Span {
        Span::of_alike(end, 1, end - start)
    }

    #[test]
    fn a_run_knows_each_of_its_records() {
        let mut run = one(640, 768);
        assert!(!run.append(one(768, 832)), "another size");
        assert!(!run.append(one(896, 1024)), "not right behind");
        assert!(run.append(one(768, 896)) && run.append(one(896, 1024)) && run.append(one(1024, 1152)));
        assert_eq!((run.end(), run.records()), (1152, 4));
        assert_eq!((run.consume_to(0), run.consume_to(767), run.consume_to(895)), (0, 0, 1));
        assert_eq!(run.pop(), Some(one(1024, 1152)));
        assert_eq!((run.records(), run.consume_to(u64::MAX)), (2, 2));
        assert_eq!((run.pop(), run.consume_to(u64::MAX), run.records()), (None, 0, 0));
    }
}
