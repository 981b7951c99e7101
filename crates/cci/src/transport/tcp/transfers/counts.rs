//! What is counted of remote memory.

use crate::transport::ordered_rma::stream::{Reader, Writer};

/// Counted since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub operations: u64,
    pub streams: u64,
    /// How often a stream had to wait for its turn.
    pub waited: u64,
    /// Connections that had to make room for others.
    pub retired_for_space: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Bytes of these that were read directly into their regions.
    pub bytes_placed: u64,
    /// Bytes of these that went through a buffer.
    pub bytes_copied: u64,
    pub held: u64,
}

impl Counts {
    /// Adds what was read since the last call.
    #[inline]
    pub fn take_reads(&mut self, reader: &mut Reader) {
        self.reads += std::mem::take(&mut reader.reads);
        self.bytes_read += std::mem::take(&mut reader.bytes);
        self.bytes_placed += std::mem::take(&mut reader.placed_bytes);
    }

    /// Adds what was written since the last call, and returns how many bytes.
    #[inline]
    pub fn take_writes(&mut self, writer: &mut Writer) -> u64 {
        let bytes = std::mem::take(&mut writer.bytes);
        self.writes += std::mem::take(&mut writer.writes);
        self.bytes_written += bytes;
        self.bytes_copied += std::mem::take(&mut writer.copied_bytes);
        bytes
    }

    /// Adds the device counters of remote memory.
    pub fn add_to(&self, into: &mut Vec<(&'static str, u64)>) {
        into.extend([
            ("rma_streams", self.streams),
            ("rma_streams_waited", self.waited),
            ("rma_streams_made_room", self.retired_for_space),
            ("rma_stream", self.operations),
            ("rma_stream_reads", self.reads),
            ("rma_stream_writes", self.writes),
            ("rma_stream_bytes_read", self.bytes_read),
            ("rma_stream_bytes_written", self.bytes_written),
            ("rma_stream_bytes_placed", self.bytes_placed),
            ("rma_stream_bytes_copied", self.bytes_copied),
            ("rma_messages_not_ready", self.held),
        ]);
    }
}
