#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some with one")]

use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

const PAGE: usize = 16;
/// Pages of the address space that the tests use.
const PAGES: usize = 24;

/// Says which pages were checked.
fn acquire(cache: &mut Registrations, range: Range<usize>, need: Known) -> Vec<Range<usize>> {
    let mut checked = Vec::new();
    let taken = cache.acquire(range, need, |pages, asked| {
        assert_eq!(asked, need);
        checked.push(pages);
        Ok::<(), Infallible>(())
    });
    taken.unwrap();
    checked
}

#[test]
fn a_range_is_checked_once() {
    let mut cache = Registrations::new(PAGE, 1 << 20);
    assert_eq!(acquire(&mut cache, 20..40, Known::Readable), [16..48]);
    assert_eq!(acquire(&mut cache, 16..48, Known::Readable), []);
    // What is not known is, in one piece on each side.
    assert_eq!(acquire(&mut cache, 0..100, Known::Readable), [0..16, 48..112]);
    assert_eq!((cache.hits, cache.misses, cache.runs.len()), (1, 2, 3));
    // More is needed of all of it.
    assert_eq!(acquire(&mut cache, 0..112, Known::Writable), [0..112]);
    assert_eq!(acquire(&mut cache, 1..2, Known::Readable), []);
}

#[test]
fn what_is_released_idles_up_to_the_cap_and_the_oldest_goes_first() {
    let mut cache = Registrations::new(PAGE, 3 * PAGE as u64);
    for page in 0..4 {
        acquire(&mut cache, page * PAGE..(page + 1) * PAGE, Known::Writable);
    }
    assert_eq!(cache.runs.len(), 1, "neighbours are joined");
    for page in [2, 0, 1, 3] {
        cache.release(page * PAGE..(page + 1) * PAGE);
    }
    assert_eq!((cache.idle_bytes, cache.evictions), (3 * PAGE as u64, 1));
    assert_eq!(acquire(&mut cache, 0..4 * PAGE, Known::Readable), [2 * PAGE..3 * PAGE]);
    assert_eq!(cache.idle_bytes, 0);
}

#[test]
fn a_failed_check_changes_nothing() {
    let mut cache = Registrations::new(PAGE, 1 << 20);
    acquire(&mut cache, 16..32, Known::Readable);
    cache.release(16..32);
    let before = cache.runs.clone();
    assert_eq!(
        cache.acquire(0..64, Known::Readable, |pages, _| if pages.start > 16 { Err(()) } else { Ok(()) }),
        Err(())
    );
    assert_eq!((cache.runs.clone(), cache.idle_bytes), (before, 16));
}

#[test]
fn what_is_forgotten_while_in_use_does_not_idle_afterwards() {
    let mut cache = Registrations::new(PAGE, 1 << 20);
    acquire(&mut cache, 0..64, Known::Writable);
    cache.forget(16..32);
    cache.release(0..64);
    assert_eq!(cache.idle_bytes, 48);
    assert_eq!(acquire(&mut cache, 0..64, Known::Writable), [16..32]);
}

#[test]
fn the_end_of_the_address_space_is_no_trap() {
    let mut cache = Registrations::new(PAGE, 1 << 20);
    let end = usize::MAX;
    acquire(&mut cache, end - 100..end - 20, Known::Readable);
    assert_eq!(acquire(&mut cache, end - 3..end, Known::Readable).len(), 1);
    cache.release(end - 3..end);
    cache.release(end - 100..end - 20);
}

/// One page of the naive model.
#[derive(Copy, Clone, PartialEq, Debug)]
struct Page {
    uses: u32,
    known: Option<Known>,
    idle_since: u64,
}

/// A simple model of the cache, which keeps each page by itself.
struct Model {
    pages: [Page; PAGES],
    now: u64,
}

impl Model {
    fn on(&mut self, range: &Range<usize>) -> &mut [Page] {
        &mut self.pages[range.start / PAGE..range.end.div_ceil(PAGE)]
    }

    fn acquire(&mut self, range: &Range<usize>, need: Known) -> Vec<usize> {
        let first = range.start / PAGE;
        let mut checked = Vec::new();
        for (at, page) in self.on(range).iter_mut().enumerate() {
            if page.known.is_none_or(|known| known < need) {
                checked.push(first + at);
            }
            page.known = page.known.max(Some(need));
            page.uses += 1;
            page.idle_since = 0;
        }
        checked
    }

    fn release(&mut self, range: &Range<usize>) {
        self.now += 1;
        let now = self.now;
        for page in self.on(range) {
            page.uses -= 1;
            if page.uses == 0 && page.known == Some(Known::Nothing) {
                page.known = None;
            } else if page.uses == 0 {
                page.idle_since = now;
            }
        }
    }

    fn forget(&mut self, range: &Range<usize>) {
        for page in self.on(range) {
            page.known = if page.uses > 0 { Some(Known::Nothing) } else { None };
            page.idle_since = 0;
        }
    }

    fn idle_bytes(&self) -> usize {
        self.pages.iter().filter(|page| page.uses == 0 && page.known.is_some()).count() * PAGE
    }
}

/// What the cache says of each page.
fn seen(cache: &Registrations) -> [Page; PAGES] {
    let mut pages = [Page { uses: 0, known: None, idle_since: 0 }; PAGES];
    for (&start, run) in &cache.runs {
        for page in &mut pages[start / PAGE..run.end / PAGE] {
            *page = Page { uses: run.uses, known: Some(run.known), idle_since: run.idle_since };
        }
    }
    pages
}

/// The table is as its documentation says.
fn check_table(cache: &Registrations) {
    let runs: Vec<(usize, Run)> = cache.runs.iter().map(|(start, run)| (*start, *run)).collect();
    for (start, run) in &runs {
        assert!(*start < run.end && start % PAGE == 0 && run.end % PAGE == 0);
        assert_eq!(cache.idle.contains(&(run.idle_since, *start)), run.uses == 0);
    }
    for pair in runs.windows(2) {
        let ((_, remaining), (start, right)) = (pair[0], pair[1]);
        assert!(remaining.end <= start);
        let same = (remaining.uses, remaining.known, remaining.idle_since)
            == (right.uses, right.known, right.idle_since);
        assert!(remaining.end < start || !same, "neighbours that should be one");
    }
    let idle = runs.iter().filter(|(_, run)| run.uses == 0);
    assert_eq!(idle.clone().count(), cache.idle.len());
    assert_eq!(idle.map(|(start, run)| (run.end - start) as u64).sum::<u64>(), cache.idle_bytes);
    assert!(cache.idle_bytes <= cache.idle_bytes_max);
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(Range<usize>, Known),
    /// The range of one that was acquired before.
    Release(usize),
    Forget(Range<usize>),
    Need(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range =
        (0..PAGES * PAGE - 1, 1..10 * PAGE).prop_map(|(start, len)| start..(start + len).min(PAGES * PAGE));
    let known = prop_oneof![Just(Known::Readable), Just(Known::Writable)];
    let step = prop_oneof![
        4 => (range.clone(), known).prop_map(|(range, need)| Step::Acquire(range, need)),
        4 => any::<usize>().prop_map(Step::Release),
        1 => range.prop_map(Step::Forget),
        1 => any::<usize>().prop_map(Step::Need),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn agrees_with_a_model_of_single_pages(steps in steps(), cap_pages in 0..2 * PAGES) {
        let mut cache = Registrations::new(PAGE, (cap_pages * PAGE) as u64);
        let mut model = Model { pages: [Page { uses: 0, known: None, idle_since: 0 }; PAGES], now: 0 };
        let mut held: Vec<Range<usize>> = Vec::new();
        for step in steps {
            match step {
                Step::Acquire(range, need) => {
                    let checked = acquire(&mut cache, range.clone(), need);
                    let pages: Vec<usize> =
                        checked.into_iter().flat_map(|range| range.start / PAGE..range.end / PAGE).collect();
                    prop_assert_eq!(pages, model.acquire(&range, need));
                    held.push(range);
                }
                Step::Release(at) if !held.is_empty() => {
                    let range = held.swap_remove(at % held.len());
                    let evictions = cache.evictions;
                    cache.release(range.clone());
                    model.release(&range);
                    // Runs go whole, the oldest first, and only as many as must: which runs there are is the cache's.
                    let now = seen(&cache);
                    let mut gone_bytes = 0;
                    for (page, seen) in model.pages.iter_mut().zip(&now) {
                        if page.uses == 0 && page.known.is_some() && seen.known.is_none() {
                            let older = now.iter().filter(|seen| seen.known.is_some() && seen.uses == 0);
                            prop_assert!(older.clone().all(|seen| seen.idle_since >= page.idle_since));
                            *page = Page { uses: 0, known: None, idle_since: 0 };
                            gone_bytes += PAGE;
                        }
                    }
                    prop_assert_eq!(gone_bytes > 0, cache.evictions > evictions);
                }
                Step::Forget(range) => {
                    cache.forget(range.clone());
                    model.forget(&range);
                }
                Step::Need(at) if !held.is_empty() => {
                    let range = held[at % held.len()].clone();
                    cache.need(range.clone(), Known::Writable, |_, _| Ok::<(), Infallible>(())).unwrap();
                    for page in model.on(&range) {
                        page.known = Some(Known::Writable);
                    }
                }
                Step::Release(_) | Step::Need(_) => {}
            }
            check_table(&cache);
            prop_assert_eq!(seen(&cache), model.pages);
            prop_assert_eq!(cache.idle_bytes as usize, model.idle_bytes());
        }
        for range in held {
            cache.release(range);
        }
        check_table(&cache);
        prop_assert!(cache.runs.values().all(|run| run.uses == 0));
    }
}
