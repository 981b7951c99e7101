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
    Layers,
    Ranks,
    GlobalMemory,
    Waiting,
    Connections,
    Forms,
    UnderLoad,
}

impl Family {
    /// In the order of the page.
    pub const ALL: [Family; 12] = [
        Family::SharedMemory,
        Family::Udp,
        Family::Tcp,
        Family::Ethernet,
        Family::RemoteMemory,
        Family::Layers,
        Family::Ranks,
        Family::GlobalMemory,
        Family::Waiting,
        Family::Connections,
        Family::Forms,
        Family::UnderLoad,
    ];

    /// By what is done first, and then by the device, which the name begins with.
    pub fn of(row: &RowResult) -> Family {
        match row.work {
            _ if row.name.starts_with("ccs/") => Family::Ranks,
            _ if row.name.contains("/service-") => Family::Layers,
            _ if row.name.starts_with("acp/") => Family::GlobalMemory,
            Work::GetFence { .. }
            | Work::ChannelLife { .. }
            | Work::MapFind { .. }
            | Work::MapInsert { .. } => Family::GlobalMemory,
            Work::PutFence { .. }
            | Work::PutFenceHeap { .. }
            | Work::WriteStrided { .. }
            | Work::Pack { .. }
            | Work::Unpack { .. }
            | Work::FetchAdd
            | Work::FetchAddAll { .. }
            | Work::Barrier { .. }
            | Work::Start { .. }
            | Work::Allreduce { .. } => Family::Ranks,
            Work::Write { .. } | Work::WriteInTurn { .. } | Work::Read { .. } => Family::RemoteMemory,
            Work::BlockingTrip { .. } => Family::Waiting,
            Work::Connect | Work::Poll { .. } | Work::IdleMemory { .. } => Family::Connections,
            Work::Loaded { .. } => Family::UnderLoad,
            Work::Long { .. } | Work::Call { .. } | Work::Calls { .. } | Work::Contact => Family::Layers,
            Work::LoanTrip { .. } => Family::SharedMemory,
            Work::HalfTrip { .. } | Work::Rate { .. } | Work::Stream { .. } | Work::Handled { .. } => {
                let mut parts = row.name.split('/');
                match (parts.next(), parts.next()) {
                    (Some("shm"), Some("half-trip" | "loan-trip" | "rate" | "stream")) => {
                        Family::SharedMemory
                    }
                    (Some("udp"), Some("half-trip" | "rate" | "stream")) => Family::Udp,
                    (Some("tcp"), Some("half-trip" | "rate" | "stream")) => Family::Tcp,
                    (Some("eth" | "pair-udp" | "pair-tcp"), _) => Family::Ethernet,
                    _ => Family::Forms,
                }
            }
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

/// Titles are `what, what else, size`: the parts that all have. Of a part in which they begin alike, the words that differ
/// are left out; one in which they don't is the size.
fn common_title(rows: &[&RowResult]) -> String {
    let titles: Vec<Vec<&str>> = rows.iter().map(|row| row.title.split(", ").collect()).collect();
    let Some(first) = titles.first() else { return String::new() };
    let common = |(at, part): (usize, &&str)| {
        let others: Vec<Vec<&str>> = titles
            .iter()
            .map(|parts| parts.get(at).map_or(Vec::new(), |part| part.split(' ').collect()))
            .collect();
        let same = |at: usize, word: &str| others.iter().all(|words| words.get(at) == Some(&word));
        let words: Vec<&str> = part.split(' ').collect();
        let begins = words.first().is_some_and(|word| same(0, word));
        let kept = words.iter().enumerate().map(|(at, word)| if same(at, word) { *word } else { "…" });
        begins.then(|| kept.collect::<Vec<_>>().join(" "))
    };
    first.iter().enumerate().filter_map(common).collect::<Vec<_>>().join(", ")
}

/// The number in which rows of a group differ.
pub fn size(work: Work) -> Option<u32> {
    match work {
        Work::HalfTrip { len }
        | Work::LoanTrip { len }
        | Work::Rate { len }
        | Work::Stream { len }
        | Work::Handled { len }
        | Work::Long { len }
        | Work::Call { len }
        | Work::Calls { len, .. }
        | Work::Write { len }
        | Work::WriteInTurn { len, .. }
        | Work::Read { len }
        | Work::PutFence { len }
        | Work::PutFenceHeap { len }
        | Work::GetFence { len }
        | Work::ChannelLife { len }
        | Work::Allreduce { len, .. }
        | Work::BlockingTrip { len } => Some(len),
        Work::IdleMemory { connections } => Some(connections),
        Work::Loaded { percent, .. } => Some(percent),
        // Its contestants are the numbers of connections.
        Work::FetchAdd
        | Work::FetchAddAll { .. }
        | Work::MapFind { .. }
        | Work::MapInsert { .. }
        | Work::WriteStrided { .. }
        | Work::Pack { .. }
        | Work::Unpack { .. }
        | Work::Barrier { .. }
        | Work::Start { .. }
        | Work::Connect
        | Work::Contact
        | Work::Poll { .. } => None,
    }
}

/// That number in the head of a table.
pub fn size_words(work: Work) -> String {
    match (work, size(work)) {
        (Work::IdleMemory { .. }, Some(connections)) => {
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

    fn row(title: &str) -> RowResult {
        RowResult {
            name: String::new(),
            title: title.to_owned(),
            work: Work::Connect,
            goals: Vec::new(),
            commit: String::new(),
            cache_line_ns: Vec::new(),
            tracks: Vec::new(),
        }
    }

    #[test]
    fn forms_are_no_devices() {
        let row = |name: &str| RowResult { name: name.to_owned(), work: Work::Rate { len: 8 }, ..row("") };
        assert_eq!(Family::of(&row("shm/rate/8")), Family::SharedMemory);
        assert_eq!(Family::of(&row("shm/c/rate/8")), Family::Forms);
        assert_eq!(Family::of(&row("pair-udp/rate/8")), Family::Ethernet);
    }

    #[test]
    fn rows_that_differ_in_a_number_share_a_group() {
        assert_eq!(
            (key("shm/half-trip/8"), key("udp/connect"), key("x")),
            ("shm/half-trip", "udp/connect", "x")
        );
        let (one, other) = (row("Write, into shared memory, 8 B"), row("Write, into shared memory, 64 B"));
        assert_eq!(common_title(&[&one, &other]), "Write, into shared memory");
        assert_eq!(common_title(&[&one]), "Write, into shared memory, 8 B");
        let (one, other) =
            (row("Trip at 10 % of the rate, 64 B, udp"), row("Trip at 80 % of the rate, 64 B, udp"));
        assert_eq!(common_title(&[&one, &other]), "Trip at … % of the rate, 64 B, udp");
        assert_eq!(size_words(Work::IdleMemory { connections: 100_000 }), "100,000 connections");
        assert_eq!(size_words(Work::Write { len: 1 << 20 }), "1 MiB");
    }
}
