//! Memory copied without a library: between mappings, and into another process by system calls.

use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::work::CHANNEL_SLOTS;
use crate::worker::partner::{self, Partner};
use cci_measure::baseline::failed;
use cci_measure::baseline::{Mappings, Process};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_measure::transfer::{Direction, Slots};
use cci_sys::clock;
use cci_sys::shared_memory::SharedMemory;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

/// The C library's copy between two mappings of the kind that CCI copies between.
pub fn copies(args: &WorkArgs, len: u32) -> Outcome<Reading> {
    let slots = Slots::one(len);
    partner::pin(args)?;
    let mut mappings = Mappings::create(slots.bytes())?;
    timed(args, &slots, |offset| {
        let copied = mappings.copy(offset as usize, len as usize);
        if copied { Ok(()) } else { Err(Failure::new("out of range")) }
    })
}

/// The slots of a channel's receiver, and nothing else of a channel: memory is made, each page of which the kernel fills with zeros, and freed.
pub fn pages(args: &WorkArgs, slot_bytes: u32) -> Outcome<Reading> {
    partner::pin(args)?;
    let len_bytes = CHANNEL_SLOTS as usize * slot_bytes as usize;
    let make = |count: u64| {
        let made = (0..count).try_for_each(|_| SharedMemory::create("bench-pages", len_bytes).map(drop));
        made.map_err(|error| Failure::new(error.to_string()))
    };
    make(args.count / 10 + 1)?;
    let begin_ns = clock::now_ns();
    make(args.count)?;
    Ok(Reading::of((clock::now_ns() - begin_ns) as f64 / args.count.max(1) as f64))
}

/// One system call for each transfer, from the program's own memory to the partner's own, or back.
pub fn process(args: &WorkArgs, direction: Direction, len: u32) -> Outcome<Option<Reading>> {
    let slots = Slots::one(len);
    let mut mine = vec![1u8; slots.bytes()];
    if args.partner_of.is_some() {
        partner::pin(args)?;
        println!("{}", mine.as_ptr() as u64);
        // Until the first side is done, or gone.
        let _ = std::io::stdin().read(&mut [0]);
        return Ok(None);
    }
    let (input, open) = std::io::pipe().map_err(failed("a pipe"))?;
    let mut partner = Partner::start_with(args, &Site::same_host(), "pipe", (input.into(), Stdio::piped()))?;
    partner::pin(args)?;
    let output = partner.output().ok_or_else(|| Failure::new("no output"))?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).map_err(failed("the second process"))?;
    let address: u64 = line.trim().parse().map_err(|_| Failure::new(format!("no address: {line}")))?;
    let process = Process::of(partner.pid()).map_err(failed("the second process"))?;
    let reading = timed(args, &slots, |offset| {
        let at = offset as usize;
        let chunk = mine.get_mut(at..at + len as usize).unwrap_or_default();
        process.transfer(direction, address + offset, chunk).map_err(failed("process_vm_*v"))
    })?;
    drop(open);
    partner.end(|| {})?;
    Ok(Some(reading))
}

/// Bytes a second, after every place was used once.
fn timed(args: &WorkArgs, slots: &Slots, mut transfer: impl FnMut(u64) -> Outcome) -> Outcome<Reading> {
    for nth in 0..slots.count {
        transfer(slots.offset(nth))?;
    }
    let begin_ns = clock::now_ns();
    for nth in 0..args.count {
        transfer(slots.offset(nth))?;
    }
    let took_ns = clock::now_ns() - begin_ns;
    Ok(Reading::of_bytes(slots.len, args.count, took_ns))
}
