//! `any://id=…,shm=NAME,udp=HOST:PORT,tcp=HOST:PORT`, written and read: all the paths to one endpoint.
//!
//! | part | what |
//! |---|---|
//! | `id` | what the endpoint's secret hashes to, 32 hexadecimal digits; goes with `shm` |
//! | `shm` | name or absolute path, as behind `shm://`; a comma in it is written `%2C` |
//! | `udp` | as behind `udp://`; once for each address of an endpoint that has several |
//! | `tcp` | as behind `tcp://` |
//!
//! Their order says nothing. Parts of other names are for later versions and are passed over. Commas, because they need no
//! quotes in a shell.

use crate::device::TransportKind;
use crate::transport::commitment::Commitment;

pub(super) const SCHEME: &str = "any://";
/// The longest URI that is read, bytes: enough for the longest path, four addresses, and parts of later versions.
const BYTES_MAX: usize = 1024;
/// Addresses of one kind that a URI may list.
const ADDRESSES_MAX: usize = 4;
/// Addresses of one kind that are used, as an endpoint has two interfaces at most. Further ones are for later versions.
const ADDRESSES_USED: usize = 2;
const LOOKS: &str = "write any://udp=192.0.2.1:4791,tcp=192.0.2.1:4791, or the URI that the endpoint gives";

/// The kinds of paths there are, the best first: they are tried in this order.
pub(super) const ORDER: [TransportKind; 3] = [TransportKind::Shm, TransportKind::Udp, TransportKind::Tcp];
/// How many kinds there are.
pub(super) const KINDS: usize = ORDER.len();

/// The paths to an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    pub id: Option<Commitment>,
    /// In the order of [`ORDER`], each as a URI of its own kind.
    pub uris: [Option<String>; KINDS],
}

/// Writes the URI of an endpoint that is reached by these URIs.
pub(super) fn format<'a>(
    id: Option<Commitment>,
    uris: impl Iterator<Item = (TransportKind, &'a str)>,
) -> String {
    let mut parts: Vec<String> = id.map(|id| format!("id={id}")).into_iter().collect();
    for (kind, uri) in uris {
        let address = uri.split_once("://").map_or(uri, |(_, address)| address);
        match kind {
            TransportKind::Shm => parts.push(format!("shm={}", address.replace(',', "%2C"))),
            _ => parts.extend(address.split(',').map(|address| format!("{kind}={address}"))),
        }
    }
    format!("{SCHEME}{}", parts.join(","))
}

/// Reads the paths that a URI lists. The error says what is wrong, and what such a URI looks like.
pub(super) fn parse(uri: &str) -> Result<Paths, String> {
    let wrong = |what: &str| Err(format!("{what}; {LOOKS}"));
    let Some(remainder) = uri.strip_prefix(SCHEME) else {
        return wrong(&format!("it does not begin with {SCHEME}"));
    };
    if uri.len() > BYTES_MAX {
        return wrong(&format!("it is longer than {BYTES_MAX} bytes"));
    }
    let mut paths = Paths::default();
    let mut addresses = [0; KINDS];
    for part in remainder.split(',') {
        let Some((key, value)) = part.split_once('=').filter(|(key, value)| is_key(key) && !value.is_empty())
        else {
            return wrong(&format!("its part {part:?} is not key=value"));
        };
        if key == "id" {
            let Ok(id) = value.parse() else {
                return wrong("its id is not 32 lower-case hexadecimal digits");
            };
            if paths.id.replace(id).is_some() {
                return wrong("it has two ids");
            }
            continue;
        }
        let kinds = ORDER.iter().zip(&mut paths.uris).zip(&mut addresses);
        // Other keys are for later versions.
        let Some(((kind, uri), count)) = kinds.into_iter().find(|((kind, _), _)| kind.name() == key) else {
            continue;
        };
        *count += 1;
        match uri {
            Some(uri) if *kind == TransportKind::Udp && *count <= ADDRESSES_MAX => {
                if *count <= ADDRESSES_USED {
                    uri.push(',');
                    uri.push_str(value);
                }
            }
            Some(_) => return wrong(&format!("it has too many {kind} addresses")),
            None if *kind == TransportKind::Shm => {
                *uri = Some(format!("shm://{}", value.replace("%2C", ",")))
            }
            None => *uri = Some(format!("{kind}://{value}")),
        }
    }
    if paths.uris.iter().all(Option::is_none) {
        return wrong("it lists no address of a kind known here");
    }
    if paths.uris[0].is_some() && paths.id.is_none() {
        return wrong(
            "it has a shared-memory name but no id, by which the process there could be recognised",
        );
    }
    Ok(paths)
}

/// The URI of the same endpoint by its addresses in networks alone, without shared memory. None: it is no list, or lists no such address.
pub fn network_uri(uri: &str) -> Option<String> {
    let listed = uri.strip_prefix(SCHEME)?;
    let is_of_network = |part: &&str| {
        let kind = part.split_once('=').map(|(key, _)| key);
        ORDER.iter().any(|known| *known != TransportKind::Shm && kind == Some(known.name()))
    };
    let parts: Vec<&str> = listed.split(',').filter(is_of_network).collect();
    (!parts.is_empty()).then(|| format!("{SCHEME}{}", parts.join(",")))
}

fn is_key(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// The part of a URI that an endpoint of one kind can use, and the commitment of the process there. None: the URI is no
/// list.
pub(crate) fn part_for(
    kind: TransportKind,
    uri: &str,
) -> Option<Result<(String, Option<Commitment>), String>> {
    if kind == TransportKind::Any || !uri.starts_with(SCHEME) {
        return None;
    }
    Some(parse(uri).and_then(|paths| {
        let id = paths.id.filter(|_| kind == TransportKind::Shm);
        let at = ORDER.iter().position(|known| *known == kind);
        let found = at.and_then(|at| paths.uris.into_iter().nth(at).flatten());
        found.map(|uri| (uri, id)).ok_or_else(|| {
            format!("it lists no {kind} address, and this endpoint speaks nothing else; use a device any")
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn uris(paths: &Paths) -> [Option<&str>; KINDS] {
        paths.uris.each_ref().map(Option::as_deref)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let listed = [
            (TransportKind::Shm, "shm:///tmp/a,b"),
            (TransportKind::Udp, "udp://10.0.0.1:5000,[fe80::1%eth0]:5000"),
            (TransportKind::Tcp, "tcp://10.0.0.1:5001"),
        ];
        let text = format(ID.parse().ok(), listed.into_iter());
        assert_eq!(
            text,
            format!(
                "any://id={ID},shm=/tmp/a%2Cb,udp=10.0.0.1:5000,udp=[fe80::1%eth0]:5000,tcp=10.0.0.1:5001"
            )
        );
        let paths = parse(&text).unwrap();
        assert_eq!(paths.id, ID.parse().ok());
        assert_eq!(uris(&paths), listed.map(|(_, uri)| Some(uri)));
    }

    #[test]
    fn networks_are_listed_alone() {
        let text = format!(
            "any://id={ID},shm=/tmp/a%2Cb,udp=10.0.0.1:5000,udp=[fe80::1%eth0]:5000,tcp=10.0.0.1:5001"
        );
        let networks = network_uri(&text).unwrap();
        assert_eq!(networks, "any://udp=10.0.0.1:5000,udp=[fe80::1%eth0]:5000,tcp=10.0.0.1:5001");
        assert_eq!(network_uri(&networks), Some(networks.clone()));
        let paths = parse(&networks).unwrap();
        assert!(paths.id.is_none() && paths.uris[0].is_none() && paths.uris[2].is_some());
        for uri in [&format!("any://id={ID},shm=a"), "udp://10.0.0.1:5000", "shm://a", ""] {
            assert_eq!(network_uri(uri), None);
        }
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let paths = parse("any://quic=x=y,udp=1.2.3.4:5,zone-7=b").unwrap();
        assert_eq!(uris(&paths), [None, Some("udp://1.2.3.4:5"), None]);
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!("any://udp=1.2.3.4:5,x={}", "y".repeat(BYTES_MAX));
        for (uri, word) in [
            ("", "begin with"),
            ("udp://1.2.3.4:5", "begin with"),
            ("any://", "not key=value"),
            ("any://udp", "not key=value"),
            ("any://udp=", "not key=value"),
            ("any://=x", "not key=value"),
            ("any://UDP=x", "not key=value"),
            ("any://udp=1.2.3.4:5,", "not key=value"),
            ("any://x=y", "no address of a kind known"),
            ("any://id=12,udp=1.2.3.4:5", "32"),
            ("any://shm=a", "no id"),
            ("any://tcp=1.2.3.4:5,tcp=1.2.3.4:6", "too many tcp"),
            ("any://udp=a,udp=a,udp=a,udp=a,udp=a", "too many udp"),
            (&format!("any://id={ID},id={ID},shm=a"), "two ids"),
            (&long, "longer than"),
        ] {
            let reason = parse(uri).unwrap_err();
            assert!(reason.contains(word), "{uri}: {reason}");
        }
    }

    #[test]
    fn endpoints_of_one_kind_take_their_part() {
        let text = format!("any://id={ID},shm=n,udp=1.2.3.4:5");
        assert_eq!(part_for(TransportKind::Udp, &text), Some(Ok(("udp://1.2.3.4:5".to_owned(), None))));
        assert_eq!(part_for(TransportKind::Shm, &text), Some(Ok(("shm://n".to_owned(), ID.parse().ok()))));
        assert!(part_for(TransportKind::Tcp, &text).unwrap().unwrap_err().contains("no tcp address"));
        assert_eq!(part_for(TransportKind::Any, &text), None);
        assert_eq!(part_for(TransportKind::Udp, "udp://1.2.3.4:5"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics(tail in ".{0,80}", parts in "([a-z]{0,4}=[0-9a-f:.%,]{0,9},){0,6}") {
            let _ = parse(&tail);
            let _ = parse(&format!("any://{tail}"));
            let _ = parse(&format!("any://{parts}"));
        }
    }
}
