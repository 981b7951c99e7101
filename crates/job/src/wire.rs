//! What a rank and the launcher say to each other: frames over a UNIX socket of one host, and on between hosts.
//!
//! The first frame begins with [`MAGIC`] and the version as text in every version of CCI, so that two versions refuse each
//! other by name.

use crate::ended::EndedPlace;
use crate::frames::{Fields, Frame, read_frame};
use crate::limits::{
    FRAME_BYTES_MAX, JOB_KEY_BYTES, KEY_BYTES_MAX, RANKS_MAX, REASON_BYTES_MAX, VALUE_BYTES_MAX,
};
use crate::published::PLACE_BYTES;
use crate::status::RankStatus;
use std::io::{self, Read, Write};
use std::num::NonZeroU8;

/// The version of CCI: ranks and launcher of one job have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
const MAGIC: &[u8] = b"CCI job\n";
const VERSION_BYTES_MAX: usize = 64;

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRank {
    /// The first frame.
    Hello { version: String, key: [u8; JOB_KEY_BYTES], rank: u32 },
    /// Its value for everybody; answered by `Exchanged` once all have come.
    Exchange { value: Vec<u8> },
    /// A value under a key; answered by `Done` or `Failed`.
    Put { key: String, value: Vec<u8> },
    /// Answered by `Value`.
    Get { rank: u32, key: String },
    /// The job shall end.
    Abort { code: NonZeroU8, reason: String },
    /// The death of another rank shall not end this one; answered by `Done`.
    Survive,
    /// What has become of a rank; answered by `Status`.
    Status { rank: u32 },
}

/// What the launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromLauncher {
    /// The rank is taken in. There may be a table of ranks that have ended.
    Welcome { size: u32, ended: Option<EndedPlace> },
    /// Everybody's value, by rank.
    Exchanged { values: Vec<Vec<u8>> },
    /// The value was put.
    Done,
    /// What that rank has put, if it has.
    Value { value: Option<Vec<u8>> },
    /// What was asked for is refused.
    Failed { reason: String },
    /// It can't be done because a rank is gone.
    Gone { rank: u32 },
    /// What has become of the rank that was asked for.
    Status { status: RankStatus },
}

impl FromRank {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromRank::Hello { version, key, rank } => {
                Frame::new(0).bytes(MAGIC).bytes(version.as_bytes()).bytes(key).number(*rank)
            }
            FromRank::Exchange { value } => Frame::new(1).bytes(value),
            FromRank::Put { key, value } => Frame::new(2).bytes(key.as_bytes()).bytes(value),
            FromRank::Get { rank, key } => Frame::new(3).number(*rank).bytes(key.as_bytes()),
            FromRank::Abort { code, reason } => {
                Frame::new(4).number(u32::from(code.get())).bytes(reason.as_bytes())
            }
            FromRank::Survive => Frame::new(5),
            FromRank::Status { rank } => Frame::new(6).number(*rank),
        }
        .finish()
    }

    pub fn decode(frame: &[u8]) -> Option<FromRank> {
        let (&kind, fields) = frame.split_first()?;
        let mut fields = Fields::new(fields);
        let decoded = match kind {
            0 => {
                if fields.bytes(MAGIC.len())? != MAGIC {
                    return None;
                }
                let version = fields.text(VERSION_BYTES_MAX)?;
                if version != VERSION {
                    // What follows is that version's affair.
                    return Some(FromRank::Hello { version, key: [0; JOB_KEY_BYTES], rank: 0 });
                }
                let key = fields.bytes(JOB_KEY_BYTES)?.try_into().ok()?;
                FromRank::Hello { version, key, rank: fields.number()? }
            }
            1 => FromRank::Exchange { value: fields.bytes(VALUE_BYTES_MAX)? },
            2 => FromRank::Put { key: fields.text(KEY_BYTES_MAX)?, value: fields.bytes(VALUE_BYTES_MAX)? },
            3 => FromRank::Get { rank: fields.number()?, key: fields.text(KEY_BYTES_MAX)? },
            4 => FromRank::Abort {
                code: u8::try_from(fields.number()?).ok().and_then(NonZeroU8::new)?,
                reason: fields.text(REASON_BYTES_MAX)?,
            },
            5 => FromRank::Survive,
            6 => FromRank::Status { rank: fields.number()? },
            _ => return None,
        };
        fields.is_empty().then_some(decoded)
    }
}

impl FromLauncher {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromLauncher::Welcome { size, ended: None } => Frame::new(0).number(*size).number(0),
            FromLauncher::Welcome { size, ended: Some(EndedPlace { place, nonce }) } => {
                Frame::new(0).number(*size).number(1).bytes(place).bytes(&nonce.to_le_bytes())
            }
            FromLauncher::Exchanged { values } => values
                .iter()
                .fold(Frame::new(1).number(values.len() as u32), |frame, value| frame.bytes(value)),
            FromLauncher::Done => Frame::new(2),
            FromLauncher::Value { value: None } => Frame::new(3).number(0),
            FromLauncher::Value { value: Some(value) } => Frame::new(3).number(1).bytes(value),
            FromLauncher::Failed { reason } => Frame::new(4).bytes(reason.as_bytes()),
            FromLauncher::Gone { rank } => Frame::new(5).number(*rank),
            FromLauncher::Status { status } => {
                let (kind, number) = status.to_numbers();
                Frame::new(6).number(kind).number(number)
            }
        }
        .finish()
    }

    pub fn decode(frame: &[u8]) -> Option<FromLauncher> {
        let (&kind, fields) = frame.split_first()?;
        let mut fields = Fields::new(fields);
        let decoded = match kind {
            0 => FromLauncher::Welcome {
                size: fields.number()?,
                ended: match fields.number()? {
                    0 => None,
                    1 => Some(EndedPlace {
                        place: fields.bytes(PLACE_BYTES)?,
                        nonce: u64::from_le_bytes(fields.bytes(size_of::<u64>())?.try_into().ok()?),
                    }),
                    _ => return None,
                },
            },
            1 => {
                let count = fields.number().filter(|&count| count <= RANKS_MAX)?;
                let values = (0..count).map(|_| fields.bytes(VALUE_BYTES_MAX)).collect::<Option<_>>()?;
                FromLauncher::Exchanged { values }
            }
            2 => FromLauncher::Done,
            3 => FromLauncher::Value {
                value: match fields.number()? {
                    0 => None,
                    1 => Some(fields.bytes(VALUE_BYTES_MAX)?),
                    _ => return None,
                },
            },
            4 => FromLauncher::Failed { reason: fields.text(REASON_BYTES_MAX)? },
            5 => FromLauncher::Gone { rank: fields.number()? },
            6 => {
                let (kind, number) = (fields.number()?, fields.number()?);
                FromLauncher::Status { status: RankStatus::from_numbers(kind, number)? }
            }
            _ => return None,
        };
        fields.is_empty().then_some(decoded)
    }
}

/// What both sides say, in frames.
pub trait Say: Sized {
    /// Writes one frame.
    fn write(&self, to: &mut impl Write) -> io::Result<()>;
    /// Reads one frame; `UnexpectedEof` where the other side has closed, `InvalidData` where it is no such frame.
    fn read(from: &mut impl Read) -> io::Result<Self>;
}

impl Say for FromRank {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.encode())
    }

    fn read(from: &mut impl Read) -> io::Result<FromRank> {
        let frame = read_frame(from, VALUE_BYTES_MAX + REASON_BYTES_MAX)?;
        FromRank::decode(&frame).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Say for FromLauncher {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.encode())
    }

    fn read(from: &mut impl Read) -> io::Result<FromLauncher> {
        let frame = read_frame(from, FRAME_BYTES_MAX)?;
        FromLauncher::decode(&frame).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_by_ranks() -> Vec<FromRank> {
        vec![
            FromRank::Hello { version: VERSION.into(), key: [7; JOB_KEY_BYTES], rank: 3 },
            FromRank::Exchange { value: b"value".to_vec() },
            FromRank::Put { key: "key".into(), value: vec![1; VALUE_BYTES_MAX] },
            FromRank::Get { rank: 1, key: "key".into() },
            FromRank::Abort { code: NonZeroU8::MAX, reason: "why".into() },
            FromRank::Survive,
            FromRank::Status { rank: 2 },
        ]
    }

    fn said_by_launchers() -> Vec<FromLauncher> {
        vec![
            FromLauncher::Welcome { size: 4, ended: None },
            FromLauncher::Welcome { size: 4, ended: Some(EndedPlace { place: vec![3; 8], nonce: 5 }) },
            FromLauncher::Exchanged { values: vec![vec![], vec![1, 2]] },
            FromLauncher::Done,
            FromLauncher::Value { value: None },
            FromLauncher::Value { value: Some(vec![5]) },
            FromLauncher::Failed { reason: "why".into() },
            FromLauncher::Gone { rank: 2 },
            FromLauncher::Status { status: RankStatus::Killed(9) },
        ]
    }

    /// The frame is read as it was written; parts of it, or more than it, are nothing.
    fn check<T: Say + PartialEq + std::fmt::Debug>(said: &T, decode: impl Fn(&[u8]) -> Option<T>) {
        let mut frame = Vec::new();
        said.write(&mut frame).unwrap();
        assert_eq!(&T::read(&mut &frame[..]).unwrap(), said);
        for len in 0..frame.len() {
            assert_eq!(T::read(&mut &frame[..len]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        let body = &frame[4..];
        assert!((0..body.len()).all(|len| decode(&body[..len]).is_none()), "{said:?}");
        assert_eq!(decode(&[body, &[0]].concat()), None, "{said:?}");
    }

    #[test]
    fn frames_are_read_as_written_and_nothing_else_is() {
        for said in said_by_ranks() {
            check(&said, FromRank::decode);
        }
        for said in said_by_launchers() {
            check(&said, FromLauncher::decode);
        }
    }

    #[test]
    fn lengths_are_limited_before_anything_is_allocated() {
        let huge = [0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(FromRank::read(&mut &huge[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(FromLauncher::read(&mut &huge[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(FromLauncher::decode(&[1, 0xff, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn another_version_is_recognised_whatever_follows() {
        let frame = Frame::new(0).bytes(MAGIC).bytes(b"9.1.0").bytes(b"whatever").finish();
        let hello = FromRank::read(&mut &frame[..]).unwrap();
        assert!(matches!(hello, FromRank::Hello { version, .. } if version == "9.1.0"));
    }
}
