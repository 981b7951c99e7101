//! Security: what an endpoint goes by, and who peers are. All of it comes after the 2.x part of the header.

use crate::connecting::resolve;
use crate::endpoint::text;
use crate::events::CEvent;
use crate::guard::{Failure, guard};
use crate::options::give_text;
use crate::types::*;
use cci::{CredentialsError, Identity, Names, NamesError, Security};
use libc::{c_char, c_int};

/// What the options ask for.
///
/// # Safety
/// `given` points to a struct of the size that its first field says, whose pointers are NULL or C strings.
pub(crate) unsafe fn security_of(given: *const cci_security_t) -> Result<Security, Failure> {
    // SAFETY: the size is the first field, and there is one, says the caller.
    let size = unsafe { given.cast::<u32>().read() } as usize;
    if size != size_of::<cci_security_t>() {
        return Err(Failure::with_text(
            CCI_EINVAL,
            "the security's size field must be sizeof(cci_security_t)",
        ));
    }
    // SAFETY: so many bytes are there, says the caller.
    let given = unsafe { given.read() };
    let field = |pointer: *const c_char, name: &str| {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: a C string, says the caller.
        unsafe { text(pointer, name) }.map(Some)
    };
    let files = [
        field(given.certificate, "certificate")?,
        field(given.private_key, "private_key")?,
        field(given.authorities, "authorities")?,
    ];
    let security = match (field(given.psk_file, "psk_file")?, files) {
        (None, [None, None, None]) => Security::of_device(),
        (Some(path), [None, None, None]) => Security::psk_file(path)?,
        (None, [Some(certificate), Some(private_key), Some(authorities)]) => {
            Security::certificate_files(certificate, private_key, authorities)?
        }
        (Some(_), _) => {
            return Err(Failure::with_text(CCI_EINVAL, "psk_file and certificates: give one of the two"));
        }
        (None, _) => {
            let what = "certificate, private_key and authorities belong together: give all three";
            return Err(Failure::with_text(CCI_EINVAL, what));
        }
    };
    let security = match given.plain_peers {
        CCI_PLAIN_PEERS_DEFAULT => security,
        CCI_PLAIN_PEERS_REFUSED => security.required(true),
        CCI_PLAIN_PEERS_SERVED => security.required(false),
        other => return Err(Failure::with_text(CCI_EINVAL, format!("plain_peers: there is no {other}"))),
    };
    let names = |pointer, name| -> Result<Names, Failure> {
        Ok(field(pointer, name)?.map_or(Ok(Names::Everyone), Names::parse)?)
    };
    Ok(security
        .allow_connect(names(given.allow_connect, "allow_connect")?)
        .allow_rma_read(names(given.allow_rma_read, "allow_rma_read")?)
        .allow_rma_write(names(given.allow_rma_write, "allow_rma_write")?))
}

impl From<CredentialsError> for Failure {
    fn from(error: CredentialsError) -> Failure {
        Failure::with_text(CCI_EINVAL, error.to_string())
    }
}

impl From<NamesError> for Failure {
    fn from(error: NamesError) -> Failure {
        Failure::with_text(CCI_EINVAL, error.to_string())
    }
}

/// Writes a peer's names where the caller wants them.
///
/// # Safety
/// `names` is NULL or a place for a pointer.
unsafe fn give_names(identity: Option<&Identity>, names: *mut *mut c_char) -> Result<(), Failure> {
    if names.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, "names is NULL"));
    }
    let Some(identity) = identity else {
        return Err(Failure::with_text(
            CCI_ERR_NOT_FOUND,
            "the peer has not proved who it is: the endpoint has no security, or the peer came plain",
        ));
    };
    let all: Vec<&str> = identity.names().collect();
    let copy = give_text(&all.join(","))?;
    // SAFETY: not NULL, and the caller's to be written.
    unsafe { names.write(copy) };
    Ok(())
}

/// Who is at the other end of a connection.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `names` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_peer_names(
    connection: *const cci_connection_t,
    names: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        let identity = c_endpoint.with(|endpoint, _| endpoint.peer_identity(connection).cloned())?;
        // SAFETY: as the caller promises.
        unsafe { give_names(identity.as_ref(), names) }
    })
}

/// Who asks for a connection.
///
/// # Safety
/// `conn_req` is NULL or an event that was not returned yet; `names` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_conn_req_names(conn_req: *const cci_event_t, names: *mut *mut c_char) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(conn_req) }?;
        let identity = event.look_at_request(|request| request.peer_identity().cloned())?;
        // SAFETY: as the caller promises.
        unsafe { give_names(identity.as_ref(), names) }
    })
}
