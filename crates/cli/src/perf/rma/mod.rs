//! Remote memory: how long an operation takes, how many bytes a second, next to the plainest code for the same work.

mod atomics;
mod baseline;
mod operations;
mod transfer;

use super::live::Live;
use super::plan::Plan;
use super::results::Target;
use super::table;
use super::work::{Kind, Operation, ROUNDS_MIN};
use crate::client::Client;
use crate::failure::{Failure, Outcome};
use crate::protocol::{LENT_BYTES_MAX, Lent};
use cci::{Access, Attribute, Connection, Device, Foreign, Memory, RegionHandle, TransportKind};
use cci_measure::cores::Cores;
use cci_measure::site::Site;
use cci_measure::transfer::Direction;

/// An operation that takes longer is a failure: longer than the library's own send timeout.
const STUCK_AFTER_NS: u64 = 12_000_000_000;
/// Rounds of each measurement: fewer make no median, more no difference.
const ROUNDS: std::ops::RangeInclusive<u64> = ROUNDS_MIN..=500;
/// Both ends of the memory that is worked on.
struct Region {
    connection: Connection,
    memory: Memory,
    local: RegionHandle,
    remote: RegionHandle,
}

/// Measures what the plan wants to know of remote memory, over one connection of this kind.
pub fn measure(
    client: &mut Client,
    plan: &Plan,
    device: &Device,
    attribute: Attribute,
    place: (&Cores, &Site),
    live: &Live,
    target: &mut Target,
) -> Outcome {
    let data = client.data(attribute)?;
    client.poll(true)?;
    if plan.with_rma {
        for &kind in Kind::of(device.transport()) {
            let (region, lent) = Region::open(client, data.connection, kind, plan.rma_bytes())?;
            // Only a server of ours runs where we know, with nothing else to do.
            let own = target.uri.is_none();
            let mut baseline = baseline::open(device, kind, place, &lent, plan.rma_bytes(), own)?;
            for direction in Direction::BOTH {
                for size in plan.rma_sizes() {
                    let what = format!("{} {}, {size} B", kind.name(), direction.name());
                    live.doing(format!("{} {what}", device.name()));
                    let mut cell = client
                        .transfer(plan, &region, &mut baseline, direction, size)
                        .map_err(|failure| failure.of(&what))?;
                    (cell.r#type, cell.memory) = (attribute.short_name(), kind.name());
                    let head = format!("  remote memory ({})\n", cell.r#type);
                    target.rma.push(cell);
                    live.row(&table::memory(target), &head)?;
                    live.step();
                }
            }
            region.close(client)?;
        }
    }
    if plan.with_atomics {
        for operation in Operation::BOTH {
            live.doing(format!("{} {}", device.name(), operation.name()));
            let (region, _) = Region::open(client, data.connection, Kind::Library, atomics::REGION_BYTES)?;
            let mut cell =
                client.atomics(plan, &region, operation).map_err(|failure| failure.of(operation.name()))?;
            cell.r#type = attribute.short_name();
            target.atomics.push(cell);
            live.row(&table::atomics(target), "")?;
            live.step();
            region.close(client)?;
        }
    }
    client.poll(false)?;
    client.close(&data);
    Ok(())
}

/// Measurements of a device's remote memory, for the progress bar.
pub fn steps(plan: &Plan, transport: TransportKind) -> u64 {
    let (transfers, atomics) = plan.rma_parts(transport);
    transfers * plan.rma_sizes().len() as u64 + atomics
}

impl Region {
    fn open(
        client: &mut Client,
        connection: Connection,
        kind: Kind,
        len_bytes: u64,
    ) -> Outcome<(Region, Lent)> {
        let lent = client.borrow_memory(len_bytes, kind == Kind::Foreign)?;
        let len = usize::try_from(len_bytes.min(LENT_BYTES_MAX)).unwrap_or(usize::MAX);
        let memory = match kind {
            Kind::Library => client.endpoint.allocate(len).map_err(no_memory)?,
            Kind::Foreign => Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice())),
        };
        let local = client.endpoint.register(&memory, Access::LOCAL).map_err(no_memory)?;
        Ok((Region { connection, memory, local, remote: RegionHandle::from_bytes(lent.handle) }, lent))
    }

    fn close(self, client: &mut Client) -> Outcome {
        client.endpoint.deregister(&self.local).map_err(no_memory)?;
        client.give_memory_back()
    }
}

fn no_memory(error: cci::RegisterError) -> Failure {
    Failure::new(format!("memory: {error}")).remedy("`cci info` shows how much there is")
}
