//! The types of `ccs.h`.
#![allow(non_camel_case_types, reason = "the names of the C interface")]

use libc::{c_int, c_uint, c_void};

/// What a program calls a context: its number in this process, from 1 on.
pub type CCS_context_t = *mut c_void;
/// What a handler calls the message that it runs for.
pub type CCS_token_t = *mut c_void;
/// What a program calls a description.
pub type CCS_datadesc_t = *mut c_void;
/// What a program calls a team: its number, plus 1.
pub type CCS_team_t = *mut c_void;
/// What a program calls a large message that it has not decided on.
pub type CCS_held_t = *mut c_void;
/// An argument of an active message.
pub type CCS_arg_t = isize;
/// What an atomic operation does.
pub type CCS_op_t = c_int;
/// Elements of atomic operations.
pub type CCS_type_t = c_int;
/// Called when an operation has ended.
pub type CCS_callback_t = Option<unsafe extern "C" fn(arg: *mut c_void)>;
/// Called when a large message has ended, with a code.
pub type CCS_done_t = Option<unsafe extern "C" fn(arg: *mut c_void, status: c_int)>;
/// A handler of large messages.
pub type LargeHandler = unsafe extern "C" fn(
    token: CCS_token_t,
    bytes: usize,
    target: *mut CCS_target_t,
    nargs: c_int,
    args: *const CCS_arg_t,
    user: *mut c_void,
) -> c_int;
/// What a program calls when a promise of another process is broken.
pub type ErrorHandler =
    unsafe extern "C" fn(code: c_int, rank: c_int, what: *const libc::c_char, arg: *mut c_void);
/// A handler of active messages, with its arguments left out.
pub type Handler = unsafe extern "C" fn(token: CCS_token_t, buffer: *mut c_void, buf_len: c_uint);

/// Success.
pub const CCS_SUCCESS: c_int = 0;
/// An argument can never be right.
pub const CCS_ERR_ARG: c_int = 1;
/// Not initialised, finalised, or not allowed here.
pub const CCS_ERR_STATE: c_int = 2;
/// There is no space now, or nothing ran.
pub const CCS_ERR_AGAIN: c_int = 3;
/// Memory or a limit is exhausted.
pub const CCS_ERR_NOMEM: c_int = 4;
/// Data is longer than it may be.
pub const CCS_ERR_TOO_LONG: c_int = 5;
/// The number is taken.
pub const CCS_ERR_EXISTS: c_int = 6;
/// Memory is not registered by its process.
pub const CCS_ERR_NOT_REGISTERED: c_int = 7;
/// The process there is gone.
pub const CCS_ERR_PEER: c_int = 8;
/// There is no such rank, handler or byte.
pub const CCS_ERR_RANGE: c_int = 9;
/// The system or the launcher refuses.
pub const CCS_ERR_SYSTEM: c_int = 10;
/// Not possible here.
pub const CCS_ERR_UNSUPPORTED: c_int = 11;
/// The receiver has ended it.
pub const CCS_ERR_ABORTED: c_int = 12;

/// Only one thread calls.
pub const CCS_THREAD_SINGLE: c_int = 0;
/// One thread at a time calls.
pub const CCS_THREAD_SERIALIZED: c_int = 1;
/// Any threads call at any time.
pub const CCS_THREAD_MULTIPLE: c_int = 2;

/// The operations of atomics.
pub const CCS_OP_FETCH: CCS_op_t = 0;
/// Replaces.
pub const CCS_OP_SET: CCS_op_t = 1;
/// Adds.
pub const CCS_OP_ADD: CCS_op_t = 2;
/// Bitwise and.
pub const CCS_OP_AND: CCS_op_t = 3;
/// Bitwise or.
pub const CCS_OP_OR: CCS_op_t = 4;
/// Bitwise exclusive or.
pub const CCS_OP_XOR: CCS_op_t = 5;
/// The smaller one.
pub const CCS_OP_MIN: CCS_op_t = 6;
/// The larger one.
pub const CCS_OP_MAX: CCS_op_t = 7;
/// Replaces if it equals.
pub const CCS_OP_CAS: CCS_op_t = 8;
/// Multiplies.
pub const CCS_OP_PROD: CCS_op_t = 9;

/// 32 bits with a sign.
pub const CCS_TYPE_I32: CCS_type_t = 0;
/// 32 bits without a sign.
pub const CCS_TYPE_U32: CCS_type_t = 1;
/// 64 bits with a sign.
pub const CCS_TYPE_I64: CCS_type_t = 2;
/// 64 bits without a sign.
pub const CCS_TYPE_U64: CCS_type_t = 3;
/// IEEE 754, 32 bits.
pub const CCS_TYPE_F32: CCS_type_t = 4;
/// IEEE 754, 64 bits.
pub const CCS_TYPE_F64: CCS_type_t = 5;

/// Of a handler of large messages: nothing is to come of it.
pub const CCS_LARGE_ABORT: c_int = 0;
/// The data go to the target.
pub const CCS_LARGE_ACCEPT: c_int = 1;
/// It is held, and decided on later.
pub const CCS_LARGE_DELAY: c_int = 2;

/// Where the data of a large message go, and to whom their end is reported.
#[repr(C)]
#[derive(Copy, Clone)]
pub struct CCS_target_t {
    /// The first element has its origin here.
    pub buffer: *mut c_void,
    /// How many elements.
    pub count: usize,
    /// What each is.
    pub desc: CCS_datadesc_t,
    /// Called once.
    pub done: CCS_done_t,
    /// For that call.
    pub arg: *mut c_void,
}

/// `CCS_lock_t`.
#[repr(C, align(16))]
pub struct CCS_lock_t {
    pub(super) state: u64,
    pub(super) mutex: [u64; 7],
}
