//! The registration cache: which memory of the program's has been checked, so that it is checked once (CCS 2006, section 3.1).
//!
//! Registering memory that is not the library's asks the kernel whether all of it is mapped and may be read or written,
//! which brings every page in: by far the costliest step of a registration (where a network card reads memory itself, it
//! is where pages are pinned). So what was checked is remembered by pages, with a count of the regions on each:
//! - a registration checks only those of its pages that are not known: none at all is a *hit* (CCS-024);
//! - ending a registration only lowers the counts. The region is gone at once, with its key and rights; what idles here is
//!   the knowledge about its pages (CCS-025). When pages nobody uses are more than the cap, those that have idled longest
//!   are forgotten.
//!
//! # What makes an entry stale
//!
//! The library does not watch the program's mappings: no hooks in malloc or munmap (CCI-058). An idle entry is stale once
//! the program has unmapped its pages, mapped something else there, or taken away the right to read or write them. A
//! registration that hits a stale entry succeeds without a check:
//! - if something is mapped there with the rights needed, as `Foreign` demands, all is well: data is copied by
//!   address, so it goes to and comes from what is mapped there now;
//! - if not, a registration that should have failed does not, and the first access ends as every access of the
//!   program's own to such memory does: with SIGSEGV, or refused by the kernel where that does the copying.
//!
//! A program that unmaps or protects memory and does not know that nobody will register those addresses wrongly calls
//! [`Endpoint::forget_registrations`](crate::Endpoint::forget_registrations), or sets the cap to 0: then every
//! registration checks.

use crate::EndpointCounters;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What is known of a run of pages.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Known {
    /// In use, and the program has said since that its mapping may have changed.
    Nothing,
    /// It is mapped and can be read.
    Readable,
    /// It can be written, too.
    Writable,
}

/// Pages of which the same is to be said.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Run {
    end: usize,
    /// Regions that lie on it.
    uses: u32,
    known: Known,
    /// When it was last used; 0 while it is.
    idle_since: u64,
}

/// The cache of checked memory. Ranges are of addresses; its methods round them to whole pages.
pub(crate) struct Registrations {
    /// By first address. They do not overlap; neighbours differ.
    runs: BTreeMap<usize, Run>,
    /// Those without uses, oldest first: when, and their first address.
    idle: BTreeSet<(u64, usize)>,
    idle_bytes: u64,
    idle_bytes_max: u64,
    page_bytes: usize,
    /// How many releases there were: the clock by which the runs that are idle longest are found.
    now: u64,
    /// Registrations of which nothing had to be checked.
    hits: u64,
    /// Registrations of which something had to be checked.
    misses: u64,
    /// Idle runs forgotten for the cap.
    evictions: u64,
}

impl Registrations {
    /// `page_bytes` is above 0.
    pub fn new(page_bytes: usize, idle_bytes_max: u64) -> Registrations {
        Registrations {
            runs: BTreeMap::new(),
            idle: BTreeSet::new(),
            idle_bytes: 0,
            idle_bytes_max,
            page_bytes,
            now: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
        }
    }

    /// A region begins to use the range: asks `check` about those pages of which too little is known.
    ///
    /// # Errors
    /// What `check` says; nothing is changed then.
    pub fn acquire<E>(
        &mut self,
        range: Range<usize>,
        need: Known,
        mut check: impl FnMut(Range<usize>, Known) -> Result<(), E>,
    ) -> Result<(), E> {
        let pages = self.pages(range);
        let unknown = self.unknown(&pages, need);
        if unknown.is_empty() {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        unknown.into_iter().try_for_each(|pages| check(pages, need))?;
        self.cut_out(&pages);
        let mut at = pages.start;
        while at < pages.end {
            if let Some(run) = self.runs.get_mut(&at) {
                if run.uses == 0 {
                    self.idle_bytes -= (run.end - at) as u64;
                    self.idle.remove(&(run.idle_since, at));
                }
                run.uses += 1;
                run.idle_since = 0;
                run.known = run.known.max(need);
                at = run.end;
            } else {
                let end = self.runs.range(at..pages.end).next().map_or(pages.end, |(next, _)| *next);
                self.runs.insert(at, Run { end, uses: 1, known: need, idle_since: 0 });
                at = end;
            }
        }
        self.join(&pages);
        Ok(())
    }

    /// More is needed of a range in use than was when it was acquired. As [`Registrations::acquire`], but counts no use.
    pub fn need<E>(
        &mut self,
        range: Range<usize>,
        need: Known,
        mut check: impl FnMut(Range<usize>, Known) -> Result<(), E>,
    ) -> Result<(), E> {
        let pages = self.pages(range);
        self.unknown(&pages, need).into_iter().try_for_each(|pages| check(pages, need))?;
        self.cut_out(&pages);
        for (_, run) in self.runs.range_mut(pages.clone()) {
            run.known = run.known.max(need);
        }
        self.join(&pages);
        Ok(())
    }

    /// A region uses the range no more.
    pub fn release(&mut self, range: Range<usize>) {
        let pages = self.pages(range);
        self.now += 1;
        self.cut_out(&pages);
        let mut lost = Vec::new();
        for (&start, run) in self.runs.range_mut(pages.clone()) {
            debug_assert!(run.uses > 0, "released more often than acquired");
            if run.uses != 1 {
                run.uses = run.uses.saturating_sub(1);
                continue;
            }
            run.uses = 0;
            if run.known == Known::Nothing {
                lost.push(start);
                continue;
            }
            run.idle_since = self.now;
            self.idle.insert((self.now, start));
            self.idle_bytes += (run.end - start) as u64;
        }
        for start in lost {
            self.runs.remove(&start);
        }
        self.join(&pages);
        self.evict();
    }

    /// The program's mappings in the range may have changed: the next registration there checks.
    pub fn forget(&mut self, range: Range<usize>) {
        let pages = self.pages(range);
        self.cut_out(&pages);
        let found: Vec<usize> = self.runs.range(pages.clone()).map(|(start, _)| *start).collect();
        for start in found {
            match self.runs.get_mut(&start) {
                Some(run) if run.uses > 0 => run.known = Known::Nothing,
                _ => self.drop_idle(start),
            }
        }
        self.join(&pages);
    }

    /// Fills in what the program may know.
    pub fn count(&self, counters: &mut EndpointCounters) {
        counters.registration_hits = self.hits;
        counters.registration_misses = self.misses;
        counters.registration_evictions = self.evictions;
        counters.registrations_idle_bytes = self.idle_bytes;
    }

    /// What the table itself takes, about.
    pub fn bytes(&self) -> u64 {
        (self.runs.len() * size_of::<(usize, Run)>() + self.idle.len() * size_of::<(u64, usize)>()) as u64
    }

    fn pages(&self, range: Range<usize>) -> Range<usize> {
        // The last page of all has no end to round up to, and nothing is ever mapped there.
        let end = range.end.checked_next_multiple_of(self.page_bytes).unwrap_or(usize::MAX);
        range.start - range.start % self.page_bytes..end
    }

    /// The parts of `pages` of which less than `need` is known; neighbours in one piece.
    fn unknown(&self, pages: &Range<usize>, need: Known) -> Vec<Range<usize>> {
        let mut unknown: Vec<Range<usize>> = Vec::new();
        let mut add = |start, end| match unknown.last_mut() {
            _ if start == end => {}
            Some(last) if last.end == start => last.end = end,
            _ => unknown.push(start..end),
        };
        let mut at = pages.start;
        let before = self.runs.range(..at).next_back().filter(|(_, run)| run.end > at);
        for (&start, run) in before.into_iter().chain(self.runs.range(pages.clone())) {
            add(at, start.max(at));
            at = start.max(at);
            let end = run.end.min(pages.end);
            if run.known < need {
                add(at, end);
            }
            at = end;
        }
        add(at, pages.end);
        unknown
    }

    /// Makes both ends of `pages` boundaries between runs.
    fn cut_out(&mut self, pages: &Range<usize>) {
        for at in [pages.start, pages.end] {
            let Some((&start, run)) = self.runs.range_mut(..at).next_back() else { continue };
            if run.end <= at {
                continue;
            }
            let tail = *run;
            run.end = at;
            self.runs.insert(at, tail);
            if tail.uses == 0 {
                self.idle.insert((tail.idle_since, at));
                debug_assert!(self.idle.contains(&(tail.idle_since, start)));
            }
        }
    }

    /// Joins neighbours of which the same is to be said, in `pages` and at their ends.
    fn join(&mut self, pages: &Range<usize>) {
        let mut at = self.runs.range(..pages.start).next_back().map_or(pages.start, |(start, _)| *start);
        while at < pages.end
            && let Some((&start, &run)) = self.runs.range(at..pages.end).next()
        {
            at = run.end;
            let Some(&next) = self.runs.get(&run.end) else { continue };
            if (next.uses, next.known, next.idle_since) == (run.uses, run.known, run.idle_since) {
                self.runs.remove(&run.end);
                self.idle.remove(&(next.idle_since, run.end));
                self.runs.insert(start, next);
                at = start;
            }
        }
    }

    fn evict(&mut self) {
        while self.idle_bytes > self.idle_bytes_max {
            let Some(&(_, start)) = self.idle.first() else { return };
            self.drop_idle(start);
            self.evictions += 1;
        }
    }

    fn drop_idle(&mut self, start: usize) {
        if let Some(run) = self.runs.remove(&start) {
            self.idle.remove(&(run.idle_since, start));
            self.idle_bytes -= (run.end - start) as u64;
        }
    }
}

#[cfg(test)]
#[path = "registrations/tests.rs"]
mod tests;
