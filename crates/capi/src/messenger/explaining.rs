//! What a messenger counts, and what it explains of a connection.

use super::handle::CMessenger;
use super::types::*;
use crate::guard::{Failure, guard};
use crate::json;
use crate::options::give_text;
use crate::types::*;
use cci::Connection;
use libc::{c_char, c_int};
use std::sync::PoisonError;

#[cold]
fn closed() -> Failure {
    Failure::with_text(CCI_ERR_DISCONNECTED, "the connection is closed, or none of this messenger")
}

/// Says why a connection goes where it goes and what holds it up.
///
/// # Safety
/// `messenger` is NULL or open; `text` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_explain(
    messenger: *const cci_messenger_t,
    connection: u64,
    text: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let messenger = unsafe { CMessenger::of(messenger) }?;
        if text.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_explain: text is NULL"));
        }
        let connection = Connection::from_bits(connection);
        let explanation =
            messenger.with(|messenger| messenger.endpoint().explain(connection).ok_or_else(closed))?;
        let copy = give_text(&explanation.to_string())?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { text.write(copy) };
        Ok(())
    })
}

/// Gives counters as JSON: of a connection, or, where that is 0, of the messenger and its endpoint.
///
/// # Safety
/// `messenger` is NULL or open; `json` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_get_counters(
    messenger: *const cci_messenger_t,
    connection: u64,
    json: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let c_messenger = unsafe { CMessenger::of(messenger) }?;
        if json.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_get_counters: json is NULL"));
        }
        let text = c_messenger.with(|messenger| {
            if connection == 0 {
                let pool_bytes = c_messenger.pool.lock().unwrap_or_else(PoisonError::into_inner).len_bytes();
                return Ok(json::of_messenger(
                    &messenger.endpoint().counters(),
                    &messenger.counters(),
                    pool_bytes,
                ));
            }
            let counters = messenger.endpoint().connection_counters(Connection::from_bits(connection));
            Ok(json::of_connection(&counters.ok_or_else(closed)?))
        })?;
        let copy = give_text(&text)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { json.write(copy) };
        Ok(())
    })
}
