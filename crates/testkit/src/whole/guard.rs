//! Runs that panic, and still say which run it was.

use super::scenario::Fabric;
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// What this thread runs.
#[derive(Clone, Copy)]
struct Running {
    fabric: Fabric,
    seed: u64,
    panics: u32,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
}

/// Runs what follows from this seed. If it panics, the error is the panic's message.
///
/// A destructor that panics while another panic unwinds ends the program, and nothing is left to catch. The seed is on standard error
/// by then, past what the test harness captures, since that is lost.
///
/// # Errors
///
/// The message of the panic.
pub fn catch_panic<T>(fabric: Fabric, seed: u64, run: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            name_second_panic();
            previous(info);
        }));
    });
    RUNNING.set(Some(Running { fabric, seed, panics: 0 }));
    let result = catch_unwind(AssertUnwindSafe(run));
    RUNNING.set(None);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

fn name_second_panic() {
    let Some(running) = RUNNING.get() else { return };
    let running = Running { panics: running.panics + 1, ..running };
    RUNNING.set(Some(running));
    if running.panics > 1 {
        let Running { fabric, seed, .. } = running;
        let replay = replay(fabric, seed);
        // Where even this cannot be written, nothing can.
        let _ =
            writeln!(std::io::stderr(), "\nseed {seed}: a panic while another one unwinds; replay: {replay}");
    }
}

/// The command that runs this seed again.
#[must_use]
pub fn replay(fabric: Fabric, seed: u64) -> String {
    let name = match fabric {
        Fabric::Datagrams => "datagrams",
        Fabric::SharedMemory { .. } => "shared-memory",
        Fabric::Streams { .. } => "streams",
    };
    format!("cargo xtask sim --fabric {name} --seed {seed} --trace")
}
