//! The two rings of a link, read and written as files: no mapping, and nothing of the library's.
//!
//! The layout is described in `cci_memory::ring`.

use super::wire::Record;
use rustix::io::{pread, pwrite};
use std::os::fd::OwnedFd;

const LINE_BYTES: u64 = 64;
const HEADER_BYTES: usize = 16;
const CONTROL_BYTES: u64 = 256;
const HEAD_AT: u64 = 0;
const ATTENTION_AT: u64 = 128;
/// Where the name of a memory stands that its user copies to or from.
pub const DIRECT_AT: u64 = 192;
const LEN_MASK: u64 = (1 << 30) - 1;
const PAD: u64 = 1 << 30;
const VOID: u64 = 1 << 31;

/// One ring, from the side of its reader or its writer.
pub struct Ring {
    file: OwnedFd,
    data_bytes: u64,
    /// Where the next record is written, or read.
    pub position: u64,
}

fn check(position: u64) -> u64 {
    ((position / LINE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) | 1
}

fn record_bytes(payload_bytes: usize) -> u64 {
    (HEADER_BYTES + payload_bytes).next_multiple_of(LINE_BYTES as usize) as u64
}

impl Ring {
    /// Of so many bytes of data.
    pub fn new(file: OwnedFd, data_bytes: u32) -> Ring {
        Ring { file, data_bytes: data_bytes.into(), position: 0 }
    }

    /// The length of the file of such a ring.
    pub fn file_bytes(data_bytes: u32) -> u64 {
        CONTROL_BYTES + u64::from(data_bytes)
    }

    /// The word at an offset of the file.
    pub fn word(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        let _ = pread(&self.file, &mut word, at);
        u64::from_ne_bytes(word)
    }

    /// Writes a word at an offset of the file.
    pub fn set_word(&self, at: u64, value: u64) {
        let _ = pwrite(&self.file, &value.to_ne_bytes(), at);
    }

    fn offset_of(&self, position: u64) -> u64 {
        CONTROL_BYTES + position % self.data_bytes
    }

    /// Writes a record. False: there is no space for it.
    pub fn push(&mut self, record: &Record) -> bool {
        let bytes = record_bytes(record.payload.len());
        let to_end = self.data_bytes - self.position % self.data_bytes;
        let pad = if bytes > to_end { to_end } else { 0 };
        let used = self.position - self.word(HEAD_AT).min(self.position);
        if used + pad + bytes + LINE_BYTES > self.data_bytes {
            return false;
        }
        if pad > 0 {
            self.set_word(self.offset_of(self.position + pad), 0);
            self.set_word(self.offset_of(self.position), PAD | check(self.position) << 48);
            self.position += pad;
        }
        let at = self.offset_of(self.position);
        let _ = pwrite(&self.file, &record.payload, at + HEADER_BYTES as u64);
        self.set_word(at + 8, u64::from(record.conn) | u64::from(record.ack) << 32);
        self.set_word(self.offset_of(self.position + bytes), 0);
        let len = u64::from(record.len.unwrap_or(record.payload.len() as u32));
        let check = record.check.map_or(check(self.position), u64::from);
        self.set_word(at, len | u64::from(record.kind) << 32 | u64::from(record.flags) << 40 | check << 48);
        self.position += bytes;
        true
    }

    /// Takes the next record.
    pub fn take(&mut self) -> Option<Record> {
        loop {
            let at = self.offset_of(self.position);
            let word = self.word(at);
            if word == 0 {
                return None;
            }
            if word & PAD != 0 {
                self.position += self.data_bytes - self.position % self.data_bytes;
                continue;
            }
            let mut payload = vec![0; (word & LEN_MASK) as usize];
            let _ = pread(&self.file, &mut payload, at + HEADER_BYTES as u64);
            let tag = self.word(at + 8);
            self.position += record_bytes(payload.len());
            if word & VOID != 0 {
                continue;
            }
            let (kind, flags) = ((word >> 32) as u8, (word >> 40) as u8);
            let (conn, ack) = (tag as u32, (tag >> 32) as u32);
            return Some(Record { kind, flags, conn, ack, payload, len: None, check: None });
        }
    }

    /// Has the writer know how far this ring was read.
    pub fn publish(&self) {
        self.set_word(HEAD_AT, self.position);
    }

    /// The other side sleeps, or waits for space, and wants to be woken. True once.
    pub fn take_attention(&self) -> bool {
        let wants = self.word(ATTENTION_AT) != 0;
        if wants {
            self.set_word(ATTENTION_AT, 0);
        }
        wants
    }

    /// Lines read so far.
    pub fn lines(&self) -> u32 {
        (self.position / LINE_BYTES) as u32
    }
}
