//! Measuring the machine itself.

use cci_measure::cores::Cores;

/// Runs with the thread pinned, as turns are, and with the pinning gone afterwards: children would inherit it.
pub fn on_a_pinned_thread<T: Send>(what: impl FnOnce(&Cores) -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let pinned = scope.spawn(|| Cores::pin(true, true).ok().map(|cores| what(&cores)));
        pinned.join().ok().flatten()
    })
}
