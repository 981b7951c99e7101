//! Chooses which client to drop when there are too many that have sent no request.

use cci_memory::slab::Key;
use std::collections::HashMap;
use std::hash::Hash;

/// The oldest client of the host, or process, that has the most, and its time. So a flood displaces its own clients, and not
/// those that came before it. Each client is given by its host or process, a time that orders clients (when it came, or until
/// when it may be silent), and its key.
pub(super) fn oldest_of_most<W: Eq + Hash + Copy>(
    silent: impl Iterator<Item = (W, u64, Key)>,
) -> Option<(Key, u64)> {
    let mut by_whom: HashMap<W, (u32, u64, Key)> = HashMap::new();
    for (who, until_ns, key) in silent {
        let (count, oldest_ns, oldest) = by_whom.entry(who).or_insert((0, until_ns, key));
        *count += 1;
        if until_ns < *oldest_ns {
            (*oldest_ns, *oldest) = (until_ns, key);
        }
    }
    let most = by_whom.into_values().max_by_key(|&(count, oldest_ns, _)| (count, u64::MAX - oldest_ns));
    most.map(|(_, until_ns, key)| (key, until_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_crowds_makes_room() {
        let key = |index| Key { index, generation: 1 };
        let silent = [
            ("early", 1, 0),
            ("crowd", 5, 1),
            ("crowd", 3, 2),
            ("crowd", 4, 3),
            ("pair", 2, 4),
            ("pair", 9, 5),
        ];
        let silent = silent.map(|(who, until_ns, index)| (who, until_ns, key(index)));
        assert_eq!(oldest_of_most(silent.into_iter()), Some((key(2), 3)));
        let alike = [("a", 7, key(0)), ("b", 6, key(1))];
        assert_eq!(oldest_of_most(alike.into_iter()), Some((key(1), 6)), "of those alike, the oldest");
        assert_eq!(oldest_of_most(std::iter::empty::<(u32, u64, Key)>()), None);
    }
}
