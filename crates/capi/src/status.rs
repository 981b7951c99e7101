//! The C interface's number for each error of the Rust interface. No `_` arms over enums of ours: a new variant does
//! not compile until it has a number.

use crate::guard::Failure;
use crate::types::*;
use cci::messages::{self, CallFailure, ReceiveError, ReceiveFailure, SendFailure};
use cci::{
    AcceptError, ConnectError, ConnectFailure, ContextError, CreateError, OptionError, RegisterError,
    ResolveError, RmaError, SendError, Status, SysError,
};
use libc::c_char;
use std::ffi::CStr;

pub(crate) const fn of_status(status: Status) -> cci_status_t {
    match status {
        Status::Success => CCI_SUCCESS,
        Status::Disconnected => CCI_ERR_DISCONNECTED,
        Status::ReceiverNotReady => CCI_ERR_RNR,
        Status::TimedOut => CCI_ETIMEDOUT,
        Status::DeviceDead => CCI_ERR_DEVICE_DEAD,
        Status::RmaHandle => CCI_ERR_RMA_HANDLE,
        Status::RmaOperation => CCI_ERR_RMA_OP,
    }
}

pub(crate) const fn of_connect_failure(failure: ConnectFailure) -> cci_status_t {
    match failure {
        ConnectFailure::Refused | ConnectFailure::NotPermitted | ConnectFailure::WrongPeer => {
            CCI_ECONNREFUSED
        }
        ConnectFailure::TimedOut => CCI_ETIMEDOUT,
        ConnectFailure::Version { .. } => CCI_ERROR,
        ConnectFailure::NoMemory => CCI_ENOMEM,
        ConnectFailure::Disconnected => CCI_ERR_DISCONNECTED,
    }
}

/// What became of a message that was not sent: its status, the receiver's code, and the longest message that the receiver takes.
pub(crate) const fn of_send_failure(failure: SendFailure) -> (cci_status_t, u32, u64) {
    match failure {
        SendFailure::Refused(code) => (CCI_EXT_REFUSED, code, 0),
        SendFailure::TooLong { max_bytes } => (CCI_EMSGSIZE, 0, max_bytes),
        SendFailure::Cancelled => (CCI_EXT_CANCELLED, 0, 0),
        SendFailure::NotReadable => (CCI_ERR_RMA_HANDLE, 0, 0),
        SendFailure::Failed(status) => (of_status(status), 0, 0),
        _ => (CCI_ERROR, 0, 0),
    }
}

pub(crate) const fn of_receive_failure(failure: ReceiveFailure) -> cci_status_t {
    match failure {
        ReceiveFailure::Cancelled => CCI_EXT_CANCELLED,
        ReceiveFailure::Disconnected => CCI_ERR_DISCONNECTED,
        ReceiveFailure::Failed(status) => of_status(status),
        _ => CCI_ERROR,
    }
}

/// Why a call has no reply, other than that its request was not sent or that the server said so: the status, and the length of a reply
/// that is too long.
pub(crate) const fn of_call_failure(failure: &CallFailure) -> (cci_status_t, u64) {
    match failure {
        CallFailure::Dropped => (CCI_EXT_DROPPED, 0),
        CallFailure::TimedOut => (CCI_ETIMEDOUT, 0),
        CallFailure::Cancelled => (CCI_EXT_CANCELLED, 0),
        CallFailure::ReplyTooLong { len_bytes, .. } => (CCI_ENOMEM, *len_bytes),
        CallFailure::ReplyLost => (CCI_EXT_REPLY_LOST, 0),
        CallFailure::Failed(status) => (of_status(*status), 0),
        _ => (CCI_ERROR, 0),
    }
}

/// The errno itself where the interface has it.
fn of_system(error: &SysError) -> cci_status_t {
    match error.errno() {
        Some(libc::EADDRINUSE) => CCI_EADDRNOTAVAIL,
        // There is no status for descriptors: the text says which of the two it is.
        Some(libc::EMFILE | libc::ENFILE) => CCI_ENOMEM,
        None if error.kind() == std::io::ErrorKind::OutOfMemory => CCI_ENOMEM,
        Some(errno) if ERRNOS.contains(&errno) => errno,
        _ => CCI_ERROR,
    }
}

const ERRNOS: [cci_status_t; 13] = [
    CCI_EINVAL,
    CCI_ETIMEDOUT,
    CCI_ENOMEM,
    CCI_ENODEV,
    CCI_ENETDOWN,
    CCI_EBUSY,
    CCI_ERANGE,
    CCI_EAGAIN,
    CCI_ENOBUFS,
    CCI_EMSGSIZE,
    CCI_ENOMSG,
    CCI_EADDRNOTAVAIL,
    CCI_ECONNREFUSED,
];

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Failure {
        let status = match &error {
            ContextError::Unreadable { .. } | ContextError::Config { .. } => CCI_ERROR,
            ContextError::NoDevice => CCI_ERR_NOT_FOUND,
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Failure {
        let status = match &error {
            CreateError::BadOption { .. } | CreateError::BadService { .. } => CCI_EINVAL,
            CreateError::InUse { .. } => CCI_EADDRNOTAVAIL,
            CreateError::NoMemory { .. } => CCI_ENOMEM,
            CreateError::DeviceDown => CCI_ENODEV,
            CreateError::System(error) => of_system(error),
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        let status = match &error {
            ConnectError::BadUri { .. }
            | ConnectError::CannotExpect { .. }
            | ConnectError::RequestTooLong { .. }
            | ConnectError::RequestToGroup { .. } => CCI_EINVAL,
            ConnectError::Unsupported | ConnectError::Insecure => CCI_ERR_NOT_IMPLEMENTED,
            ConnectError::NoMemory => CCI_ENOMEM,
            ConnectError::System(error) => of_system(error),
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Failure {
        let status = match &error {
            ResolveError::UnknownHost { .. } => CCI_ERR_NOT_FOUND,
            _ => CCI_EINVAL,
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Failure {
        let status = match &error {
            AcceptError::OtherDevice | AcceptError::Itself => CCI_EINVAL,
            AcceptError::Gone => CCI_ERR_DISCONNECTED,
            AcceptError::NotPermitted => CCI_ECONNREFUSED,
            AcceptError::NoMemory => CCI_ENOMEM,
            AcceptError::System(error) => of_system(error),
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<SendError> for Failure {
    // Apart, and called where the error is: one that is passed on whole is read back by more bytes than were written at once, and such
    // a load waits for all stores before it, such as that to the ring.
    #[cold]
    #[inline(never)]
    fn from(error: SendError) -> Failure {
        match error {
            SendError::TooLong { .. } => Failure::with_text(CCI_EMSGSIZE, error.to_string()),
            // Everyday business on the data path: no text.
            SendError::WouldBlock => Failure::code(CCI_ENOBUFS),
            // A handle that the engine has forgotten was disconnected by the program: to C it is the same thing.
            SendError::Disconnected | SendError::UnknownConnection => Failure::code(CCI_ERR_DISCONNECTED),
            SendError::ReceiveOnly => Failure::with_text(CCI_EINVAL, error.to_string()),
            SendError::OtherProcess => Failure::with_text(CCI_ERROR, error.to_string()),
        }
    }
}

impl From<messages::SendError> for Failure {
    fn from(error: messages::SendError) -> Failure {
        use messages::SendError as Error;
        let status = match &error {
            // Everyday business on the data path: no text.
            Error::WouldBlock => return Failure::code(CCI_ENOBUFS),
            Error::Disconnected | Error::UnknownConnection => return Failure::code(CCI_ERR_DISCONNECTED),
            Error::TooLong { .. } => CCI_EMSGSIZE,
            Error::TooManyParts | Error::NotReliable => CCI_EINVAL,
            Error::OtherProcess => CCI_ERROR,
            Error::Memory(_) => return of_memory_error(error),
            _ => CCI_ERROR,
        };
        Failure::with_text(status, error.to_string())
    }
}

#[cold]
fn of_memory_error(error: messages::SendError) -> Failure {
    match error {
        messages::SendError::Memory(error) => error.into(),
        other => Failure::with_text(CCI_ERROR, other.to_string()),
    }
}

impl From<ReceiveError> for Failure {
    fn from(error: ReceiveError) -> Failure {
        match error {
            ReceiveError::Ended => Failure::with_text(CCI_EINVAL, error.to_string()),
            ReceiveError::TooLong { .. } => Failure::with_text(CCI_EMSGSIZE, error.to_string()),
            ReceiveError::Memory(error) => error.into(),
            _ => Failure::with_text(CCI_ERROR, error.to_string()),
        }
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Failure {
        let status = match &error {
            RegisterError::Length
            | RegisterError::Range { .. }
            | RegisterError::NotMapped(_)
            | RegisterError::ReadOnly
            | RegisterError::Unknown => CCI_EINVAL,
            RegisterError::UnknownConnection => CCI_ERR_DISCONNECTED,
            RegisterError::TooMany => CCI_ENOMEM,
            RegisterError::System(error) => of_system(error),
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<RmaError> for Failure {
    // Apart, and called where the error is: one that is passed on whole is read back by more bytes than were written at once, and such
    // a load waits for all stores before it, such as that to the ring.
    #[cold]
    #[inline(never)]
    fn from(error: RmaError) -> Failure {
        match error {
            RmaError::Unreliable
            | RmaError::Lengths
            | RmaError::LocalHandle
            | RmaError::TooManySegments { .. } => Failure::with_text(CCI_EINVAL, error.to_string()),
            RmaError::TooLong { .. } => Failure::with_text(CCI_EMSGSIZE, error.to_string()),
            // As with sends: no text.
            RmaError::WouldBlock => Failure::code(CCI_ENOBUFS),
            RmaError::Disconnected | RmaError::UnknownConnection => Failure::code(CCI_ERR_DISCONNECTED),
            RmaError::OtherProcess => Failure::with_text(CCI_ERROR, error.to_string()),
        }
    }
}

impl From<OptionError> for Failure {
    fn from(error: OptionError) -> Failure {
        let status = match error {
            OptionError::UnknownConnection => CCI_ERR_DISCONNECTED,
            OptionError::OutOfRange => CCI_ERANGE,
            OptionError::NoMemory => CCI_ENOMEM,
            OptionError::OtherProcess => CCI_ERROR,
            OptionError::Fixed | OptionError::Unsupported => CCI_ERR_NOT_IMPLEMENTED,
        };
        Failure::with_text(status, error.to_string())
    }
}

impl From<SysError> for Failure {
    fn from(error: SysError) -> Failure {
        Failure::with_text(of_system(&error), error.to_string())
    }
}

const fn words(status: cci_status_t) -> Option<&'static CStr> {
    Some(match status {
        CCI_SUCCESS => c"CCI_SUCCESS: success",
        CCI_ERROR => c"CCI_ERROR: error",
        CCI_ERR_DISCONNECTED => c"CCI_ERR_DISCONNECTED: the connection is closed",
        CCI_ERR_RNR => c"CCI_ERR_RNR: the receiver had no buffer until the send timed out",
        CCI_ERR_DEVICE_DEAD => c"CCI_ERR_DEVICE_DEAD: the device failed",
        CCI_ERR_RMA_HANDLE => c"CCI_ERR_RMA_HANDLE: the peer refused the RMA handle, range or permission",
        CCI_ERR_RMA_OP => c"CCI_ERR_RMA_OP: the RMA operation failed",
        CCI_ERR_NOT_IMPLEMENTED => c"CCI_ERR_NOT_IMPLEMENTED: not implemented",
        CCI_ERR_NOT_FOUND => c"CCI_ERR_NOT_FOUND: not found",
        CCI_EINVAL => c"CCI_EINVAL: invalid argument",
        CCI_ETIMEDOUT => c"CCI_ETIMEDOUT: timed out",
        CCI_ENOMEM => c"CCI_ENOMEM: out of memory",
        CCI_ENODEV => c"CCI_ENODEV: no such device, or it is down",
        CCI_ENETDOWN => c"CCI_ENETDOWN: the network is down",
        CCI_EBUSY => c"CCI_EBUSY: busy",
        CCI_ERANGE => c"CCI_ERANGE: value out of range",
        CCI_EAGAIN => c"CCI_EAGAIN: nothing there now, try again",
        CCI_ENOBUFS => c"CCI_ENOBUFS: no buffer free",
        CCI_EMSGSIZE => c"CCI_EMSGSIZE: message too long",
        CCI_ENOMSG => c"CCI_ENOMSG: no message",
        CCI_EADDRNOTAVAIL => c"CCI_EADDRNOTAVAIL: address or service not available",
        CCI_ECONNREFUSED => c"CCI_ECONNREFUSED: connection refused",
        CCI_EXT_CANCELLED => c"CCI_EXT_CANCELLED: taken back",
        CCI_EXT_REFUSED => c"CCI_EXT_REFUSED: refused by the receiver's program",
        CCI_EXT_REPLY_ERROR => c"CCI_EXT_REPLY_ERROR: the server's program answered with an error",
        CCI_EXT_DROPPED => c"CCI_EXT_DROPPED: the server's program did not answer the request",
        CCI_EXT_REPLY_LOST => c"CCI_EXT_REPLY_LOST: the answer could not be delivered",
        _ => return None,
    })
}

/// Words for a status. They begin with the name of the enumerator, which programs look for.
///
/// # Safety
/// None needed: `endpoint` is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_strerror(
    _endpoint: *const cci_endpoint_t,
    status: cci_status_t,
) -> *const c_char {
    words(status).map_or(std::ptr::null(), CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_words_and_nothing_else_has() {
        let known: Vec<_> = (-10..1200).filter(|&status| words(status).is_some()).collect();
        let mut expected: Vec<_> = (CCI_SUCCESS..=CCI_ERR_NOT_FOUND)
            .chain(ERRNOS)
            .chain([CCI_EXT_CANCELLED])
            .chain(CCI_EXT_REFUSED..=CCI_EXT_REPLY_LOST)
            .collect();
        expected.sort_unstable();
        assert_eq!(known, expected);
        let named = |status: i32| words(status).unwrap().to_str().unwrap().starts_with("CCI_");
        assert!(known.into_iter().all(named));
    }
}
