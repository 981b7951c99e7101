//! One turn of the floor or of CCI, in two processes: this one on the first core, and a partner on the second, which
//! it starts. The result is one line of JSON.

mod channel;
mod exchange;
mod floor;
mod ours;
pub mod partner;
mod slots;

use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::work::Work;
use cci_measure::trouble::{Outcome, Trouble};
use floor::tcp::HandTcp;
use floor::udp::HandUdp;
use ours::Way;

/// Does what was asked for, on whichever side this process is.
pub fn run(args: &WorkArgs) -> Outcome {
    let reading = if args.by.is_by_hand() { by_hand(args)? } else { by_cci(args)? };
    if let Some(reading) = reading {
        print(&reading)?;
    }
    Ok(())
}

fn by_hand(args: &WorkArgs) -> Outcome<Option<Reading>> {
    match (args.by, args.work) {
        (By::CacheLine, Work::HalfTrip { .. }) => floor::cache_line::half_trip(args.count).map(Some),
        (By::HandUdp, Work::BlockingTrip { .. }) => exchange::run::<HandUdp<true>>(args),
        (By::HandUdp, _) => exchange::run::<HandUdp<false>>(args),
        (By::HandTcp, Work::BlockingTrip { .. }) => exchange::run::<HandTcp<true>>(args),
        (By::HandTcp, Work::Connect) => floor::connect::run(args),
        (By::HandTcp, Work::Write { len }) => floor::stream::run(args, Way::Write, len),
        (By::HandTcp, Work::Read { len }) => floor::stream::run(args, Way::Read, len),
        (By::HandTcp, _) => exchange::run::<HandTcp<false>>(args),
        (By::HandXdp, _) => exchange::run::<floor::xdp::HandXdp>(args),
        (By::Memcpy, Work::Write { len } | Work::Read { len }) => floor::memory::copies(args, len).map(Some),
        (By::ProcessVm, Work::Write { len }) => floor::memory::process(args, Way::Write, len),
        (By::ProcessVm, Work::Read { len }) => floor::memory::process(args, Way::Read, len),
        (By::Eventfd, Work::BlockingTrip { .. }) => floor::asleep::eventfd(args),
        (By::Futex, Work::BlockingTrip { .. }) => floor::asleep::futex(args),
        _ => Err(exchange::not_done(args)),
    }
}

fn by_cci(args: &WorkArgs) -> Outcome<Option<Reading>> {
    match (args.by, args.work) {
        (_, Work::Write { len }) => ours::rma::run(args, Way::Write, len),
        (_, Work::Read { len }) => ours::rma::run(args, Way::Read, len),
        (_, Work::Connect) => ours::connect::run(args),
        (_, Work::Poll { connections }) => ours::many::poll(args, connections),
        (_, Work::IdleMemory { connections }) => ours::many::idle_memory(args, connections),
        (By::ShmHandle | By::UdpHandle | By::TcpHandle, _) => exchange::run::<ours::OnHandle>(args),
        (_, Work::BlockingTrip { .. }) => exchange::run::<ours::Waiting>(args),
        (By::ShmLocked | By::UdpLocked, _) => exchange::run::<ours::Locked>(args),
        _ => exchange::run::<ours::Messages>(args),
    }
}

fn print(reading: &Reading) -> Outcome {
    let line = serde_json::to_string(reading).map_err(|error| Trouble::new(error.to_string()))?;
    println!("{line}");
    Ok(())
}
