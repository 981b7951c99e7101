//! Divides records into messages of the core, and joins them again.

use super::inbox::Inbox;
use super::table::Table;
use crate::limits::{HEADER_BYTES, RECORD_BYTES_MAX};
use crate::wire::{COLLECTED_HEAD_BYTES, Header, Kind, WholeHead, Word};
use std::collections::{HashMap, VecDeque};

/// Records of all ranks that have come and were not examined yet.
#[derive(Default)]
pub(crate) struct Arrived {
    /// Records that have an order.
    pub inbox: Box<Inbox>,
    /// Records that do not wait for others.
    pub words: Vec<(u32, Word)>,
    /// Such records of which only parts have come.
    partial: HashMap<u32, Vec<u8>>,
}

impl Arrived {
    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty() && self.words.is_empty()
    }

    /// Whether no rank has sent a part of such a record.
    #[inline(always)]
    pub fn are_parts_empty(&self) -> bool {
        self.partial.is_empty()
    }

    /// Discards the incomplete record of a rank that is gone.
    pub fn lose(&mut self, rank: u32) {
        self.partial.remove(&rank);
    }

    //= wire.md R-AM-3
    /// Sorts what has come from a rank. Returns false if no process of this version sends that.
    #[inline(always)]
    pub fn sort(&mut self, rank: u32, bytes: &[u8], links: &mut Table) -> bool {
        match WholeHead::of(bytes) {
            Some(head) if self.partial.is_empty() => {
                if head.credits() > 0 {
                    links.regain(rank, head.credits());
                }
                self.inbox.push(rank, bytes, true);
                true
            }
            _ => self.sort_otherwise(rank, bytes, links),
        }
    }

    /// Sorts a record that is not a whole message.
    #[inline(never)]
    fn sort_otherwise(&mut self, rank: u32, bytes: &[u8], links: &mut Table) -> bool {
        let Some(header) = Header::decode(bytes).filter(|_| bytes.len() <= RECORD_BYTES_MAX) else {
            return false;
        };
        if !self.partial.is_empty() && self.partial.contains_key(&rank) {
            return self.assemble(rank, header, bytes);
        }
        match header.kind {
            Kind::Accumulate
            | Kind::IndexedPut
            | Kind::Description
            | Kind::Scatter
            | Kind::Gather
            | Kind::Gathered
                if bytes.len() < header.record_bytes() =>
            {
                self.partial.insert(rank, bytes.to_vec());
            }
            Kind::Message | Kind::Large | Kind::Part | Kind::Context => {
                if header.credits > 0 {
                    links.regain(rank, header.credits);
                }
                self.inbox.push(rank, bytes, WholeHead::of(bytes).is_some());
            }
            _ => match Word::decode(header, bytes) {
                Some(word) => self.words.push((rank, word)),
                None => return false,
            },
        }
        true
    }

    /// Adds a part to such a record. Returns false if it is no part.
    #[cold]
    fn assemble(&mut self, rank: u32, header: Header, bytes: &[u8]) -> bool {
        let Some(mut whole) = self.partial.remove(&rank) else { return false };
        let part = bytes.get(HEADER_BYTES..).filter(|part| header.kind == Kind::Part && !part.is_empty());
        let (Some(part), Some(header)) = (part, Header::decode(&whole)) else { return false };
        whole.extend_from_slice(part);
        if whole.len() < header.record_bytes() {
            self.partial.insert(rank, whole);
            return true;
        }
        let word = Word::decode(header, &whole).filter(|_| whole.len() == header.record_bytes());
        word.map(|word| self.words.push((rank, word))).is_some()
    }
}

/// Divides the first record into parts of up to `max` bytes.
pub(crate) fn cut(outbox: &mut VecDeque<Box<[u8]>>, max: usize) {
    let Some(record) = outbox.pop_front() else { return };
    if let (Some(&kind), Some((head, data))) = (record.first(), record.split_at_checked(COLLECTED_HEAD_BYTES))
        && kind == Kind::Collective as u8
    {
        // Parts of a collective may have any length, in whole elements.
        let len = (max.saturating_sub(COLLECTED_HEAD_BYTES) / 8 * 8).max(8);
        for bytes in data.chunks(len).rev() {
            outbox.push_front([head, bytes].concat().into_boxed_slice());
        }
        return;
    }
    let (first, rest) = record.split_at(max.min(record.len()));
    let part = |bytes: &[u8]| [&Header::new(Kind::Part).encode()[..], bytes].concat().into_boxed_slice();
    let room = max.saturating_sub(HEADER_BYTES).max(1);
    for bytes in rest.chunks(room).rev() {
        outbox.push_front(part(bytes));
    }
    outbox.push_front(first.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Update, Updating};

    fn put(len: usize) -> Word {
        let data = (0..len).map(|at| at as u8).collect();
        Word::Update(Update { id: 5, what: Updating::Indexed { pointer: 64, data } })
    }

    fn cut_word(word: &Word, max: usize) -> Vec<Box<[u8]>> {
        let mut outbox = VecDeque::from([word.encode().into_boxed_slice()]);
        cut(&mut outbox, max);
        outbox.into()
    }

    #[test]
    fn words_in_parts_are_put_together_for_each_rank() {
        let (mut arrived, mut links) = (Arrived::default(), Table::new(3, 16));
        let (one, two) = (cut_word(&put(3_000), 1_200), cut_word(&put(2_000), 1_100));
        assert_eq!((one.len(), two.len()), (3, 2));
        for bytes in [&one[0], &one[1]] {
            assert!(arrived.sort(1, bytes, &mut links) && arrived.words.is_empty());
        }
        assert!(
            arrived.sort(2, &two[0], &mut links)
                && arrived.sort(2, &two[1], &mut links)
                && arrived.sort(1, &one[2], &mut links)
        );
        assert_eq!(arrived.words, [(2, put(2_000)), (1, put(3_000))]);
        assert!(arrived.partial.is_empty() && arrived.inbox.is_empty());
    }

    #[test]
    fn what_is_no_part_is_nonsense() {
        let parts = cut_word(&put(3_000), 1_200);
        for next in [&parts[0], &cut_word(&put(8_000), 4_000)[1]] {
            let (mut arrived, mut links) = (Arrived::default(), Table::new(3, 16));
            assert!(arrived.sort(1, &parts[0], &mut links));
            assert!(!arrived.sort(1, next, &mut links) && arrived.words.is_empty());
        }
    }
}
