//! Words in a peer's memory that atomics of all kinds change.
//!
//! At most one atomic is under way on each, so it is known what it finds, what it leaves, and that it happens once.

use crate::rng::Rng;
use cci::{Atomic, AtomicKind, AtomicWidth, Memory};

/// How many words there are, each for one kind.
pub(super) const WORDS: usize = AtomicKind::ALL.len();

#[derive(Copy, Clone, Debug, Default)]
struct Word {
    value: u64,
    /// What is under way.
    pending: Option<Atomic>,
    /// Something failed there: nobody knows whether it happened.
    dead: bool,
}

/// The words of one region.
#[derive(Debug)]
pub(super) struct Words {
    words: [Word; WORDS],
}

impl Default for Words {
    fn default() -> Words {
        Words { words: std::array::from_fn(|at| Word { value: first(at), ..Word::default() }) }
    }
}

impl Words {
    /// Puts there what the words hold at first; false: the region is too short.
    pub fn prepare(region: &Memory) -> bool {
        (0..WORDS).all(|at| {
            region.write(Words::offset(at) as usize, &first(at).to_ne_bytes()[..width_of(at).bytes()])
        })
    }

    /// Whether there is a word of which anything is known.
    pub fn are_known(&self) -> bool {
        self.words.iter().any(|word| !word.dead)
    }

    /// Draws an atomic for a word; `None` if one is under way there.
    pub fn draw(&self, rng: &mut Rng) -> Option<(usize, Atomic)> {
        let from = rng.below(WORDS as u64) as usize;
        let at = (from..from + WORDS).map(|at| at % WORDS).find(|at| !self.words[*at].dead)?;
        let word = &self.words[at];
        if word.pending.is_some() {
            return None;
        }
        let kind = AtomicKind::ALL[at];
        let width = width_of(at);
        let operand = rng.next_u64() & mask(width);
        let compare = if rng.pct(70.0) { word.value } else { rng.next_u64() & mask(width) };
        Some((at, Atomic { kind, width, operand, compare }))
    }

    /// Where a word is in the region: behind the one that all additions change.
    pub fn offset(at: usize) -> u64 {
        8 * (1 + at as u64)
    }

    pub fn started(&mut self, at: usize, atomic: Atomic) {
        self.words[at].pending = Some(atomic);
    }

    /// The atomic on a word ended. `found` is what it brought, where it is known that it happened; `None`: nobody knows.
    pub fn ended(&mut self, at: usize, found: Option<&[u8]>, region: &Memory) -> Result<(), String> {
        let word = &mut self.words[at];
        let atomic = word.pending.take().ok_or("an atomic ended on a word where none was under way")?;
        let Some(found) = found else {
            word.dead = true;
            return Ok(());
        };
        let before = word.value;
        word.value = after(atomic, before) & mask(atomic.width);
        if returns(atomic.kind) && number(found, atomic.width) != before {
            return Err(format!("{atomic:?} found {found:x?} in place of {before:x}"));
        }
        self.check(at, region)
    }

    /// The atomic on a word ended when its region was deregistered. `is_old`: these words are already another region's.
    pub fn dismissed(&mut self, at: usize, is_old: bool) {
        let word = &mut self.words[at];
        word.pending = None;
        word.dead |= !is_old;
    }

    /// The region is another one.
    pub fn renew(&mut self) {
        for (at, word) in self.words.iter_mut().enumerate() {
            (word.value, word.dead) = (first(at), false);
        }
    }

    /// What is known of all words is there.
    pub fn check_all(&self, region: &Memory) -> Result<(), String> {
        let known = |at: &usize| self.words[*at].pending.is_none() && !self.words[*at].dead;
        (0..WORDS).filter(known).try_for_each(|at| self.check(at, region))
    }

    fn check(&self, at: usize, region: &Memory) -> Result<(), String> {
        let mut bytes = [0; 8];
        let _ = region.read(Words::offset(at) as usize, &mut bytes);
        let (wanted, kind) = (self.words[at].value, AtomicKind::ALL[at]);
        let is = number(&bytes, width_of(at));
        if is == wanted { Ok(()) } else { Err(format!("{is:x} is where {kind:?} left {wanted:x}")) }
    }
}

/// Whether an atomic brings back what it found.
pub(super) fn returns(kind: AtomicKind) -> bool {
    matches!(kind, AtomicKind::FetchAdd | AtomicKind::Swap | AtomicKind::CompareSwap)
}

fn mask(width: AtomicWidth) -> u64 {
    u64::MAX >> (64 - 8 * width.bytes())
}

/// The width of a word's atomics.
fn width_of(at: usize) -> AtomicWidth {
    if at.is_multiple_of(2) { AtomicWidth::Eight } else { AtomicWidth::Four }
}

/// What a word holds at first: something that its kind of atomic can change.
fn first(at: usize) -> u64 {
    if AtomicKind::ALL[at] == AtomicKind::And { mask(width_of(at)) } else { 0 }
}

fn number(bytes: &[u8], width: AtomicWidth) -> u64 {
    let (mut four, mut eight) = ([0; 4], [0; 8]);
    match width {
        AtomicWidth::Four => {
            four.copy_from_slice(&bytes[..4]);
            u32::from_ne_bytes(four).into()
        }
        AtomicWidth::Eight => {
            eight.copy_from_slice(&bytes[..8]);
            u64::from_ne_bytes(eight)
        }
    }
}

fn after(atomic: Atomic, before: u64) -> u64 {
    let Atomic { kind, operand, compare, .. } = atomic;
    match kind {
        AtomicKind::FetchAdd | AtomicKind::Add => before.wrapping_add(operand),
        AtomicKind::Swap => operand,
        AtomicKind::CompareSwap => {
            if before == compare {
                operand
            } else {
                before
            }
        }
        AtomicKind::And => before & operand,
        AtomicKind::Or => before | operand,
        AtomicKind::Xor => before ^ operand,
    }
}
