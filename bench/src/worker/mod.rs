//! One turn of the floor or of CCI, in two processes: this one on the first core, and a partner on the second, which
//! it starts. The result is one line of JSON.

mod channel;
mod exchange;
mod floor;
mod ours;
pub mod partner;

use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::work::Work;
use cci_measure::trouble::{Outcome, Trouble};

/// Does what was asked for, on whichever side this process is.
pub fn run(args: &WorkArgs) -> Outcome {
    let reading = match (args.by, args.work) {
        (By::CacheLine, Work::HalfTrip { .. }) => Some(floor::cache_line::half_trip(args.count)?),
        (By::HandUdp, _) => exchange::run::<floor::udp::HandUdp>(args)?,
        (By::HandTcp, _) => exchange::run::<floor::tcp::HandTcp>(args)?,
        (By::Shm | By::Udp | By::Tcp | By::Eth | By::Any, _) => exchange::run::<ours::Messages>(args)?,
        (By::ShmLocked | By::UdpLocked, _) => exchange::run::<ours::Locked>(args)?,
        (By::CacheLine, _) => return Err(exchange::not_done(args)),
    };
    if let Some(reading) = reading {
        print(&reading)?;
    }
    Ok(())
}

fn print(reading: &Reading) -> Outcome {
    let line = serde_json::to_string(reading).map_err(|error| Trouble::new(error.to_string()))?;
    println!("{line}");
    Ok(())
}
