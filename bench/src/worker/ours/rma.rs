//! CCI's remote memory: transfers as fast as they go, a window of them under way. As with the peers, most are silent: one in half a window
//! has a completion, which on an ordered connection says that those before it are done, too.

use super::dial;
use super::messages::Messages;
use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::worker::dialled::Dialled;
use crate::worker::partner::{self, Partner};
use cci::{Access, Event, Foreign, Memory, RegionAddress, RegionHandle, RmaError, RmaFlags, Status};
use cci_measure::channel::Channel;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::transfer::{Direction, Slots};
use cci_sys::clock;

/// Under way at once: as many as fill the bytes, and these at least and at most.
const WINDOW_BYTES: u64 = 4 << 20;
const WINDOW_MIN: u64 = 4;
const WINDOW_MAX: u64 = 64;
/// Nothing is waited for longer.
const SILENCE_NS: u64 = 20_000_000_000;

/// Between one place here and those of the other side, in turn. The first side's reading; the partner has none.
pub fn run(args: &WorkArgs, direction: Direction, (len, slots): (u32, Slots)) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        lend(Messages::dial(args, first)?, args, &slots)?;
        return Ok(None);
    }
    let site = partner::site(args)?;
    let (endpoint, uri) = Messages::listen(args, &site)?;
    let partner = Partner::start(args, &site, &uri)?;
    partner::pin(args)?;
    let mut transfers = Transfers::open(Messages::accept(endpoint, args)?, args, direction, (len, slots))?;
    transfers.run(args.count / 10 + transfers.slots.count.min(args.count))?;
    let took_ns = transfers.run(args.count)?;
    transfers.channel.send(b"bye")?;
    partner.end(|| transfers.channel.linger())?;
    Ok(Some(Reading::of_bytes(len, args.count, took_ns)))
}

/// The partner: memory for the first side, until that has done with it.
fn lend(mut channel: Messages, args: &WorkArgs, slots: &Slots) -> Outcome {
    let memory = memory(&mut channel, args, slots.bytes())?;
    let handle = channel.endpoint.register(&memory, Access::ALL);
    let handle = handle.map_err(|error| dial::failed("registering")(&error))?;
    channel.send(&handle.to_bytes())?;
    channel.receive().map(drop)
}

fn memory(channel: &mut Messages, args: &WorkArgs, len: usize) -> Outcome<Memory> {
    if args.by == By::ShmForeign {
        // Written once, so that there are pages.
        return Ok(Memory::foreign(Foreign::owned(vec![1; len].into_boxed_slice())));
    }
    channel.endpoint.allocate(len).map_err(|error| dial::failed("memory")(&error))
}

struct Transfers {
    channel: Messages,
    _memory: Memory,
    local: RegionHandle,
    remote: RegionHandle,
    direction: Direction,
    len: u64,
    slots: Slots,
    window: u64,
}

impl Transfers {
    fn open(
        mut channel: Messages,
        args: &WorkArgs,
        direction: Direction,
        (len, slots): (u32, Slots),
    ) -> Outcome<Transfers> {
        let memory = memory(&mut channel, args, len.max(1) as usize)?;
        let local = channel.endpoint.register(&memory, Access::LOCAL);
        let local = local.map_err(|error| dial::failed("registering")(&error))?;
        let until_ns = clock::now_ns() + SILENCE_NS;
        let remote = loop {
            if let Some(Event::Recv(message)) = channel.endpoint.next_event() {
                break RegionHandle::from_message(&message).ok_or_else(|| Failure::new("no handle"))?;
            }
            if clock::now_ns() > until_ns {
                return Err(Failure::new("the partner lends no memory"));
            }
        };
        let window = (WINDOW_BYTES / u64::from(len.max(1))).clamp(WINDOW_MIN, WINDOW_MAX);
        Ok(Transfers { channel, _memory: memory, local, remote, direction, len: len.into(), slots, window })
    }

    /// So many transfers: nanoseconds from the first start to the last completion.
    fn run(&mut self, count: u64) -> Outcome<u64> {
        let begin_ns = clock::now_ns();
        let (mut started, mut done) = (0, 0);
        let mut polls = 0u64;
        while done < count {
            while started < count && started - done < self.window && self.start(started, count)? {
                started += 1;
            }
            match self.channel.endpoint.next_event() {
                // How many there were up to this one.
                Some(Event::Send { status: Status::Success, context, .. }) => done = context,
                Some(Event::Send { status, .. }) => {
                    return Err(Failure::new(format!("a transfer failed: {status}")));
                }
                Some(_) => {}
                None => {
                    polls += 1;
                    if polls.is_multiple_of(1 << 16) && clock::now_ns() - begin_ns > 3 * SILENCE_NS {
                        return Err(Failure::new("a transfer does not complete"));
                    }
                }
            }
        }
        let took_ns = clock::now_ns() - begin_ns;
        match self.channel.endpoint.counters().sends_failed {
            0 => Ok(took_ns),
            failed => Err(Failure::new(format!("{failed} silent transfers failed"))),
        }
    }

    #[inline]
    fn start(&mut self, nth: u64, count: u64) -> Outcome<bool> {
        let number = nth + 1;
        let is_last = number.is_multiple_of(self.window / 2) || number == count;
        let flags = if is_last { RmaFlags::NONE } else { RmaFlags::SILENT };
        let local = RegionAddress::new(self.local, 0);
        let remote = RegionAddress::new(self.remote, self.slots.offset(nth));
        let (endpoint, connection) = (&mut self.channel.endpoint, self.channel.connection);
        let started = match self.direction {
            Direction::Write => endpoint.rma_write(connection, local, remote, self.len, number, flags),
            Direction::Read => endpoint.rma_read(connection, local, remote, self.len, number, flags),
        };
        match started {
            Ok(()) => Ok(true),
            Err(RmaError::WouldBlock) => Ok(false),
            Err(error) => Err(dial::failed("starting a transfer")(&error)),
        }
    }
}
