//! Rows that belong together: families are the page's sections, groups its tables and plots.

use super::figures;
use crate::results::{Results, RowResult};
use crate::work::Work;
use cci_measure::units;

/// A section of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    SharedMemory,
    Udp,
    Tcp,
    Ethernet,
    RemoteMemory,
    Waiting,
    Connections,
    Forms,
    UnderLoad,
}

impl Family {
    /// In the order of the page.
    pub const ALL: [Family; 9] = [
        Family::SharedMemory,
        Family::Udp,
        Family::Tcp,
        Family::Ethernet,
        Family::RemoteMemory,
        Family::Waiting,
        Family::Connections,
        Family::Forms,
        Family::UnderLoad,
    ];

    /// Heading, and what is to be known of all that is below it.
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Family::SharedMemory => (
                "Shared memory",
                "Two processes on one host. The floor is one cache line handed back and forth: no message can be faster.",
            ),
            Family::Udp => (
                "UDP",
                "Over the loopback interface. CCI's messages are reliable and ordered; UDP sockets by hand lose what they lose.",
            ),
            Family::Tcp => {
                ("TCP", "Over the loopback interface; the sockets by hand have Nagle's delay switched off.")
            }
            Family::Ethernet => (
                "Raw Ethernet",
                "Over a pair of virtual interfaces between two network namespaces, both sides polling.",
            ),
            Family::RemoteMemory => (
                "Remote memory",
                "One side writes into the other's memory, or reads from it; the other's program does nothing.",
            ),
            Family::Waiting => (
                "Waiting",
                "As the half round trips above, but both sides sleep in the kernel until something comes.",
            ),
            Family::Connections => {
                ("Connections", "Setting them up, and what it costs to have many that are idle.")
            }
            Family::Forms => ("Forms of the interface", "The same work through other doors of the library."),
            Family::UnderLoad => (
                "Latency under load",
                "Round trips while messages leave by the clock, at a part of the highest rate of that contestant, whether or \
                 not answers have come; counted from when a message was due, so that a delay is charged to all that it \
                 delays.",
            ),
        }
    }

    /// By what is done first, and then by the device, which the name begins with.
    pub fn of(row: &RowResult) -> Family {
        match row.work {
            Work::Write { .. } | Work::Read { .. } => Family::RemoteMemory,
            Work::BlockingTrip { .. } => Family::Waiting,
            Work::Connect | Work::Poll { .. } | Work::IdleMemory { .. } => Family::Connections,
            Work::Loaded { .. } => Family::UnderLoad,
            Work::HalfTrip { .. } | Work::Rate { .. } => match row.name.split('/').next() {
                Some("shm") => Family::SharedMemory,
                Some("udp") => Family::Udp,
                Some("tcp") => Family::Tcp,
                Some("eth" | "pair-udp" | "pair-tcp") => Family::Ethernet,
                _ => Family::Forms,
            },
        }
    }
}

/// Rows of one kind, which differ in one number.
pub struct Group<'a> {
    /// What their names have in common: `shm/half-trip`.
    pub key: String,
    /// What their titles have in common.
    pub title: String,
    /// In the order of the number as they were measured.
    pub rows: Vec<&'a RowResult>,
}

/// The groups of a family.
pub fn groups(results: &Results, family: Family) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in results.rows.iter().filter(|row| Family::of(row) == family) {
        let key = key(&row.name);
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { key: key.to_owned(), title: String::new(), rows: vec![row] }),
        }
    }
    for group in &mut groups {
        group.title = common_title(&group.rows);
    }
    groups
}

/// The name without the number at its end.
pub fn key(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((key, last)) if last.bytes().all(|byte| byte.is_ascii_digit()) => key,
        _ => name,
    }
}

/// Titles are `what, what else, size`: the parts that all begin with.
fn common_title(rows: &[&RowResult]) -> String {
    let mut parts: Vec<&str> = rows.first().map(|row| row.title.split(", ").collect()).unwrap_or_default();
    for row in rows {
        let same = row.title.split(", ").zip(&parts).take_while(|(one, other)| one == *other).count();
        parts.truncate(same);
    }
    parts.join(", ")
}

/// The number in which rows of a group differ.
pub fn size(work: Work) -> Option<u32> {
    match work {
        Work::HalfTrip { len }
        | Work::Rate { len }
        | Work::Write { len }
        | Work::Read { len }
        | Work::BlockingTrip { len } => Some(len),
        Work::Poll { connections } | Work::IdleMemory { connections } => Some(connections),
        Work::Loaded { percent, .. } => Some(percent),
        Work::Connect => None,
    }
}

/// That number in the head of a table.
pub fn size_words(work: Work) -> String {
    match (work, size(work)) {
        (Work::Poll { .. } | Work::IdleMemory { .. }, Some(connections)) => {
            format!("{} connections", figures::grouped(connections.into()))
        }
        (Work::Loaded { .. }, Some(percent)) => format!("{percent} %"),
        (_, Some(len)) => units::bytes(len.into()),
        (_, None) => "result".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_in_a_number_share_a_group() {
        assert_eq!(
            (key("shm/half-trip/8"), key("udp/connect"), key("x")),
            ("shm/half-trip", "udp/connect", "x")
        );
        let row = |title: &str| RowResult {
            name: String::new(),
            title: title.to_owned(),
            work: Work::Connect,
            goals: Vec::new(),
            cache_line_ns: Vec::new(),
            tracks: Vec::new(),
        };
        let (one, other) = (row("Write, into shared memory, 8 B"), row("Write, into shared memory, 64 B"));
        assert_eq!(common_title(&[&one, &other]), "Write, into shared memory");
        assert_eq!(common_title(&[&one]), "Write, into shared memory, 8 B");
        assert_eq!(size_words(Work::Poll { connections: 100_000 }), "100,000 connections");
        assert_eq!(size_words(Work::Write { len: 1 << 20 }), "1 MiB");
    }
}
