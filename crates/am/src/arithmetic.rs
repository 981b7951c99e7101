//! The arithmetic of reductions and atomic operations.

use cci::{Atomic, AtomicKind, AtomicRefusal, AtomicWidth, Memory};

/// The type of the elements of a reduction, in the byte order of the machine.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE 754, 32 bits.
    F32,
    /// IEEE 754, 64 bits.
    F64,
}

/// The operation of a reduction on two elements. Integers wrap.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Add,
    /// Their product.
    Product,
    /// The smaller one. If one is NaN, the other one.
    Min,
    /// The larger one. If one is NaN, the other one.
    Max,
    /// Bits that are set in both; for integers only.
    And,
    /// Bits that are set in either; for integers only.
    Or,
    /// Bits that are set in exactly one; for integers only.
    Xor,
}

/// The operation of an accumulation on an element of memory and one of data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Accumulation {
    /// The data replace the element.
    Set,
    /// The reduction of both replaces the element.
    Reduce(Reduction),
}

impl Accumulation {
    const ALL: [Accumulation; 8] = [
        Accumulation::Set,
        Accumulation::Reduce(Reduction::Add),
        Accumulation::Reduce(Reduction::Product),
        Accumulation::Reduce(Reduction::Min),
        Accumulation::Reduce(Reduction::Max),
        Accumulation::Reduce(Reduction::And),
        Accumulation::Reduce(Reduction::Or),
        Accumulation::Reduce(Reduction::Xor),
    ];

    pub(crate) fn number(self) -> u8 {
        Accumulation::ALL.iter().position(|&one| one == self).unwrap_or_default() as u8
    }

    pub(crate) fn of_number(number: u8) -> Option<Accumulation> {
        Accumulation::ALL.get(usize::from(number)).copied()
    }

    /// Whether it is defined for such elements.
    pub fn fits(self, number: Number) -> bool {
        match self {
            Accumulation::Set => true,
            Accumulation::Reduce(reduction) => number.can(reduction),
        }
    }

    /// The atomic change of an element by one of data, which is in the low bytes of `operand`.
    pub(crate) fn change(self, number: Number, operand: u64) -> Change {
        let width = if number.len_bytes() == 4 { AtomicWidth::Four } else { AtomicWidth::Eight };
        let core = |kind| Change::Core(Atomic { kind, width, operand, compare: 0 });
        let is_float = matches!(number, Number::F32 | Number::F64);
        match self {
            Accumulation::Set => core(AtomicKind::Swap),
            Accumulation::Reduce(Reduction::Add) if !is_float => core(AtomicKind::FetchAdd),
            Accumulation::Reduce(Reduction::And) => core(AtomicKind::And),
            Accumulation::Reduce(Reduction::Or) => core(AtomicKind::Or),
            Accumulation::Reduce(Reduction::Xor) => core(AtomicKind::Xor),
            Accumulation::Reduce(reduction) => Change::Reduce(number, reduction, operand),
        }
    }
}

impl Number {
    const ALL: [Number; 6] = [Number::I32, Number::U32, Number::I64, Number::U64, Number::F32, Number::F64];

    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    pub(crate) fn of_number(number: u16) -> Option<Number> {
        Number::ALL.get(usize::from(number)).copied()
    }

    /// An element, as the low bytes of a word.
    pub(crate) fn word(self, element: &[u8]) -> u64 {
        let mut word = [0; 8];
        let low = if self.len_bytes() == 4 { LOW } else { 0..8 };
        if let Some(low) = word.get_mut(low).filter(|low| low.len() == element.len()) {
            low.copy_from_slice(element);
        }
        u64::from_ne_bytes(word)
    }

    /// Bytes of an element.
    pub fn len_bytes(self) -> usize {
        match self {
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
        }
    }

    /// Whether a reduction is defined for such elements.
    pub fn can(self, reduction: Reduction) -> bool {
        let is_float = matches!(self, Number::F32 | Number::F64);
        !is_float || !matches!(reduction, Reduction::And | Reduction::Or | Reduction::Xor)
    }

    /// Writes the result of each pair of elements to `mine`. `other` is the left or the right operand. Both have the same length,
    /// a multiple of an element's.
    pub(crate) fn combine(self, reduction: Reduction, mine: &mut [u8], other: &[u8], is_other_left: bool) {
        // The operation is chosen outside of the loop, so that the loop is compiled to instructions on many elements at once.
        macro_rules! each {
            ($type:ty, |$left:ident, $right:ident| $result:expr) => {{
                let apply = |$left: $type, $right: $type| $result;
                let pairs = mine.as_chunks_mut().0.iter_mut().zip(other.as_chunks().0);
                let value = <$type>::from_ne_bytes;
                if is_other_left {
                    pairs.for_each(|(mine, other)| *mine = apply(value(*other), value(*mine)).to_ne_bytes());
                } else {
                    pairs.for_each(|(mine, other)| *mine = apply(value(*mine), value(*other)).to_ne_bytes());
                }
            }};
        }
        macro_rules! integer {
            ($type:ty) => {
                match reduction {
                    Reduction::Add => each!($type, |left, right| left.wrapping_add(right)),
                    Reduction::Product => each!($type, |left, right| left.wrapping_mul(right)),
                    Reduction::Min => each!($type, |left, right| left.min(right)),
                    Reduction::Max => each!($type, |left, right| left.max(right)),
                    Reduction::And => each!($type, |left, right| left & right),
                    Reduction::Or => each!($type, |left, right| left | right),
                    Reduction::Xor => each!($type, |left, right| left ^ right),
                }
            };
        }
        macro_rules! float {
            ($type:ty) => {
                match reduction {
                    Reduction::Add => each!($type, |left, right| left + right),
                    Reduction::Product => each!($type, |left, right| left * right),
                    // The order of the two zeros is defined as well.
                    Reduction::Min => each!($type, |left, right| {
                        let is_left = right.is_nan() || left.total_cmp(&right).is_le() && !left.is_nan();
                        if is_left { left } else { right }
                    }),
                    Reduction::Max => each!($type, |left, right| {
                        let is_left = right.is_nan() || left.total_cmp(&right).is_ge() && !left.is_nan();
                        if is_left { left } else { right }
                    }),
                    // These were refused before.
                    Reduction::And | Reduction::Or | Reduction::Xor => {}
                }
            };
        }
        match self {
            Number::I32 => integer!(i32),
            Number::U32 => integer!(u32),
            Number::I64 => integer!(i64),
            Number::U64 => integer!(u64),
            Number::F32 => float!(f32),
            Number::F64 => float!(f64),
        }
    }
}

/// An atomic change of a word, with respect to all other such changes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A change that the core makes.
    Core(Atomic),
    /// The reduction of the word and an operand, which is in the low bytes. It takes two exchanges with the word's rank, and one
    /// more for each change by others meanwhile.
    Reduce(Number, Reduction, u64),
}

impl From<Atomic> for Change {
    fn from(atomic: Atomic) -> Change {
        Change::Core(atomic)
    }
}

impl Change {
    /// Makes the change in memory of this process. Returns the previous value.
    pub(crate) fn make(&self, memory: &Memory, at: usize) -> Result<u64, AtomicRefusal> {
        let mut attempt = self.attempt(0);
        loop {
            let found = memory.atomic(at, attempt)?;
            if !self.has_failed(&attempt, found) {
                return Ok(found);
            }
            attempt = self.attempt(found);
        }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        match self {
            Change::Core(Atomic { width: AtomicWidth::Four, .. }) => 4,
            Change::Core(Atomic { width: AtomicWidth::Eight, .. }) => 8,
            Change::Reduce(number, ..) => number.len_bytes() as u64,
        }
    }

    /// The request to the core, if the word is expected to be `found`.
    pub(crate) fn attempt(&self, found: u64) -> Atomic {
        match *self {
            Change::Core(atomic) => atomic,
            Change::Reduce(number, reduction, operand) => {
                let (width, at) = if number.len_bytes() == 4 {
                    (AtomicWidth::Four, LOW)
                } else {
                    (AtomicWidth::Eight, 0..8)
                };
                let (mut word, operand) = (found.to_ne_bytes(), operand.to_ne_bytes());
                if let (Some(word), Some(operand)) = (word.get_mut(at.clone()), operand.get(at)) {
                    number.combine(reduction, word, operand, false);
                }
                Atomic {
                    kind: AtomicKind::CompareSwap,
                    width,
                    operand: u64::from_ne_bytes(word),
                    compare: found,
                }
            }
        }
    }

    /// Whether an attempt has failed that has found this, since the word was another.
    pub(crate) fn has_failed(&self, attempt: &Atomic, found: u64) -> bool {
        matches!(self, Change::Reduce(..)) && attempt.compare != found
    }
}

/// The low four bytes of a word of eight.
const LOW: std::ops::Range<usize> = if cfg!(target_endian = "big") { 4..8 } else { 0..4 };

#[cfg(test)]
mod tests {
    use super::*;

    fn both(number: Number, reduction: Reduction, left: &[u8], right: &[u8]) -> Vec<u8> {
        let mut mine = left.to_vec();
        number.combine(reduction, &mut mine, right, false);
        let mut other = right.to_vec();
        number.combine(reduction, &mut other, left, true);
        assert_eq!(mine, other, "{number:?} {reduction:?}: the same wherever it is computed");
        mine
    }

    #[test]
    fn elements_are_combined() {
        let words = |values: &[i32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
        let (left, right) = (words(&[1, -7, i32::MAX]), words(&[3, 2, 1]));
        for (reduction, result) in [
            (Reduction::Add, [4, -5, i32::MIN]),
            (Reduction::Product, [3, -14, i32::MAX]),
            (Reduction::Min, [1, -7, 1]),
            (Reduction::Max, [3, 2, i32::MAX]),
            (Reduction::And, [1, 0, 1]),
            (Reduction::Or, [3, -5, i32::MAX]),
            (Reduction::Xor, [2, -5, i32::MAX - 1]),
        ] {
            assert_eq!(both(Number::I32, reduction, &left, &right), words(&result), "{reduction:?}");
        }
        let (low, high) = (u64::MAX.to_ne_bytes(), 1_u64.to_ne_bytes());
        assert_eq!(both(Number::U64, Reduction::Max, &low, &high), low);
        assert_eq!(both(Number::I64, Reduction::Max, &low, &high), high);
    }

    #[test]
    fn what_is_no_number_is_left_out_of_extremes() {
        for reduction in [Reduction::Min, Reduction::Max] {
            let nan = f64::NAN.to_ne_bytes();
            assert_eq!(both(Number::F64, reduction, &nan, &1.5_f64.to_ne_bytes()), 1.5_f64.to_ne_bytes());
            assert_eq!(both(Number::F64, reduction, &nan, &nan), nan);
        }
        let (zero, minus) = (0.0_f32.to_ne_bytes(), (-0.0_f32).to_ne_bytes());
        assert_eq!(both(Number::F32, Reduction::Min, &zero, &minus), minus);
        assert_eq!(both(Number::F32, Reduction::Max, &minus, &zero), zero);
        assert!(
            !Number::F32.can(Reduction::Xor)
                && Number::F32.can(Reduction::Product)
                && Number::U32.can(Reduction::Xor)
        );
    }
}
