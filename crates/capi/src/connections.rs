//! Connections behind C pointers: their structs, and what C hands over when it works with them.
//!
//! A connection's struct is at the index that the connection has in the engine's table, in a block that never moves. It is
//! filled when the first event of the connection is given out, and overwritten only when the engine gives its index to
//! a later connection and that one's first event is given out. So a completion that comes after `cci_disconnect` still
//! points to memory of the endpoint's, with the old connection in it.

use crate::guard::Failure;
use crate::types::*;
use cci::{Attribute, Connection, Endpoint};
use libc::{c_void, timeval};
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// What `cci_connection_t *` points to. The engine's name for the connection lies where the public struct has
/// padding: 32 bytes in all.
#[repr(C)]
pub(crate) struct CConnection {
    max_send_size: u32,
    index: u32,
    endpoint: *const cci_endpoint_t,
    attribute: cci_conn_attribute_t,
    generation: u32,
    context: *mut c_void,
}

const _: () = {
    assert!(size_of::<CConnection>() == size_of::<cci_connection_t>());
    assert!(offset_of!(CConnection, max_send_size) == offset_of!(cci_connection_t, max_send_size));
    assert!(offset_of!(CConnection, endpoint) == offset_of!(cci_connection_t, endpoint));
    assert!(offset_of!(CConnection, attribute) == offset_of!(cci_connection_t, attribute));
    assert!(offset_of!(CConnection, context) == offset_of!(cci_connection_t, context));
};

const EMPTY: CConnection = CConnection {
    max_send_size: 0,
    index: 0,
    endpoint: null(),
    attribute: CCI_CONN_ATTR_RO,
    generation: 0,
    context: null_mut(),
};

const BLOCK: usize = 128;

/// The structs of an endpoint's connections, in blocks of 4 KiB that stay where they are.
#[derive(Default)]
pub(crate) struct Table {
    /// `UnsafeCell`: the program reads the structs while we hold `&mut Table`.
    blocks: Vec<Box<[UnsafeCell<CConnection>; BLOCK]>>,
    /// Where the engine's contexts are not the program's: the program's, by the engine's.
    pub contexts: Option<HashMap<u64, u64>>,
}

// SAFETY: the table moves with its endpoint; its raw pointers are not used through it.
unsafe impl Send for Table {}

impl Table {
    /// The struct of a connection of `c_endpoint`'s, filled if this is the first that is heard of it.
    #[inline]
    pub fn get(
        &mut self,
        c_endpoint: *const cci_endpoint_t,
        endpoint: &Endpoint,
        connection: Connection,
    ) -> *const cci_connection_t {
        let (index, generation) = parts(connection);
        if let Some(block) = self.blocks.get(index as usize / BLOCK) {
            let slot = block[index as usize % BLOCK].get();
            // SAFETY: only we write the structs, under the endpoint's lock, which we hold.
            if unsafe { !(*slot).endpoint.is_null() && (*slot).generation == generation } {
                return slot.cast_const().cast();
            }
        }
        self.fill(c_endpoint, endpoint, connection)
    }

    /// The struct of a connection that an event was given out of before; NULL if there was none.
    pub fn known(&self, connection: Connection) -> *const cci_connection_t {
        let (index, generation) = parts(connection);
        let slot = self.blocks.get(index as usize / BLOCK).map(|block| block[index as usize % BLOCK].get());
        // SAFETY: only we write the structs, under the endpoint's lock, which we hold.
        let is_filled = |slot: &*mut CConnection| unsafe {
            !(**slot).endpoint.is_null() && (**slot).generation == generation
        };
        slot.filter(is_filled).map_or(null(), |slot| slot.cast_const().cast())
    }

    #[cold]
    fn fill(
        &mut self,
        c_endpoint: *const cci_endpoint_t,
        endpoint: &Endpoint,
        connection: Connection,
    ) -> *const cci_connection_t {
        let (index, generation) = parts(connection);
        let (block, within) = (index as usize / BLOCK, index as usize % BLOCK);
        while self.blocks.len() <= block {
            self.blocks.push(Box::new([const { UnsafeCell::new(EMPTY) }; BLOCK]));
        }
        let slot = self.blocks[block][within].get();
        // A connection that the engine does not know any more keeps what the slot has: its last events may point there.
        if let Some(attribute) = endpoint.attribute(connection) {
            let of_engine = endpoint.context(connection).unwrap_or(0);
            let context = match &self.contexts {
                None => of_engine,
                Some(contexts) => contexts.get(&of_engine).copied().unwrap_or(0),
            };
            let fresh = CConnection {
                max_send_size: endpoint.max_send_size(connection).unwrap_or(0),
                index,
                endpoint: c_endpoint,
                attribute: attribute_to_c(attribute),
                generation,
                context: context_to_c(context),
            };
            // SAFETY: only we write the structs, under the endpoint's lock, which we hold. The program has no right to the connection that was here: its index is the engine's
            // to give again only after `cci_disconnect`.
            unsafe { slot.write(fresh) };
        }
        slot.cast_const().cast()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let contexts =
            self.contexts.as_ref().map_or(0, |contexts| contexts.capacity() * size_of::<(u64, u64)>());
        self.blocks.len() * size_of::<[CConnection; BLOCK]>()
            + self.blocks.capacity() * size_of::<usize>()
            + contexts
    }
}

/// Index and generation.
#[inline]
fn parts(connection: Connection) -> (u32, u32) {
    let bits = connection.to_bits();
    (bits as u32, (bits >> 32) as u32)
}

/// The endpoint, as C knows it, and the engine's name behind a program's connection pointer.
///
/// # Safety
/// `connection` is NULL or was given out by an event of an endpoint that is open and stays so during the call.
#[inline]
pub(crate) unsafe fn names(
    connection: *const cci_connection_t,
) -> Result<(*const cci_endpoint_t, Connection), Failure> {
    // SAFETY: our struct, of which the public one shows a part; the caller promises that it is there. It is written
    // only before a program gets the pointer.
    let Some(found) = (unsafe { connection.cast::<CConnection>().as_ref() }) else {
        return Err(Failure::with_text(CCI_EINVAL, "the connection is NULL"));
    };
    let bits = u64::from(found.generation) << 32 | u64::from(found.index);
    Ok((found.endpoint, Connection::from_bits(bits)))
}

/// Contexts pass through the engine as numbers and come back the same pointers.
pub(crate) fn context_of(context: *const c_void) -> u64 {
    context.expose_provenance() as u64
}

/// See [`context_of`].
pub(crate) fn context_to_c(context: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(context as usize)
}

pub(crate) const fn attribute_to_c(attribute: Attribute) -> cci_conn_attribute_t {
    match attribute {
        Attribute::ReliableOrdered => CCI_CONN_ATTR_RO,
        Attribute::ReliableUnordered => CCI_CONN_ATTR_RU,
        Attribute::Unreliable => CCI_CONN_ATTR_UU,
        Attribute::MulticastSend => CCI_CONN_ATTR_UU_MC_TX,
        Attribute::MulticastReceive => CCI_CONN_ATTR_UU_MC_RX,
    }
}

/// A time-out from C; NULL = none.
///
/// # Safety
/// `timeout` is NULL or points to a `struct timeval`.
pub(crate) unsafe fn duration(timeout: *const timeval) -> Result<Option<Duration>, Failure> {
    // SAFETY: as the caller promises.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u32::try_from(timeout.tv_usec)) {
        (Ok(seconds), Ok(micros)) if micros < 1_000_000 => Ok(Some(Duration::new(seconds, micros * 1000))),
        _ => Err(Failure::with_text(
            CCI_EINVAL,
            "the timeout is negative, or has a million microseconds or more",
        )),
    }
}

/// Bytes from C.
///
/// # Safety
/// `data` is NULL or points to `len` bytes that stay for `'a` and are not written meanwhile.
#[inline]
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || len > isize::MAX as usize {
        return Err(Failure::with_text(
            CCI_EINVAL,
            "the data are NULL but their length is not 0, or it is beyond any memory",
        ));
    }
    // SAFETY: as the caller promises, and the length fits.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}
