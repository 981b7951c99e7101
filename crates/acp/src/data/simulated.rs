//! Simulated ranks. Each access to memory is a step. A seed decides which rank makes the next step, and at which step a rank
//! dies.
//!
//! Longer accesses are one step for each word, in either direction, so they are torn wherever two ranks meet.

use crate::address::GlobalAddress;
use crate::data::heap;
use crate::error::{AcpError, Result};
use crate::limits::STARTER_PLACE;
use crate::reserve::Reserves;
use crate::space::{Space, WORD_BYTES};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// If all ranks together make more steps, a rank waits for ever.
const STEPS_MAX: u64 = 3_000_000;

/// The memory of several ranks, and which rank has the next turn.
pub(super) struct World {
    state: Mutex<State>,
    changed: Condvar,
    heap_bytes: u64,
}

struct State {
    memory: Vec<Vec<u8>>,
    turn: usize,
    /// Whether the program of each rank runs.
    runs: Vec<bool>,
    /// The step at which a rank dies.
    dies_at: Vec<Option<u64>>,
    dead: Vec<bool>,
    steps: Vec<u64>,
    chance: u64,
    /// The average number of steps that a rank makes in a row.
    run_steps: u64,
}

/// One rank of a world.
pub(super) struct Rank {
    world: Arc<World>,
    rank: u32,
    reserves: Reserves,
}

impl World {
    pub fn new(seed: u64, ranks: usize, heap_bytes: u64, dies_at: Vec<Option<u64>>) -> Arc<World> {
        let mut memory = vec![vec![0; heap_bytes as usize]; ranks];
        for heap in &mut memory {
            let head = heap::prepare(heap_bytes);
            heap[..head.len()].copy_from_slice(&head);
        }
        let state = State {
            memory,
            turn: 0,
            runs: vec![false; ranks],
            dies_at,
            dead: vec![false; ranks],
            steps: vec![0; ranks],
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            run_steps: 8 << (seed % 4),
        };
        Arc::new(World { state: Mutex::new(state), changed: Condvar::new(), heap_bytes })
    }

    /// One rank alone.
    pub fn alone(heap_bytes: u64) -> Rank {
        World::new(1, 1, heap_bytes, vec![None]).rank(0)
    }

    /// A rank, for use while no program runs.
    pub fn rank(self: &Arc<World>, rank: u32) -> Rank {
        Rank { world: self.clone(), rank, reserves: Reserves::default() }
    }

    /// Runs a program on each rank. Returns the result of each; `None` for one that has died.
    pub fn run<T: Send>(
        self: &Arc<World>,
        program: impl Fn(&mut Rank) -> Result<T> + Sync,
    ) -> Vec<Option<T>> {
        let mut state = self.lock();
        state.runs.fill(true);
        let ranks = state.runs.len() as u32;
        drop(state);
        let run = |rank: u32| {
            let mut space = self.rank(rank);
            let end = program(&mut space);
            // If this rank lives, its reserves are returned to the heaps.
            let end = end.and_then(|value| heap::return_reserves(&mut space, None).map(|()| value));
            let mut state = self.lock();
            state.runs[rank as usize] = false;
            state.draw(None);
            let is_dead = state.dead[rank as usize];
            drop(state);
            self.changed.notify_all();
            match end {
                Ok(value) => Some(value),
                Err(_) if is_dead => None,
                Err(error) => panic!("rank {rank}: {error}"),
            }
        };
        let ends = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || run(rank))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // The caller looks at the memory afterwards, and must not die of it.
        self.lock().dies_at.fill(None);
        ends
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    fn chance(&mut self, below: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) % below
    }

    /// Chooses the next rank: mostly the same one, unless it waits.
    fn draw(&mut self, again: Option<usize>) {
        if let Some(again) = again
            && self.runs[again]
            && self.chance(self.run_steps) > 0
        {
            self.turn = again;
            return;
        }
        let waits = self.turn;
        let others = self.runs.iter().enumerate().any(|(rank, &runs)| runs && rank != waits);
        let running: Vec<usize> =
            (0..self.runs.len()).filter(|&rank| self.runs[rank] && (rank != waits || !others)).collect();
        if !running.is_empty() {
            self.turn = running[self.chance(running.len() as u64) as usize];
        }
    }
}

impl Rank {
    /// Makes one step of this rank, in its turn.
    fn step<T>(&self, waits: bool, act: impl FnOnce(&mut State) -> T) -> Result<T> {
        let own = self.rank as usize;
        let mut state = self.world.lock();
        // While no other rank runs, it is always its turn.
        while state.turn != own && state.runs.iter().enumerate().any(|(rank, &runs)| runs && rank != own) {
            state = self.world.changed.wait(state).unwrap();
        }
        state.steps[own] += 1;
        assert!(state.steps.iter().sum::<u64>() < STEPS_MAX, "a rank waits for ever");
        if state.dies_at[own].is_some_and(|at| state.steps[own] >= at) {
            state.dead[own] = true;
        }
        let done = if state.dead[own] {
            Err(AcpError::Gone { rank: self.rank, why: "it has died".into() })
        } else {
            Ok(act(&mut state))
        };
        state.draw((!waits).then_some(own));
        let is_next = state.turn == own;
        drop(state);
        if !is_next {
            self.world.changed.notify_all();
        }
        done
    }

    fn place(&self, at: GlobalAddress, len: usize) -> Result<(usize, usize)> {
        let start = at.place().checked_sub(STARTER_PLACE).map(|start| start as usize);
        let inside =
            |start: &usize| start.checked_add(len).is_some_and(|end| end as u64 <= self.world.heap_bytes);
        start.filter(inside).map(|start| (at.rank() as usize, start)).ok_or(AcpError::NotRegistered(at))
    }

    /// Divides an access into words, in either direction.
    fn words(&self, start: usize, len: usize) -> Result<Vec<std::ops::Range<usize>>> {
        let mut cuts: Vec<usize> = (start..start + len).filter(|at| at % WORD_BYTES as usize == 0).collect();
        cuts.insert(0, start);
        cuts.push(start + len);
        let mut words: Vec<_> =
            cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|word| !word.is_empty()).collect();
        if self.step(false, |state| state.chance(2))? == 0 {
            words.reverse();
        }
        Ok(words)
    }
}

impl Space for Rank {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.lock().runs.len() as u32
    }

    fn heap(&self, rank: u32) -> Result<GlobalAddress> {
        let size = self.size();
        let heap = GlobalAddress::new(rank, 0, STARTER_PLACE).filter(|_| rank < size);
        heap.ok_or(AcpError::Rank { rank, size })
    }

    fn heap_bytes(&self) -> u64 {
        self.world.heap_bytes
    }

    fn reserves(&mut self) -> &mut Reserves {
        &mut self.reserves
    }

    fn read(&mut self, at: GlobalAddress, bytes: &mut [u8]) -> Result<()> {
        let (rank, start) = self.place(at, bytes.len())?;
        for word in self.words(start, bytes.len())? {
            let into = &mut bytes[word.start - start..word.end - start];
            self.step(false, |state| into.copy_from_slice(&state.memory[rank][word]))?;
        }
        Ok(())
    }

    fn write(&mut self, at: GlobalAddress, bytes: &[u8]) -> Result<()> {
        let (rank, start) = self.place(at, bytes.len())?;
        for word in self.words(start, bytes.len())? {
            let from = &bytes[word.start - start..word.end - start];
            self.step(false, |state| state.memory[rank][word].copy_from_slice(from))?;
        }
        Ok(())
    }

    fn compare_swap(&mut self, at: GlobalAddress, expected: u64, new: u64) -> Result<u64> {
        let (rank, start) = self.place(at, WORD_BYTES as usize)?;
        assert!(start.is_multiple_of(WORD_BYTES as usize));
        self.step(false, |state| {
            let word = &mut state.memory[rank][start..start + WORD_BYTES as usize];
            let was = u64::from_ne_bytes((&*word).try_into().unwrap());
            if was == expected {
                word.copy_from_slice(&new.to_ne_bytes());
            }
            was
        })
    }

    fn serve(&mut self, _: Duration) -> Result<()> {
        self.step(true, |_| {})
    }

    fn has_died(&mut self, rank: u32) -> Result<bool> {
        self.step(false, |state| state.dead[rank as usize])
    }
}
