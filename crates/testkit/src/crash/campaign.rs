//! The harness: starts victims, brings death over them, and counts what is left.

use super::outside::{Held, System};
use super::process::{BYSTANDER, HUB, Process, Temper};
use crate::conformance::{self, DeviceUnderTest, network_for_all};
use crate::crash_peers::{PrintSeedOnPanic, Random};
use crate::net::Veth;
use cci_sys::net::namespace::Namespace;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nothing that ought to happen takes as long, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(40);
/// Memory that the hub may hold at the end beyond what it held after its first victims, KiB.
const GROWTH_KIB_MAX: u64 = 12 << 10;

/// A campaign on one device.
#[derive(Copy, Clone, Debug)]
pub struct Plan {
    /// Where.
    pub device: DeviceUnderTest,
    /// Out of a thousand victims of all campaigns, so many.
    pub share: u32,
    /// Victims at a time.
    pub at_once: u32,
    /// Victims reach each other.
    pub among_themselves: bool,
    /// There is room for a process that lives all the time beside the victims.
    pub bystander: bool,
    /// Of everybody's sends and connects, and the keepalive.
    pub send_timeout: Duration,
}

/// What came of it, for a line in the test's output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Casualties {
    /// Victims killed by SIGKILL.
    pub killed: u32,
    /// Victims that wrote to address 0.
    pub crashed: u32,
    /// Of all those, how many before they had said anything to the hub.
    pub early: u32,
    /// Times that a process was stopped for a moment and went on as if nothing had happened.
    pub paused: u32,
    /// Times that a process was stopped for longer than its peers wait.
    pub stopped: u32,
    /// Operations of the hub's that ended well.
    pub good: u64,
    /// Those that did not, with the dead.
    pub failed: u64,
    /// What the hub's own memory grew by, KiB, after the first victims.
    pub growth_kib: u64,
}

/// Every device. `CCI_KILLS` victims in all are divided by the shares.
pub fn plans() -> Vec<Plan> {
    let seconds = Duration::from_secs;
    let local = |device, share| Plan {
        device,
        share,
        at_once: 8,
        among_themselves: true,
        bystander: true,
        // Longer than any death takes to be noticed: the kernel tells of it.
        send_timeout: seconds(4),
    };
    let silent = |device, share| Plan { send_timeout: seconds(2), ..local(device, share) };
    let wire = |device, share| Plan { among_themselves: false, ..silent(device, share) };
    vec![
        local(conformance::SHM, 150),
        local(conformance::SHM_PULL, 70),
        local(conformance::SHM_RING, 70),
        local(conformance::TCP4, 120),
        local(conformance::TCP_PSK, 50),
        local(conformance::ANY, 80),
        silent(conformance::UDP4, 110),
        silent(conformance::UDP_PSK, 50),
        silent(conformance::UDP_CERTIFICATES, 20),
        silent(conformance::UDP_BONDED, 80),
        silent(conformance::ANY_FAR, 60),
        wire(conformance::ETH, 60),
        wire(conformance::ETH_PACKET, 50),
        wire(conformance::ETH_PSK, 30),
        Plan { at_once: 1, bystander: false, ..wire(conformance::ETH_DRIVER, 10) },
    ]
}

/// What the hub says of one other process.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    received: u64,
    lost: u64,
    failed: u64,
    open: u64,
    under_way: u64,
}

struct Campaign<'a> {
    plan: &'a Plan,
    network: Option<Veth>,
    /// Where victims are, if that is another namespace.
    far: Option<Namespace>,
    hub: Process,
    bystander: Option<Process>,
    random: Random,
    next_name: u32,
    casualties: Casualties,
    before: (Held, System),
    /// Of the hub's own memory after the first victims.
    resident_kib: Option<u64>,
}

/// How a victim comes to deal with others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Role {
    /// Connects to the hub.
    Client,
    /// Is connected to by the hub.
    Server,
    /// Connects to the hub and to the victim before it.
    Partner,
}

struct Victim {
    process: Process,
    role: Role,
}

/// Runs one campaign of so many victims. `None`: this machine can't, and the reason was printed.
pub fn run(plan: &Plan, victims: u32, seed: u64) -> Option<Casualties> {
    let _seed = PrintSeedOnPanic(seed);
    // Nobody else's sockets are counted in a namespace of our own.
    let network = match plan.device.network() {
        Ok(Some(veth)) => Ok(Some(veth)),
        Ok(None) => Ok(network_for_all().ok()),
        Err(reason) => Err(reason),
    };
    let network = network.map_err(|reason| println!("skipped: {}: {reason}", plan.device.name)).ok()?;
    let mut campaign = Campaign::new(plan, network, seed);
    let mut batch = 0;
    while campaign.casualties.killed + campaign.casualties.crashed < victims {
        let count = plan.at_once.min(victims - campaign.casualties.killed - campaign.casualties.crashed);
        match batch % 4 {
            1 => campaign.pause_some(count),
            3 if batch % 8 == 3 => campaign.stop_some(count),
            _ => campaign.kill_some(count, batch % 2 == 0),
        }
        batch += 1;
        campaign.check_nothing_left();
    }
    Some(campaign.end())
}

impl<'a> Campaign<'a> {
    fn new(plan: &'a Plan, network: Option<Veth>, seed: u64) -> Campaign<'a> {
        let far = plan.device.far(network.as_ref());
        let empty = System::now(network.as_ref());
        let device = plan.device.name;
        let mut hub = Process::start(HUB, device, None, plan.send_timeout, Temper::Steady);
        let uri = hub.uri(PATIENCE);
        let bystander = plan.bystander.then(|| {
            let device = plan.device.peer.unwrap_or(device);
            let mut bystander =
                Process::start(BYSTANDER, device, far.as_ref(), plan.send_timeout, Temper::Steady);
            bystander.uri(PATIENCE);
            bystander.command(&format!("dial {HUB} {uri}"));
            bystander
        });
        let before = (Held::by(hub.pid()), empty);
        let (random, casualties) = (Random(seed), Casualties::default());
        let mut campaign = Campaign {
            plan,
            network,
            far,
            hub,
            bystander,
            random,
            next_name: BYSTANDER,
            casualties,
            before,
            resident_kib: None,
        };
        if plan.bystander {
            campaign.until("the bystander talks", |accounts| accounts.get(&BYSTANDER).is_some_and(busy));
            // What first uses make, such as a mapping, is held from now on.
            std::thread::sleep(Duration::from_millis(100));
        }
        let system = System::now(campaign.network.as_ref());
        campaign.before = (Held::by(campaign.hub.pid()), system);
        campaign
    }

    /// What the hub says.
    fn ask(&mut self) -> BTreeMap<u32, Account> {
        ask(&mut self.hub).unwrap_or_else(|why| panic!("{}: {why}", self.plan.device.name)).1
    }

    fn until(&mut self, what: &str, done: impl Fn(&BTreeMap<u32, Account>) -> bool) {
        let start = Instant::now();
        loop {
            let accounts = self.ask();
            if done(&accounts) {
                return;
            }
            let device = self.plan.device.name;
            assert!(start.elapsed() < PATIENCE, "{device}: {what}: not within {PATIENCE:?}: {accounts:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Starts victims; all are under way when it returns, but none is waited for.
    fn start(&mut self, count: u32, temper: Temper) -> Vec<Victim> {
        let device = self.plan.device.peer.unwrap_or(self.plan.device.name);
        let first = self.next_name + 1;
        self.next_name += count;
        let processes: Vec<Process> = (first..first + count)
            .map(|name| Process::start(name, device, self.far.as_ref(), self.plan.send_timeout, temper))
            .collect();
        let hub_uri = self.hub.uri(PATIENCE);
        let mut victims: Vec<Victim> = Vec::new();
        for mut process in processes {
            let roles = if self.plan.among_themselves && !victims.is_empty() { 3 } else { 2 };
            let role = [Role::Client, Role::Server, Role::Partner][self.random.below(roles) as usize];
            let uri = process.uri(PATIENCE);
            if role == Role::Server {
                self.hub.command(&format!("dial {} {uri}", process.name));
            } else {
                process.command(&format!("dial {HUB} {hub_uri}"));
            }
            if let (Role::Partner, Some(other)) = (role, victims.last_mut()) {
                let (name, uri) = (other.process.name, other.process.uri(PATIENCE));
                process.command(&format!("dial {name} {uri}"));
            }
            victims.push(Victim { process, role });
        }
        victims
    }

    fn until_all_talk(&mut self, victims: &[Victim]) {
        let names: Vec<u32> = victims.iter().map(|victim| victim.process.name).collect();
        self.until("all victims talk", |accounts| {
            names.iter().all(|name| accounts.get(name).is_some_and(busy))
        });
    }

    /// Victims die at random instants, together and one after another.
    fn kill_some(&mut self, count: u32, at_work: bool) {
        let temper = if self.random.below(2) == 0 { Temper::Restless } else { Temper::Steady };
        let victims = self.start(count, temper);
        if at_work {
            self.until_all_talk(&victims);
        }
        self.kill(victims);
    }

    fn kill(&mut self, victims: Vec<Victim>) {
        let longest_us = [300, 3_000, 30_000][self.random.below(3) as usize];
        let mut crash: Vec<(u64, Victim)> =
            victims.into_iter().map(|victim| (self.random.below(longest_us), victim)).collect();
        crash.sort_by_key(|(at_us, _)| *at_us);
        let start = Instant::now();
        let names: Vec<(u32, Role)> =
            crash.iter().map(|(_, victim)| (victim.process.name, victim.role)).collect();
        let mut dead = Vec::new();
        for (at_us, mut victim) in crash {
            std::thread::sleep(Duration::from_micros(at_us).saturating_sub(start.elapsed()));
            let crashes = self.random.below(3) == 0;
            if crashes {
                victim.process.command("crash");
            } else {
                victim.process.signal(Signal::KILL);
            }
            dead.push((crashes, victim));
        }
        for (crashes, victim) in dead {
            let (name, signal) = (victim.process.name, victim.process.bury());
            let expected = if crashes { Signal::SEGV } else { Signal::KILL };
            assert_eq!(signal, Some(expected.as_raw()), "how {name} died");
            *if crashes { &mut self.casualties.crashed } else { &mut self.casualties.killed } += 1;
        }
        self.mourn(&names);
    }

    /// Everything that was under way with the dead ends.
    fn mourn(&mut self, names: &[(u32, Role)]) {
        for (name, _) in names.iter().filter(|(_, role)| *role == Role::Server) {
            self.hub.command(&format!("drop {name}"));
        }
        self.until("everything with the dead ends", |accounts| {
            names.iter().all(|(name, _)| accounts.get(name).is_none_or(ended))
        });
        let accounts = self.ask();
        for (name, _) in names {
            let account = accounts.get(name).copied().unwrap_or_default();
            self.casualties.early += u32::from(account.received == 0);
            self.casualties.failed += account.failed;
            self.hub.command(&format!("forget {name}"));
        }
    }

    /// Stops all for a moment, again and again, less than anybody's patience: nothing is lost. Then they die.
    fn pause_some(&mut self, count: u32) {
        let mut victims = self.start(count, Temper::Steady);
        self.until_all_talk(&victims);
        for _ in 0..3 {
            for victim in &victims {
                victim.process.signal(Signal::STOP);
            }
            let longest_ms = [1, 20, 150][self.random.below(3) as usize];
            let moment = Duration::from_millis(self.random.below(longest_ms));
            std::thread::sleep(moment);
            for victim in &victims {
                victim.process.signal(Signal::CONT);
                self.casualties.paused += 1;
            }
            let before = self.ask();
            let names: Vec<u32> = victims.iter().map(|victim| victim.process.name).collect();
            self.until("all go on after a pause", |accounts| {
                let more = |name| {
                    accounts.get(name).zip(before.get(name)).map(|(now, then)| now.received > then.received)
                };
                names.iter().all(|name| more(name) == Some(true))
            });
        }
        let accounts = self.ask();
        for victim in &mut victims {
            let name = victim.process.name;
            let theirs = ask(&mut victim.process).unwrap_or_else(|why| panic!("{why}")).1;
            let unharmed = |account: &Account| account.lost == 0 && account.failed == 0;
            assert!(accounts.get(&name).is_some_and(unharmed), "after a pause of {name}: {accounts:?}");
            assert!(theirs.values().all(unharmed), "after its pause {name} says: {theirs:?}");
        }
        self.kill(victims);
    }

    /// Stops some for longer than anybody waits: their peers' operations end, and when they go on, they find out and
    /// connect again. Then they die.
    fn stop_some(&mut self, count: u32) {
        let victims = self.start(count, Temper::Steady);
        self.until_all_talk(&victims);
        for victim in &victims {
            victim.process.signal(Signal::STOP);
            self.casualties.stopped += 1;
        }
        // A server is connected to as long as the hub is told to.
        let clients: Vec<u32> = victims
            .iter()
            .filter(|victim| victim.role != Role::Server)
            .map(|victim| victim.process.name)
            .collect();
        self.until("everything with the stopped ends", |accounts| {
            clients.iter().all(|name| accounts.get(name).is_none_or(ended))
        });
        let before = self.ask();
        for victim in &victims {
            victim.process.signal(Signal::CONT);
        }
        let names: Vec<u32> = victims.iter().map(|victim| victim.process.name).collect();
        self.until("all come again after a stop", |accounts| {
            let more = |name| {
                let (now, then) = (accounts.get(name)?, before.get(name)?);
                Some(now.received > then.received + 20 && now.open > 0)
            };
            names.iter().all(|name| more(name) == Some(true))
        });
        self.kill(victims);
    }

    /// What the hub and the system hold is what they held before there was any victim.
    fn check_nothing_left(&mut self) {
        let start = Instant::now();
        let pid = self.hub.pid();
        loop {
            let now = (Held::by(pid), System::now(self.network.as_ref()));
            if now.0.same(&self.before.0) && now.1 == self.before.1 {
                let resident_kib = *self.resident_kib.get_or_insert(now.0.resident_kib);
                self.casualties.growth_kib = now.0.resident_kib.saturating_sub(resident_kib);
                break;
            }
            let (device, before) = (self.plan.device.name, &self.before);
            assert!(start.elapsed() < PATIENCE, "{device}: left behind: {now:?}\nbefore: {before:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(self.casualties.growth_kib < GROWTH_KIB_MAX, "the hub grew: {:?}", self.casualties);
        self.check_bystander();
    }

    /// It has not noticed anything, and goes on.
    fn check_bystander(&mut self) {
        let device = self.plan.device.name;
        self.hub.command("check");
        self.hub.hear("CHECKED", PATIENCE).unwrap_or_else(|why| panic!("{device}: {why}"));
        let Some(bystander) = &mut self.bystander else { return };
        let (_, theirs) = ask(bystander).unwrap_or_else(|why| panic!("{device}: {why}"));
        let before = self.ask();
        let unharmed = |account: &Account| account.lost == 0 && account.failed == 0;
        assert!(theirs.values().all(unharmed), "{device}: the bystander says: {theirs:?}");
        assert!(before.get(&BYSTANDER).is_some_and(unharmed), "{device}: the bystander: {before:?}");
        let received = before.get(&BYSTANDER).map_or(0, |account| account.received);
        self.until("the bystander goes on", |accounts| {
            accounts.get(&BYSTANDER).is_some_and(|account| account.received > received)
        });
    }

    /// The last ones end as programs do, and nothing at all is left.
    fn end(mut self) -> Casualties {
        let device = self.plan.device.name;
        let (good, _) = ask(&mut self.hub).unwrap_or_else(|why| panic!("{device}: {why}"));
        self.casualties.good = good;
        for mut process in self.bystander.take().into_iter().chain([self.hub]) {
            process.command("quit");
            assert_eq!(process.bury(), None, "{device}: it ends by itself");
        }
        let start = Instant::now();
        if let Some(veth) = &self.network {
            loop {
                let now = System::now(Some(veth));
                if now.sockets.is_empty() && now.names == 0 && now.programs == 0 {
                    break;
                }
                assert!(start.elapsed() < PATIENCE, "{device}: left in the end: {now:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.casualties
    }
}

fn busy(account: &Account) -> bool {
    account.received >= 10 && account.open > 0
}

fn ended(account: &Account) -> bool {
    account.open == 0 && account.under_way == 0
}

/// What a process says: its operations that ended well, and an account of each that it knows.
fn ask(process: &mut Process) -> Result<(u64, BTreeMap<u32, Account>), String> {
    process.command("report");
    let line = process.hear("REPORT ", PATIENCE)?;
    let mut parts = line.split(';');
    let good = parts.next().and_then(|good| good.parse().ok()).ok_or("a report without a number")?;
    let account = |part: &str| {
        let mut numbers = part.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next();
        let name = u32::try_from(next()?).ok()?;
        let account =
            Account { received: next()?, lost: next()?, failed: next()?, open: next()?, under_way: next()? };
        Some((name, account))
    };
    let accounts =
        parts.map(|part| account(part).ok_or(format!("what is {part:?}?"))).collect::<Result<_, _>>()?;
    Ok((good, accounts))
}
