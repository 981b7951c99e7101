//! The types and numbers of `cci_messenger.h`, under their C names. `tests/layout.rs` compares both, item by item.

#![allow(non_camel_case_types)]

use libc::{c_int, c_void};

/// A messenger, to C.
#[repr(C)]
pub struct cci_messenger_t {
    _private: [u8; 0],
}

/// Kinds of events of a messenger.
pub type cci_messenger_event_type_t = c_int;
/// A send has ended.
pub const CCI_MESSENGER_SENT: cci_messenger_event_type_t = 1;
/// A message came, whole.
pub const CCI_MESSENGER_MESSAGE: cci_messenger_event_type_t = 2;
/// A peer offers a long message.
pub const CCI_MESSENGER_OFFER: cci_messenger_event_type_t = 3;
/// An offered message has ended.
pub const CCI_MESSENGER_RECEIVED: cci_messenger_event_type_t = 4;
/// A client asks.
pub const CCI_MESSENGER_REQUEST: cci_messenger_event_type_t = 5;
/// A client does not wait any more.
pub const CCI_MESSENGER_REQUEST_CANCELLED: cci_messenger_event_type_t = 6;
/// A call has ended.
pub const CCI_MESSENGER_REPLY: cci_messenger_event_type_t = 7;
/// An attempt to connect has ended.
pub const CCI_MESSENGER_CONNECT: cci_messenger_event_type_t = 8;
/// Somebody wants to connect.
pub const CCI_MESSENGER_CONNECT_REQUEST: cci_messenger_event_type_t = 9;
/// An accepted connection is open, or failed.
pub const CCI_MESSENGER_ACCEPT: cci_messenger_event_type_t = 10;
/// A peer is silent.
pub const CCI_MESSENGER_KEEPALIVE_TIMEDOUT: cci_messenger_event_type_t = 11;
/// A connection has ended.
pub const CCI_MESSENGER_DISCONNECTED: cci_messenger_event_type_t = 12;
/// The device failed.
pub const CCI_MESSENGER_DEVICE_FAILED: cci_messenger_event_type_t = 13;

/// An event of a messenger.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cci_messenger_event_t {
    /// What happened.
    pub r#type: cci_messenger_event_type_t,
    /// How an operation ended.
    pub status: c_int,
    /// On which connection.
    pub connection: u64,
    /// As given to the operation, or to the one that made the connection.
    pub context: *mut c_void,
    /// The bytes of a message, a request or a reply.
    pub ptr: *const c_void,
    /// Their length in bytes.
    pub len: u64,
    /// The number of an offer or a request.
    pub id: u64,
    /// A code of the peer's program; a reason; an attribute.
    pub code: u32,
    /// Not 0: the server has not seen the request.
    pub not_sent: u32,
}

/// What a messenger takes; fields beyond `size`, and zeros, take the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_messenger_limits_t {
    /// `sizeof(cci_messenger_limits_t)` of the program.
    pub size: u32,
    /// 0.
    pub reserved: u32,
    /// The longest message that comes whole, bytes.
    pub whole_bytes_max: u64,
    /// The longest message that is taken at all, bytes.
    pub message_bytes_max: u64,
    /// Cap on memory that is lent, bytes.
    pub lent_bytes_max: u64,
    /// Cap on copies of messages that are being sent, bytes.
    pub staged_bytes_max: u64,
}

/// How much of a long message has been moved.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cci_messenger_progress_t {
    /// Bytes at the receiver.
    pub moved_bytes: u64,
    /// Length of the message in bytes.
    pub total_bytes: u64,
}
