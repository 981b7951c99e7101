//! Endpoints of jobs: the calls that name connections by rank.

use super::handle;
use super::no_rank;

use super::types::*;
use super::values::check_place;
use crate::connecting::{attribute_of, resolve};
use crate::connections::{context_of, duration};
use crate::endpoint::CEndpoint;
use crate::extensions::{Wanted, options_of};
use crate::guard::{Failure, guard};
use crate::opening;
use crate::ranks::Ranks;
use crate::types::*;
use cci::DisconnectPolicy;
use cci_job::{Connections, Peer};
use libc::{c_int, c_void, timeval};
use std::collections::HashMap;

fn none_of_a_job() -> Failure {
    Failure::with_text(CCI_EINVAL, "the endpoint is none of a job: cci_job_create_endpoint() opens those")
}

/// Opens an endpoint on each rank.
///
/// # Safety
/// As `cci_create_endpoint_with`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_create_endpoint(
    job: *const cci_job_t,
    device: *const cci_device_t,
    options: *const cci_endpoint_options_t,
    endpoint: *mut *const cci_endpoint_t,
    fd: *mut cci_os_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let Wanted { options, progress_thread } = unsafe { options_of(options) }?;
        let options = |device: &_| handle::with(job, |job| Ok(Connections::options(job, device, options)?));
        let join = |created: &CEndpoint| {
            created.with(|endpoint, side| {
                let connections = handle::with(job, |job| Ok(Connections::exchange(job, endpoint)?))?;
                side.ranks = Some(Box::new(Ranks::new(connections)));
                side.connections.contexts = Some(HashMap::new());
                endpoint.set_disconnect_policy(DisconnectPolicy::Report);
                Ok(())
            })?
        };
        // SAFETY: the caller's promises are `create_with`'s.
        unsafe { opening::create_with(device, options, progress_thread, (endpoint, fd), join) }
    })
}

/// Asks for a connection with a rank.
///
/// # Safety
/// `endpoint` is NULL or open; `timeout` is NULL or a `struct timeval`; `connection` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_connect(
    endpoint: *const cci_endpoint_t,
    rank: u32,
    attribute: cci_conn_attribute_t,
    context: *const c_void,
    timeout: *const timeval,
    connection: *mut *const cci_connection_t,
) -> c_int {
    guard(|| {
        check_place(connection, "cci_job_connect: connection")?;
        // SAFETY: as the caller promises.
        let (c_endpoint, limit) = unsafe { (CEndpoint::of(endpoint)?, duration(timeout)?) };
        let peer = Peer::new(rank, 0, attribute_of(attribute)?).ok_or_else(|| {
            Failure::with_text(CCI_EINVAL, "cci_job_connect: ranks have no connections of multicast groups")
        })?;
        let found = c_endpoint.with(|endpoint, side| {
            let (Some(ranks), Some(contexts)) = (&mut side.ranks, &mut side.connections.contexts) else {
                return Err(none_of_a_job());
            };
            if rank >= ranks.size() {
                return Err(no_rank(rank, ranks.size()));
            }
            let open = ranks.connect(endpoint, contexts, (peer, context_of(context)), limit)?;
            let public = c_endpoint.public();
            Ok(open.map_or(std::ptr::null(), |open| side.connections.get(public, endpoint, open)))
        })??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { connection.write(found) };
        Ok(())
    })
}

/// Says whose a connection is.
///
/// # Safety
/// `connection` is NULL or was given out by an event of an endpoint that is open; `rank` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_rank_of(connection: *const cci_connection_t, rank: *mut u32) -> c_int {
    guard(|| {
        check_place(rank, "cci_job_rank_of: rank")?;
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        let found = c_endpoint.with(|endpoint, side| {
            let ranks = side.ranks.as_ref().ok_or_else(none_of_a_job)?;
            ranks.rank_of(endpoint, connection).ok_or_else(|| {
                Failure::with_text(CCI_EINVAL, "cci_job_rank_of: the connection is closed already")
            })
        })??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { rank.write(found) };
        Ok(())
    })
}
