//! The ends of channels of one kind, by their names. An end that is used again and again is found at once.

use super::End;

/// Bytes that an end takes here beside itself.
pub(super) const PLACE_BYTES: usize = size_of::<u32>();

pub(super) struct Ends<T> {
    entries: Vec<Option<(End, T)>>,
    /// Places of those that are there, in the order of their names.
    order: Vec<u32>,
    /// Places without an end.
    free: Vec<u32>,
    /// Which one was asked for last.
    last: u32,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends { entries: Vec::new(), order: Vec::new(), free: Vec::new(), last: 0 }
    }
}

impl<T> Ends<T> {
    /// Adds an end that is not there.
    pub fn insert(&mut self, end: End, item: T) {
        let Err(position) = self.position(end) else { return };
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        if place as usize == self.entries.len() {
            self.entries.push(None);
        }
        if let Some(entry) = self.entries.get_mut(place as usize) {
            *entry = Some((end, item));
            self.order.insert(position, place);
        }
    }

    pub fn remove(&mut self, end: End) -> Option<T> {
        let place = self.order.remove(self.position(end).ok()?);
        self.free.push(place);
        self.entries.get_mut(place as usize)?.take().map(|(_, item)| item)
    }

    pub fn get(&self, end: End) -> Option<&T> {
        let place = *self.order.get(self.position(end).ok()?)?;
        self.entries.get(place as usize)?.as_ref().map(|(_, item)| item)
    }

    #[inline]
    pub fn get_mut(&mut self, end: End) -> Option<&mut T> {
        if matches!(self.entries.get(self.last as usize), Some(Some((last, _))) if *last == end) {
            return self.entries.get_mut(self.last as usize)?.as_mut().map(|(_, item)| item);
        }
        self.find_mut(end)
    }

    #[inline(never)]
    fn find_mut(&mut self, end: End) -> Option<&mut T> {
        self.last = *self.order.get(self.position(end).ok()?)?;
        self.entries.get_mut(self.last as usize)?.as_mut().map(|(_, item)| item)
    }

    /// The end that was asked for last, if it is still there.
    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.entries.get(self.last as usize)?.as_ref().map(|(_, item)| item)
    }

    /// The end that was asked for last, if it is still there, with its name.
    #[inline]
    pub fn last_mut(&mut self) -> Option<(End, &mut T)> {
        self.entries.get_mut(self.last as usize)?.as_mut().map(|(end, item)| (*end, item))
    }

    /// Where the end is in the order, or where it would be.
    fn position(&self, end: End) -> Result<usize, usize> {
        self.order.binary_search_by_key(&Some(end), |&place| {
            self.entries.get(place as usize)?.as_ref().map(|(end, _)| *end)
        })
    }

    pub fn names(&self) -> impl Iterator<Item = End> {
        self.entries.iter().flatten().map(|(end, _)| *end)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (End, &mut T)> {
        self.entries.iter_mut().flatten().map(|(end, item)| (*end, item))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (End, T)> {
        self.entries.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Ends are made and removed in every order, beside a plain map.
    #[test]
    fn each_end_is_found_until_it_is_removed() {
        let end = |number: u64| End::new((number % 3) as u32, number / 3);
        let (mut ends, mut plain) = (Ends::default(), HashMap::new());
        for step in 0..3_000_u64 {
            let name = end(step * 7_919 % 64);
            match step * 31 % 5 {
                0 | 1 if plain.insert(name, step).is_none() => ends.insert(name, step),
                0 | 1 => {
                    ends.get_mut(name).into_iter().for_each(|item| *item = step);
                    assert_eq!(ends.last_mut(), Some((name, &mut { step })));
                }
                2 => assert_eq!(ends.remove(name), plain.remove(&name)),
                _ => assert_eq!(ends.get_mut(name), plain.get_mut(&name)),
            }
            assert_eq!(ends.get(name), plain.get(&name));
            assert_eq!(ends.get_mut(name), plain.get_mut(&name), "after a change");
        }
        let mut found: Vec<(End, u64)> = ends.iter_mut().map(|(end, item)| (end, *item)).collect();
        let mut there: Vec<(End, u64)> = plain.into_iter().collect();
        found.sort();
        there.sort();
        assert_eq!(found, there);
        assert!(ends.names().count() == there.len() && ends.entries.len() <= 64, "places are used again");
        assert_eq!(ends.into_iter().count(), there.len());
    }
}
