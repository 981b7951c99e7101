//! Endpoints of the protocol without a network, driven by steps that proptest draws and shrinks.

mod proto_fuzz;
mod proto_hostile;

use cci_testkit::rng::Rng;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::fmt::Debug;

/// Does something with many lists of steps, with the same ones in each run unless `CCI_FUZZ_SEED` asks for others. `CCI_FUZZ_CASES` says
/// how many. Prints the shortest list found that fails.
fn try_steps<T: Clone + Debug>(
    cases_default: u64,
    step: impl Strategy<Value = T>,
    steps_max: usize,
    attempt: impl Fn(&[T]),
) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (seed, cases) = (number("CCI_FUZZ_SEED", 1), number("CCI_FUZZ_CASES", cases_default) as u32);
    let mut bytes = [0; 32];
    Rng::new(seed).fill(&mut bytes);
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&prop::collection::vec(step, 1..steps_max), |steps| {
        attempt(&steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("CCI_FUZZ_SEED={seed} CCI_FUZZ_CASES={cases}: {failure}");
    }
}
