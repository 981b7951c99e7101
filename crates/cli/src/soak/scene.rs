//! One device's soak: its peers, the faults done to them, and the judgement of what they report.

use super::child::Child;
use super::faults::{Fault, FaultSchedule, Next};
use super::network::{Network, programs_left};
use super::peers::{EXCUSE, Peers, Slot};
use super::plan::Plan;
use super::random::mix;
use super::status::{State, Status};
use super::talk::{Order, PeerMessage, Report};
use crate::failure::{Failure, Outcome};
use cci_measure::held::Held;
use cci_measure::site::Site;
use cci_sys::process::Signal;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A peer that is not stopped reports something within this.
const SILENCE: Duration = Duration::from_secs(30);
/// Peers that nothing is done to get on within this.
const STALL: Duration = Duration::from_secs(45);
/// Time to listen after the start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for everything to end.
const END_LIMIT: Duration = Duration::from_secs(100);
/// Time for the peers to report what else they know when something has failed.
const EXPLAIN_LIMIT: Duration = Duration::from_secs(10);
/// Sessions that each peer completes before there is any fault.
const WARM_SESSIONS: u64 = 6;
/// Time for what the dead have left to go.
const LEFT_LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);
/// Rates are over so many samples.
const RATE_SAMPLES: usize = 5;
/// Survivors' memory may grow by so much, percent and bytes, from the second quarter of the time to the last. Sessions lend, and
/// hold for a last look, up to some 20 MiB at a time; how much at which time is drawn.
const MEMORY_GROWTH: (u64, u64) = (10, 48 << 20);

/// The peers of one device, the faults they meet, and the judge of what they report.
pub struct Scene {
    plan: Plan,
    peers: Peers,
    network: Network,
    schedule: FaultSchedule,
    next: Option<(Instant, Next)>,
    /// Totals of processes that are no more.
    dead: Report,
    status: Arc<Mutex<Status>>,
    stop: Arc<AtomicBool>,
    begin: Instant,
    sampled: Instant,
    recent: VecDeque<(Instant, [u64; 5])>,
}

/// Runs a soak in the calling thread, which may end in another network namespace.
pub fn run(plan: Plan, status: &Arc<Mutex<Status>>, stop: Arc<AtomicBool>) {
    let ran = Scene::new(plan, status.clone(), stop).and_then(|mut scene| scene.run());
    let mut status = lock(status);
    if let Err(failure) = ran {
        status.fail(failure.to_string());
    }
    status.conclude();
}

/// A thread that panicked is reported elsewhere.
pub fn lock(status: &Mutex<Status>) -> MutexGuard<'_, Status> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scene {
    fn new(plan: Plan, status: Arc<Mutex<Status>>, stop: Arc<AtomicBool>) -> Outcome<Scene> {
        let site = if plan.pair { Site::across_a_pair()? } else { Site::same_host() };
        let unavailable = |fault: &Fault| match fault {
            Fault::Weather => plan.relay,
            Fault::Link => plan.pair,
            _ => true,
        };
        let kinds = plan.faults.iter().copied().filter(unavailable).collect();
        let seed = mix(plan.seed ^ plan.device.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte))));
        let schedule =
            FaultSchedule::new(seed, kinds, plan.peers, plan.survivors(), plan.fault_every, plan.timeout);
        let now = Instant::now();
        Ok(Scene {
            peers: Peers::start(&plan, site, seed)?,
            network: Network::default(),
            schedule,
            next: None,
            dead: Report::default(),
            status,
            stop,
            begin: now,
            sampled: now,
            recent: VecDeque::new(),
            plan,
        })
    }

    fn has_failed(&self) -> bool {
        !lock(&self.status).failures.is_empty()
    }

    fn run(&mut self) -> Outcome {
        self.await_all()?;
        self.warm_up()?;
        if self.has_failed() {
            return self.explain();
        }
        lock(&self.status).state = State::Running;
        self.begin = Instant::now();
        self.plan_fault(self.begin);
        while self.begin.elapsed() < self.plan.lasts && !self.stop.load(Ordering::Relaxed) {
            self.tick()?;
            self.do_faults()?;
            if self.has_failed() {
                return self.explain();
            }
            std::thread::sleep(TICK);
        }
        lock(&self.status).state = State::Ending;
        self.end()?;
        if !self.has_failed() { Ok(()) } else { self.explain() }
    }

    /// Lets all work undisturbed until what is made once has been made; then takes down what the survivors hold while
    /// nothing goes on.
    fn warm_up(&mut self) -> Outcome {
        let (begin, survivors) = (Instant::now(), self.plan.survivors());
        let is_warm = |child: &Child| {
            let Report { clean, transfers, atomics, calls, .. } = child.report;
            clean >= WARM_SESSIONS && transfers > 0 && atomics + calls > 0
        };
        self.until("they hardly get started", is_warm)?;
        self.peers.order(&Order::End);
        self.until("their first sessions do not end", Child::has_ended_sessions)?;
        for child in self.peers.slots.iter_mut().take(survivors).filter_map(|slot| slot.child.as_mut()) {
            child.before = Some(child.held());
        }
        lock(&self.status).note(format!("warm after {:.1} s", begin.elapsed().as_secs_f64()));
        self.peers.order(&Order::Begin);
        self.peers.children_mut().for_each(|child| child.report.ending = false);
        Ok(())
    }

    fn await_all(&mut self) -> Outcome {
        let until = Instant::now() + START_LIMIT;
        while self.peers.slots.iter().any(|slot| slot.child.as_ref().is_none_or(|child| child.uri.is_none()))
        {
            self.listen()?;
            if self.has_failed() {
                return Err(Failure::new("the peers could not be started"));
            }
            if Instant::now() > until {
                return Err(Failure::new(format!(
                    "the peers do not listen within {} s",
                    START_LIMIT.as_secs()
                )));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Listens, looks, starts again, judges.
    fn tick(&mut self) -> Outcome {
        self.listen()?;
        let now = Instant::now();
        self.peers.go_on(now)?;
        if self.network.tick(now)? {
            self.peers.excuse_all(now);
        }
        if now > self.sampled + self.plan.sample_every() {
            self.sampled = now;
            self.sample(now);
        }
        Ok(())
    }

    fn listen(&mut self) -> Outcome {
        self.peers.listen().into_iter().try_for_each(|(index, message)| self.handle(index, message))
    }

    /// Whether something was done to one of two peers.
    fn is_excused(&self, index: usize, with: u32) -> bool {
        let now = Instant::now();
        let is_excused = |one: usize| self.peers.slots.get(one).is_some_and(|slot| slot.is_excused(now));
        is_excused(index) || is_excused(with as usize)
    }

    fn handle(&mut self, index: usize, message: PeerMessage) -> Outcome {
        let at = self.begin.elapsed().as_secs_f64();
        match message {
            PeerMessage::Ready { uri } => {
                let weather = self.plan.relay.then_some(&self.network.weather);
                self.peers.ready(index, uri, weather)?;
            }
            PeerMessage::Report(_) => {}
            PeerMessage::Broken { with, why, explained } => {
                let excused = self.is_excused(index, with);
                let mut status = lock(&self.status);
                if excused {
                    status.excused += 1;
                } else {
                    status.fail(format!(
                        "at {at:.3} s: peer {index}: a session with peer {with} ended, with nothing done to either: \
                         {why}\n{explained}"
                    ));
                }
            }
            PeerMessage::GivenUp { with, why } => {
                if !self.is_excused(index, with) {
                    lock(&self.status)
                        .note(format!("{at:.1} s: peer {index}: {why}, session with peer {with}"));
                }
            }
            PeerMessage::Wrong(what) => {
                if let Some(child) = self.peers.child(index) {
                    child.done = true;
                }
                lock(&self.status).found(format!("at {at:.3} s: peer {index}: {what}"));
            }
            PeerMessage::Explained(text) => {
                if let Some(child) = self.peers.child(index) {
                    child.explained = Some(text);
                }
            }
            PeerMessage::Note(line) => lock(&self.status).note(format!("{at:.1} s: peer {index}: {line}")),
            PeerMessage::Done(_) => {
                if let Some(child) = self.peers.child(index) {
                    child.done = true;
                }
            }
        }
        Ok(())
    }

    fn plan_fault(&mut self, now: Instant) {
        // The first ones have no peers at work to hit otherwise.
        self.next = self.schedule.draw().map(|next| (now + next.then, next));
    }

    fn do_faults(&mut self) -> Outcome {
        let now = Instant::now();
        let Some((_, next)) = self.next.filter(|(at, _)| now > *at) else { return Ok(()) };
        self.plan_fault(now);
        let seconds = self.begin.elapsed().as_secs_f64();
        if self.hit(next, now)? {
            let mut status = lock(&self.status);
            if let Some(count) = status.faults.get_mut(next.fault.index()) {
                *count += 1;
            }
            let whom = match next.fault {
                Fault::Weather | Fault::Link => String::new(),
                _ => format!(" peer {}", next.whom),
            };
            status.note(format!("{seconds:.1} s: {}{whom}, {} ms", next.fault, next.lasts.as_millis()));
        }
        Ok(())
    }

    /// False: not now.
    fn hit(&mut self, next: Next, now: Instant) -> Outcome<bool> {
        let end = now + next.lasts;
        match next.fault {
            Fault::Weather => {
                self.network.spoil(self.schedule.weather(), end);
                return Ok(true);
            }
            Fault::Link => {
                let is_new = self.network.take_down(end)?;
                if is_new {
                    self.peers.excuse_all(now);
                }
                return Ok(is_new);
            }
            _ => {}
        }
        let Some(slot) = self.peers.slots.get_mut(next.whom) else { return Ok(false) };
        // One that does not listen yet can only die, and one that is stopped only be killed.
        let can = |child: &&mut Child| match next.fault {
            Fault::Kill => true,
            Fault::Segv => !child.stopped,
            _ => !child.stopped && child.uri.is_some(),
        };
        let Some(child) = slot.child.as_mut().filter(can) else { return Ok(false) };
        match next.fault {
            Fault::Kill | Fault::Segv => {
                let signal = if next.fault == Fault::Kill { Signal::Kill } else { Signal::Segv };
                child.kill(signal);
                if let Some(what) = child.last_finding() {
                    lock(&self.status).found(format!("peer {}, before it was killed: {what}", next.whom));
                }
                self.dead.add(&child.report.of_the_dead());
                slot.child = None;
                (slot.start_at, slot.continue_at) = (Some(end), None);
            }
            Fault::Stop => {
                child.signal(Signal::Stop);
                child.stopped = true;
                slot.continue_at = Some(end);
            }
            Fault::Renew => child.order(&Order::Renew),
            Fault::Slow => child.order(&Order::Slow(next.lasts.as_millis() as u64)),
            Fault::Weather | Fault::Link => {}
        }
        let is_noticed = match next.fault {
            Fault::Slow => false,
            Fault::Stop => next.lasts > FaultSchedule::moment(self.plan.timeout),
            _ => true,
        };
        if is_noticed {
            slot.excused_until = Some(end + EXCUSE);
        }
        Ok(true)
    }

    /// At each sample: totals and rates, memory and descriptors, silence and stalls.
    fn sample(&mut self, now: Instant) {
        let mut total = self.dead.clone();
        let (mut memory, mut descriptors, mut peers) = (0, 0, 0);
        let quiet = self.network.has_link();
        let all_calm = quiet && !self.peers.slots.iter().any(|slot| slot.is_excused(now));
        let mut failures = Vec::new();
        for (index, slot) in self.peers.slots.iter_mut().enumerate() {
            let Some(child) = &mut slot.child else { continue };
            peers += 1;
            total.add(&child.report);
            if index < self.plan.survivors() {
                child.sample();
                memory += child.memory.samples().last().copied().unwrap_or(0);
                descriptors += child.descriptors.samples().last().copied().unwrap_or(0);
            }
            if child.stopped || child.done {
                continue;
            }
            if now > child.heard + SILENCE {
                failures.push(format!("peer {index} says nothing for {} s", SILENCE.as_secs()));
            }
            // Spared peers work with each other, whoever else is killed. A peer that alone is spared has nobody to work with where the other
            // one is killed as soon as it is back.
            let is_bystander = self.plan.survivors() > 1 && index < self.plan.survivors();
            if (is_bystander && quiet || all_calm) && now > child.progress.1 + STALL {
                failures.push(format!("peer {index} gets nothing done for {} s", STALL.as_secs()));
            }
        }
        let mut status = lock(&self.status);
        for failure in failures {
            status.fail(format!("at {:.3} s: {failure}", self.begin.elapsed().as_secs_f64()));
        }
        status.peers = peers;
        status.elapsed = self.begin.elapsed();
        status.total = total;
        status.spoiled = self.network.spoiled();
        let counted = status.counted();
        if let Some((then, before)) = self.recent.front() {
            let seconds = now.duration_since(*then).as_secs_f64().max(0.001);
            for ((rate, count), before) in status.now.iter_mut().zip(counted).zip(before) {
                *rate = count.saturating_sub(*before) as f64 / seconds;
            }
        }
        push_bounded(&mut status.memory_bytes, memory);
        push_bounded(&mut status.descriptors, descriptors);
        drop(status);
        self.recent.push_back((now, counted));
        if self.recent.len() > RATE_SAMPLES {
            self.recent.pop_front();
        }
    }

    /// All sessions come to their ends, all peers go, and nothing is left.
    fn end(&mut self) -> Outcome {
        if self.network.calm_down()? {
            self.peers.excuse_all(Instant::now());
        }
        let now = Instant::now();
        for slot in &mut self.peers.slots {
            slot.start_at = None;
            if slot.continue_at.is_some() {
                slot.continue_at = Some(now);
            }
        }
        self.peers.order(&Order::End);
        self.until("their sessions do not end", Child::has_ended_sessions)?;
        self.judge_growth();
        self.check_nothing_left()?;
        self.peers.order(&Order::Leave);
        self.until("they do not go", |child| child.done)?;
        self.sample(Instant::now());
        self.check_interfaces()
    }

    /// The survivors hold what they held before any fault.
    fn check_nothing_left(&mut self) -> Outcome {
        let until = Instant::now() + LEFT_LIMIT;
        for index in 0..self.plan.survivors() {
            while !self.has_failed() {
                self.tick()?;
                let Some(child) = self.peers.slots.get(index).and_then(|slot| slot.child.as_ref()) else {
                    break;
                };
                let (now, before) = (child.held(), child.before.as_ref());
                if before.is_some_and(|before| now == *before || now == with_control_page(before)) {
                    break;
                }
                if Instant::now() > until {
                    lock(&self.status)
                        .fail(format!("peer {index}: left behind: it holds {now:?}, and before {before:?}"));
                }
                std::thread::sleep(TICK);
            }
        }
        Ok(())
    }

    /// No program is attached to either interface of the pair, now that all peers have gone.
    fn check_interfaces(&mut self) -> Outcome {
        if !self.plan.pair {
            return Ok(());
        }
        let until = Instant::now() + LEFT_LIMIT;
        loop {
            let left = programs_left(&self.peers.site)?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                lock(&self.status).fail(format!("programs are left on interfaces: {}", left.join("\n")));
                return Ok(());
            }
            // The last processes may still be ending.
            std::thread::sleep(TICK);
        }
    }

    fn until(&mut self, otherwise: &str, is_so: impl Fn(&Child) -> bool) -> Outcome {
        let until = Instant::now() + END_LIMIT;
        loop {
            self.tick()?;
            let mut children = self.peers.children();
            if children.all(&is_so) || self.has_failed() {
                return Ok(());
            }
            if Instant::now() > until {
                let late: Vec<String> = self
                    .peers
                    .slots
                    .iter()
                    .enumerate()
                    .filter(|(_, slot)| slot.child.as_ref().is_some_and(|child| !is_so(child)))
                    .map(|(index, _)| index.to_string())
                    .collect();
                lock(&self.status).fail(format!("peers {}: {otherwise}", late.join(", ")));
                return Ok(());
            }
            std::thread::sleep(TICK);
        }
    }

    /// Something failed: each peer reports all it knows. One that finds an error reports it, and only then closes its
    /// connections. What the others notice of that may be heard first, and is a consequence: the cause is known once each
    /// peer has answered or has ended.
    fn explain(&mut self) -> Outcome {
        self.peers.order(&Order::Explain);
        let until = Instant::now() + EXPLAIN_LIMIT;
        let owes = |slot: &Slot| {
            let child = slot.child.as_ref();
            child.is_some_and(|child| !child.stopped && !child.drained && child.explained.is_none())
        };
        while self.peers.slots.iter().any(owes) && Instant::now() < until {
            self.listen()?;
            std::thread::sleep(TICK);
        }
        let children = self.peers.slots.iter().map(|slot| slot.child.as_ref()).enumerate();
        let explained: Vec<String> = children
            .filter_map(|(index, child)| Some(format!("peer {index}: {}", child?.explained.as_ref()?)))
            .collect();
        if let Some(first) = lock(&self.status).failures.first_mut() {
            first.push_str("\n\n");
            first.push_str(&explained.join("\n"));
        }
        Ok(())
    }

    fn judge_growth(&self) {
        for (index, slot) in self.peers.slots.iter().enumerate().take(self.plan.survivors()) {
            let Some(child) = &slot.child else { continue };
            let mut status = lock(&self.status);
            if let Some((early, late)) = child.memory.has_grown(MEMORY_GROWTH.0, MEMORY_GROWTH.1) {
                status.fail(format!("peer {index}: its memory grew from {early} to {late} bytes"));
            }
        }
    }
}

/// What a process holds that held `before` when no peer had asked for its memory yet, and one has since: an endpoint makes the page that
/// says which regions are live for the first of them, and keeps it.
fn with_control_page(before: &Held) -> Held {
    let mut held = before.clone();
    *held.descriptors.entry("/memfd:cci-control (deleted)".to_owned()).or_insert(0) += 1;
    held.shared_mappings += 1;
    held
}

/// For the picture, not for the judgement: the last ones.
fn push_bounded(series: &mut Vec<u64>, value: u64) {
    if series.len() == 256 {
        series.remove(0);
    }
    series.push(value);
}
