//! Everything that this process has started, and what that has started.

use crate::failure::{Failure, Outcome};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use std::{fs, thread};

/// The kernel ends what got SIGKILL long before; beyond that something forks faster than it is killed, or sleeps in the
/// kernel.
const END_LIMIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// From now on, descendants whose parent ends become children of this process.
pub fn adopt() -> Outcome {
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Failure::new(format!("adopting what ranks leave behind (prctl): {error}")))
}

/// Kills all descendants of this process, and returns when none of them runs.
pub fn end() -> Outcome {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let found = running();
        if found.is_empty() {
            return Ok(());
        }
        for &pid in &found {
            // One that has ended meanwhile is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(format!("process {} does not end", found[0].as_raw_nonzero())));
        }
        thread::sleep(PAUSE);
    }
}

/// The descendants that run; zombies do not.
fn running() -> Vec<Pid> {
    let own = std::process::id();
    let mut parents = HashMap::new();
    let mut alive = Vec::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let Some((state, parent)) = fs::read(format!("/proc/{pid}/stat")).ok().and_then(|stat| parse(&stat))
        else {
            continue;
        };
        parents.insert(pid, parent);
        if !matches!(state, b'Z' | b'X') {
            alive.push(pid);
        }
    }
    let is_ours = |pid: u32| {
        // Bounded: the table was not read at one instant, so it could have a circle.
        let ancestors = std::iter::successors(Some(pid), |pid| parents.get(pid).copied());
        ancestors.skip(1).take(parents.len()).any(|ancestor| ancestor == own)
    };
    let ours = alive.into_iter().filter(|&pid| is_ours(pid));
    ours.filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).collect()
}

/// State and parent, from `/proc/PID/stat`: "PID (NAME) STATE PARENT …", where the name may have any bytes.
fn parse(stat: &[u8]) -> Option<(u8, u32)> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&stat[end_of_name + 1..]).ok()?.split_ascii_whitespace();
    Some((*fields.next()?.as_bytes().first()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn names_of_processes_may_have_any_bytes() {
        assert_eq!(parse(b"17 (sh) S 3 17 3 0"), Some((b'S', 3)));
        assert_eq!(parse(b"17 (a) Z 1 (\xff) R 4 17"), Some((b'R', 4)));
        for broken in [&b""[..], b"17", b"17 (sh)", b"17 (sh) S", b"17 (sh) S x", b"17 (sh) S \xff"] {
            assert_eq!(parse(broken), None, "{broken:?}");
        }
    }
}
