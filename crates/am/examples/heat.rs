//! Heat that spreads over a plate: each process of a job has a block of it, and puts its edges into the blocks around it, the columns of them by
//! strided puts. At the end rank 0 compares all of it with what it computes alone.
//!
//! `cargo cci run -n 4 -- cargo run -qrp cci-am --example heat`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for people")]

use cci::Memory;
use cci_am::description::Description;
use cci_am::{Elements, Runtime};
use cci_job::Job;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Cells of a block along each side, and steps.
const SIDE: usize = 200;
const STEPS: usize = 500;
/// A block has a row and a column more on each side, for the edges of those around it.
const ROW: usize = SIDE + 2;
const CELL_BYTES: usize = size_of::<f64>();
const ROW_BYTES: usize = ROW * CELL_BYTES;
/// Lines about how far it is come no sooner after each other.
const PROGRESS: Duration = Duration::from_millis(500);

/// The handler that takes a row of a block: its arguments are the row of the plate and its first column.
const TAKE_ROW: u16 = 0;

type Failure = Box<dyn Error>;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Failure> {
    let mut job = Job::join()?;
    let mut runtime = Runtime::open(&mut job, cci::Options::default())?;
    let context = runtime.context()?;
    let (down, across) = sides(runtime.size() as usize);
    let rows = Rc::new(RefCell::new(Vec::new()));
    let taken = rows.clone();
    runtime.register(context, TAKE_ROW, move |_, message| {
        let cells: Vec<f64> = cells(message.data());
        taken.borrow_mut().push((message.args()[0] as usize, message.args()[1] as usize, cells));
    })?;

    if runtime.rank() == 0 {
        eprintln!("rank 0: {down} by {across} blocks of {SIDE} by {SIDE} cells, {STEPS} steps");
    }
    let start = Instant::now();
    let block = Block::new(&mut runtime, &mut job, across)?;
    let mut said = start;
    for step in 0..STEPS {
        block.step(&mut runtime)?;
        if runtime.rank() == 0 && said.elapsed() >= PROGRESS {
            said = Instant::now();
            eprintln!("rank 0: {} % of {STEPS} steps", step * 100 / STEPS);
        }
    }
    let elapsed = start.elapsed();

    for row in 0..SIDE {
        let mut bytes = vec![0; SIDE * CELL_BYTES];
        block.read(row + 1, 1, &mut bytes);
        let args = [(block.first_row + row) as i64, block.first_column as i64];
        runtime.request(context, 0, TAKE_ROW, &args, &bytes)?;
    }
    runtime.quiet()?;
    if runtime.rank() == 0 {
        let (height, width) = (down * SIDE, across * SIDE);
        let alone = alone(height, width);
        let mut right = 0;
        for (row, column, cells) in rows.borrow().iter() {
            right += usize::from(*cells == alone[row * width + column..][..SIDE]);
        }
        let all = SIDE * runtime.size() as usize;
        if right != all {
            return Err(format!("{right} of {all} rows of blocks are right").into());
        }
        let rate = (height * width * STEPS) as f64 / elapsed.as_secs_f64() / 1e6;
        println!(
            "{} ranks ({down} by {across} blocks of {SIDE} by {SIDE}), {STEPS} steps in {elapsed:.2?}: {rate:.0} M cells/s",
            runtime.size()
        );
        println!("all {height} by {width} cells are what one process computes alone, bit for bit");
    }
    Ok(runtime.finish()?)
}

/// A part of the plate, and where those around it are.
struct Block {
    memory: Memory,
    first_row: usize,
    first_column: usize,
    /// Ranks above, below, left and right, and the addresses of their blocks.
    around: [Option<(u32, u64)>; 4],
}

impl Block {
    fn new(runtime: &mut Runtime, job: &mut Job, across: usize) -> Result<Block, Failure> {
        let memory = runtime.allocate(ROW * ROW_BYTES)?;
        runtime.register_memory(&memory)?;
        let mine = memory.as_ptr().addr() as u64;
        let addresses = job.exchange(&mine.to_le_bytes())?;
        let (rank, size) = (runtime.rank() as usize, runtime.size() as usize);
        let at = |rank: usize| -> Option<(u32, u64)> {
            let bytes = addresses.get(rank)?.first_chunk()?;
            Some((rank as u32, u64::from_le_bytes(*bytes)))
        };
        let (row, column) = (rank / across, rank % across);
        let around = [
            rank.checked_sub(across).and_then(at),
            (rank + across < size).then_some(rank + across).and_then(at),
            (column > 0).then(|| rank - 1).and_then(at),
            (column + 1 < across).then_some(rank + 1).and_then(at),
        ];
        let block = Block { memory, first_row: row * SIDE, first_column: column * SIDE, around };
        for row in 0..SIDE {
            let cells = (0..SIDE).map(|column| first(block.first_row + row, block.first_column + column));
            block.write(row + 1, 1, &bytes(cells));
        }
        block.put_edges(runtime)?;
        Ok(block)
    }

    /// All read the edges that were put, then each puts its new ones.
    fn step(&self, runtime: &mut Runtime) -> Result<(), Failure> {
        let mut all = vec![0; ROW * ROW_BYTES];
        self.read(0, 0, &mut all);
        let old = cells(&all);
        runtime.barrier()?;
        for row in 1..=SIDE {
            let new = (1..=SIDE).map(|column| next(&old, row * ROW + column, ROW));
            self.write(row, 1, &bytes(new));
        }
        self.put_edges(runtime)
    }

    fn put_edges(&self, runtime: &mut Runtime) -> Result<(), Failure> {
        let row = Elements { count: 1, description: Description::bytes(SIDE * CELL_BYTES)? };
        let column = Description::strided(&[CELL_BYTES, SIDE], &[ROW_BYTES as isize])?;
        let column = Elements { count: 1, description: column };
        let at = |row: usize, column: usize| row * ROW_BYTES + column * CELL_BYTES;
        // What goes where: to the row below the last one of the block above, and so on.
        let edges = [
            (&row, at(1, 1), at(SIDE + 1, 1)),
            (&row, at(SIDE, 1), at(0, 1)),
            (&column, at(1, 1), at(1, SIDE + 1)),
            (&column, at(1, SIDE), at(1, 0)),
        ];
        let failed = Rc::new(Cell::new(false));
        for (neighbour, (what, from, to)) in self.around.iter().zip(edges) {
            let Some((rank, address)) = *neighbour else { continue };
            let failed = failed.clone();
            let done = move |_: &mut Runtime, result: cci_am::Result<()>| {
                failed.set(failed.get() || result.is_err());
            };
            let remote = (address + to as u64, what.clone());
            runtime.put_described(rank, remote, (&self.memory, from as isize, what.clone()), done)?;
        }
        runtime.global_fence()?;
        if failed.get() { Err("an edge could not be put".into()) } else { Ok(()) }
    }

    fn read(&self, row: usize, column: usize, bytes: &mut [u8]) {
        let is_inside = self.memory.read(row * ROW_BYTES + column * CELL_BYTES, bytes);
        debug_assert!(is_inside);
    }

    fn write(&self, row: usize, column: usize, bytes: &[u8]) {
        let is_inside = self.memory.write(row * ROW_BYTES + column * CELL_BYTES, bytes);
        debug_assert!(is_inside);
    }
}

/// How hot a cell is at first: a hot square in the corner, and a warm line.
fn first(row: usize, column: usize) -> f64 {
    match (row, column) {
        (0..90, 0..90) => 100.0,
        (_, 150..160) => 20.0,
        _ => 0.0,
    }
}

/// What becomes of a cell: it comes nearer to the mean of those around it.
fn next(cells: &[f64], at: usize, row: usize) -> f64 {
    let around = cells[at - row] + cells[at + row] + cells[at - 1] + cells[at + 1];
    cells[at] + 0.2 * (around - 4.0 * cells[at])
}

/// The whole plate, by one process.
fn alone(height: usize, width: usize) -> Vec<f64> {
    let row_cells = width + 2;
    let mut old = vec![0.0; (height + 2) * row_cells];
    for row in 0..height {
        for column in 0..width {
            old[(row + 1) * row_cells + column + 1] = first(row, column);
        }
    }
    let mut new = old.clone();
    for _ in 0..STEPS {
        for row in 1..=height {
            let first = row * row_cells + 1;
            for (column, cell) in new[first..first + width].iter_mut().enumerate() {
                *cell = next(&old, first + column, row_cells);
            }
        }
        std::mem::swap(&mut old, &mut new);
    }
    (0..height).flat_map(|row| old[(row + 1) * row_cells + 1..][..width].to_vec()).collect()
}

/// Blocks down and across: as near to a square as there are factors.
fn sides(size: usize) -> (usize, usize) {
    let down =
        (1..=size).take_while(|down| down * down <= size).filter(|down| size.is_multiple_of(*down)).last();
    let down = down.unwrap_or(1);
    (down, size / down)
}

fn cells(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|cell| f64::from_ne_bytes(*cell)).collect()
}

fn bytes(cells: impl Iterator<Item = f64>) -> Vec<u8> {
    cells.flat_map(f64::to_ne_bytes).collect()
}
