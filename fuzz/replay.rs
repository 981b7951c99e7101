//! Feeds what fuzzing has found worth keeping to the functions that were fuzzed, without cargo-fuzz: part of the plain
//! tests of each crate, by `#[path]`.

use std::path::{Path, PathBuf};

/// What is kept for one target, at the most, so that the corpora do not grow: `cargo xtask fuzz --minimise` keeps what reaches
/// something that nothing else does.
const CORPUS_FILES_MAX: usize = 150;
const CORPUS_BYTES_MAX: usize = 32 << 10;

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
        paths.retain(|path| path.is_file());
        paths.sort();
        let (files, mut bytes) = (paths.len(), 0);
        for path in paths {
            let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let _current = Current(path);
            run(&input);
            bytes += input.len();
            count += 1;
        }
        let is_small = kind != "corpus" || files <= CORPUS_FILES_MAX && bytes <= CORPUS_BYTES_MAX;
        assert!(
            is_small,
            "{files} files, {bytes} bytes for {target}: run `cargo xtask fuzz --minimise {target}`"
        );
    }
    assert!(count > 0, "nothing is kept for {target} in {}", root.display());
    count
}
