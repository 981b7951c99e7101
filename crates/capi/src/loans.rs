//! Loans: messages that the program writes where they are sent from, and gets where the peer wrote them.

use crate::connecting::resolve;
use crate::connections::context_of;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::{Loans, SendFlags, Trust};
use libc::{c_int, c_void};

fn not_lent(call: &str) -> Failure {
    Failure::with_text(CCI_EINVAL, format!("{call}: not memory that cci_loan() has lent for this connection"))
}

/// How messages that the peer lends come, by the value of the option.
pub(crate) fn loans_of(value: u32) -> Result<Loans, Failure> {
    match value {
        0 => Ok(Loans::Copied),
        // SAFETY: the header says that who sets it trusts the peer's process to leave messages alone that it has lent.
        1 => Ok(Loans::Trusted(unsafe { Trust::new() })),
        _ => Err(Failure::with_text(CCI_ERANGE, "loans are read in place (1) or copied (0)")),
    }
}

/// Lends memory for a message.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `memory` is NULL or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_loan(
    connection: *const cci_connection_t,
    len: u32,
    memory: *mut *mut c_void,
) -> c_int {
    guard(|| {
        if memory.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_loan: memory is NULL"));
        }
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { memory.write(std::ptr::null_mut()) };
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        let lent = c_endpoint.with(|endpoint, side| {
            endpoint.loan(connection, len as usize).map(|loan| side.borrowed.insert(loan))
        })??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { memory.write(lent) };
        Ok(())
    })
}

/// Sends the message that was written to lent memory.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_send_loan(
    connection: *const cci_connection_t,
    memory: *mut c_void,
    len: u32,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        if flags & !CCI_FLAG_SILENT != 0 {
            return Err(Failure::with_text(
                CCI_EINVAL,
                format!("cci_send_loan: flags {flags:#x}, of which it knows CCI_FLAG_SILENT alone"),
            ));
        }
        let flags = if flags == 0 { SendFlags::NONE } else { SendFlags::SILENT };
        let context = context_of(context);
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        c_endpoint.with(|endpoint, side| {
            let mut loan = side.borrowed.take(memory).ok_or_else(|| not_lent("cci_send_loan"))?;
            let is_right = loan.connection() == connection && len as usize <= loan.len();
            if !is_right {
                side.borrowed.insert(loan);
                return Err(not_lent("cci_send_loan"));
            }
            loan.truncate(len as usize);
            endpoint.send_loan(loan, context, flags).map_err(|refused| {
                side.borrowed.insert(refused.loan);
                Failure::from(refused.error)
            })
        })?
    })
}

/// Gives lent memory back unsent.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_return_loan(connection: *const cci_connection_t, memory: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (c_endpoint, _) = unsafe { resolve(connection) }?;
        let loan = c_endpoint.with(|_, side| side.borrowed.take(memory))?;
        loan.map(drop).ok_or_else(|| not_lent("cci_return_loan"))
    })
}
