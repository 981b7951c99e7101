//! What a rank says when it connects to another one.

use super::peer::Peer;
use crate::limits::TICKET_BYTES;
use cci::Attribute;

/// Begins every request between ranks. The last byte counts up with the format.
const MAGIC: &[u8; 8] = b"cci-job\x01";
const LEN_BYTES: usize = MAGIC.len() + TICKET_BYTES + 4 + 2;

/// A random number that rank 0 gives to all ranks: whoever shows it has taken part in their exchange. Shared memory has no
/// security, so this distinguishes ranks from other programs of the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket([u8; TICKET_BYTES]);

impl Ticket {
    pub fn random() -> Result<Ticket, cci_sys::SysError> {
        let mut bytes = [0; TICKET_BYTES];
        cci_sys::random::fill(&mut bytes)?;
        Ok(Ticket(bytes))
    }

    pub fn bytes(&self) -> &[u8; TICKET_BYTES] {
        &self.0
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Ticket> {
        Some(Ticket(bytes.try_into().ok()?))
    }

    /// Takes equally long wherever the two differ.
    fn is(&self, other: &[u8]) -> bool {
        other.len() == TICKET_BYTES && self.0.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// The request with which `rank` asks for a connection.
pub fn encode(ticket: &Ticket, rank: u32, label: u16) -> [u8; LEN_BYTES] {
    let mut bytes = [0; LEN_BYTES];
    let parts = [&MAGIC[..], &ticket.0, &rank.to_le_bytes(), &label.to_le_bytes()];
    for (byte, &part) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *byte = part;
    }
    bytes
}

/// Who asks, and for which connection; none if it is no rank of a job of `size` that has this ticket.
pub fn decode(bytes: &[u8], attribute: Attribute, ticket: &Ticket, size: u32) -> Option<Peer> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (shown, rest) = rest.split_at_checked(TICKET_BYTES)?;
    let (rank, label) = rest.split_at_checked(4)?;
    let rank = u32::from_le_bytes(rank.try_into().ok()?);
    let label = u16::from_le_bytes(label.try_into().ok()?);
    if !ticket.is(shown) || rank >= size {
        return None;
    }
    Peer::named(rank, label, attribute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LABELS_MAX;

    #[test]
    fn only_what_a_rank_says_is_understood() {
        let (ticket, other) = (Ticket::random().unwrap(), Ticket::random().unwrap());
        let said = encode(&ticket, 6, LABELS_MAX - 1);
        let attribute = Attribute::ReliableUnordered;
        let peer = decode(&said, attribute, &ticket, 7).unwrap();
        assert_eq!((peer.rank(), peer.label(), peer.attribute()), (6, LABELS_MAX - 1, attribute));
        assert_eq!(decode(&said, attribute, &ticket, 6), None, "there is no such rank");
        assert_eq!(decode(&said, attribute, &other, 7), None, "another job");
        assert_eq!(decode(&said, Attribute::MulticastSend, &ticket, 7), None);
        assert_eq!(decode(&encode(&ticket, 6, LABELS_MAX), attribute, &ticket, 7), None);
        for end in 0..said.len() {
            assert_eq!(decode(&said[..end], attribute, &ticket, 7), None, "cut at {end}");
        }
        assert_eq!(decode(&[&said[..], b"x"].concat(), attribute, &ticket, 7), None);
        for at in 0..MAGIC.len() + TICKET_BYTES {
            let mut changed = said;
            changed[at] ^= 1;
            assert_eq!(decode(&changed, attribute, &ticket, 7), None, "changed at {at}");
        }
    }
}
