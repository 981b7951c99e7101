//! What peers leave behind in shared memory when they are ended before they are done.

use std::fs;
use std::path::Path;

/// Where programs put what they share.
const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];

/// Removes files whose names begin with this prefix and the number of a process that is gone.
pub fn sweep_all(prefix: &str) {
    FOLDERS.iter().for_each(|folder| sweep(Path::new(folder), prefix));
}

fn sweep(folder: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(process) = owner(&name.to_string_lossy(), prefix) else { continue };
        if !Path::new("/proc").join(process.to_string()).exists() {
            // Best effort: what can't be removed does no harm to the figures.
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
}

/// The number of the process that made a file of this name.
fn owner(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_whose_they_are() {
        let seen = "cci-bench-iox2-20277_9204dd183d1c4d8e1ff592a30766ffa6765aa8b5_node.0_10_0.global_mgmt";
        assert_eq!(owner(seen, "cci-bench-iox2-"), Some(20_277));
        assert_eq!(owner("cci-bench-aeron-23142", "cci-bench-aeron-"), Some(23_142));
        assert_eq!(owner("cci-bench-aeron-", "cci-bench-aeron-"), None);
        assert_eq!(owner(seen, "cci-bench-aeron-"), None);
    }

    #[test]
    fn what_the_dead_left_is_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("cci-bench-test-{}", std::process::id()));
        // No process has so high a number: the kernel's limit is 2^22.
        let (dead, alive) = (format!("peer-{}", 1 << 23), format!("peer-{}", std::process::id()));
        fs::create_dir_all(folder.join(&dead).join("first")).unwrap();
        fs::write(folder.join(format!("{dead}_file")), "").unwrap();
        fs::write(folder.join(&alive), "").unwrap();
        fs::write(folder.join("other"), "").unwrap();
        sweep(&folder, "peer-");
        let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["other", alive.as_str()]);
    }
}
