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

/// What the coordinator says to the server of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// For ranks of that host.
    Answer {
        /// None: for all of them.
        rank: Option<u32>,
        /// What the server gives them.
        answer: FromLauncher,
    },
    /// A rank of the job has ended, on whichever host.
    Ended {
        /// Which one.
        rank: u32,
        /// It did not end with exit code 0.
        has_died: bool,
    },
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
        let frame = match self {
            ToHost::Answer { rank: None, answer } => Frame::new(0).bytes(&answer.encode()[4..]),
            ToHost::Answer { rank: Some(rank), answer } => {
                Frame::new(1).number(*rank).bytes(&answer.encode()[4..])
            }
            ToHost::Ended { rank, has_died } => Frame::new(2 + u8::from(*has_died)).number(*rank),
        };
        frame.finish()[4..].to_vec()
    }

    /// From what [`ToHost::encode`] gives; none from anything else.
    pub fn decode(bytes: &[u8]) -> Option<ToHost> {
        let (&kind, fields) = bytes.split_first()?;
        let mut fields = Fields::new(fields);
        let answer = |rank, fields: &mut Fields| {
            let answer = FromLauncher::decode(&fields.bytes(FRAME_BYTES_MAX)?)?;
            Some(ToHost::Answer { rank, answer })
        };
        let said = match kind {
            0 => answer(None, &mut fields)?,
            1 => answer(Some(fields.number()?), &mut fields)?,
            2 | 3 => ToHost::Ended { rank: fields.number()?, has_died: kind == 3 },
            _ => return None,
        };
        fields.is_empty().then_some(said)
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
        let answer = FromLauncher::Exchanged { values: vec![vec![1], vec![]] };
        let answer = |rank| ToHost::Answer { rank, answer: answer.clone() };
        let ended = |has_died| ToHost::Ended { rank: 3, has_died };
        for said in [answer(None), answer(Some(3)), ended(false), ended(true)] {
            let bytes = said.encode();
            assert_eq!(ToHost::decode(&bytes), Some(said));
            assert!((0..bytes.len()).all(|len| ToHost::decode(&bytes[..len]).is_none()));
            assert_eq!(ToHost::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }
}
