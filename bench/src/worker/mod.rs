//! One turn of the baseline or of CCI, in two processes: this one on the first core, and a partner on the second, which
//! it starts. The result is one line of JSON.

mod baseline;
mod dialled;
mod exchange;
mod ours;
pub mod partner;

use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::work::Work;
use cci_measure::baseline::{PlainTcp, PlainUdp};
use cci_measure::cache_line;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::transfer::{Direction, Slots};

const PAGE_BYTES: u32 = 4096;

/// Does what was asked for, on whichever side this process is.
pub fn run(args: &WorkArgs) -> Outcome {
    let reading = if args.by.is_baseline() { plain(args)? } else { by_cci(args)? };
    if let Some(reading) = reading {
        print(&reading)?;
    }
    Ok(())
}

fn plain(args: &WorkArgs) -> Outcome<Option<Reading>> {
    match (args.by, args.work) {
        (By::CacheLine, Work::HalfTrip { .. }) => cache_line(args).map(Some),
        (By::PlainUdp, Work::Contact) => baseline::question::run(args),
        (By::PlainUdp, Work::BlockingTrip { .. }) => exchange::run::<PlainUdp<true>>(args),
        (By::PlainUdp, _) => exchange::run::<PlainUdp<false>>(args),
        (By::PlainTcp, Work::BlockingTrip { .. }) => exchange::run::<PlainTcp<true>>(args),
        (By::PlainTcp, Work::Connect) => baseline::connect::run(args),
        (By::PlainTcp, Work::Write { len }) => baseline::stream::run(args, Direction::Write, len),
        (By::PlainTcp, Work::Read { len }) => baseline::stream::run(args, Direction::Read, len),
        (By::PlainTcp, _) => exchange::run::<PlainTcp<false>>(args),
        (By::PlainXdp, _) => exchange::run::<baseline::xdp::PlainXdp>(args),
        (By::Memcpy, Work::Write { len } | Work::Read { len }) => {
            baseline::memory::copies(args, len).map(Some)
        }
        (By::Pages, Work::ChannelLife { len }) => baseline::memory::pages(args, len).map(Some),
        (By::ProcessVm, Work::Write { len }) => baseline::memory::process(args, Direction::Write, len),
        (By::ProcessVm, Work::Read { len }) => baseline::memory::process(args, Direction::Read, len),
        (By::Eventfd, Work::BlockingTrip { .. }) => baseline::asleep::eventfd(args),
        (By::Futex, Work::BlockingTrip { .. }) => baseline::asleep::futex(args),
        _ => Err(exchange::not_done(args)),
    }
}

/// One cache line handed back and forth between two threads.
fn cache_line(args: &WorkArgs) -> Outcome<Reading> {
    // To be asked before pinning: afterwards there is one.
    let second = partner::cores()?.second;
    partner::pin(args)?;
    let found = cache_line::half_round_trips_ns(second, &[args.count / 10, args.count]);
    found?.last().map(|&ns| Reading::of(ns)).ok_or_else(|| Failure::new("no trips"))
}

fn by_cci(args: &WorkArgs) -> Outcome<Option<Reading>> {
    match (args.by, args.work) {
        (By::Ranks, Work::Pack { .. } | Work::Unpack { .. }) => ours::pack::run(args).map(Some),
        (By::Ranks, _) => ours::ranks::run(args),
        (By::Acp | By::AcpUdp, _) => ours::acp::run(args),
        (By::Job, _) => ours::job::run(args),
        (By::ServicesShm | By::ServicesUdp | By::ServicesTcp, _) => ours::services::run(args),
        (_, Work::Contact) => ours::connect::each(args),
        (_, Work::Write { len }) => ours::rma::run(args, Direction::Write, (len, Slots::one(len))),
        (_, Work::WriteInTurn { len, places }) => {
            // Each on pages of its own, as memory is that was allocated.
            let slots = Slots { len: len.next_multiple_of(PAGE_BYTES), count: places.into() };
            ours::rma::run(args, Direction::Write, (len, slots))
        }
        (_, Work::Read { len }) => ours::rma::run(args, Direction::Read, (len, Slots::one(len))),
        (_, Work::Long { .. }) => exchange::run::<ours::AnyLength>(args),
        (_, Work::Call { len }) => ours::calls::half(args, len),
        (_, Work::Calls { len, clients }) => ours::calls::rate(args, len, clients),
        (_, Work::Connect) => ours::connect::run(args),
        (_, Work::Poll { connections }) => ours::many::poll(args, connections),
        (_, Work::IdleMemory { connections }) => ours::many::idle_memory(args, connections),
        (By::ShmHandle | By::UdpHandle | By::TcpHandle, _) => exchange::run::<ours::OnHandle>(args),
        (_, Work::BlockingTrip { .. }) => exchange::run::<ours::Waiting>(args),
        (_, Work::Stream { .. }) => exchange::run::<ours::Streams>(args),
        (_, Work::Handled { .. }) => exchange::run::<ours::Handled>(args),
        (_, Work::LoanTrip { .. }) => exchange::run::<ours::Lent>(args),
        (By::ShmLocked | By::UdpLocked, _) => exchange::run::<ours::Locked>(args),
        _ => exchange::run::<ours::Messages>(args),
    }
}

fn print(reading: &Reading) -> Outcome {
    let line = serde_json::to_string(reading).map_err(|error| Failure::new(error.to_string()))?;
    println!("{line}");
    Ok(())
}
