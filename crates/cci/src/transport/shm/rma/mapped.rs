//! How much of its peers' memory an endpoint maps. The pages belong to the peers. But if a peer removes them from the file, this
//! process pays for those that it touches then. So everything that is mapped counts under the endpoint's cap, and a single peer
//! can't use up what may be mapped.

/// The part of an endpoint's cap that mapped memory of peers may take.
const MAPPED_SHARE: u64 = 2;

/// How much memory an endpoint holds when a peer grants it some, in bytes.
pub(in crate::transport::shm) struct Held {
    pub cap_bytes: u64,
    /// Memory of all kinds, including mapped memory.
    pub total_bytes: u64,
    /// Mapped memory of all peers.
    pub mapped_bytes: u64,
    /// Whether there is no other peer.
    pub is_alone: bool,
}

impl Held {
    /// The longest mapping that may be added for a peer of which `of_this_peer` bytes are mapped already. While there are other
    /// peers, no more is mapped of one than is left for them (ADR 19).
    pub fn space_bytes(&self, of_this_peer: u64) -> u64 {
        let mapped_remaining = (self.cap_bytes / MAPPED_SHARE).saturating_sub(self.mapped_bytes);
        let remaining = mapped_remaining.min(self.cap_bytes.saturating_sub(self.total_bytes));
        if self.is_alone { remaining } else { remaining.saturating_sub(of_this_peer) / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_cap_is_for_mappings_and_nobody_has_all_of_it() {
        let held = |mapped_bytes, is_alone| Held {
            cap_bytes: 1000,
            total_bytes: 300 + mapped_bytes,
            mapped_bytes,
            is_alone,
        };
        assert_eq!(held(0, true).space_bytes(0), 500);
        assert_eq!(held(400, true).space_bytes(400), 100);
        assert_eq!(held(500, true).space_bytes(500), 0);
        // One after the other: the first peer leaves as much as it has.
        assert_eq!(held(0, false).space_bytes(0), 250);
        assert_eq!(held(250, false).space_bytes(250), 0);
        assert_eq!(held(250, false).space_bytes(0), 125);
        // If other kinds have most of the cap, less may be mapped.
        let full = Held { cap_bytes: 1000, total_bytes: 950, mapped_bytes: 0, is_alone: true };
        assert_eq!(full.space_bytes(0), 50);
        assert_eq!(Held { total_bytes: 2000, ..full }.space_bytes(0), 0);
    }
}
