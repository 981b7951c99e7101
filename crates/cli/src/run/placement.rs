//! Which ranks run on which host.

use super::args::{RANKS_MAX, RunArgs};
use crate::failure::{Failure, Outcome};
use std::fs;
use std::ops::Range;
use std::path::Path;

/// Most hosts of a job: the launcher reaches each of them itself, and has three threads for it.
pub const HOSTS_MAX: usize = 256;

/// A host, and the ranks that run there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub host: String,
    pub ranks: Range<u32>,
}

/// What the user has asked for; none where the job runs on this host only, without ssh.
pub fn of(args: &RunArgs) -> Outcome<Option<Vec<Share>>> {
    let slots = match (&args.hosts, &args.hostfile) {
        (Some(list), _) => parse_list(list)?,
        (None, Some(path)) => parse_file(path)?,
        (None, None) => return Ok(None),
    };
    place(&slots, args.ranks.map(u32::from)).map(Some)
}

/// A host, and how many ranks it takes.
type Slots = (String, u32);

fn parse_list(list: &str) -> Outcome<Vec<Slots>> {
    list.split(',').map(parse_host).collect()
}

fn parse_file(path: &Path) -> Outcome<Vec<Slots>> {
    let name = path.display();
    let text =
        fs::read_to_string(path).map_err(|error| Failure::usage(format!("the host file {name}: {error}")))?;
    let mut slots = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(host) = words.next() else { continue };
        let mut parse = || {
            let (host, slots) = parse_host(host)?;
            match (words.next(), words.next()) {
                (None, _) => Ok((host, slots)),
                (Some(word), None) => {
                    Ok((host, parse_slots(word.strip_prefix("slots=").unwrap_or_default())?))
                }
                (_, Some(word)) => Err(Failure::usage(format!("{word:?} is too much"))),
            }
        };
        slots.push(parse().map_err(|failure| {
            failure
                .of(&format!("line {number} of {name}"))
                .remedy("lines such as `node1`, `node1:4` or `node1 slots=4`")
        })?);
    }
    Ok(slots)
}

/// `NAME`, `NAME:SLOTS`, `[ADDRESS]` or `[ADDRESS]:SLOTS`.
fn parse_host(text: &str) -> Outcome<Slots> {
    let text = text.trim();
    let (name, slots) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':').or(rest.is_empty().then_some("1"))),
        None => text.split_once(':').map_or((text, Some("1")), |(name, slots)| (name, Some(slots))),
    };
    // A name that begins with a dash would be an option of ssh.
    let is_name = !name.is_empty()
        && !name.starts_with('-')
        && name.chars().all(|c| c.is_alphanumeric() || "-._@:%".contains(c));
    match slots {
        Some(slots) if is_name => Ok((name.to_owned(), parse_slots(slots)?)),
        _ => Err(Failure::usage(format!("{text:?} names no host"))
            .remedy("names such as node1, node1:4 for four ranks, or [fe80::1]:4")),
    }
}

fn parse_slots(text: &str) -> Outcome<u32> {
    let slots = text.parse().ok().filter(|slots| (1..=u32::from(RANKS_MAX)).contains(slots));
    slots.ok_or_else(|| {
        Failure::usage(format!("a host takes 1 to {RANKS_MAX} ranks, and not {text:?}"))
            .remedy("an address with colons goes into brackets: [fe80::1]:4")
    })
}

/// Fills one host after the other. A host that is named again takes more ranks.
fn place(slots: &[Slots], ranks: Option<u32>) -> Outcome<Vec<Share>> {
    let mut hosts: Vec<Slots> = Vec::new();
    for (host, slots) in slots {
        match hosts.iter_mut().find(|(known, _)| known == host) {
            Some((_, sum)) => *sum += slots,
            None => hosts.push((host.clone(), *slots)),
        }
    }
    let slots: u32 = hosts.iter().map(|(_, slots)| slots).sum();
    if slots == 0 {
        return Err(Failure::usage("no host is named"));
    }
    let ranks = ranks.unwrap_or(slots);
    if ranks > slots {
        return Err(Failure::usage(format!("{ranks} ranks, and the hosts named take {slots}"))
            .remedy("more ranks for a host, as in node1:4"));
    }
    if ranks > u32::from(RANKS_MAX) {
        return Err(Failure::usage(format!("a job has up to {RANKS_MAX} ranks, and not {ranks}")));
    }
    let mut shares = Vec::new();
    let mut next = 0;
    for (host, slots) in hosts {
        let end = ranks.min(next + slots);
        if next < end {
            shares.push(Share { host, ranks: next..end });
            next = end;
        }
    }
    if shares.len() > HOSTS_MAX {
        return Err(Failure::usage(format!("a job has up to {HOSTS_MAX} hosts, and not {}", shares.len())));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(list: &str, ranks: Option<u32>) -> Vec<(String, Range<u32>)> {
        let shares = place(&parse_list(list).unwrap(), ranks).unwrap();
        shares.into_iter().map(|share| (share.host, share.ranks)).collect()
    }

    #[test]
    fn hosts_are_filled_in_their_order() {
        assert_eq!(placed("a,b:2", None), [("a".into(), 0..1), ("b".into(), 1..3)]);
        assert_eq!(placed("a:2,b:2", Some(3)), [("a".into(), 0..2), ("b".into(), 2..3)]);
        assert_eq!(placed("a:2,b", Some(1)), [("a".into(), 0..1)], "a host without a rank is left out");
        assert_eq!(placed("a,b,a", None), [("a".into(), 0..2), ("b".into(), 2..3)]);
        assert_eq!(
            placed("me@a.b:2,[fe80::1%e0]:3", None),
            [("me@a.b".into(), 0..2), ("fe80::1%e0".into(), 2..5)]
        );
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for list in [
            "",
            ",",
            "a,,b",
            "-oProxyCommand=x",
            "a:0",
            "a:",
            "a:x",
            "a:1025",
            "a:-1",
            "a b",
            "a;b",
            "fe80::1",
            "[a",
            "[a]2",
        ] {
            assert!(parse_list(list).is_err(), "{list:?}");
        }
        assert!(place(&parse_list("a,b").unwrap(), Some(3)).is_err(), "more ranks than slots");
        assert!(place(&parse_list("a:1024,b").unwrap(), None).is_err(), "more ranks than a job has");
        let many: Vec<Slots> = (0..=HOSTS_MAX).map(|number| (number.to_string(), 1)).collect();
        assert!(place(&many, None).is_err() && place(&many[1..], None).is_ok());
    }
}
