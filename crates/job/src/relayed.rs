//! What the server of a host and the coordinator of the job say to each other about ranks.
//!
//! On one host both are in one process. On several, launchers carry the frames.

use crate::frames::{Fields, Frame};
use crate::limits::FRAME_BYTES_MAX;
use crate::wire::{FromLauncher, FromRank};

/// What a host's server says of one of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FromHost {
    pub(crate) rank: u32,
    pub(crate) what: News,
}

/// What there is to say of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Joined,
    Asks(FromRank),
    /// It has closed its socket, or said what no rank says.
    Left,
}

/// What the coordinator says to ranks of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToHost {
    /// None: to all of that host.
    pub(crate) rank: Option<u32>,
    pub(crate) answer: FromLauncher,
}

impl FromHost {
    /// Which rank it is about.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// As bytes, for the way between two launchers.
    pub fn encode(&self) -> Vec<u8> {
        let frame = |kind| Frame::new(kind).number(self.rank);
        match &self.what {
            News::Joined => frame(0),
            News::Asks(asked) => frame(1).bytes(&asked.encode()[4..]),
            News::Left => frame(2),
        }
        .finish()[4..]
            .to_vec()
    }

    /// From what [`FromHost::encode`] gives; none from anything else.
    pub fn decode(bytes: &[u8]) -> Option<FromHost> {
        let (&kind, fields) = bytes.split_first()?;
        let mut fields = Fields::new(fields);
        let rank = fields.number()?;
        let what = match kind {
            0 => News::Joined,
            1 => News::Asks(FromRank::decode(&fields.bytes(FRAME_BYTES_MAX)?)?),
            2 => News::Left,
            _ => return None,
        };
        fields.is_empty().then_some(FromHost { rank, what })
    }
}

impl ToHost {
    /// As bytes, for the way between two launchers.
    pub fn encode(&self) -> Vec<u8> {
        let frame = match self.rank {
            None => Frame::new(0),
            Some(rank) => Frame::new(1).number(rank),
        };
        frame.bytes(&self.answer.encode()[4..]).finish()[4..].to_vec()
    }

    /// From what [`ToHost::encode`] gives; none from anything else.
    pub fn decode(bytes: &[u8]) -> Option<ToHost> {
        let (&kind, fields) = bytes.split_first()?;
        let mut fields = Fields::new(fields);
        let rank = match kind {
            0 => None,
            1 => Some(fields.number()?),
            _ => return None,
        };
        let answer = FromLauncher::decode(&fields.bytes(FRAME_BYTES_MAX)?)?;
        fields.is_empty().then_some(ToHost { rank, answer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_written_and_nothing_else_is() {
        let asks = FromRank::Get { rank: 1, key: "key".into() };
        for what in [News::Joined, News::Asks(asks), News::Left] {
            let said = FromHost { rank: 7, what };
            let bytes = said.encode();
            assert_eq!(FromHost::decode(&bytes), Some(said));
            assert!((0..bytes.len()).all(|len| FromHost::decode(&bytes[..len]).is_none()));
            assert_eq!(FromHost::decode(&[&bytes[..], &[0]].concat()), None);
        }
        for rank in [None, Some(3)] {
            let said = ToHost { rank, answer: FromLauncher::Exchanged { values: vec![vec![1], vec![]] } };
            let bytes = said.encode();
            assert_eq!(ToHost::decode(&bytes), Some(said));
            assert!((0..bytes.len()).all(|len| ToHost::decode(&bytes[..len]).is_none()));
            assert_eq!(ToHost::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
