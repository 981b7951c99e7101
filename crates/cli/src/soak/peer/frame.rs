//! Messages beside the stream, and what a request to connect says.

use super::flow::HEAD_BYTES;
use cci::RegionHandle;
use serde::{Deserialize, Serialize};

/// The payload of a request to connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Who asks.
    pub from: u32,
    /// Makes both streams.
    pub seed: u64,
    /// Messages to the one who accepts.
    pub there: u64,
    /// Messages back.
    pub back: u64,
    /// The one who asks wants memory to work on.
    pub memory: bool,
    /// It will write all of the memory at once, again and again, and do nothing else with it.
    pub flood: bool,
    /// Please say no.
    pub reject: bool,
}

/// One message beside the stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// All messages of the stream were sent and all operations are complete.
    Fin(Fin),
    /// Memory to work on.
    Offer(Offer),
    /// The slot was written with this seed, so many bytes: please compare.
    Note {
        /// Which.
        slot: u64,
        /// What makes the bytes.
        seed: u64,
        /// How many.
        len: u64,
    },
    /// It was right.
    Noted {
        /// Which.
        slot: u64,
    },
    /// Everything came and was right.
    Done,
    /// Are you there?
    Ping,
}

/// What the owner of the memory can compare at the end.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Fin {
    /// Additions to the first word of the memory.
    pub adds: u64,
    /// The second word.
    pub swapped: u64,
    /// Additions to the word that all add to.
    pub ledger: u64,
    /// False: operations failed because the owner took the memory back.
    pub whole: bool,
}

/// What the one who asked may work on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its own.
    pub region: RegionHandle,
    /// That of all.
    pub ledger: RegionHandle,
    /// It will be taken back while in use.
    pub withdrawn: bool,
}

const FIN: u8 = 1;
const OFFER: u8 = 2;
const NOTE: u8 = 3;
const NOTED: u8 = 4;
const DONE: u8 = 5;
const PING: u8 = 6;
const WORD: usize = 8;

impl Frame {
    /// Encodes the frame for a message.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, words): (u8, Vec<u64>) = match *self {
            Frame::Fin(fin) => (FIN, vec![fin.adds, fin.swapped, fin.ledger, u64::from(fin.whole)]),
            Frame::Offer(offer) => {
                let mut bytes = vec![OFFER];
                bytes.extend_from_slice(&offer.region.to_bytes());
                bytes.extend_from_slice(&offer.ledger.to_bytes());
                bytes.push(u8::from(offer.withdrawn));
                return bytes;
            }
            Frame::Note { slot, seed, len } => (NOTE, vec![slot, seed, len]),
            Frame::Noted { slot } => (NOTED, vec![slot]),
            Frame::Done => (DONE, vec![0]),
            Frame::Ping => (PING, vec![0]),
        };
        let mut bytes = vec![kind];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        debug_assert!(bytes.len() > HEAD_BYTES);
        bytes
    }

    /// From bytes.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let (&kind, rest) = bytes.split_first()?;
        let word = |at: usize| {
            let word = rest.get(at * WORD..(at + 1) * WORD)?.first_chunk()?;
            Some(u64::from_le_bytes(*word))
        };
        Some(match kind {
            FIN => {
                let [adds, swapped, ledger] = [word(0)?, word(1)?, word(2)?];
                Frame::Fin(Fin { adds, swapped, ledger, whole: word(3)? != 0 })
            }
            OFFER => Frame::Offer(Offer {
                region: RegionHandle::from_message(rest)?,
                ledger: RegionHandle::from_message(rest.get(RegionHandle::BYTES..)?)?,
                withdrawn: *rest.get(2 * RegionHandle::BYTES)? != 0,
            }),
            NOTE => Frame::Note { slot: word(0)?, seed: word(1)?, len: word(2)? },
            NOTED => Frame::Noted { slot: word(0)? },
            DONE => Frame::Done,
            PING => Frame::Ping,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_parsed() {
        let region = RegionHandle::from_bytes([7; RegionHandle::BYTES]);
        let ledger = RegionHandle::from_bytes([9; RegionHandle::BYTES]);
        let frames = [
            Frame::Fin(Fin { adds: 1, swapped: 2, ledger: 3, whole: true }),
            Frame::Offer(Offer { region, ledger, withdrawn: true }),
            Frame::Note { slot: 1, seed: 2, len: 3 },
            Frame::Noted { slot: 4 },
            Frame::Done,
            Frame::Ping,
        ];
        for frame in frames {
            let bytes = frame.encode();
            assert!(bytes.len() > HEAD_BYTES && !super::super::flow::is_data(&bytes));
            assert_eq!(Frame::parse(&bytes), Some(frame));
            assert!(!matches!(Frame::parse(&bytes[..1]), Some(Frame::Fin(_) | Frame::Offer(_))));
        }
    }
}
