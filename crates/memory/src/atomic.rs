//! The one door for atomics: core's, or loom's under `--cfg loom`.
//!
//! Nothing else in this crate names the module that they come from (a test reads the sources), so a model check covers
//! every atomic access there is. (`clippy::disallowed_types` can't do it: it sees through the re-export.)

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// core's, also under loom: for [`bytes`](crate::bytes), where loom can't follow. It models values that it made itself,
/// not words at an address that a stranger shares, and nothing there waits for anything.
pub(crate) mod raw {
    #[cfg(any(not(target_arch = "x86_64"), miri, loom, test))]
    pub(crate) use core::sync::atomic::AtomicU8;
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn check(folder: &Path) -> usize {
        let mut files = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files += check(&path);
            } else if !path.ends_with("src/atomic.rs") {
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
