//! The one door for atomics: core's, or loom's under `--cfg loom`.
//!
//! Nothing else in this crate names the module that they come from (a test reads the sources), so a model check covers
//! every atomic access there is. (`clippy::disallowed_types` can't do it: it sees through the re-export.)

#[cfg(not(any(loom, feature = "simulated")))]
pub use core::sync::atomic::fence;
#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Loom reorders no code.
#[cfg(loom)]
pub fn compiler_fence(_: Ordering) {}

#[cfg(all(feature = "simulated", not(loom)))]
pub use crate::simulated::fence;

/// A word of memory that other processes share.
#[cfg(all(feature = "simulated", not(loom)))]
pub(crate) use crate::simulated::Word as SharedWord;
/// A word of memory that other processes share.
#[cfg(not(any(feature = "simulated", loom)))]
pub(crate) use AtomicU64 as SharedWord;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn check(folder: &Path) -> usize {
        let mut files = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files += check(&path);
            } else if !path.ends_with("src/atomic.rs") && !path.ends_with("src/raw_atomic.rs") {
                assert!(
                    !fs::read_to_string(&path).unwrap().contains("sync::atomic"),
                    "{path:?}: use crate::atomic"
                );
                files += 1;
            }
        }
        files
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn no_other_file_names_atomics() {
        assert!(check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) >= 7);
    }
}
