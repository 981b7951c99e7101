//! What the two sides of `cci perf` and `cci ping` say to each other, beside the messages that are measured.
//!
//! A client opens a control connection and one connection for the data of each kind. The payload of each connection
//! request is a [`Hello`]; without one, a connection gets back what it sends. Control messages are JSON: they are few,
//! and not measured.

use cci::{Attribute, RegionHandle};
use serde::{Deserialize, Serialize};

/// Changes when a side would misunderstand the other.
pub const VERSION: u32 = 2;
/// The most memory that a client gets.
pub const LENT_BYTES_MAX: u64 = 64 << 20;

/// Payload of a connection request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the client.
    #[serde(rename = "cci-perf")]
    pub version: u32,
    /// What the connection is for.
    pub role: Role,
    /// Joins the connections of one client.
    pub session: u64,
}

/// What a connection is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything that comes goes back.
    Echo,
    /// [`Order`]s and [`Answer`]s.
    Control,
    /// The messages that are measured.
    Data,
}

/// From the client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Messages of so many bytes follow on the data connection of this kind.
    Start {
        /// Send each one back.
        echo: bool,
        /// "RO", "RU" or "UU".
        attribute: String,
        /// Bytes in each.
        len: u32,
    },
    /// That were all: so many were sent.
    Finish {
        /// Messages sent since the start.
        sent: u64,
    },
    /// Memory for the data connection to read, write and change, in place of what was there before; 0 bytes: none.
    Memory {
        /// Bytes.
        len: u64,
        /// Of the heap instead of the library's own.
        foreign: bool,
    },
    /// Put bytes there, as [`memory`](crate::memory) makes them.
    Fill {
        /// Which.
        seed: u64,
        /// How many, from the start.
        len: u64,
    },
    /// Compare what is there with that.
    Check {
        /// Which bytes it should be.
        seed: u64,
        /// How many, from the start.
        len: u64,
    },
    /// Poll, or sleep while nothing comes: operations on memory are no events.
    Poll(bool),
}

/// From the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// To [`Order::Start`], [`Order::Fill`] and [`Order::Poll`], and to [`Order::Check`] where all is right.
    Ready,
    /// To [`Order::Finish`].
    Report(Report),
    /// To [`Order::Memory`].
    Memory(Lent),
    /// To [`Order::Check`]: what differs first.
    Differs(String),
    /// The order makes no sense.
    Confused(String),
    /// It does, and the server will not.
    Refused(String),
}

/// Memory of the server's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lent {
    /// The bytes of its handle.
    pub handle: [u8; RegionHandle::BYTES],
    /// Process and address, given only to the process that started this server: it writes there by system calls to have something
    /// to compare with.
    pub own: Option<(u32, u64)>,
}

/// What the receiver counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Messages that came.
    pub received: u64,
    /// Those of them that were what they had to be.
    pub verified: u64,
    /// From the first to the last, by the receiver's clock.
    pub elapsed_ns: u64,
    /// What was wrong with the first that was wrong.
    pub first_wrong: Option<String>,
}

impl Hello {
    /// For a connection of this version.
    pub fn new(role: Role, session: u64) -> Hello {
        Hello { version: VERSION, role, session }
    }
}

/// Encodes a value for a message, as JSON.
pub fn encode(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and enums only: this can't fail.
    serde_json::to_vec(value).unwrap_or_default()
}

/// The attribute of a short name.
pub fn attribute(name: &str) -> Option<Attribute> {
    use Attribute::{ReliableOrdered, ReliableUnordered, Unreliable};
    [ReliableOrdered, ReliableUnordered, Unreliable]
        .into_iter()
        .find(|attribute| attribute.short_name() == name)
}

/// Any bytes as a message of either side: what is understood is written again the same. For `fuzz/`, which includes this
/// file, and the tests.
#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "it panics where something is wrong")]
pub fn fuzz(data: &[u8]) {
    fn again<'a, T: Serialize + Deserialize<'a>>(data: &'a [u8]) {
        let Ok(value) = serde_json::from_slice::<T>(data) else { return };
        let text = encode(&value);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(!value.is_null());
        assert!(text.len() <= 6 * data.len() + 200, "it may not grow beyond what escapes take");
    }
    again::<Hello>(data);
    again::<Order>(data);
    again::<Answer>(data);
    let _ = std::str::from_utf8(data).map(attribute);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_harm_nobody() {
        replay::replay("cli_protocol", fuzz);
    }

    #[test]
    fn what_is_sent_is_understood() {
        let hello: Hello = serde_json::from_slice(&encode(&Hello::new(Role::Data, u64::MAX))).unwrap();
        assert_eq!((hello.version, hello.role, hello.session), (VERSION, Role::Data, u64::MAX));
        let orders = [
            Order::Start { echo: true, attribute: "RO".into(), len: 8 },
            Order::Finish { sent: 7 },
            Order::Memory { len: u64::MAX, foreign: true },
            Order::Poll(false),
        ];
        for order in orders {
            let text = encode(&order);
            assert_eq!(encode(&serde_json::from_slice::<Order>(&text).unwrap()), text);
        }
        assert!(serde_json::from_slice::<Hello>(b"hello").is_err());
    }

    #[test]
    fn the_longest_answers_fit_the_smallest_message() {
        let report = Report {
            received: u64::MAX,
            verified: u64::MAX,
            elapsed_ns: u64::MAX,
            first_wrong: Some("\u{1f}".repeat(100)),
        };
        assert!(encode(&Answer::Report(report)).len() < 1024);
        let lent = Lent { handle: [255; RegionHandle::BYTES], own: Some((u32::MAX, u64::MAX)) };
        assert!(encode(&Answer::Memory(lent)).len() < 1024);
    }
}
