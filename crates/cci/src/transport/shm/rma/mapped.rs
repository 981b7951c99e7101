//! How much of its peers' memory an endpoint maps. The pages are the peers', but a peer that takes them out of the file again
//! makes us pay for those that we touch then. So all that is mapped counts under the endpoint's cap, and a single peer can't
//! use up what may be mapped.

/// This part of an endpoint's cap may be mapped memory of peers.
const MAPPED_SHARE: u64 = 2;

/// How much memory an endpoint holds when a peer grants it some, in bytes.
pub(in crate::transport::shm) struct Held {
    pub cap_bytes: u64,
    /// Memory of all kinds, what is mapped among it.
    pub total_bytes: u64,
    /// Mapped memory of all peers.
    pub mapped_bytes: u64,
    /// There is no other peer.
    pub is_alone: bool,
}

impl Held {
    /// The longest mapping that may be added for a peer, of which `of_this_peer` bytes are mapped already. While there are other
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
        // One after the other: who comes first leaves as much as it has.
        assert_eq!(held(0, false).space_bytes(0), 250);
        assert_eq!(held(250, false).space_bytes(250), 0);
        assert_eq!(held(250, false).space_bytes(0), 125);
        // Where other kinds have most of the cap, there is less.
        let full = Held { cap_bytes: 1000, total_bytes: 950, mapped_bytes: 0, is_alone: true };
        assert_eq!(full.space_bytes(0), 50);
        assert_eq!(Held { total_bytes: 2000, ..full }.space_bytes(0), 0);
    }
}
