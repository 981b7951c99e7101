//! One device's soak: its peers, the faults done to them, and the judgement of what they tell.

use super::child::Child;
use super::faults::{Fault, FaultSchedule, Next};
use super::random::mix;
use super::relay::{Relay, Weather};
use super::status::{State, Status};
use super::talk::{Address, Order, PeerMessage, Plant, Report, Setup};
use crate::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::process::Signal;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long after a fault sessions may still end because of it: the longest time-out, and some more.
const EXCUSE: Duration = Duration::from_secs(45);
/// A peer that is not stopped tells something within this.
const SILENCE: Duration = Duration::from_secs(30);
/// Peers that nothing is done to get on within this.
const STALL: Duration = Duration::from_secs(45);
/// Time to listen after the start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Time for everything to end.
const END_LIMIT: Duration = Duration::from_secs(100);
/// Time for the peers to tell what else they know when something has failed.
const EXPLAIN_LIMIT: Duration = Duration::from_secs(10);
/// Sessions that each peer completes before there is any fault.
const WARM_SESSIONS: u64 = 6;
/// Time for what the dead have left to go.
const LEFT_LIMIT: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(10);
/// Memory and descriptors are looked at so often in a long run, more often in a short one: what grows is judged by
/// [`SAMPLES_WANTED`] of them or more, also where the peers were slow to start.
const SAMPLE_MAX: Duration = Duration::from_secs(1);
const SAMPLE_MIN: Duration = Duration::from_millis(50);
const SAMPLES_WANTED: u32 = 64;
/// Rates are over so many samples.
const RATE_SAMPLES: usize = 5;
/// Survivors' memory may grow by so much, percent and bytes, from the second quarter of the time to the last.
const MEMORY_GROWTH: (u64, u64) = (10, 16 << 20);

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its place among the devices of the soak.
    pub number: usize,
    /// Device, or what drives it.
    pub device: String,
    /// What drives it.
    pub transport: String,
    /// Across a virtual pair.
    pub pair: bool,
    /// Through a relay.
    pub relay: bool,
    /// Processes.
    pub peers: usize,
    /// The seed of everything random in the soak.
    pub seed: u64,
    /// Percent of a core that each peer may take.
    pub load_percent: u32,
    /// How long the soak lasts.
    pub lasts: Duration,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The mean time between two faults.
    pub fault_every: Duration,
    /// How long a peer waits for another.
    pub timeout: Duration,
    /// An error of the first peer.
    pub plant: Option<Plant>,
}

impl Plan {
    /// Time between two looks at the peers.
    fn sample_every(&self) -> Duration {
        (self.lasts / SAMPLES_WANTED).clamp(SAMPLE_MIN, SAMPLE_MAX)
    }

    /// Where the peers are, in words.
    pub const fn site_name(&self) -> &'static str {
        match (self.pair, self.relay) {
            (true, _) => "virtual pair",
            (false, true) => "loopback, relayed",
            (false, false) => "this machine",
        }
    }

    /// Two on different sides of the pair.
    fn survivors(&self) -> usize {
        if self.peers > 2 { 2 } else { 1 }
    }
}

struct PeerSlot {
    setup: Setup,
    child: Option<Child>,
    /// To be started again then.
    start_at: Option<Instant>,
    /// To go on then.
    continue_at: Option<Instant>,
    /// Sessions with it may end early until then.
    excused_until: Option<Instant>,
    relay: Option<Relay>,
}

/// The peers of one device, the faults they meet, and the judge of what they report.
pub struct Scene {
    plan: Plan,
    site: Site,
    slots: Vec<PeerSlot>,
    schedule: FaultSchedule,
    next: Option<(Instant, Next)>,
    weather: Arc<Weather>,
    weather_until: Option<Instant>,
    link_up_at: Option<Instant>,
    link_down: bool,
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
        let mut scene = Scene {
            site,
            slots: Vec::new(),
            schedule,
            next: None,
            weather: Arc::default(),
            weather_until: None,
            link_up_at: None,
            link_down: false,
            dead: Report::default(),
            status,
            stop,
            begin: now,
            sampled: now,
            recent: VecDeque::new(),
            plan,
        };
        for index in 0..scene.plan.peers {
            let setup = scene.setup(index, seed);
            let child = Some(Child::start(&setup, &scene.site, scene.is_there(index))?);
            scene.slots.push(PeerSlot {
                setup,
                child,
                start_at: None,
                continue_at: None,
                excused_until: None,
                relay: None,
            });
        }
        Ok(scene)
    }

    fn setup(&self, index: usize, seed: u64) -> Setup {
        let (pid, plan) = (std::process::id(), &self.plan);
        // Below the ports that the system gives away by itself.
        let port = 20_000 + (pid as usize % 50 * 20 + plan.number % 20) * 10 + index;
        let service = match plan.transport.as_str() {
            "udp" | "tcp" => port.to_string(),
            "eth" => (index + 1).to_string(),
            _ => format!("soak-{pid}-{}-{index}", plan.device),
        };
        Setup {
            device: plan.device.clone(),
            service,
            index: index as u32,
            seed: mix(seed.wrapping_add(index as u64)),
            load_percent: plan.load_percent,
            timeout_ms: plan.timeout.as_millis() as u64,
            across: plan.pair,
            plant: plan.plant.filter(|_| index == 0),
        }
    }

    fn is_there(&self, index: usize) -> bool {
        index % 2 == 1
    }

    fn run(&mut self) -> Outcome {
        self.await_all()?;
        self.warm_up()?;
        if !lock(&self.status).failures.is_empty() {
            return self.explain();
        }
        lock(&self.status).state = State::Running;
        self.begin = Instant::now();
        self.plan_fault(self.begin);
        while self.begin.elapsed() < self.plan.lasts && !self.stop.load(Ordering::Relaxed) {
            self.tick()?;
            self.do_faults()?;
            if !lock(&self.status).failures.is_empty() {
                return self.explain();
            }
            std::thread::sleep(TICK);
        }
        lock(&self.status).state = State::Ending;
        self.end()?;
        if lock(&self.status).failures.is_empty() { Ok(()) } else { self.explain() }
    }

    /// Lets all work undisturbed until what is made once has been made; then takes down what the survivors hold while
    /// nothing goes on.
    fn warm_up(&mut self) -> Outcome {
        let (begin, survivors) = (Instant::now(), self.plan.survivors());
        let is_warm = |child: &Child| {
            let Report { clean, transfers, atomics, .. } = child.report;
            clean >= WARM_SESSIONS && transfers > 0 && atomics > 0
        };
        self.until("they hardly get started", is_warm)?;
        self.order(&Order::End);
        self.until("their first sessions do not end", is_drained)?;
        for child in self.slots.iter_mut().take(survivors).filter_map(|slot| slot.child.as_mut()) {
            child.before = Some(child.held());
        }
        lock(&self.status).note(format!("warm after {:.1} s", begin.elapsed().as_secs_f64()));
        self.order(&Order::Begin);
        for child in self.slots.iter_mut().filter_map(|slot| slot.child.as_mut()) {
            child.report.ending = false;
        }
        Ok(())
    }

    fn order(&mut self, order: &Order) {
        self.slots.iter_mut().filter_map(|slot| slot.child.as_mut()).for_each(|child| child.order(order));
    }

    fn await_all(&mut self) -> Outcome {
        let until = Instant::now() + START_LIMIT;
        while self.slots.iter().any(|slot| slot.child.as_ref().is_none_or(|child| child.uri.is_none())) {
            self.listen()?;
            if !lock(&self.status).failures.is_empty() {
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
        for index in 0..self.slots.len() {
            self.go_on(index, now)?;
        }
        if self.weather_until.is_some_and(|until| now > until) {
            self.weather_until = None;
            self.weather.set(0, 0, 0);
        }
        if self.link_up_at.is_some_and(|at| now > at) {
            self.link_up_at = None;
            self.set_link(true)?;
        }
        if now > self.sampled + self.plan.sample_every() {
            self.sampled = now;
            self.sample(now);
        }
        Ok(())
    }

    fn go_on(&mut self, index: usize, now: Instant) -> Outcome {
        let there = self.is_there(index);
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        if slot.start_at.is_some_and(|at| now > at) {
            slot.start_at = None;
            slot.excused_until = Some(now + EXCUSE);
            slot.setup.seed = mix(slot.setup.seed);
            slot.child = Some(Child::start(&slot.setup, &self.site, there)?);
        }
        let Some(child) = &mut slot.child else { return Ok(()) };
        if slot.continue_at.is_some_and(|at| now > at) {
            slot.continue_at = None;
            // One that was stopped for a moment has no excuse, and needs none.
            slot.excused_until = slot.excused_until.map(|until| until.max(now + EXCUSE));
            child.signal(Signal::Continue);
            child.stopped = false;
            (child.heard, child.progress.1) = (now, now);
        }
        Ok(())
    }

    fn listen(&mut self) -> Outcome {
        let mut messages = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(child) = &mut slot.child else { continue };
            while let Some(one) = child.listen() {
                messages.push((index, one));
            }
            let is_last =
                |one: &(usize, PeerMessage)| matches!(one.1, PeerMessage::Done(_) | PeerMessage::Wrong(_));
            if child.drained
                && !child.done
                && !messages.last().is_some_and(|one| one.0 == index && is_last(one))
                && let Some(status) = child.ended()
            {
                let words = child.words();
                messages.push((index, PeerMessage::Wrong(format!("ended by itself, {status}: {words}"))));
            }
        }
        for (index, message) in messages {
            self.handle(index, message)?;
        }
        Ok(())
    }

    fn handle(&mut self, index: usize, message: PeerMessage) -> Outcome {
        let at = self.begin.elapsed().as_secs_f64();
        match message {
            PeerMessage::Ready { uri } => self.ready(index, uri)?,
            PeerMessage::Report(_) => {}
            PeerMessage::Broken { with, why, explained } => {
                let now = Instant::now();
                let excused = [index, with as usize].iter().any(|&one| {
                    self.slots.get(one).and_then(|slot| slot.excused_until).is_some_and(|until| now < until)
                });
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
            PeerMessage::Wrong(what) => {
                if let Some(child) = self.slots.get_mut(index).and_then(|slot| slot.child.as_mut()) {
                    child.done = true;
                }
                lock(&self.status).found(format!("at {at:.3} s: peer {index}: {what}"));
            }
            PeerMessage::Explained(text) => {
                if let Some(child) = self.slots.get_mut(index).and_then(|slot| slot.child.as_mut()) {
                    child.explained = Some(text);
                }
            }
            PeerMessage::Note(line) => lock(&self.status).note(format!("{at:.1} s: peer {index}: {line}")),
            PeerMessage::Done(_) => {
                if let Some(child) = self.slots.get_mut(index).and_then(|slot| slot.child.as_mut()) {
                    child.done = true;
                }
            }
        }
        Ok(())
    }

    /// Everybody is to know where it is.
    fn ready(&mut self, index: usize, uri: String) -> Outcome {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let mut address = uri;
        if self.plan.relay
            && let Some(server) = address.strip_prefix("udp://").and_then(|at| at.parse::<SocketAddr>().ok())
        {
            match &slot.relay {
                Some(relay) => relay.point_to(server),
                None => {
                    let relay = Relay::start(server, self.weather.clone(), slot.setup.seed);
                    let failed = |error| Failure::new(format!("a relay: {error}"));
                    slot.relay = Some(relay.map_err(failed)?);
                }
            }
            if let Some(relay) = &slot.relay {
                address = format!("udp://{}", relay.front());
            }
        }
        if let Some(child) = &mut slot.child {
            child.uri = Some(address);
        }
        let uri_of = |slot: &PeerSlot| slot.child.as_ref().and_then(|child| child.uri.clone());
        let all = self.slots.iter().enumerate();
        let peers: Vec<Address> = all
            .filter_map(|(index, slot)| Some(Address { index: index as u32, uri: uri_of(slot)? }))
            .collect();
        if peers.len() > 1 {
            for child in self.slots.iter_mut().filter_map(|slot| slot.child.as_mut()) {
                child.order(&Order::Peers(peers.clone()));
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
                let (lost, repeated, late) = self.schedule.weather();
                self.weather.set(lost, repeated, late);
                self.weather_until = Some(end);
                return Ok(true);
            }
            Fault::Link => {
                if self.link_down {
                    return Ok(false);
                }
                self.set_link(false)?;
                self.link_up_at = Some(end);
                return Ok(true);
            }
            _ => {}
        }
        let Some(slot) = self.slots.get_mut(next.whom) else { return Ok(false) };
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

    fn set_link(&mut self, up: bool) -> Outcome {
        self.link_down = !up;
        let now = Instant::now();
        self.slots.iter_mut().for_each(|slot| slot.excused_until = Some(now + EXCUSE));
        let state = if up { "up" } else { "down" };
        let failed = |text: String| Failure::new(format!("ip link set {}: {text}", Site::INTERFACE));
        let done = Command::new("ip")
            .args(["link", "set", Site::INTERFACE, state])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .map_err(|error| failed(error.to_string()))?;
        if done.success() { Ok(()) } else { Err(failed(done.to_string())) }
    }

    /// At each sample: totals and rates, memory and descriptors, silence and stalls.
    fn sample(&mut self, now: Instant) {
        let mut total = self.dead.clone();
        let (mut memory, mut descriptors, mut peers) = (0, 0, 0);
        let quiet = self.link_up_at.is_none() && !self.link_down;
        let calm = |slot: &PeerSlot| slot.excused_until.is_none_or(|until| now > until) && quiet;
        let all_calm = self.slots.iter().all(calm);
        let mut failures = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
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
            let is_survivor = index < self.plan.survivors();
            if (is_survivor && quiet || all_calm) && now > child.progress.1 + STALL {
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
        status.spoiled = self.weather.spoiled.load(Ordering::Relaxed);
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
        self.weather.set(0, 0, 0);
        if self.link_down {
            self.link_up_at = None;
            self.set_link(true)?;
        }
        let now = Instant::now();
        for slot in &mut self.slots {
            slot.start_at = None;
            if slot.continue_at.is_some() {
                slot.continue_at = Some(now);
            }
        }
        self.order(&Order::End);
        self.until("their sessions do not end", is_drained)?;
        self.judge_growth();
        self.check_nothing_left()?;
        self.order(&Order::Leave);
        self.until("they do not go", |child| child.done)?;
        self.sample(Instant::now());
        self.check_interfaces()
    }

    /// The survivors hold what they held before any fault.
    fn check_nothing_left(&mut self) -> Outcome {
        let until = Instant::now() + LEFT_LIMIT;
        for index in 0..self.plan.survivors() {
            while lock(&self.status).failures.is_empty() {
                self.tick()?;
                let Some(child) = self.slots.get(index).and_then(|slot| slot.child.as_ref()) else { break };
                let (now, before) = (child.held(), child.before.as_ref());
                if before == Some(&now) {
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
        let list = || Command::new("ip").args(["-o", "link"]).stderr(Stdio::null()).output();
        loop {
            let mut left = Vec::new();
            for listed in [list(), self.site.in_peer_namespace(list)] {
                let listed = listed.map_err(|error| Failure::new(format!("ip -o link: {error}")))?;
                let text = String::from_utf8_lossy(&listed.stdout);
                left.extend(text.lines().filter(|line| line.contains("xdp")).map(str::to_owned));
            }
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
            let mut children = self.slots.iter().filter_map(|slot| slot.child.as_ref());
            if children.all(&is_so) || !lock(&self.status).failures.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let late: Vec<String> = self
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

    /// Something failed: each peer tells all it knows. One that finds an error reports it, and only then closes its
    /// connections. What the others notice of that may be heard first, and is a consequence: the cause is known once each
    /// peer has answered or has ended.
    fn explain(&mut self) -> Outcome {
        for child in self.slots.iter_mut().filter_map(|slot| slot.child.as_mut()) {
            child.order(&Order::Explain);
        }
        let until = Instant::now() + EXPLAIN_LIMIT;
        let owes = |slot: &PeerSlot| {
            let child = slot.child.as_ref();
            child.is_some_and(|child| !child.stopped && !child.drained && child.explained.is_none())
        };
        while self.slots.iter().any(owes) && Instant::now() < until {
            self.listen()?;
            std::thread::sleep(TICK);
        }
        let children = self.slots.iter().map(|slot| slot.child.as_ref()).enumerate();
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
        for (index, slot) in self.slots.iter().enumerate().take(self.plan.survivors()) {
            let Some(child) = &slot.child else { continue };
            let mut status = lock(&self.status);
            if let Some((early, late)) = child.memory.has_grown(MEMORY_GROWTH.0, MEMORY_GROWTH.1) {
                status.fail(format!("peer {index}: its memory grew from {early} to {late} bytes"));
            }
        }
    }
}

/// All its sessions have ended, as it was told.
const fn is_drained(child: &Child) -> bool {
    child.report.ending && child.report.sessions == 0
}

/// For the picture, not for the judgement: the last ones.
fn push_bounded(series: &mut Vec<u64>, value: u64) {
    if series.len() == 256 {
        series.remove(0);
    }
    series.push(value);
}
