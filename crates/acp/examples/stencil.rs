//! Heat along a rod in as many pieces as there are ranks, whose ends travel through channels:
//!
//! ```sh
//! cargo cci run -n 4 cargo run --release -p cci-acp --example stencil
//! ```
//!
//! Each rank has a piece of the rod. In each step it sends its first and its last cell to its neighbours, and computes its cells from theirs. At the end the
//! pieces come to rank 0, which compares them with what one process computes alone, bit for bit.

use cci::{Foreign, Memory};
use cci_acp::{ChannelRequest, GlobalMemory, Receiver, Sender, Slots};
use std::error::Error;
use std::time::Instant;

const CELLS: usize = 1_000;
const STEPS: usize = 2_000;
const SLOTS: Slots = Slots { count: 4, bytes: 256 };
const CELL_BYTES: usize = 8;

#[allow(dead_code, reason = "a test has this file as a module, and calls run")]
fn main() {
    run();
}

/// What each rank does. It ends with 1 if something is wrong.
pub fn run() {
    if let Err(error) = heat() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// A neighbour, and the cells that go to it and come from it.
struct Neighbour {
    sender: Sender,
    receiver: Receiver,
    out: Memory,
    into: Memory,
}

impl Neighbour {
    fn meet(global: &mut GlobalMemory, rank: u32) -> Result<Neighbour, Box<dyn Error>> {
        let cell = || Memory::foreign(Foreign::owned(vec![0; CELL_BYTES].into_boxed_slice()));
        let sender = Sender::create(global, rank, SLOTS)?;
        Ok(Neighbour { sender, receiver: Receiver::create(global, rank, SLOTS)?, out: cell(), into: cell() })
    }

    /// Starts to exchange a cell.
    fn start(&self, global: &mut GlobalMemory, cell: f64) -> Result<[ChannelRequest; 2], Box<dyn Error>> {
        assert!(self.out.write(0, &cell.to_ne_bytes()));
        Ok([self.receiver.start(global, &self.into)?, self.sender.start(global, &self.out)?])
    }

    fn cell(&self) -> f64 {
        let mut bytes = [0; CELL_BYTES];
        assert!(self.into.read(0, &mut bytes));
        f64::from_ne_bytes(bytes)
    }
}

fn heat() -> Result<(), Box<dyn Error>> {
    let mut job = cci_job::Job::join()?;
    let context = cci::Context::new()?;
    let device = context.device("any").ok_or("no device any")?;
    let mut global = GlobalMemory::open(&mut job, device, cci::Options::default(), 64)?;
    let (rank, size) = (global.rank(), global.size());
    let part = |rank: u32| rank as usize * CELLS / size as usize..(rank as usize + 1) * CELLS / size as usize;
    let mut cells: Vec<f64> = part(rank).map(at_first).collect();
    let mut meet =
        |is_there: bool, other: u32| is_there.then(|| Neighbour::meet(&mut global, other)).transpose();
    let left = meet(rank > 0, rank.wrapping_sub(1))?;
    let right = meet(rank + 1 < size, rank + 1)?;

    let started = Instant::now();
    for step in 1..=STEPS {
        let mut requests = Vec::new();
        for (neighbour, cell) in [(&left, cells.first()), (&right, cells.last())] {
            if let (Some(neighbour), Some(&cell)) = (neighbour, cell) {
                requests.extend(neighbour.start(&mut global, cell)?);
            }
        }
        for request in requests {
            request.wait(&mut global)?;
        }
        // The ends of the rod stay as they are.
        let ends = [(&left, cells.first()), (&right, cells.last())];
        let [before, behind] = ends.map(|(neighbour, own)| {
            neighbour.as_ref().map_or(own.copied().unwrap_or_default(), Neighbour::cell)
        });
        cells = after(before, &cells, behind);
        if rank == 0 && step % (STEPS / 4) == 0 {
            eprintln!("rank 0: {} % of {STEPS} steps", 100 * step / STEPS);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("rank {rank}: {} cells, {:.0} steps a second", cells.len(), STEPS as f64 / seconds);
    gather(&mut global, cells, part)?;
    for Neighbour { sender, receiver, .. } in [left, right].into_iter().flatten() {
        let freed = [sender.free(&mut global)?, receiver.free(&mut global)?];
        freed.into_iter().try_for_each(|request| request.wait(&mut global).map(drop))?;
    }
    global.close()?;
    Ok(())
}

/// Brings all pieces to rank 0, which checks them.
fn gather(
    global: &mut GlobalMemory,
    mut cells: Vec<f64>,
    part: impl Fn(u32) -> std::ops::Range<usize>,
) -> Result<(), Box<dyn Error>> {
    if global.rank() > 0 {
        let sender = Sender::create(global, 0, SLOTS)?;
        sender.send(global, &cells.iter().flat_map(|cell| cell.to_ne_bytes()).collect::<Vec<u8>>())?;
        sender.free(global)?.wait(global)?;
        return Ok(());
    }
    for rank in 1..global.size() {
        // The second channel from the neighbour, and the first one from others.
        let receiver = Receiver::create(global, rank, SLOTS)?;
        let mut bytes = vec![0; part(rank).len() * CELL_BYTES];
        receiver.receive(global, &mut bytes)?;
        receiver.free(global)?.wait(global)?;
        cells.extend(bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)));
    }
    let mut alone: Vec<f64> = (0..CELLS).map(at_first).collect();
    for _ in 0..STEPS {
        let ends = [alone.first(), alone.last()].map(|cell| cell.copied().unwrap_or_default());
        alone = after(ends[0], &alone, ends[1]);
    }
    if cells != alone {
        return Err("the cells are not what one process computes".into());
    }
    println!("all {CELLS} cells are what one process computes alone, bit for bit");
    Ok(())
}

fn at_first(cell: usize) -> f64 {
    if cell < CELLS / 3 { 100.0 } else { 0.0 }
}

/// The cells one step later, by those before and behind them.
fn after(before: f64, cells: &[f64], behind: f64) -> Vec<f64> {
    let all = [&[before], cells, &[behind]].concat();
    all.windows(3).map(|near| near[1] + 0.25 * (near[0] - 2.0 * near[1] + near[2])).collect()
}
