//! The words that atomics of all sides change.

use cci_proto::{AtomicKind, AtomicWidth};

/// Words that a node has for everybody's atomics; the kind and width of each never changes.
pub(in crate::sim) const WORDS: u64 = 28;

/// Bytes of the region they are in.
pub(in crate::sim) const WORDS_BYTES: u64 = WORDS * 8;

/// What is done to a word, and its width.
pub(in crate::sim) fn word_kind(word: u64) -> (AtomicKind, AtomicWidth) {
    let kinds = AtomicKind::ALL.len() as u64;
    let width = if (word / kinds).is_multiple_of(2) { AtomicWidth::Eight } else { AtomicWidth::Four };
    (AtomicKind::ALL[(word % kinds) as usize], width)
}

/// What the words hold at first.
pub(in crate::sim) fn prepare_words(bytes: &mut [u8]) {
    for (word, bytes) in bytes.chunks_exact_mut(8).enumerate() {
        let (kind, width) = word_kind(word as u64);
        bytes.fill(0);
        if kind == AtomicKind::And {
            bytes[..width.bytes()].fill(0xff);
        }
    }
}
