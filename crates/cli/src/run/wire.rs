//! What the launcher and the agent of a host say to each other, over the standard streams of ssh.
//!
//! The agent begins with a line of text in every version of CCI, so that two versions refuse each other by name. All that
//! follows is frames. The launcher closes the agent's standard input when the job is over.

use super::args::{Bind, RANKS_MAX};
use super::verdict::Ending;
use cci_job::frames::{Fields, Frame, read_frame};
use cci_job::limits::FRAME_BYTES_MAX;
use cci_job::{FromHost, ToHost};
use std::ffi::OsString;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// Begins the agent's first line; the version follows.
pub const GREETING: &str = "CCI agent ";
/// The version of CCI: launcher and agents of one job have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Longest first line.
pub const GREETING_BYTES_MAX: usize = 256;
/// Who has nothing to say says so this often.
pub const ALIVE_EVERY: Duration = Duration::from_secs(5);
/// Who says nothing for so long is gone, or the network between is.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of output or input in a frame.
pub const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Arguments and environment of a program: more than Linux lets a program have by default.
const WORDS_BYTES_MAX: usize = 8 << 20;
const REASON_BYTES_MAX: usize = 4096;
const MESSAGE_BYTES_MAX: usize = {
    let longest = FRAME_BYTES_MAX + 64;
    if longest > WORDS_BYTES_MAX { longest } else { WORDS_BYTES_MAX }
};
/// A label, and the end of a last line, beside a chunk.
const OUTPUT_BYTES_MAX: usize = 64 * CHUNK_BYTES_MAX;

/// What an agent shall start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub ranks: Range<u32>,
    pub size: u32,
    /// The job's key, as text.
    pub key: String,
    pub bind: Option<Bind>,
    pub label: bool,
    pub folder: OsString,
    pub program: Vec<OsString>,
    /// Name, value, name, value and so on.
    pub environment: Vec<OsString>,
}

/// What the launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToAgent {
    Start(Start),
    /// For ranks of the host.
    Answer(ToHost),
    Signal(i32),
    /// Ends all ranks at once.
    Kill,
    /// For the standard input of rank 0; nothing at its end.
    Input(Vec<u8>),
    Alive,
}

/// What the agent says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromAgent {
    /// All ranks of the host run: their processes in order.
    Started(Vec<u32>),
    /// The agent can't do what it should.
    Failed(String),
    Ended {
        rank: u32,
        ending: Ending,
    },
    Output {
        is_error: bool,
        bytes: Vec<u8>,
    },
    /// Rank 0 has got the input, and whether it takes more.
    InputTaken {
        takes_more: bool,
    },
    /// From ranks of the host.
    Asked(FromHost),
    Alive,
}

impl ToAgent {
    /// A whole frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToAgent::Start(start) => start.encode(),
            ToAgent::Answer(answer) => Frame::new(1).bytes(&answer.encode()),
            ToAgent::Signal(number) => Frame::new(2).number(number.unsigned_abs()),
            ToAgent::Kill => Frame::new(3),
            ToAgent::Input(bytes) => Frame::new(4).bytes(bytes),
            ToAgent::Alive => Frame::new(5),
        }
        .finish()
    }

    /// Reads one frame; `InvalidData` where it is none.
    pub fn read(from: &mut impl Read) -> io::Result<ToAgent> {
        let frame = read_frame(from, MESSAGE_BYTES_MAX)?;
        ToAgent::decode(&frame).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn decode(frame: &[u8]) -> Option<ToAgent> {
        let (&kind, fields) = frame.split_first()?;
        let mut fields = Fields::new(fields);
        let decoded = match kind {
            0 => ToAgent::Start(Start::decode(&mut fields)?),
            1 => ToAgent::Answer(ToHost::decode(&fields.bytes(MESSAGE_BYTES_MAX)?)?),
            2 => ToAgent::Signal(i32::try_from(fields.number()?).ok()?),
            3 => ToAgent::Kill,
            4 => ToAgent::Input(fields.bytes(CHUNK_BYTES_MAX)?),
            5 => ToAgent::Alive,
            _ => return None,
        };
        fields.is_empty().then_some(decoded)
    }
}

impl Start {
    fn encode(&self) -> Frame {
        let bind = match self.bind {
            None => 0,
            Some(Bind::Core) => 1,
            Some(Bind::None) => 2,
        };
        let frame = Frame::new(0).number(self.ranks.start).number(self.ranks.end).number(self.size);
        let frame = frame.bytes(self.key.as_bytes()).number(bind).number(u32::from(self.label));
        let frame = frame.bytes(self.folder.as_bytes());
        let words = |frame: Frame, words: &[OsString]| {
            let frame = frame.number(words.len() as u32);
            words.iter().fold(frame, |frame, word| frame.bytes(word.as_bytes()))
        };
        words(words(frame, &self.program), &self.environment)
    }

    fn decode(fields: &mut Fields) -> Option<Start> {
        let ranks = fields.number()?..fields.number()?;
        let size = fields.number().filter(|&size| size <= u32::from(RANKS_MAX))?;
        if ranks.is_empty() || ranks.end > size {
            return None;
        }
        let key = fields.text(REASON_BYTES_MAX)?;
        let bind = match fields.number()? {
            0 => None,
            1 => Some(Bind::Core),
            2 => Some(Bind::None),
            _ => return None,
        };
        let label = fields.number()? != 0;
        let word = |fields: &mut Fields| fields.bytes(WORDS_BYTES_MAX).map(OsString::from_vec);
        let words = |fields: &mut Fields| -> Option<Vec<OsString>> {
            (0..fields.number()?).map(|_| word(fields)).collect()
        };
        let (folder, program, environment) = (word(fields)?, words(fields)?, words(fields)?);
        let fits = !program.is_empty() && environment.len() % 2 == 0;
        fits.then_some(Start { ranks, size, key, bind, label, folder, program, environment })
    }

    /// Whether the frame is as short as an agent takes it.
    pub fn fits(&self) -> bool {
        self.encode().finish().len() <= MESSAGE_BYTES_MAX
    }
}

impl FromAgent {
    /// A whole frame.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromAgent::Started(pids) => {
                pids.iter().fold(Frame::new(0).number(pids.len() as u32), |frame, &pid| frame.number(pid))
            }
            FromAgent::Failed(reason) => {
                let is_end = |end: &usize| reason.is_char_boundary(*end);
                let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(is_end).unwrap_or(0);
                Frame::new(1).bytes(&reason.as_bytes()[..end])
            }
            FromAgent::Ended { rank, ending } => {
                let (is_signal, number) = match *ending {
                    Ending::Exit(code) => (0, code),
                    Ending::Signal(signal) => (1, signal),
                };
                Frame::new(2).number(*rank).number(is_signal).number(u32::from(number))
            }
            FromAgent::Output { is_error, bytes } => Frame::new(3).number(u32::from(*is_error)).bytes(bytes),
            FromAgent::InputTaken { takes_more } => Frame::new(4).number(u32::from(*takes_more)),
            FromAgent::Asked(asked) => Frame::new(5).bytes(&asked.encode()),
            FromAgent::Alive => Frame::new(6),
        }
        .finish()
    }

    /// Reads one frame; `InvalidData` where it is none.
    pub fn read(from: &mut impl Read) -> io::Result<FromAgent> {
        let frame = read_frame(from, OUTPUT_BYTES_MAX)?;
        FromAgent::decode(&frame).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn decode(frame: &[u8]) -> Option<FromAgent> {
        let (&kind, fields) = frame.split_first()?;
        let mut fields = Fields::new(fields);
        let flag =
            |fields: &mut Fields| fields.number().filter(|&number| number <= 1).map(|number| number == 1);
        let decoded = match kind {
            0 => {
                let count = fields.number().filter(|&count| count <= u32::from(RANKS_MAX))?;
                FromAgent::Started((0..count).map(|_| fields.number()).collect::<Option<_>>()?)
            }
            1 => FromAgent::Failed(fields.text(REASON_BYTES_MAX)?),
            2 => {
                let (rank, is_signal) = (fields.number()?, flag(&mut fields)?);
                let number = u8::try_from(fields.number()?).ok()?;
                let ending = if is_signal { Ending::Signal(number) } else { Ending::Exit(number) };
                FromAgent::Ended { rank, ending }
            }
            3 => FromAgent::Output { is_error: flag(&mut fields)?, bytes: fields.bytes(OUTPUT_BYTES_MAX)? },
            4 => FromAgent::InputTaken { takes_more: flag(&mut fields)? },
            5 => FromAgent::Asked(FromHost::decode(&fields.bytes(OUTPUT_BYTES_MAX)?)?),
            6 => FromAgent::Alive,
            _ => return None,
        };
        fields.is_empty().then_some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame is read as it was written; parts of it, or more than it, are nothing.
    fn check<T: PartialEq + std::fmt::Debug>(said: &T, frame: &[u8], decode: impl Fn(&[u8]) -> Option<T>) {
        let body = &frame[4..];
        assert_eq!(decode(body).as_ref(), Some(said));
        assert!((0..body.len()).all(|len| decode(&body[..len]).is_none()), "{said:?}");
        assert_eq!(decode(&[body, &[0]].concat()), None, "{said:?}");
    }

    #[test]
    fn frames_are_read_as_written_and_nothing_else_is() {
        let start = Start {
            ranks: 2..4,
            size: 5,
            key: "00".into(),
            bind: Some(Bind::None),
            label: true,
            folder: "/a b".into(),
            program: vec!["".into(), "'\n\"".into(), OsString::from_vec(vec![0xff])],
            environment: vec!["A".into(), "".into()],
        };
        for said in [
            ToAgent::Start(start),
            ToAgent::Signal(10),
            ToAgent::Kill,
            ToAgent::Input(vec![1, 2]),
            ToAgent::Input(vec![]),
            ToAgent::Alive,
        ] {
            check(&said, &said.encode(), ToAgent::decode);
        }
        for said in [
            FromAgent::Started(vec![3, 4]),
            FromAgent::Failed("why".into()),
            FromAgent::Ended { rank: 3, ending: Ending::Exit(3) },
            FromAgent::Ended { rank: 3, ending: Ending::Signal(9) },
            FromAgent::Output { is_error: true, bytes: vec![1] },
            FromAgent::InputTaken { takes_more: true },
            FromAgent::Alive,
        ] {
            check(&said, &said.encode(), FromAgent::decode);
        }
    }

    #[test]
    fn a_long_reason_is_cut() {
        let said = FromAgent::Failed("é".repeat(REASON_BYTES_MAX)).encode();
        assert_eq!(FromAgent::decode(&said[4..]), Some(FromAgent::Failed("é".repeat(REASON_BYTES_MAX / 2))));
    }
}
