//! Machines that are simulated processes: the memory that they may share, their streams, and the turns that they take in the middle
//! of each other's.

use super::held::Held;
use super::network::address_of;
use super::scenario::Fabric;
use super::streams::PARTS;
use crate::rng::Rng;
use cci::simulated::streams::{self, Direction};
use cci::simulated::{self, Sleep};
use cci::{CreateError, Endpoint, Memory, Options, RegionHandle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where processes live.
pub(super) struct Stage {
    fabric: Fabric,
    memory: simulated::Memory,
    /// In the names of its services, which are the real host's.
    run: u64,
    /// By machine.
    processes: RefCell<Vec<Process>>,
    current: Cell<Option<usize>>,
    rng: RefCell<Rng>,
    /// Who took turns in the middle of others', and how long it may sleep then.
    turns: RefCell<Vec<(usize, Sleep)>>,
    calls_may_fail: Rc<Cell<bool>>,
    /// Streams with something to carry that nothing holds up.
    under_way: RefCell<Vec<Direction>>,
    /// Regions that are about to be deregistered.
    withdrawals: RefCell<Vec<(usize, Withdrawal)>>,
}

/// A region that its machine deregisters soon, perhaps in the middle of another one's turn.
#[derive(Clone, Debug)]
pub(super) struct Withdrawal {
    pub handle: RegionHandle,
    pub memory: Memory,
    /// What the memory held when that was done; None: it is still to be done.
    pub held: Rc<RefCell<Option<Vec<u8>>>>,
}

impl Withdrawal {
    /// Deregisters the region, unless that was done.
    ///
    /// # Errors
    /// Why it could not be.
    pub fn carry_out(&self, endpoint: &mut Endpoint) -> Result<Vec<u8>, String> {
        if let Some(held) = self.held.borrow().as_ref() {
            return Ok(held.clone());
        }
        endpoint.deregister(&self.handle).map_err(|error| format!("deregister: {error}"))?;
        let mut held = vec![0; self.memory.len()];
        let _ = self.memory.read(0, &mut held);
        *self.held.borrow_mut() = Some(held.clone());
        Ok(held)
    }
}

/// A machine's endpoint, and the messages that its program keeps.
pub(super) struct Standby {
    pub endpoint: Endpoint,
    pub held: Vec<Held>,
}

/// A machine's process.
#[derive(Default)]
struct Process {
    /// Its number in the memory; None: it has not begun.
    number: Option<usize>,
    /// What its clock showed last.
    shown_ns: u64,
    /// What it has while another one's program runs: it may take a turn then.
    standby: Option<Standby>,
    /// What its clock shows while it is on standby.
    standby_ns: u64,
    is_stopped: bool,
}

impl Stage {
    /// A place for so many machines; None: they need none.
    pub fn new(fabric: Fabric, seed: u64, machines: usize) -> Option<Rc<Stage>> {
        let (is_weak, fault_per_calls) = match fabric {
            Fabric::Datagrams => return None,
            Fabric::SharedMemory { is_weak, fault_per_calls } => (is_weak, fault_per_calls),
            Fabric::Streams { fault_per_calls, .. } => (false, fault_per_calls),
        };
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let mut rng = Rng::new(seed ^ 0x7374_6167);
        simulated::set_seed(rng.next_u64());
        let calls_may_fail = Rc::new(Cell::new(false));
        if fault_per_calls > 0 {
            let (may_fail, mut rng) = (Rc::clone(&calls_may_fail), Rng::new(seed ^ 0x6661_756c));
            simulated::set_fault(move |_| {
                (may_fail.get() && rng.below(fault_per_calls) == 0).then(|| rng.pick(&ERRORS))
            });
        }
        if matches!(fabric, Fabric::Streams { .. }) {
            let mut rng = Rng::new(seed ^ 0x7374_7265);
            streams::begin(move |below| rng.below(below));
        }
        let stage = Rc::new(Stage {
            fabric,
            memory: simulated::Memory::new(is_weak, move |below| rng.below(below)),
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            processes: RefCell::new((0..machines).map(|_| Process::default()).collect()),
            current: Cell::new(None),
            rng: RefCell::new(Rng::new(seed ^ 0x7475_726e)),
            turns: RefCell::default(),
            calls_may_fail,
            under_way: RefCell::default(),
            withdrawals: RefCell::default(),
        });
        let weak = Rc::downgrade(&stage);
        stage.memory.set_turn(move || {
            if let Some(stage) = weak.upgrade() {
                stage.turn();
            }
        });
        Some(stage)
    }

    /// Opens the endpoint of a machine, which is a process of that host.
    pub fn open(
        &self,
        machine: usize,
        host: usize,
        options: Options,
        seed: u64,
    ) -> Result<Endpoint, CreateError> {
        let service = format!("sim-{}-{}-{machine}", std::process::id(), self.run);
        match self.fabric {
            Fabric::Streams { any, .. } => {
                let mut at = address_of(host);
                at.set_port(at.port() + machine as u16);
                simulated::open_streams(at, any.then_some(service), options, seed)
            }
            _ => simulated::open_shared_memory(&service, options, seed),
        }
    }

    /// Whether the machine's streams have something to carry that nothing holds up.
    pub fn is_under_way(&self, direction: Direction, is_under_way: bool) {
        let mut directions = self.under_way.borrow_mut();
        directions.retain(|other| *other != direction);
        if is_under_way {
            directions.push(direction);
        }
    }

    /// Something arrives in the middle of a turn.
    fn carry(&self) {
        let (directions, mut rng) = (self.under_way.borrow(), self.rng.borrow_mut());
        if let Some(direction) = directions.get(rng.below(directions.len().max(1) as u64) as usize) {
            streams::carry(*direction, rng.pick(&PARTS));
        }
    }

    /// System calls are made to fail from now on, or no more.
    pub fn calls_may_fail(&self, may_fail: bool) {
        self.calls_may_fail.set(may_fail);
    }

    /// A machine has a new process.
    pub fn begin(&self, machine: usize) {
        // What the process before had promised to deregister went with it.
        self.withdrawals.borrow_mut().retain(|(of, _)| *of != machine);
        if let Some(process) = self.processes.borrow_mut().get_mut(machine) {
            process.number = Some(self.memory.add_process());
        }
    }

    /// From now on what is done is done by this machine's process. Its clock shows this, or what it has shown already.
    pub fn enter(&self, machine: usize, shows_ns: u64) {
        let mut processes = self.processes.borrow_mut();
        if let Some(process) = self.current.get().and_then(|before| processes.get_mut(before)) {
            process.shown_ns = simulated::now_ns().unwrap_or(0);
        }
        let Some(process) = processes.get_mut(machine) else { return };
        if let Some(number) = process.number {
            self.current.set(Some(machine));
            self.memory.switch_to(number);
            simulated::set_clock(process.shown_ns.max(shows_ns));
        }
    }

    fn number(&self, machine: usize) -> Option<usize> {
        self.processes.borrow().get(machine)?.number
    }

    /// The machine's process dies after a few more stores.
    pub fn kill(&self, machine: usize) {
        if let Some(number) = self.number(machine) {
            self.memory.die_after(number, self.rng.borrow_mut().below(STORES_TO_DEATH_MAX));
        }
    }

    /// The machine's process is stopped, or goes on.
    pub fn stop(&self, machine: usize, is_stopped: bool) {
        if let Some(process) = self.processes.borrow_mut().get_mut(machine) {
            process.is_stopped = is_stopped;
            if let Some(number) = process.number {
                self.memory.stop(number, is_stopped);
            }
        }
    }

    /// After a turn of the machine's: perhaps all that it stored is seen at once. Otherwise, after how many nanoseconds.
    pub fn shows_after_ns(&self, machine: usize) -> Option<u64> {
        let number = self.number(machine)?;
        let mut rng = self.rng.borrow_mut();
        if self.memory.hidden(number) == 0 {
            return None;
        }
        if rng.pct(50.0) {
            self.memory.show_all(number);
            return None;
        }
        Some(rng.below(HIDDEN_NS_MAX))
    }

    /// All that the machine's process has stored is seen, unless it is stopped.
    pub fn show(&self, machine: usize) {
        if let Some(process) = self.processes.borrow().get(machine)
            && let Some(number) = process.number.filter(|_| !process.is_stopped)
        {
            self.memory.show_all(number);
        }
    }

    /// A machine may take turns in the middle of another one's, now that its clock shows this.
    pub fn lend(&self, machine: usize, standby: Standby, shows_ns: u64) {
        if let Some(process) = self.processes.borrow_mut().get_mut(machine) {
            (process.standby, process.standby_ns) = (Some(standby), shows_ns);
        }
    }

    /// What it was lent with, back.
    pub fn take_back(&self, machine: usize) -> Option<Standby> {
        self.processes.borrow_mut().get_mut(machine)?.standby.take()
    }

    /// Who has taken turns in the middle of others' since this was asked last, and how long it may sleep.
    pub fn turns(&self) -> Vec<(usize, Sleep)> {
        self.turns.take()
    }

    /// The machine deregisters a region soon.
    pub fn withdraw(&self, machine: usize, withdrawal: Withdrawal) {
        self.withdrawals.borrow_mut().push((machine, withdrawal));
    }

    /// Perhaps the machine deregisters what it is about to.
    fn withdraw_some(&self, machine: usize, endpoint: &mut Endpoint) {
        let mut withdrawals = self.withdrawals.borrow_mut();
        withdrawals.retain(|(of, withdrawal)| {
            if *of != machine || self.rng.borrow_mut().pct(50.0) {
                return true;
            }
            // What stands in the way now is reported when its time has come.
            withdrawal.carry_out(endpoint).is_err()
        });
    }

    /// Another process takes a turn.
    fn turn(&self) {
        let Some(current) = self.current.get() else { return };
        self.carry();
        let machine = self.rng.borrow_mut().below(self.processes.borrow().len() as u64) as usize;
        let is_stopped = self.processes.borrow().get(machine).is_none_or(|process| process.is_stopped);
        if is_stopped {
            return;
        }
        let shows_ns = self.processes.borrow().get(machine).map_or(0, |process| process.standby_ns);
        let Some(Standby { mut endpoint, mut held }) = self.take_back(machine) else { return };
        self.enter(machine, shows_ns);
        if self.rng.borrow_mut().pct(50.0) {
            // Its program has done with a message. One that has changed is reported when its time has come.
            held.pop_if(|held| !held.is_damaged());
        }
        endpoint.progress();
        self.withdraw_some(machine, &mut endpoint);
        self.turns.borrow_mut().push((machine, simulated::sleep(&mut endpoint)));
        self.lend(machine, Standby { endpoint, held }, shows_ns);
        self.enter(current, 0);
    }
}

/// Stores within which a process that is killed dies, in the turn that it has then.
const STORES_TO_DEATH_MAX: u64 = 60;
/// What calls fail with: EMFILE, ENFILE, ENOMEM.
const ERRORS: [i32; 3] = [24, 23, 12];
/// How long stores may stay unseen.
const HIDDEN_NS_MAX: u64 = 20_000;

impl Drop for Stage {
    fn drop(&mut self) {
        simulated::clear_fault();
        streams::end();
        simulated::leave();
    }
}
