//! What is measured, for how long.

use crate::args::{PerfArgs, Size};
use crate::failure::{Failure, Outcome};
use cci::Attribute;

const QUICK_SECONDS: f64 = 0.02;
/// Messages under way at once, unless told otherwise.
const WINDOW: u32 = 1024;
/// And bytes in them.
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_MIN: u32 = 16;

/// See the module.
pub struct Plan {
    /// Kinds of connection.
    pub attributes: Vec<Attribute>,
    sizes: Vec<Size>,
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
        Plan {
            attributes,
            sizes: args.sizes.clone(),
            budget: match args.iterations {
                Some(count) => Budget::Messages(count),
                None => Budget::Nanoseconds((seconds * 1e9) as u64),
            },
            window: args.window,
        }
    }

    /// The sizes for a connection that takes `len_max` bytes: ascending, each once, those that are too long left out.
    pub fn sizes(&self, len_max: u32) -> Outcome<Vec<u32>> {
        let mut sizes: Vec<u32> = self.sizes_up_to(len_max).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.is_empty() {
            return Err(Failure::usage(format!("--sizes: this connection takes {len_max} bytes at most"))
                .remedy("--sizes max"));
        }
        Ok(sizes)
    }

    fn sizes_up_to(&self, len_max: u32) -> impl Iterator<Item = u32> + '_ {
        let as_bytes = move |size: &Size| match *size {
            Size::Bytes(count) => count,
            Size::Max => len_max,
        };
        self.sizes.iter().map(as_bytes).filter(move |&len| len <= len_max)
    }

    /// Measurements of a device: a latency and a rate for each kind and size.
    pub fn steps(&self, len_max: u32) -> u64 {
        let sizes = self.sizes(len_max).map_or(0, |sizes| sizes.len());
        (self.attributes.len() * sizes * 2) as u64
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
