//! The types and numbers of `cci.h`, under their C names. `tests/layout.rs` compares both, item by item.
//!
//! Enumerations are integers here: a C program may pass any number, and a Rust enum may not hold any.
#![allow(non_camel_case_types)]

use libc::{c_char, c_int, c_uint, c_void};

/// Version of the interface that `cci_init` accepts.
pub const CCI_ABI_VERSION: u32 = 2;
/// Longest payload of a connection request, bytes.
pub const CCI_CONN_REQ_LEN: u32 = 1024;

/// How a call or an operation ended: 0, a number of CCI's own, or an errno.
pub type cci_status_t = c_int;
/// All well.
pub const CCI_SUCCESS: cci_status_t = 0;
/// Something failed for which there is no better number; `cci_last_error` says what.
pub const CCI_ERROR: cci_status_t = 1;
/// The connection is closed.
pub const CCI_ERR_DISCONNECTED: cci_status_t = 2;
/// The receiver had no buffer until the send timed out.
pub const CCI_ERR_RNR: cci_status_t = 3;
/// The device failed.
pub const CCI_ERR_DEVICE_DEAD: cci_status_t = 4;
/// The peer refused the handle, range or permission.
pub const CCI_ERR_RMA_HANDLE: cci_status_t = 5;
/// The RMA failed otherwise.
pub const CCI_ERR_RMA_OP: cci_status_t = 6;
/// Not offered by this library or this device.
pub const CCI_ERR_NOT_IMPLEMENTED: cci_status_t = 7;
/// No device found.
pub const CCI_ERR_NOT_FOUND: cci_status_t = 8;
/// Wrong argument.
pub const CCI_EINVAL: cci_status_t = libc::EINVAL;
/// No answer in time.
pub const CCI_ETIMEDOUT: cci_status_t = libc::ETIMEDOUT;
/// Out of memory, or at the endpoint's cap.
pub const CCI_ENOMEM: cci_status_t = libc::ENOMEM;
/// No such device, or it is down.
pub const CCI_ENODEV: cci_status_t = libc::ENODEV;
/// The network is down.
pub const CCI_ENETDOWN: cci_status_t = libc::ENETDOWN;
/// In use.
pub const CCI_EBUSY: cci_status_t = libc::EBUSY;
/// The value is out of its range.
pub const CCI_ERANGE: cci_status_t = libc::ERANGE;
/// Nothing there; try again.
pub const CCI_EAGAIN: cci_status_t = libc::EAGAIN;
/// No buffer free.
pub const CCI_ENOBUFS: cci_status_t = libc::ENOBUFS;
/// Longer than the connection's maximum.
pub const CCI_EMSGSIZE: cci_status_t = libc::EMSGSIZE;
/// No message.
pub const CCI_ENOMSG: cci_status_t = libc::ENOMSG;
/// The service or address can't be had.
pub const CCI_EADDRNOTAVAIL: cci_status_t = libc::EADDRNOTAVAIL;
/// Rejected, or nobody listens there.
pub const CCI_ECONNREFUSED: cci_status_t = libc::ECONNREFUSED;
/// Extension of `cci_status_t`: taken back, by this side or by the peer.
pub const CCI_EXT_CANCELLED: cci_status_t = libc::ECANCELED;
/// Extension of `cci_status_t`: the receiver's program refused a message.
pub const CCI_EXT_REFUSED: cci_status_t = 1000;
/// Extension of `cci_status_t`: the server's program answered with an error of its own.
pub const CCI_EXT_REPLY_ERROR: cci_status_t = 1001;
/// Extension of `cci_status_t`: the server's program returned a request without answering it.
pub const CCI_EXT_DROPPED: cci_status_t = 1002;
/// Extension of `cci_status_t`: the server has answered, and the answer could not be delivered.
pub const CCI_EXT_REPLY_LOST: cci_status_t = 1003;

/// What a connection promises.
pub type cci_conn_attribute_t = c_int;
/// Reliable, in order.
pub const CCI_CONN_ATTR_RO: cci_conn_attribute_t = 0;
/// Reliable, in any order.
pub const CCI_CONN_ATTR_RU: cci_conn_attribute_t = 1;
/// Unreliable, in any order.
pub const CCI_CONN_ATTR_UU: cci_conn_attribute_t = 2;
/// Multicast, sending side.
pub const CCI_CONN_ATTR_UU_MC_TX: cci_conn_attribute_t = 3;
/// Multicast, receiving side.
pub const CCI_CONN_ATTR_UU_MC_RX: cci_conn_attribute_t = 4;

/// What an event reports.
pub type cci_event_type_t = c_int;
/// Never given out.
pub const CCI_EVENT_NONE: cci_event_type_t = 0;
/// A send ended.
pub const CCI_EVENT_SEND: cci_event_type_t = 1;
/// A message came.
pub const CCI_EVENT_RECV: cci_event_type_t = 2;
/// An attempt to connect ended.
pub const CCI_EVENT_CONNECT: cci_event_type_t = 3;
/// Somebody wants to connect.
pub const CCI_EVENT_CONNECT_REQUEST: cci_event_type_t = 4;
/// An accepted connection is open, or failed.
pub const CCI_EVENT_ACCEPT: cci_event_type_t = 5;
/// A peer is silent.
pub const CCI_EVENT_KEEPALIVE_TIMEDOUT: cci_event_type_t = 6;
/// The device failed.
pub const CCI_EVENT_ENDPOINT_DEVICE_FAILED: cci_event_type_t = 7;

/// What `cci_poll` calls: with an event, which is lent to it for the length of the call, and what the program gave along.
pub type cci_ext_handler_t = Option<unsafe extern "C" fn(event: *const cci_event_t, arg: *mut c_void)>;

/// Extension: a connection has ended.
pub const CCI_EVENT_EXT_DISCONNECTED: cci_event_type_t = 1000;

/// Why a connection ended.
pub type cci_ext_disconnect_reason_t = u32;
/// The peer has disconnected.
pub const CCI_EXT_DISCONNECT_CLOSED: cci_ext_disconnect_reason_t = 0;
/// The peer is gone without a word.
pub const CCI_EXT_DISCONNECT_DIED: cci_ext_disconnect_reason_t = 1;
/// The peer was silent for too long.
pub const CCI_EXT_DISCONNECT_TIMEDOUT: cci_ext_disconnect_reason_t = 2;
/// This endpoint has ended it.
pub const CCI_EXT_DISCONNECT_REFUSED: cci_ext_disconnect_reason_t = 3;

/// Return the completion status, raise no event.
pub const CCI_FLAG_BLOCKING: c_int = 1 << 0;
/// The buffer stays the library's until completion.
pub const CCI_FLAG_NO_COPY: c_int = 1 << 1;
/// No completion event.
pub const CCI_FLAG_SILENT: c_int = 1 << 3;
/// RMA: read from the peer.
pub const CCI_FLAG_READ: c_int = 1 << 4;
/// RMA: write to the peer.
pub const CCI_FLAG_WRITE: c_int = 1 << 5;
/// RMA: after everything earlier.
pub const CCI_FLAG_FENCE: c_int = 1 << 6;

/// Extension: a right of registered memory: peers may use atomic operations.
pub const CCI_FLAG_ATOMIC: c_int = 1 << 16;

/// Extension: what an atomic operation does.
pub type cci_atomic_op_t = c_int;
/// Adds; gives the value before.
pub const CCI_ATOMIC_FETCH_ADD: cci_atomic_op_t = 0;
/// Replaces; gives the value before.
pub const CCI_ATOMIC_SWAP: cci_atomic_op_t = 1;
/// Replaces if equal; gives the value before.
pub const CCI_ATOMIC_COMPARE_SWAP: cci_atomic_op_t = 2;
/// Adds.
pub const CCI_ATOMIC_ADD: cci_atomic_op_t = 3;
/// Bitwise and.
pub const CCI_ATOMIC_AND: cci_atomic_op_t = 4;
/// Bitwise or.
pub const CCI_ATOMIC_OR: cci_atomic_op_t = 5;
/// Bitwise exclusive or.
pub const CCI_ATOMIC_XOR: cci_atomic_op_t = 6;

/// Names of options.
pub type cci_opt_name_t = c_int;
/// Send timeout of connections made from now on, us.
pub const CCI_OPT_ENDPT_SEND_TIMEOUT: cci_opt_name_t = 0;
/// Receive buffers of the endpoint.
pub const CCI_OPT_ENDPT_RECV_BUF_COUNT: cci_opt_name_t = 1;
/// Sends in progress at once.
pub const CCI_OPT_ENDPT_SEND_BUF_COUNT: cci_opt_name_t = 2;
/// Keepalive of connections made from now on, us.
pub const CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT: cci_opt_name_t = 3;
/// What others connect to.
pub const CCI_OPT_ENDPT_URI: cci_opt_name_t = 4;
/// Alignment that RMA asks for.
pub const CCI_OPT_ENDPT_RMA_ALIGN: cci_opt_name_t = 5;
/// Send timeout of one connection, us.
pub const CCI_OPT_CONN_SEND_TIMEOUT: cci_opt_name_t = 6;
/// Keepalive of one connection, us.
pub const CCI_OPT_CONN_KEEPALIVE_TIMEOUT: cci_opt_name_t = 7;
/// Extension: the endpoint's memory cap, bytes.
pub const CCI_OPT_EXT_ENDPT_MEMORY_CAP: cci_opt_name_t = 1000;
/// Extension: memory the endpoint holds, bytes.
pub const CCI_OPT_EXT_ENDPT_MEMORY_USED: cci_opt_name_t = 1001;
/// Extension: whether the program gets an event for a connection that has ended.
pub const CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS: cci_opt_name_t = 1002;
/// Of a connection: whether lent messages are read in place.
pub const CCI_OPT_EXT_CONN_LOANS: cci_opt_name_t = 1003;

/// Extension: `cci_init` without locks.
pub const CCI_INIT_SINGLE_THREADED: u32 = 1 << 0;
/// Extension: any thread may call with any handle.
pub const CCI_CAP_THREAD_SAFE: u32 = 1 << 0;

/// A file descriptor.
pub type cci_os_handle_t = c_int;
/// An endpoint or a connection, as the option asks.
pub type cci_opt_handle_t = c_void;

/// Place on the PCI bus; all ones where there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_device_pci {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub dev: u32,
    /// Function.
    pub func: u32,
}

/// A device.
#[repr(C)]
pub struct cci_device_t {
    /// Its name.
    pub name: *const c_char,
    /// What drives it.
    pub transport: *const c_char,
    /// Not 0 when usable.
    pub up: c_uint,
    /// A line for people.
    pub info: *const c_char,
    /// `key=value`, NULL-ended.
    pub conf_argv: *const *const c_char,
    /// Longest message, bytes.
    pub max_send_size: u32,
    /// Bits per second, 0 unknown.
    pub rate: u64,
    /// Where it sits.
    pub pci: cci_device_pci,
}

/// The part of an endpoint that programs see.
#[repr(C)]
pub struct cci_endpoint_t {
    /// What it was opened on.
    pub device: *const cci_device_t,
}

/// The part of a connection that programs see. The library's part lies in the gaps (`connections.rs`).
#[repr(C)]
pub struct cci_connection_t {
    /// Longest message, bytes.
    pub max_send_size: u32,
    /// Whose it is.
    pub endpoint: *const cci_endpoint_t,
    /// What it promises.
    pub attribute: cci_conn_attribute_t,
    /// Given at connect or accept.
    pub context: *mut c_void,
}

/// A send or an RMA ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_send_t {
    /// `CCI_EVENT_SEND`.
    pub r#type: cci_event_type_t,
    /// Whether it succeeded, or why not.
    pub status: cci_status_t,
    /// Which connection.
    pub connection: *const cci_connection_t,
    /// Given at the send.
    pub context: *mut c_void,
}

/// A message came.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_recv_t {
    /// `CCI_EVENT_RECV`.
    pub r#type: cci_event_type_t,
    /// Its length, bytes.
    pub len: u32,
    /// The message, 8-byte aligned.
    pub ptr: *const c_void,
    /// Which connection.
    pub connection: *const cci_connection_t,
}

/// An attempt to connect ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_connect_t {
    /// `CCI_EVENT_CONNECT`.
    pub r#type: cci_event_type_t,
    /// Whether it succeeded, or why not.
    pub status: cci_status_t,
    /// Given at connect.
    pub context: *mut c_void,
    /// NULL unless success.
    pub connection: *const cci_connection_t,
}

/// Somebody wants to connect.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_connect_request_t {
    /// `CCI_EVENT_CONNECT_REQUEST`.
    pub r#type: cci_event_type_t,
    /// Length of the payload, bytes.
    pub data_len: u32,
    /// The payload.
    pub data_ptr: *const c_void,
    /// What it asks for.
    pub attribute: cci_conn_attribute_t,
}

/// An accepted connection is open, or failed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_accept_t {
    /// `CCI_EVENT_ACCEPT`.
    pub r#type: cci_event_type_t,
    /// Whether it succeeded, or why not.
    pub status: cci_status_t,
    /// Given at accept.
    pub context: *mut c_void,
    /// NULL unless success.
    pub connection: *const cci_connection_t,
}

/// A peer is silent.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_keepalive_timedout_t {
    /// `CCI_EVENT_KEEPALIVE_TIMEDOUT`.
    pub r#type: cci_event_type_t,
    /// Which connection.
    pub connection: *const cci_connection_t,
}

/// The device failed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_endpoint_device_failed_t {
    /// `CCI_EVENT_ENDPOINT_DEVICE_FAILED`.
    pub r#type: cci_event_type_t,
    /// Whose.
    pub endpoint: *const cci_endpoint_t,
}

/// Extension: a connection has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_event_ext_disconnected_t {
    /// `CCI_EVENT_EXT_DISCONNECTED`.
    pub r#type: cci_event_type_t,
    /// Why.
    pub reason: cci_ext_disconnect_reason_t,
    /// Which connection.
    pub connection: *const cci_connection_t,
}

/// An event: `type` says which member holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub union cci_event_t {
    /// Which one.
    pub r#type: cci_event_type_t,
    /// A send or an RMA ended.
    pub send: cci_event_send_t,
    /// A message came.
    pub recv: cci_event_recv_t,
    /// An attempt to connect ended.
    pub connect: cci_event_connect_t,
    /// Somebody wants to connect.
    pub request: cci_event_connect_request_t,
    /// An accepted connection is open, or failed.
    pub accept: cci_event_accept_t,
    /// A peer is silent.
    pub keepalive: cci_event_keepalive_timedout_t,
    /// The device failed.
    pub dev_failed: cci_event_endpoint_device_failed_t,
    /// Extension: a connection has ended.
    pub ext_disconnected: cci_event_ext_disconnected_t,
}

/// What RMA asks of addresses and lengths, bytes; 0 = nothing.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct cci_alignment_t {
    /// Local address of a write.
    pub rma_write_local_addr: u32,
    /// Remote address of a write.
    pub rma_write_remote_addr: u32,
    /// Length of a write.
    pub rma_write_length: u32,
    /// Local address of a read.
    pub rma_read_local_addr: u32,
    /// Remote address of a read.
    pub rma_read_remote_addr: u32,
    /// Length of a read.
    pub rma_read_length: u32,
}

/// Registered memory, as plain bytes.
#[repr(C)]
pub struct cci_rma_handle_t {
    /// The library's.
    pub stuff: [u64; 4],
}

/// Extension: a run of bytes in registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_rma_segment_t {
    /// The registered memory: a handle, or a copy of one.
    pub handle: *const cci_rma_handle_t,
    /// Where the run begins, bytes.
    pub offset: u64,
    /// How long it is, bytes.
    pub length: u64,
}

/// Extension: how an endpoint is opened; fields beyond `size`, and zeros, take the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cci_endpoint_options_t {
    /// `sizeof(cci_endpoint_options_t)` of the program.
    pub size: u32,
    /// Receive buffers.
    pub recv_buf_count: u32,
    /// Sends in progress at once.
    pub send_buf_count: u32,
    /// Send timeout, us.
    pub send_timeout_us: u32,
    /// Keepalive, us; 0 = off.
    pub keepalive_timeout_us: u32,
    /// RMA operations and atomics in progress at once.
    pub rma_op_count: u32,
    /// Cap on everything the endpoint holds, bytes.
    pub memory_cap_bytes: u64,
    /// Not 0: a thread of the library's serves peers while the program calls nothing.
    pub progress_thread: u32,
    /// 0.
    pub reserved: u32,
    /// Who may be a peer, and that all is sealed; NULL: as the device says.
    pub security: *const cci_security_t,
}

/// As the device has it; where that says nothing, refused.
pub const CCI_PLAIN_PEERS_DEFAULT: u32 = 0;
/// Peers without security get no answer.
pub const CCI_PLAIN_PEERS_REFUSED: u32 = 1;
/// They are served, too.
pub const CCI_PLAIN_PEERS_SERVED: u32 = 2;

/// How an endpoint knows its peers; pointers may be NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cci_security_t {
    /// `sizeof(cci_security_t)` of the program.
    pub size: u32,
    /// One of `CCI_PLAIN_PEERS_...`.
    pub plain_peers: u32,
    /// Path of a file of pre-shared keys.
    pub psk_file: *const c_char,
    /// Path of the own certificate, PEM.
    pub certificate: *const c_char,
    /// Path of its private key, PEM.
    pub private_key: *const c_char,
    /// Path of the authorities, PEM.
    pub authorities: *const c_char,
    /// Names of peers that may be connected.
    pub allow_connect: *const c_char,
    /// Names of peers that may read registered memory.
    pub allow_rma_read: *const c_char,
    /// Names of peers that may write to it.
    pub allow_rma_write: *const c_char,
}
