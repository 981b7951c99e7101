//! Which connection with which rank.

use crate::limits::LABELS_MAX;
use cci::Attribute;

/// Names a connection with a rank. There is one at most for each name; both ranks call it by the same label.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    rank: u32,
    label: u16,
    attribute: Attribute,
}

impl Peer {
    /// None if the label is not below [`LABELS_MAX`], or the attribute is one of multicast groups. Each layer takes a label of
    /// its own, so that it does not get another one's messages.
    pub fn new(rank: u32, label: u16, attribute: Attribute) -> Option<Peer> {
        (label < LABELS_MAX && !attribute.is_multicast()).then_some(Peer { rank, label, attribute })
    }

    /// Label 0, reliable and ordered.
    pub fn of(rank: u32) -> Peer {
        Peer { rank, label: 0, attribute: Attribute::ReliableOrdered }
    }

    /// The connection of barriers, which programs can't name.
    pub(super) fn of_barriers(rank: u32) -> Peer {
        Peer { label: LABELS_MAX, ..Peer::of(rank) }
    }

    /// Whether [`Peer::of_barriers`] has made it.
    #[doc(hidden)]
    pub fn is_of_barriers(&self) -> bool {
        self.label == LABELS_MAX
    }

    /// From what another rank has sent, or this one has kept.
    pub(super) fn named(rank: u32, label: u16, attribute: Attribute) -> Option<Peer> {
        match (label, attribute) {
            (LABELS_MAX, Attribute::ReliableOrdered) => Some(Peer::of_barriers(rank)),
            _ => Peer::new(rank, label, attribute),
        }
    }

    /// The rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Which of several connections of this kind with this rank.
    pub fn label(&self) -> u16 {
        self.label
    }

    /// What the connection promises.
    pub fn attribute(&self) -> Attribute {
        self.attribute
    }

    /// The context of its connection in the endpoint.
    #[doc(hidden)]
    pub fn to_context(self) -> u64 {
        let kind = match self.attribute {
            Attribute::ReliableUnordered => 1,
            Attribute::Unreliable => 2,
            _ => 0,
        };
        u64::from(self.rank) << 32 | u64::from(self.label) << 16 | kind
    }

    /// None if [`Peer::to_context`] has not made it.
    #[doc(hidden)]
    pub fn from_context(context: u64) -> Option<Peer> {
        let attribute = match context as u16 {
            0 => Attribute::ReliableOrdered,
            1 => Attribute::ReliableUnordered,
            2 => Attribute::Unreliable,
            _ => return None,
        };
        Peer::named((context >> 32) as u32, (context >> 16) as u16, attribute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_name_their_peers() {
        for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable] {
            for (rank, label) in [(0, 0), (u32::MAX, LABELS_MAX - 1), (7, 3)] {
                let peer = Peer::new(rank, label, attribute).unwrap();
                assert_eq!(Peer::from_context(peer.to_context()), Some(peer));
            }
        }
        let barriers = Peer::of_barriers(7);
        assert_eq!(Peer::from_context(barriers.to_context()), Some(barriers));
        assert!(barriers.is_of_barriers() && !Peer::of(7).is_of_barriers());
        for attribute in [Attribute::ReliableOrdered, Attribute::Unreliable] {
            assert_eq!(Peer::new(0, LABELS_MAX, attribute), None);
        }
        assert_eq!(Peer::named(0, LABELS_MAX, Attribute::Unreliable), None);
        assert_eq!(Peer::new(0, 0, Attribute::MulticastReceive), None);
        assert_eq!(Peer::from_context(3), None);
    }
}
