//! The pieces of work that contestants do.

use crate::reading::Unit;
use crate::shape::Shape;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Before each contact or question that is timed while both sides sleep: what comes for the first time finds them asleep.
pub const CONTACT_PAUSE: Duration = Duration::from_millis(2);
/// Slots of a channel that is made and freed.
pub const CHANNEL_SLOTS: u32 = 2;

/// One piece of work. Lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Work {
    /// A message there and one back, both sides polling, one at a time: half of the mean round trip.
    HalfTrip { len: u32 },
    /// As `HalfTrip`, but the messages are written to memory that the library has lent, and handed over there.
    LoanTrip { len: u32 },
    /// Messages one way as fast as they go, reliable; all of them have arrived when the time is taken.
    Rate { len: u32 },
    /// As `Rate`, but sent in bursts and received by a handler.
    Stream { len: u32 },
    /// As `Rate`, but received by a handler.
    Handled { len: u32 },
    /// Messages of any length one way as fast as they go, reliable; all of them have arrived when the time is taken.
    Long { len: u32 },
    /// A request and its reply, one at a time: half of the mean.
    Call { len: u32 },
    /// Requests of so many clients, each with one under way; all are answered when the time is taken.
    Calls { len: u32, clients: u32 },
    /// Remote writes as fast as they go, all done at the target when the time is taken.
    Write { len: u32 },
    /// As `Write`, to so many places of the target's in turn, from one place.
    WriteInTurn { len: u32, places: u32 },
    /// Remote reads as fast as they go.
    Read { len: u32 },
    /// Remote writes, one at a time: each is done at the target before the next one starts.
    PutFence { len: u32 },
    /// As `PutFence`, to memory of the program's own.
    PutFenceHeap { len: u32 },
    /// Remote reads, one at a time: each has its data before the next one starts.
    GetFence { len: u32 },
    /// A channel with two slots of so many bytes is made, carries a message, and is freed.
    ChannelLife { len: u32 },
    /// Values that so many ranks find in a map by keys, at once.
    MapFind { ranks: u32 },
    /// Values under new keys that so many ranks insert in a map, at once.
    MapInsert { ranks: u32 },
    /// As `Write`, of blocks of a length that have gaps of three times that between them on both sides.
    WriteStrided { blocks: u32, len: u32 },
    /// Described data copied into a row, by one process.
    Pack { shape: Shape },
    /// A row copied to where described data are.
    Unpack { shape: Shape },
    /// Additions to a remote word, one at a time: each has the value that was there before the next one starts.
    FetchAdd,
    /// Additions to one word of the first rank's by so many ranks at once, each one at a time as in `FetchAdd`; those of all are counted.
    FetchAddAll { ranks: u32 },
    /// Barriers of so many ranks on the two cores.
    Barrier { ranks: u32 },
    /// From the start of a launcher of so many ranks until the first of them has passed a barrier, once: nanoseconds.
    Start { ranks: u32 },
    /// Sums of as many numbers of 8 bytes as fill the length, which all ranks get.
    Allreduce { len: u32, ranks: u32 },
    /// As `HalfTrip`, but both sides sleep until there is something.
    BlockingTrip { len: u32 },
    /// Connections set up one after the other to one server, request to accepted.
    Connect,
    /// From the name of a service that is not known yet to a connection with it, one after the other: the median. Without services, a connection is
    /// set up; in plain code, a question is sent to a multicast group, and answered.
    Contact,
    /// One poll that finds nothing, at an endpoint with so many idle connections.
    Poll { connections: u32 },
    /// Resident memory a connection, of both sides' processes, measured from outside, divided by two.
    IdleMemory { connections: u32 },
    /// Round trips at a part of the highest rate, messages leave by the clock whether or not answers have come (open
    /// loop); latency counts from when a message was due.
    Loaded { len: u32, percent: u32 },
}

impl Work {
    /// What its value is measured in.
    pub const fn unit(self) -> Unit {
        match self {
            Work::HalfTrip { .. }
            | Work::LoanTrip { .. }
            | Work::BlockingTrip { .. }
            | Work::Call { .. }
            | Work::PutFence { .. }
            | Work::PutFenceHeap { .. }
            | Work::GetFence { .. }
            | Work::ChannelLife { .. }
            | Work::Barrier { .. }
            | Work::Start { .. }
            | Work::Allreduce { .. }
            | Work::Contact
            | Work::Poll { .. }
            | Work::Loaded { .. } => Unit::Nanoseconds,
            Work::Rate { .. }
            | Work::Stream { .. }
            | Work::Handled { .. }
            | Work::Calls { .. }
            | Work::FetchAdd
            | Work::FetchAddAll { .. }
            | Work::MapFind { .. }
            | Work::MapInsert { .. }
            | Work::Connect => Unit::PerSecond,
            Work::Long { .. }
            | Work::Write { .. }
            | Work::WriteInTurn { .. }
            | Work::WriteStrided { .. }
            | Work::Read { .. }
            | Work::Pack { .. }
            | Work::Unpack { .. } => Unit::BytesPerSecond,
            Work::IdleMemory { .. } => Unit::Bytes,
        }
    }

    /// How long its messages are. None: it has none.
    pub const fn message_bytes(self) -> Option<u32> {
        match self {
            Work::HalfTrip { len }
            | Work::LoanTrip { len }
            | Work::Rate { len }
            | Work::Stream { len }
            | Work::Handled { len }
            | Work::Long { len }
            | Work::Call { len }
            | Work::Calls { len, .. }
            | Work::BlockingTrip { len }
            | Work::Loaded { len, .. } => Some(len),
            Work::Write { .. }
            | Work::WriteInTurn { .. }
            | Work::Read { .. }
            | Work::PutFence { .. }
            | Work::PutFenceHeap { .. }
            | Work::GetFence { .. }
            | Work::ChannelLife { .. }
            | Work::MapFind { .. }
            | Work::MapInsert { .. }
            | Work::WriteStrided { .. }
            | Work::Pack { .. }
            | Work::Unpack { .. }
            | Work::FetchAdd
            | Work::FetchAddAll { .. }
            | Work::Barrier { .. }
            | Work::Start { .. }
            | Work::Allreduce { .. }
            | Work::Connect
            | Work::Contact
            | Work::Poll { .. }
            | Work::IdleMemory { .. } => None,
        }
    }

    /// How many processes do it, where they are ranks of a job.
    pub const fn ranks(self) -> u32 {
        match self {
            Work::Barrier { ranks }
            | Work::Start { ranks }
            | Work::Allreduce { ranks, .. }
            | Work::FetchAddAll { ranks }
            | Work::MapFind { ranks }
            | Work::MapInsert { ranks } => ranks,
            _ => 2,
        }
    }

    /// How many times at first, when it is not known yet how long one takes: small, for the slowest contestant.
    pub const fn first_count(self) -> u64 {
        match self {
            Work::HalfTrip { .. }
            | Work::LoanTrip { .. }
            | Work::Call { .. }
            | Work::PutFence { .. }
            | Work::PutFenceHeap { .. }
            | Work::GetFence { .. }
            | Work::FetchAdd
            | Work::FetchAddAll { .. } => 2_000,
            Work::MapFind { .. } | Work::MapInsert { .. } => 500,
            // Ranks that share cores and do not sleep may take milliseconds.
            Work::Barrier { .. } | Work::Allreduce { .. } => 100,
            Work::Rate { .. } | Work::Stream { .. } | Work::Handled { .. } => 20_000,
            Work::Calls { .. } => 5_000,
            Work::Write { .. }
            | Work::WriteInTurn { .. }
            | Work::WriteStrided { .. }
            | Work::Pack { .. }
            | Work::Unpack { .. }
            | Work::Read { .. }
            | Work::Long { .. }
            | Work::BlockingTrip { .. }
            | Work::ChannelLife { .. }
            | Work::Connect => 200,
            // These say themselves how much there is to do.
            Work::IdleMemory { .. } => 1,
            // Names are claimed before, which takes a sixth of a second each where it is done by multicast.
            Work::Contact => 16,
            // A job starts once.
            Work::Start { .. } => 1,
            // Setting up its connections takes longer than any polls.
            Work::Poll { .. } => 200_000,
            Work::Loaded { .. } => 10_000,
        }
    }

    /// About how many nanoseconds one of it takes, by what was measured. None: its amount is fixed.
    pub fn one_ns(self, value: f64) -> Option<f64> {
        match self {
            Work::HalfTrip { .. } | Work::LoanTrip { .. } | Work::BlockingTrip { .. } | Work::Call { .. } => {
                Some(2.0 * value)
            }
            Work::Rate { .. }
            | Work::Stream { .. }
            | Work::Handled { .. }
            | Work::Calls { .. }
            | Work::FetchAdd
            | Work::Connect => Some(1e9 / value),
            // Each rank does so many.
            Work::MapFind { ranks } | Work::MapInsert { ranks } | Work::FetchAddAll { ranks } => {
                Some(1e9 * f64::from(ranks) / value)
            }
            Work::PutFence { .. }
            | Work::PutFenceHeap { .. }
            | Work::GetFence { .. }
            | Work::ChannelLife { .. }
            | Work::Barrier { .. }
            | Work::Allreduce { .. } => Some(value),
            Work::Long { len } | Work::Write { len } | Work::WriteInTurn { len, .. } | Work::Read { len } => {
                Some(1e9 * f64::from(len) / value)
            }
            Work::WriteStrided { blocks, len } => Some(1e9 * f64::from(blocks * len) / value),
            Work::Pack { shape } | Work::Unpack { shape } => {
                Some(1e9 * f64::from(shape.packed_bytes()) / value)
            }
            Work::Start { .. }
            | Work::Contact
            | Work::Poll { .. }
            | Work::IdleMemory { .. }
            | Work::Loaded { .. } => None,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Work::HalfTrip { len } => write!(out, "half-trip:{len}"),
            Work::LoanTrip { len } => write!(out, "loan-trip:{len}"),
            Work::Rate { len } => write!(out, "rate:{len}"),
            Work::Stream { len } => write!(out, "stream:{len}"),
            Work::Handled { len } => write!(out, "handled:{len}"),
            Work::Long { len } => write!(out, "long:{len}"),
            Work::Call { len } => write!(out, "call:{len}"),
            Work::Calls { len, clients } => write!(out, "calls:{len}:{clients}"),
            Work::Write { len } => write!(out, "write:{len}"),
            Work::WriteInTurn { len, places } => write!(out, "write-in-turn:{len}:{places}"),
            Work::Read { len } => write!(out, "read:{len}"),
            Work::PutFence { len } => write!(out, "put-fence:{len}"),
            Work::PutFenceHeap { len } => write!(out, "put-fence-heap:{len}"),
            Work::GetFence { len } => write!(out, "get-fence:{len}"),
            Work::ChannelLife { len } => write!(out, "channel-life:{len}"),
            Work::MapFind { ranks } => write!(out, "map-find:{ranks}"),
            Work::MapInsert { ranks } => write!(out, "map-insert:{ranks}"),
            Work::WriteStrided { blocks, len } => write!(out, "write-strided:{blocks}:{len}"),
            Work::Pack { shape } => write!(out, "pack:{}", shape.word()),
            Work::Unpack { shape } => write!(out, "unpack:{}", shape.word()),
            Work::FetchAdd => write!(out, "fetch-add"),
            Work::FetchAddAll { ranks } => write!(out, "fetch-add-all:{ranks}"),
            Work::Barrier { ranks } => write!(out, "barrier:{ranks}"),
            Work::Start { ranks } => write!(out, "start:{ranks}"),
            Work::Allreduce { len, ranks } => write!(out, "allreduce:{len}:{ranks}"),
            Work::BlockingTrip { len } => write!(out, "blocking-trip:{len}"),
            Work::Connect => write!(out, "connect"),
            Work::Contact => write!(out, "contact"),
            Work::Poll { connections } => write!(out, "poll:{connections}"),
            Work::IdleMemory { connections } => write!(out, "idle-memory:{connections}"),
            Work::Loaded { len, percent } => write!(out, "loaded:{len}:{percent}"),
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Work, String> {
        let mut words = text.split(':');
        let name = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        if let ("pack" | "unpack", [shape]) = (name, &rest[..]) {
            let shape = Shape::of_word(shape).ok_or_else(|| format!("{text}: no such shape"))?;
            return Ok(if name == "pack" { Work::Pack { shape } } else { Work::Unpack { shape } });
        }
        let numbers: Result<Vec<u32>, _> = rest.into_iter().map(str::parse).collect();
        Ok(match (name, numbers.as_deref()) {
            ("half-trip", Ok(&[len])) => Work::HalfTrip { len },
            ("loan-trip", Ok(&[len])) => Work::LoanTrip { len },
            ("rate", Ok(&[len])) => Work::Rate { len },
            ("stream", Ok(&[len])) => Work::Stream { len },
            ("handled", Ok(&[len])) => Work::Handled { len },
            ("long", Ok(&[len])) => Work::Long { len },
            ("call", Ok(&[len])) => Work::Call { len },
            ("calls", Ok(&[len, clients])) => Work::Calls { len, clients },
            ("write", Ok(&[len])) => Work::Write { len },
            ("write-in-turn", Ok(&[len, places])) => Work::WriteInTurn { len, places },
            ("read", Ok(&[len])) => Work::Read { len },
            ("put-fence", Ok(&[len])) => Work::PutFence { len },
            ("put-fence-heap", Ok(&[len])) => Work::PutFenceHeap { len },
            ("get-fence", Ok(&[len])) => Work::GetFence { len },
            ("channel-life", Ok(&[len])) => Work::ChannelLife { len },
            ("map-find", Ok(&[ranks])) => Work::MapFind { ranks },
            ("map-insert", Ok(&[ranks])) => Work::MapInsert { ranks },
            ("write-strided", Ok(&[blocks, len])) => Work::WriteStrided { blocks, len },
            ("fetch-add", Ok(&[])) => Work::FetchAdd,
            ("fetch-add-all", Ok(&[ranks])) => Work::FetchAddAll { ranks },
            ("barrier", Ok(&[ranks])) => Work::Barrier { ranks },
            ("start", Ok(&[ranks])) => Work::Start { ranks },
            ("allreduce", Ok(&[len, ranks])) => Work::Allreduce { len, ranks },
            ("blocking-trip", Ok(&[len])) => Work::BlockingTrip { len },
            ("connect", Ok(&[])) => Work::Connect,
            ("contact", Ok(&[])) => Work::Contact,
            ("poll", Ok(&[connections])) => Work::Poll { connections },
            ("idle-memory", Ok(&[connections])) => Work::IdleMemory { connections },
            ("loaded", Ok(&[len, percent])) => Work::Loaded { len, percent },
            _ => return Err(format!("{text}: no such work, or not with such numbers")),
        })
    }
}

impl From<Work> for String {
    fn from(work: Work) -> String {
        work.to_string()
    }
}

impl TryFrom<String> for Work {
    type Error = String;

    fn try_from(text: String) -> Result<Work, String> {
        text.parse()
    }
}

/// Where the two sides are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// This machine as it is: shared memory, loopback.
    SameHost,
    /// The two ends of a pair of virtual Ethernet interfaces, each in a namespace of its own, made for the turn.
    VirtualPair,
}

impl Placement {
    /// Its word on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for work in [
            Work::HalfTrip { len: 8 },
            Work::LoanTrip { len: 8192 },
            Work::Rate { len: 1024 },
            Work::Stream { len: 8 },
            Work::Handled { len: 8 },
            Work::Long { len: 1 << 20 },
            Work::Call { len: 8 },
            Work::Calls { len: 8, clients: 64 },
            Work::Write { len: 1 << 20 },
            Work::WriteInTurn { len: 65_520, places: 8 },
            Work::Read { len: 8 },
            Work::PutFence { len: 8 },
            Work::PutFenceHeap { len: 8 },
            Work::GetFence { len: 8 },
            Work::ChannelLife { len: 4096 },
            Work::MapFind { ranks: 8 },
            Work::MapInsert { ranks: 2 },
            Work::WriteStrided { blocks: 1024, len: 64 },
            Work::Pack { shape: Shape::Vector },
            Work::Unpack { shape: Shape::Struct },
            Work::FetchAdd,
            Work::FetchAddAll { ranks: 2 },
            Work::Barrier { ranks: 2 },
            Work::Start { ranks: 64 },
            Work::Allreduce { len: 1 << 20, ranks: 8 },
            Work::BlockingTrip { len: 8 },
            Work::Connect,
            Work::Contact,
            Work::Poll { connections: 100_000 },
            Work::IdleMemory { connections: 1_000_000 },
            Work::Loaded { len: 64, percent: 80 },
        ] {
            assert_eq!(work.to_string().parse(), Ok(work));
        }
        assert!("loaded:8".parse::<Work>().is_err() && "nothing".parse::<Work>().is_err());
    }
}
