//! A child: one device and one resource, which runs out at every step.

use crate::allocator;
use crate::limit::{self, Lowered, Resource};
use crate::queue;
use crate::scene::{Failure, STAGES, Scene, Stage};
use cci::{CreateError, Options, SharedEndpoint};
use cci_testkit::conformance::DeviceUnderTest;
use cci_testkit::held::Held;
use cci_testkit::net::Veth;
use std::collections::BTreeSet;

/// In so many steps memory runs out, unless the environment says another number.
const STEPS: u64 = 24;
/// No scene takes more descriptors, or more large allocations.
const TRIES_MAX: u64 = 2_000;

pub fn run(device: &DeviceUnderTest, resource: Resource) {
    let network = match device.network() {
        Ok(network) => network,
        Err(reason) => return println!("skipped: {}: {reason}", device.name),
    };
    let mut child = Child { device, resource, network, reports: BTreeSet::new(), times: 0 };
    // Whatever is made once and kept is there afterwards.
    child.whole(child.scene());
    child.whole(child.scene());
    match resource {
        Resource::Descriptors => child.descriptors(),
        Resource::DescriptorsOfListener => child.times = queue::run(device),
        Resource::AddressSpace => child.address_space(),
        Resource::Allocations => child.allocations(),
        Resource::LockedMemory => child.locked_memory(),
        Resource::FileBytes => child.file_bytes(),
        Resource::Threads => child.threads(),
    }
    for line in &child.reports {
        println!("  {line}");
    }
    println!("TIMES {}", child.times);
}

/// What the environment says: then nothing is left out, either.
fn steps() -> Option<u64> {
    std::env::var("CCI_EXHAUSTION_STEPS").ok()?.parse().ok()
}

struct Child<'a> {
    device: &'a DeviceUnderTest,
    resource: Resource,
    network: Option<Veth>,
    /// What errors said, each once.
    reports: BTreeSet<String>,
    times: u64,
}

impl Child<'_> {
    fn scene(&self) -> Scene {
        let mut scene = Scene::new(self.device, self.network.as_ref());
        if self.resource == Resource::LockedMemory {
            // So that what both lock is less than an ordinary limit.
            scene.memory_bytes_max = 32 << 20;
        }
        scene
    }

    /// The whole scene, with nothing in its way.
    fn whole(&self, mut scene: Scene) {
        scene.be_patient();
        for stage in STAGES {
            scene.run(stage).unwrap_or_else(|why| panic!("{stage:?}: {why:?}"));
        }
    }

    fn held() -> Held {
        Held::by(std::process::id())
    }

    /// Runs a scene under a limit until a stage fails; then what was there before goes on, the limit is lifted, and the rest
    /// of the scene succeeds. False: nothing failed.
    fn scene_under<L>(&mut self, limit: impl FnOnce() -> L) -> bool {
        let before = Child::held();
        let mut scene = self.scene();
        let limit = limit();
        let mut failed = None;
        for (place, stage) in STAGES.into_iter().enumerate() {
            if let Err(failure) = scene.run(stage) {
                failed = Some((place, stage, failure));
                break;
            }
        }
        scene.be_patient();
        let goes_on = match &failed {
            // What remote memory lacks may end the connection that it was to go over.
            Some((_, stage, _)) if *stage != Stage::Move && *stage != Stage::Talk => scene.talk(),
            _ => Ok(()),
        };
        drop(limit);
        if let Err(failure) = goes_on {
            panic!("{failed:?}, and then messages on what was open: {failure:?}");
        }
        let Some((place, stage, failure)) = failed else {
            drop(scene);
            return false;
        };
        self.times += 1;
        self.judge(stage, &failure);
        for stage in STAGES.into_iter().skip(place) {
            let again = scene.run(stage);
            again.unwrap_or_else(|why| panic!("{failure:?}; then, without a limit, {stage:?}: {why:?}"));
        }
        drop(scene);
        let after = Child::held();
        assert!(after == before, "{stage:?}: {failure:?}: left behind: {after:?}, before: {before:?}");
        true
    }

    fn judge(&mut self, stage: Stage, failure: &Failure) {
        match failure {
            Failure::Call(text) => {
                assert!(
                    self.resource.is_named_in(text),
                    "{stage:?}: {text:?} does not say what there was too little of"
                );
                self.reports.insert(format!("{stage:?}: {text}"));
            }
            Failure::Event(text) => {
                self.reports.insert(format!("{stage:?}, by an event: {text}"));
            }
        }
    }

    /// How many steps are one: interfaces take their time to be opened and closed.
    fn stride(&self) -> u64 {
        let takes_long = self.network.is_some();
        if steps().is_none() && takes_long { 4 } else { 1 }
    }

    /// One more with each try, from none to as many as it takes.
    fn descriptors(&mut self) {
        let lowest = limit::lowest_descriptor();
        let mut limit = lowest;
        while self.scene_under(|| Lowered::to(libc::RLIMIT_NOFILE, limit)) {
            limit += self.stride();
            assert!(limit < lowest + TRIES_MAX, "it never succeeds");
        }
        assert!(limit > lowest, "nothing failed");
    }

    fn address_space(&mut self) {
        let steps = steps().unwrap_or(STEPS).div_ceil(self.stride());
        let used = limit::address_space_bytes();
        let mut scene = self.scene();
        scene.be_patient();
        let mut needed = used;
        for stage in STAGES {
            scene.run(stage).expect("nothing is in its way");
            needed = needed.max(limit::address_space_bytes());
        }
        drop(scene);
        // Not all of a step is there when the stage is over.
        let needed = needed + (8 << 20);
        for step in 0..=steps {
            let bytes = used + (needed - used) * step / steps;
            println!("step {step}: {} KiB more", (bytes - used) >> 10);
            self.scene_under(|| Lowered::to(libc::RLIMIT_AS, bytes));
        }
        assert!(self.times > 0, "nothing failed");
    }

    fn allocations(&mut self) {
        struct Failing;
        impl Drop for Failing {
            fn drop(&mut self) {
                allocator::fail(0);
            }
        }
        for number in (1..).step_by(self.stride() as usize) {
            println!("step {number}");
            let failed = self.scene_under(|| {
                allocator::fail(number);
                Failing
            });
            if !allocator::has_failed() {
                break;
            }
            // What the library goes without, or does a moment later, counts too.
            self.times += u64::from(!failed);
            assert!(number < TRIES_MAX, "it never succeeds");
        }
        assert!(self.times > 0, "nothing failed");
    }

    fn locked_memory(&mut self) {
        limit::give_up_locking();
        for bytes in [0, 1 << 20] {
            let failed = self.scene_under(|| Lowered::to(libc::RLIMIT_MEMLOCK, bytes));
            assert_eq!(failed, self.device.name == "eth-driver", "others go by packet sockets then");
        }
    }

    fn file_bytes(&mut self) {
        let mut bytes = 0;
        while self.scene_under(|| Lowered::to(libc::RLIMIT_FSIZE, bytes)) {
            bytes = (bytes * 4).max(4_096);
        }
    }

    fn threads(&mut self) {
        if !limit::become_nobody() {
            return println!("skipped: {}: it takes root to be somebody else", self.device.name);
        }
        let scene = self.scene();
        let open = || SharedEndpoint::with_progress_thread(scene.device(), Options::default());
        drop(open().expect("nothing is in its way"));
        let before = Child::held();
        let limit = Lowered::to(libc::RLIMIT_NPROC, 0);
        let refused = open().map(drop).expect_err("no thread can be had");
        drop(limit);
        assert!(matches!(refused, CreateError::System(_)), "{refused:?}");
        self.judge(Stage::OpenFar, &Failure::Call(refused.to_string()));
        self.times += 1;
        drop(open().expect("nothing is in its way"));
        let after = Child::held();
        assert!(after == before, "left behind: {after:?}, before: {before:?}");
    }
}
