//! Scripts: what a hostile peer sends, and when.

use cci::RegionHandle;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What one turn takes of what came, at most: the other peers have their turns, too.
const TAKEN_PER_TURN_MAX: u32 = 256;

/// Where the victim is, and what a peer of it may know.
#[derive(Clone, Debug)]
pub struct Site {
    /// The victim's URI.
    pub uri: String,
    /// The peer's number, which its request to connect carries, so that the victim's program knows which script it serves.
    pub number: u64,
    /// A region of the victim's, which its program gives to every peer.
    pub region: RegionHandle,
}

impl Site {
    /// The payload of the peer's request to connect.
    pub fn request(&self) -> Vec<u8> {
        format!("hostile {}", self.number).into_bytes()
    }
}

/// What speaks one transport for a hostile peer: its sockets, and what it has learned from what came.
pub trait Wire: Sized + 'static {
    /// What can come.
    type Kind: Copy + PartialEq + fmt::Debug;

    /// A peer of the victim at `site` that has sent nothing yet.
    ///
    /// # Errors
    /// No sockets to be had.
    fn open(site: &Site) -> io::Result<Self>;

    /// Takes one thing that came. Its fields are the wire's until the next one is taken. None: nothing came.
    fn take(&mut self) -> Option<Self::Kind>;

    /// Writes what waited for space in a socket.
    fn flush(&mut self) {}

    /// Where the victim is to connect to this peer, once it listens.
    fn uri(&self) -> Option<String> {
        None
    }

    /// Where others can connect to this peer.
    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Something that a peer does. Each transport has functions that make them.
pub type Act<W> = Rc<dyn Fn(&mut W)>;

/// Makes an act of a closure.
pub fn act<W>(run: impl Fn(&mut W) + 'static) -> Act<W> {
    Rc::new(run)
}

/// Does several things at once.
pub fn all<W: 'static, const N: usize>(acts: [Act<W>; N]) -> Act<W> {
    act(move |wire| acts.iter().for_each(|act| act(wire)))
}

/// Counts how often it is done: `.on(Bulk, leaked.count())`.
#[derive(Clone, Debug, Default)]
pub struct Counter(Rc<Cell<u64>>);

impl Counter {
    /// An act that counts.
    pub fn count<W>(&self) -> Act<W> {
        let count = self.0.clone();
        act(move |_| count.set(count.get() + 1))
    }

    /// How often it was done.
    pub fn get(&self) -> u64 {
        self.0.get()
    }

    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.set(self.0.get() + more);
    }
}

enum Step<W: Wire> {
    Now(Act<W>),
    Expect(W::Kind, u32),
    Pause(Duration),
    On(W::Kind, Act<W>),
    Every(Duration, u64, Act<W>),
}

impl<W: Wire> Clone for Step<W> {
    fn clone(&self) -> Self {
        match self {
            Step::Now(act) => Step::Now(act.clone()),
            Step::Expect(kind, times) => Step::Expect(*kind, *times),
            Step::Pause(time) => Step::Pause(*time),
            Step::On(kind, act) => Step::On(*kind, act.clone()),
            Step::Every(interval, times, act) => Step::Every(*interval, *times, act.clone()),
        }
    }
}

/// A list of steps, done in order. Rules ([`Script::on`]) and repetitions ([`Script::every`]) go on beside the steps behind
/// them, and after the last one. A peer whose script is over sends nothing of its own accord, and its sockets stay open.
pub struct Script<W: Wire> {
    steps: Vec<Step<W>>,
}

impl<W: Wire> Clone for Script<W> {
    fn clone(&self) -> Self {
        Script { steps: self.steps.clone() }
    }
}

impl<W: Wire> Default for Script<W> {
    fn default() -> Self {
        Script { steps: Vec::new() }
    }
}

impl<W: Wire> Script<W> {
    /// A peer that does nothing.
    pub fn new() -> Script<W> {
        Script::default()
    }

    fn with(mut self, step: Step<W>) -> Script<W> {
        self.steps.push(step);
        self
    }

    /// Does this.
    pub fn now(self, act: Act<W>) -> Script<W> {
        self.with(Step::Now(act))
    }

    /// Does this so many times at once.
    pub fn repeat(self, times: u32, act: Act<W>) -> Script<W> {
        (0..times).fold(self, |script, _| script.now(act.clone()))
    }

    /// Waits until one of these comes.
    pub fn expect(self, kind: W::Kind) -> Script<W> {
        self.expect_times(1, kind)
    }

    /// Waits until so many of these have come.
    pub fn expect_times(self, times: u32, kind: W::Kind) -> Script<W> {
        self.with(Step::Expect(kind, times))
    }

    /// Waits for so long.
    pub fn rest(self, time: Duration) -> Script<W> {
        self.with(Step::Pause(time))
    }

    /// From this step on does this for each of these that comes; in place of an earlier rule for them.
    pub fn on(self, kind: W::Kind, act: Act<W>) -> Script<W> {
        self.with(Step::On(kind, act))
    }

    /// From this step on does this at every `interval`, `times` in all; no more than once in a turn.
    pub fn every(self, interval: Duration, times: u64, act: Act<W>) -> Script<W> {
        self.with(Step::Every(interval, times, act))
    }

    /// Goes on with another script.
    pub fn then(mut self, more: Script<W>) -> Script<W> {
        self.steps.extend(more.steps);
        self
    }

    /// A peer that follows the script.
    ///
    /// # Errors
    /// No sockets to be had.
    pub(super) fn start(self, site: &Site) -> io::Result<Box<dyn Peer>> {
        let mut steps = self.steps;
        steps.reverse();
        let wire = W::open(site)?;
        let (rules, repeats) = (Vec::new(), Vec::new());
        Ok(Box::new(Actor { wire, steps, rules, repeats, rest_until: None, acts: 0 }))
    }
}

/// A peer that follows a script, of any transport.
pub(super) trait Peer {
    /// Does what there is to do; whether there was anything.
    fn turn(&mut self) -> bool;
    /// Where the victim can connect to it.
    fn uri(&self) -> Option<String>;
    /// Where others can connect to it.
    fn addresses(&self) -> Vec<String>;
    /// All steps are done.
    fn is_over(&self) -> bool;
    /// How many acts it has done.
    fn acts(&self) -> u64;
    /// What it waits for, for a test that fails.
    fn waits_for(&self) -> String;
}

struct Repeat<W> {
    interval: Duration,
    times: u64,
    due: Instant,
    act: Act<W>,
}

struct Actor<W: Wire> {
    wire: W,
    /// The next one is the last.
    steps: Vec<Step<W>>,
    rules: Vec<(W::Kind, Act<W>)>,
    repeats: Vec<Repeat<W>>,
    rest_until: Option<Instant>,
    acts: u64,
}

impl<W: Wire> Actor<W> {
    /// Does the next steps, up to one that waits. Whether there was one.
    fn advance(&mut self) -> bool {
        let mut moved = false;
        while let Some(step) = self.steps.last() {
            match step {
                Step::Expect(_, times) if *times > 0 => return moved,
                Step::Expect(..) => {}
                Step::Pause(time) => {
                    let until = *self.rest_until.get_or_insert_with(|| Instant::now() + *time);
                    if Instant::now() < until {
                        return moved;
                    }
                    self.rest_until = None;
                }
                Step::Now(act) => {
                    self.acts += 1;
                    act.clone()(&mut self.wire);
                }
                Step::On(kind, act) => {
                    let (kind, act) = (*kind, act.clone());
                    self.rules.retain(|rule| rule.0 != kind);
                    self.rules.push((kind, act));
                }
                Step::Every(interval, times, act) => {
                    let (interval, times, act) = (*interval, *times, act.clone());
                    self.repeats.push(Repeat { interval, times, due: Instant::now(), act });
                }
            }
            self.steps.pop();
            moved = true;
        }
        moved
    }

    /// Something has come.
    fn came(&mut self, kind: W::Kind) {
        if let Some((_, act)) = self.rules.iter().find(|rule| rule.0 == kind) {
            self.acts += 1;
            act.clone()(&mut self.wire);
        }
        if let Some(Step::Expect(expected, times)) = self.steps.last_mut()
            && *expected == kind
        {
            *times = times.saturating_sub(1);
        }
    }

    /// Repeats what is due. One that is late is done once, not as often as it was missed.
    fn repeat(&mut self) -> bool {
        let (now, before) = (Instant::now(), self.acts);
        for repeat in self.repeats.iter_mut().filter(|repeat| repeat.times > 0 && repeat.due <= now) {
            repeat.times -= 1;
            repeat.due = now + repeat.interval;
            self.acts += 1;
            (repeat.act)(&mut self.wire);
        }
        self.acts > before
    }
}

impl<W: Wire> Peer for Actor<W> {
    fn turn(&mut self) -> bool {
        let mut moved = self.advance();
        for _ in 0..TAKEN_PER_TURN_MAX {
            let Some(kind) = self.wire.take() else { break };
            self.came(kind);
            self.advance();
            moved = true;
        }
        moved |= self.repeat();
        self.wire.flush();
        moved
    }

    fn uri(&self) -> Option<String> {
        self.wire.uri()
    }

    fn addresses(&self) -> Vec<String> {
        self.wire.addresses()
    }

    fn is_over(&self) -> bool {
        self.steps.is_empty()
    }

    fn acts(&self) -> u64 {
        self.acts
    }

    fn waits_for(&self) -> String {
        match self.steps.last() {
            Some(Step::Expect(kind, times)) => format!("{times} more of {kind:?}"),
            Some(Step::Pause(_)) => "its time".to_owned(),
            Some(_) => "its turn".to_owned(),
            None => "nothing".to_owned(),
        }
    }
}
