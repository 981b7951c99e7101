//! What is measured, for how long.

use crate::args::{PerfArgs, Size, What};
use crate::failure::{Failure, Outcome};
use crate::protocol::LENT_BYTES_MAX;
use cci::{Attribute, Device};

const QUICK_SECONDS: f64 = 0.02;
/// Messages under way at once, unless told otherwise.
const WINDOW: u32 = 1024;
/// And bytes in them.
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_MIN: u32 = 16;
/// Remote memory for batches of small transfers.
const RMA_BYTES_MIN: u64 = 16 << 20;

/// See the module.
pub struct Plan {
    /// Kinds of connection.
    pub attributes: Vec<Attribute>,
    sizes: Vec<Size>,
    /// Measure messages.
    pub with_messages: bool,
    /// Measure reads and writes of remote memory.
    pub with_rma: bool,
    /// Measure atomics.
    pub with_atomics: bool,
    /// When a measurement ends.
    pub budget: Budget,
    window: Option<u32>,
}

/// When a measurement ends.
#[derive(Copy, Clone, Debug)]
pub enum Budget {
    /// After a time.
    Nanoseconds(u64),
    /// After so many messages.
    Messages(u64),
}

impl Plan {
    /// From the command line.
    pub fn new(args: &PerfArgs) -> Plan {
        let seconds = if args.quick { QUICK_SECONDS } else { args.seconds };
        let mut attributes: Vec<Attribute> = Vec::new();
        for kind in &args.r#type {
            if !attributes.contains(&kind.attribute()) {
                attributes.push(kind.attribute());
            }
        }
        let wants = |what: What| args.only.is_empty() || args.only.contains(&what);
        // Remote memory needs a reliable connection.
        let reliable = attributes.iter().any(|attribute| attribute.is_reliable());
        Plan {
            attributes,
            sizes: args.sizes.clone(),
            with_messages: wants(What::Messages),
            with_rma: reliable && wants(What::Rma),
            with_atomics: reliable && wants(What::Atomics),
            budget: match args.iterations {
                Some(count) => Budget::Messages(count),
                None => Budget::Nanoseconds((seconds * 1e9) as u64),
            },
            window: args.window,
        }
    }

    /// The sizes for a connection that takes `len_max` bytes: ascending, each once, those that are too long left out.
    pub fn sizes(&self, len_max: u32) -> Outcome<Vec<u32>> {
        let chosen = if self.sizes.is_empty() { &Size::USUAL[..] } else { &self.sizes };
        let as_bytes = |size: &Size| match *size {
            Size::Bytes(count) => count,
            Size::Max => len_max,
        };
        let sizes = ascending(chosen.iter().map(as_bytes).filter(|&len| len <= len_max));
        // Those that remote memory takes and no message are not a mistake.
        if sizes.is_empty() && !self.with_rma {
            return Err(Failure::usage(format!("--sizes: this connection takes {len_max} bytes at most"))
                .remedy("--sizes max"));
        }
        Ok(sizes)
    }

    /// The sizes of transfers of remote memory, ascending, each once.
    pub fn rma_sizes(&self) -> Vec<u64> {
        let chosen = if self.sizes.is_empty() { &Size::USUAL_RMA[..] } else { &self.sizes };
        let as_bytes = |size: &Size| match *size {
            Size::Bytes(count) => u64::from(count),
            Size::Max => LENT_BYTES_MAX,
        };
        ascending(chosen.iter().map(as_bytes).filter(|len| (1..=LENT_BYTES_MAX).contains(len)))
    }

    /// Bytes of remote memory that these take: batches of small ones lie side by side.
    pub fn rma_bytes(&self) -> u64 {
        self.rma_sizes().last().copied().unwrap_or(1).max(RMA_BYTES_MIN)
    }

    /// The kind of connection that remote memory is measured on: the first that can.
    pub fn rma_attribute(&self) -> Option<Attribute> {
        let wanted = self.with_rma || self.with_atomics;
        self.attributes.iter().copied().find(|attribute| wanted && attribute.is_reliable())
    }

    /// Measurements of messages on a device: a latency and a rate for each kind and size.
    pub fn message_steps(&self, device: &Device) -> u64 {
        let len_max = device.max_send_size();
        let sizes = self.sizes(len_max).map_or(0, |sizes| sizes.len());
        let messages = if self.with_messages { self.attributes.len() * sizes * 2 } else { 0 };
        messages as u64
    }

    /// Messages of `len` bytes under way at once in a rate measurement.
    pub fn window(&self, len: u32) -> u32 {
        let by_bytes = (WINDOW_BYTES / len.max(1)).max(WINDOW_MIN);
        self.window.unwrap_or_else(|| WINDOW.min(by_bytes))
    }

    /// In words.
    pub fn describe(&self) -> String {
        match self.budget {
            Budget::Nanoseconds(ns) => format!("{} s for each measurement", ns as f64 / 1e9),
            Budget::Messages(count) => format!("{count} messages for each measurement"),
        }
    }
}

fn ascending<T: Ord>(sizes: impl Iterator<Item = T>) -> Vec<T> {
    let mut sizes: Vec<T> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}
