//! The little that the simulator knows of datagrams' contents.

use super::rng::Rng;

/// One line about a datagram, for traces.
pub(super) fn line(bytes: &[u8]) -> String {
    bytes.iter().take(48).map(|byte| format!("{byte:02x}")).collect()
}

/// Changes a bit of what proves who sent a datagram.
pub(super) fn spoil_identity(bytes: &mut [u8], rng: &mut Rng) {
    let bits = bytes.len().min(32) as u64 * 8;
    if bits > 0 {
        let bit = rng.below(bits) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
