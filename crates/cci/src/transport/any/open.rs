//! Opens as many of the parts as this machine has, under one memory cap.

use super::on_demand::OnDemand;
use super::parts::{BY_NAME, Part, engine_bytes};
use super::uri::{self, ORDER};
use super::{Any, Missing, TOKEN_PARTS};
use crate::device::{Device, DeviceInfo, TransportKind};
use crate::engine::poller::Poller;
use crate::error::{CreateError, SysError};
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::commitment::Commitment;
use crate::transport::shm::{self, Admission, Proof};
use crate::transport::{self, Transport};
use std::sync::Arc;

/// Each network part may take this part of the memory cap, after the engine's buffers. Shared memory has the remainder.
const DIVISOR: u64 = 4;

/// Opens all parts that this machine has. What the program asked for and can't have is an error; what the machine does
/// not have is left out.
pub(crate) fn open(
    device: &Device,
    options: &Options,
    poller: &Arc<Poller>,
) -> Result<Box<dyn Transport>, CreateError> {
    let on_demand = OnDemand::of(device, options)?;
    let device = &*device.0;
    let parts_bytes = parts_bytes(device, options)?;
    let (mut parts, mut missing, mut id) = (Vec::new(), Vec::new(), None);
    let sealing = Sealing::of(device, options)?;
    let shares_memory = sealing.as_ref().is_none_or(Sealing::gives_all_to_the_unnamed);
    if !shares_memory {
        check_service(options)?;
    }
    for kind in ORDER {
        if kind == TransportKind::Shm && !shares_memory {
            missing.push(Missing { kind, reason: BY_NAME.to_owned() });
            continue;
        }
        let token = TOKEN_PARTS + parts.len() as u64;
        match open_part(kind, device, options, sealing.is_some(), parts_bytes, poller, token) {
            Ok((part, commitment)) => {
                id = id.or(commitment);
                parts.push(part);
            }
            Err(error) => missing.push(Missing { kind, reason: reason_to_go_without(error)? }),
        }
    }
    if parts.is_empty() {
        return Err(CreateError::DeviceDown);
    }
    let uri = uri::format(id, parts.iter().map(|part| (part.kind, part.transport.about().uri)));
    Ok(Box::new(Any { on_demand, ..Any::of(uri, parts, missing) }))
}

/// Bytes of the memory cap that remain for the parts.
fn parts_bytes(device: &DeviceInfo, options: &Options) -> Result<u64, CreateError> {
    let cap_bytes = options.memory_bytes_max;
    let needed_bytes = engine_bytes(device, options);
    let parts_bytes = cap_bytes.checked_sub(needed_bytes);
    parts_bytes.ok_or(CreateError::NoMemory { needed_bytes, cap_bytes })
}

fn open_part(
    kind: TransportKind,
    device: &DeviceInfo,
    options: &Options,
    has_security: bool,
    parts_bytes: u64,
    poller: &Poller,
    token: u64,
) -> Result<(Part, Option<Commitment>), CreateError> {
    // A device of this kind. Receive buffers are common to all parts.
    let device = DeviceInfo { kind, on_demand: Arc::new([]), ..device.clone() };
    let mut options = options.clone();
    if options.service.as_deref().is_some_and(is_port) == (kind == TransportKind::Shm) {
        options.service = None;
    }
    let network_bytes = parts_bytes / DIVISOR;
    let networks = ORDER.len() as u64 - 1;
    let own_poller = Arc::new(poller.part(token)?);
    let set_apart_bytes;
    let (transport, id) = if kind == TransportKind::Shm {
        let proof = Proof::new()?;
        let id = proof.commitment();
        set_apart_bytes = networks * network_bytes;
        let own_bytes_max = options.memory_bytes_max.saturating_sub(set_apart_bytes);
        let admission = Admission::of(&device, has_security);
        (shm::open(&device, &options, own_bytes_max, &own_poller, admission, Some(proof))?, Some(id))
    } else {
        set_apart_bytes = parts_bytes - network_bytes;
        options.memory_bytes_max = engine_bytes(&device, &options) + network_bytes;
        (transport::open_one(&device, &options, &own_poller)?, None)
    };
    let (device, expected, poller) = (None, None, own_poller);
    Ok((Part { kind, device, expected, transport, poller, set_apart_bytes, busy: true }, id))
}

/// Refuses a service that is a name for shared memory, for an endpoint without shared memory.
fn check_service(options: &Options) -> Result<(), CreateError> {
    match &options.service {
        Some(service) if !is_port(service) => Err(CreateError::BadService {
            service: service.clone(),
            reason: format!("it is a name for shared memory, and {BY_NAME}; give a port"),
        }),
        _ => Ok(()),
    }
}

/// Whether a service is a port. Otherwise it is a name for shared memory.
fn is_port(service: &str) -> bool {
    service.parse::<u16>().is_ok()
}

/// Why an endpoint goes without a part that could not be opened, or the error if it is of no use without the part.
fn reason_to_go_without(error: CreateError) -> Result<String, CreateError> {
    match error {
        CreateError::DeviceDown => Ok("this machine has no network interface that is up".to_owned()),
        // The machine has it, and has only run out of it for a moment.
        CreateError::System(error) if error.is_exhaustion() => Err(CreateError::System(error)),
        CreateError::System(error) => Ok(refused(&error)),
        // The program can change these, and would not expect to be reachable by half.
        CreateError::BadOption { .. }
        | CreateError::BadService { .. }
        | CreateError::InUse { .. }
        | CreateError::NoMemory { .. } => Err(error),
    }
}

fn refused(error: &SysError) -> String {
    format!("the system refused it: {error}")
}
