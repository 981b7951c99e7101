//! What is said of remote memory over TCP.

use super::super::Tcp;
use super::Bulks;
use crate::explain::{Explanation, PathOption};
use cci_memory::slab::Key;

impl Tcp {
    /// Device counters.
    pub(in crate::transport::tcp) fn count_bulk(&self, into: &mut Vec<(&'static str, u64)>) {
        let counts = &self.bulks.counts;
        into.extend([
            ("rma_streams", counts.streams),
            ("rma_streams_waited", counts.waited),
            ("rma_streams_made_room", counts.crowded),
            ("rma_stream", counts.operations),
            ("rma_stream_reads", counts.reads),
            ("rma_stream_writes", counts.writes),
            ("rma_stream_bytes_read", counts.bytes_read),
            ("rma_stream_bytes_written", counts.bytes_written),
            ("rma_stream_bytes_placed", counts.bytes_placed),
            ("rma_stream_bytes_copied", counts.bytes_copied),
            ("rma_messages_not_ready", counts.held),
        ]);
    }

    /// Bytes held.
    pub(in crate::transport::tcp) fn count_bulk_memory(&self, into: &mut Vec<(&'static str, u64)>) {
        let Bulks { flows, scratch, active, waiting, places, .. } = &self.bulks;
        let of_conns = self.conns.iter().filter_map(|(_, conn)| conn.bulk.as_ref()).map(|bulk| bulk.bytes());
        let bytes = flows.bytes()
            + scratch.capacity() as u64
            + ((active.capacity() + waiting.capacity()) * size_of::<Key>()) as u64
            + places.bytes()
            + of_conns.sum::<u64>();
        into.push(("remote memory", bytes));
    }

    /// The path of remote memory.
    pub(in crate::transport::tcp) fn explain_bulk(&self, key: Key, into: &mut Explanation) {
        let Some(conn) = self.conns.get(key) else { return };
        let reason = match conn.bulk.as_ref() {
            _ if !conn.is_reliable => "an unreliable connection has none",
            None => "made when the first operation needs it",
            Some(bulk) if bulk.ended_until_ns > 0 => "it has ended, and the connection with it",
            Some(bulk) if bulk.stream.is_none() => "being made",
            Some(bulk) if bulk.is_waiting => {
                "waits for its turn: more connections move data than there is memory for"
            }
            Some(bulk) if !bulk.writer.is_empty() => {
                "straight from memory and into place; the peer or the network is slow to take what waits"
            }
            Some(_) => "straight from memory and into place, past the messages",
        };
        let chosen = conn.bulk.as_ref().is_some_and(|bulk| bulk.stream.is_some());
        into.paths.push(PathOption {
            path: "remote memory: second stream".to_owned(),
            chosen,
            reason: reason.to_owned(),
        });
    }
}
