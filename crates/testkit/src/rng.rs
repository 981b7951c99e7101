//! The simulator's only source of chance: SplitMix64, written out here because its sequence is part of what a seed means.
//!
//! A crate's generator may change its sequence in a minor version; then every seed in a bug report, and the tables under
//! git, would silently mean another run.

/// A deterministic generator. Copies continue independently from the same point.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

/// SplitMix64's output function: also used on its own to make message contents and to fold traces.
pub const fn mix(input: u64) -> u64 {
    let mut z = input;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub const fn new(seed: u64) -> Rng {
        Rng { state: mix(seed ^ 0x5eed_cc1c_5eed_cc1c) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias (below 2⁻³² for the bounds used here) does not matter.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64 }
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `pct` of 100 cases.
    pub fn pct(&mut self, pct: f64) -> bool {
        // 53 bits fit an f64 exactly.
        (self.next_u64() >> 11) as f64 * (100.0 / (1u64 << 53) as f64) < pct
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// 32 bytes for `Config.secret`.
    pub fn secret(&mut self) -> [u8; 32] {
        let mut secret = [0; 32];
        for chunk in secret.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes());
        }
        secret
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
