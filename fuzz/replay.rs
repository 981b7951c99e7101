//! Feeds what fuzzing has found worth keeping to the functions that were fuzzed, without cargo-fuzz: part of the plain
//! tests of each crate, by `#[path]`.

use std::path::{Path, PathBuf};

/// Says which input it was, if it was the last one.
struct Current(PathBuf);

impl Drop for Current {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("fuzzing input: {}", self.0.display());
        }
    }
}

/// Gives every input kept for `target`, corpus and regressions, to `run`. Answers how many there were.
pub fn replay(target: &str, run: impl Fn(&[u8])) -> u64 {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    let mut count = 0;
    for kind in ["regressions", "corpus"] {
        let Ok(entries) = std::fs::read_dir(root.join(kind).join(target)) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.into_iter().filter(|path| path.is_file()) {
            let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let _current = Current(path);
            run(&input);
            count += 1;
        }
    }
    assert!(count > 0, "nothing is kept for {target} in {}", root.display());
    count
}
