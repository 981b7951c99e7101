//! What a connection has for remote memory; what is done with it is beside this file.

use super::super::pipe::Pipe;
use crate::transport::ordered_rma::stream::{Reader, Writer};
use crate::transport::token::NOWHERE;
use cci_ring::slab::Key;

/// What a connection has for remote memory.
pub(in crate::transport::tcp) struct Bulk {
    /// None: it is being made, or has ended.
    pub(super) stream: Option<Pipe>,
    /// Lent while something is under way.
    pub(super) flow: Key,
    pub(super) writer: Writer,
    pub(super) reader: Reader,
    pub(super) is_watched: bool,
    pub(super) is_watched_for_room: bool,
    /// In [`Bulks::active`](super::Bulks::active).
    pub(super) is_active: bool,
    /// When something last came or went.
    pub(super) moved_ns: u64,
    /// It has ended; until when the peer may still say why. 0: it has not.
    pub(super) ended_until_ns: u64,
}

impl Bulk {
    pub(super) fn new() -> Box<Bulk> {
        Box::new(Bulk {
            stream: None,
            flow: NOWHERE,
            writer: Writer::default(),
            reader: Reader::default(),
            is_watched: false,
            is_watched_for_room: false,
            is_active: false,
            moved_ns: 0,
            ended_until_ns: 0,
        })
    }

    /// The second stream is there, or was.
    pub(in crate::transport::tcp) fn was_made(&self) -> bool {
        self.stream.is_some() || self.ended_until_ns > 0
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        size_of::<Bulk>() as u64 + self.writer.held_bytes() + self.reader.held_bytes()
    }
}
