//! Services that are listed in a file: a section for each, which says where it is.
//!
//! ```ini
//! [files]
//! uri = tcp://10.0.0.1:7000
//!
//! [news]
//! members = udp://10.0.0.1:7100 udp://10.0.0.2:7100
//! ```

use super::limits::{FILE_BYTES_MAX, FILE_LOOK, NAMES_MAX};
use super::text::Text;
use super::{Directory, Instance, Kind, News, Record};
use crate::error::{ClaimError, DirectoryError};
use crate::limits::{MEMBERS_MAX, RECORD_URIS_MAX};
use crate::name::ServiceName;
use cci::ini::{self, Pair, Wrong};
use rustc_hash::FxHashMap;
use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Distinguishes states of a file.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len_bytes: u64,
    changed: (i64, i64),
}

type Listed = FxHashMap<ServiceName, Vec<Record>>;

/// The services of a file, which is read again when it has changed.
pub struct FileDirectory {
    path: PathBuf,
    /// The content that was read, or why it could not be.
    listed: Result<Listed, String>,
    /// `None` if the file did not exist.
    stamp: Option<Stamp>,
    looked: Instant,
    /// Names that were asked for.
    asked: BTreeSet<ServiceName>,
    claims: Vec<Record>,
    news: VecDeque<News>,
}

impl FileDirectory {
    /// Opens a file by the text behind `file:`, which is its path.
    ///
    /// # Errors
    /// [`DirectoryError`]: the path does not begin with `/`, or the file can't be read or is wrong at a line.
    pub fn open_text(text: &str) -> Result<FileDirectory, DirectoryError> {
        let parsed = Text::parse(text, text, &[])?;
        let path = PathBuf::from(parsed.place);
        if !path.is_absolute() {
            return Err(parsed.wrong("the file's path must begin with /"));
        }
        let mut directory = FileDirectory {
            path,
            listed: Ok(Listed::default()),
            stamp: None,
            looked: Instant::now(),
            asked: BTreeSet::new(),
            claims: Vec::new(),
            news: VecDeque::new(),
        };
        directory.read();
        match &directory.listed {
            Ok(_) => Ok(directory),
            Err(reason) => Err(DirectoryError::unusable(&directory.path, reason)),
        }
    }

    /// Reads the file.
    fn read(&mut self) {
        self.looked = Instant::now();
        let read = || -> Result<(Stamp, String), String> {
            let file = File::open(&self.path).map_err(|error| error.to_string())?;
            let about = file.metadata().map_err(|error| error.to_string())?;
            if !about.is_file() {
                return Err("it is not a file".to_owned());
            }
            let mut text = String::new();
            let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
            match read {
                Ok(len_bytes) if len_bytes as u64 > FILE_BYTES_MAX => Err("it is over 4 MiB long".to_owned()),
                Ok(_) => Ok((stamp(&about), text)),
                Err(error) => Err(error.to_string()),
            }
        };
        match read() {
            Ok((stamp, text)) => {
                self.stamp = Some(stamp);
                self.listed = parse(&text).map_err(|Wrong { line, reason }| format!("line {line}: {reason}"));
            }
            Err(reason) => {
                self.stamp = std::fs::metadata(&self.path).ok().map(|about| stamp(&about));
                self.listed = Err(reason);
            }
        }
    }

    /// Reads the file again if it has changed, and reports the differences.
    fn look(&mut self) {
        self.looked = Instant::now();
        let now = std::fs::metadata(&self.path).ok().map(|about| stamp(&about));
        if now == self.stamp {
            return;
        }
        let before = std::mem::replace(&mut self.listed, Ok(Listed::default()));
        self.read();
        for service in &self.asked {
            let answer = self.answer(service);
            if answer_of(&self.path, &before, service) != answer {
                self.news.push_back(answer);
            }
        }
        let Ok(listed) = &self.listed else { return };
        let lost = self.claims.extract_if(.., |claim| check(listed, claim).is_err());
        for claim in lost.collect::<Vec<_>>() {
            let records = listed.get(&claim.service).map_or(&[][..], Vec::as_slice);
            let to = match records {
                [] => format!("nobody: {} does not list it any more", self.path.display()),
                records => format!("{}, by {}", places(records), self.path.display()),
            };
            self.news.push_back(News::Lost { service: claim.service, to });
        }
    }

    fn answer(&self, service: &ServiceName) -> News {
        answer_of(&self.path, &self.listed, service)
    }
}

impl Directory for FileDirectory {
    fn describe(&self) -> String {
        format!("the file of services {}", self.path.display())
    }

    fn claim(&mut self, record: &Record) -> Result<(), ClaimError> {
        self.look();
        let refused = |reason: String| ClaimError::Directory {
            service: record.service.clone(),
            directory: self.describe(),
            reason,
        };
        match &self.listed {
            Ok(listed) => check(listed, record).map_err(refused)?,
            Err(reason) => return Err(refused(reason.clone())),
        }
        self.claims.push(record.clone());
        Ok(())
    }

    fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        self.claims.retain(|claim| claim.service != *service || claim.instance != instance);
    }

    fn ask(&mut self, service: &ServiceName) {
        self.look();
        self.asked.insert(service.clone());
        if self.asked.len() > NAMES_MAX {
            self.asked.retain(|asked| asked == service);
        }
        let answer = self.answer(service);
        self.news.push_back(answer);
    }

    fn poll(&mut self) -> Option<News> {
        let is_used = !self.asked.is_empty() || !self.claims.is_empty();
        if self.news.is_empty() && is_used && self.looked.elapsed() >= FILE_LOOK {
            self.look();
        }
        self.news.pop_front()
    }
}

fn stamp(about: &Metadata) -> Stamp {
    Stamp { inode: about.ino(), len_bytes: about.len(), changed: (about.ctime(), about.ctime_nsec()) }
}

fn answer_of(path: &Path, listed: &Result<Listed, String>, service: &ServiceName) -> News {
    let service = service.clone();
    match listed {
        Ok(listed) => match listed.get(&service) {
            Some(records) => News::Found { service, records: records.clone() },
            None => News::Absent { service },
        },
        Err(reason) => News::Failed { service, reason: format!("{}: {reason}", path.display()) },
    }
}

/// Checks that the file has a service at the place where it listens.
fn check(listed: &Listed, record: &Record) -> Result<(), String> {
    let Some(records) = listed.get(&record.service) else {
        return Err(format!(
            "no section [{0}]: add one with uri = {1}",
            record.service,
            record.uris.join(" ")
        ));
    };
    let places = places(records);
    match (record.kind, records.first().map(|first| first.kind)) {
        (Kind::Service, Some(Kind::Member)) => Err("it is a group there, with members = …".to_owned()),
        (Kind::Member, Some(Kind::Service)) => Err("it is one service there, with uri = …".to_owned()),
        _ if records.iter().flat_map(|record| &record.uris).any(|uri| listens_at(record, uri)) => Ok(()),
        _ => Err(format!(
            "it must be at {places}, and this process listens at {}: open its endpoint there, or correct the file",
            record.uris.join(" ")
        )),
    }
}

/// Whether a service listens at a URI: its own, or a part of one that has several (`any://…`).
fn listens_at(record: &Record, uri: &str) -> bool {
    let part = uri.replacen("://", "=", 1);
    record.uris.iter().any(|own| {
        let parts = own.strip_prefix("any://").into_iter().flat_map(|parts| parts.split(','));
        own == uri || parts.into_iter().any(|own| own == part)
    })
}

fn places(records: &[Record]) -> String {
    let uris: Vec<&str> = records.iter().flat_map(|record| &record.uris).map(String::as_str).collect();
    uris.join(" or ")
}

/// Reads a file of services.
fn parse(text: &str) -> Result<Listed, Wrong> {
    let mut listed = Listed::default();
    for section in ini::sections(text)? {
        let wrong = |reason: String| Wrong { line: section.line, reason };
        let service = ServiceName::new(section.name).map_err(|error| wrong(error.to_string()))?;
        let records = match &section.pairs[..] {
            [pair] if pair.key == "uri" => {
                let uris = uris(pair, RECORD_URIS_MAX)?;
                vec![record(&service, Kind::Service, uris)]
            }
            [pair] if pair.key == "members" => {
                let uris = uris(pair, MEMBERS_MAX)?;
                uris.into_iter().map(|uri| record(&service, Kind::Member, vec![uri])).collect()
            }
            [] => return Err(wrong(format!("nothing is said of {service}: add uri = URI"))),
            [_, second] if ["uri", "members"].contains(&second.key) => {
                let reason = "a section has one line: uri of a service, or members of a group".to_owned();
                return Err(Wrong { line: second.line, reason });
            }
            [.., other] => {
                let reason = format!("there is no key {}; there are uri and members", other.key);
                return Err(Wrong { line: other.line, reason });
            }
        };
        listed.insert(service, records);
    }
    Ok(listed)
}

fn uris(pair: &Pair<'_>, max: usize) -> Result<Vec<String>, Wrong> {
    let wrong = |reason: String| Err(Wrong { line: pair.line, reason });
    let uris: Vec<String> = pair.value.split_whitespace().map(str::to_owned).collect();
    if uris.len() > max {
        return wrong(format!("{} URIs are more than {max}", uris.len()));
    }
    for (index, uri) in uris.iter().enumerate() {
        if !super::record::is_uri(uri) {
            return wrong(format!("{uri:?} is no URI: write something like tcp://10.0.0.1:7000"));
        }
        let ip = uri.strip_prefix("tcp://").or_else(|| uri.strip_prefix("udp://"));
        if let Some(ip) = ip
            && ip.parse::<SocketAddr>().is_err()
        {
            return wrong(format!("{uri:?} is not an address and a port; names of hosts are not looked up"));
        }
        if uris[..index].contains(uri) {
            return wrong(format!("{uri} is there twice"));
        }
    }
    Ok(uris)
}

/// Makes a record. A file knows nothing of instances, so an instance stands for a place, and changes with it.
fn record(service: &ServiceName, kind: Kind, uris: Vec<String>) -> Record {
    let mut hasher = DefaultHasher::new();
    uris.hash(&mut hasher);
    Record { service: service.clone(), instance: Instance(hasher.finish()), kind, uris }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn with(text: &str) -> (tempfile::TempDir, PathBuf, Result<FileDirectory, DirectoryError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("services.ini");
        fs::write(&path, text).unwrap();
        let opened = FileDirectory::open_text(path.to_str().unwrap());
        (folder, path, opened)
    }

    fn asked(directory: &mut FileDirectory, name: &str) -> News {
        directory.ask(&ServiceName::new(name).unwrap());
        directory.poll().unwrap()
    }

    fn claim(name: &str, kind: Kind, uri: &str) -> Record {
        let service = ServiceName::new(name).unwrap();
        Record { service, instance: Instance(7), kind, uris: vec![uri.to_owned()] }
    }

    const TEXT: &str = "[kv]\nuri = tcp://10.0.0.1:7000 udp://10.0.0.1:7000\n\
                        [news] # a group\nmembers = shm://one shm://two\n";

    #[test]
    fn what_is_listed_is_found() {
        let (_folder, _, directory) = with(TEXT);
        let mut directory = directory.unwrap();
        let News::Found { records, .. } = asked(&mut directory, "kv") else { panic!("not found") };
        assert_eq!(records[0].uris, ["tcp://10.0.0.1:7000", "udp://10.0.0.1:7000"]);
        let News::Found { records, .. } = asked(&mut directory, "news") else { panic!("not found") };
        assert!(records.iter().all(|record| record.kind == Kind::Member));
        assert_ne!(records[0].instance, records[1].instance);
        assert!(matches!(asked(&mut directory, "other"), News::Absent { .. }));
    }

    #[test]
    fn a_change_is_told_without_being_asked() {
        let (_folder, path, directory) = with(TEXT);
        let mut directory = directory.unwrap();
        asked(&mut directory, "kv");
        asked(&mut directory, "news");
        directory.claim(&claim("kv", Kind::Service, "tcp://10.0.0.1:7000")).unwrap();
        fs::write(&path, TEXT.replace("10.0.0.1", "10.0.0.22")).unwrap();
        let patience = Instant::now() + std::time::Duration::from_secs(60);
        let first = loop {
            if let Some(news) = directory.poll() {
                break news;
            }
            assert!(Instant::now() < patience, "the change is never seen");
        };
        assert!(
            matches!(&first, News::Found { records, .. } if records[0].uris[0] == "tcp://10.0.0.22:7000")
        );
        assert!(matches!(directory.poll(), Some(News::Lost { to, .. }) if to.contains("10.0.0.22")));
        assert_eq!(directory.poll(), None, "what is said of the group is what it was");

        fs::write(&path, "[kv\n").unwrap();
        assert!(
            matches!(asked(&mut directory, "kv"), News::Failed { reason, .. } if reason.contains("line 1"))
        );
        fs::remove_file(&path).unwrap();
        directory.news.clear();
        assert!(matches!(asked(&mut directory, "kv"), News::Failed { .. }));
        fs::write(&path, TEXT).unwrap();
        directory.news.clear();
        directory.ask(&ServiceName::new("kv").unwrap());
        assert!(directory.news.iter().all(|news| matches!(news, News::Found { .. })));
    }

    #[test]
    fn a_service_must_be_where_the_file_says() {
        let (_folder, path, directory) = with(TEXT);
        let mut directory = directory.unwrap();
        for good in ["tcp://10.0.0.1:7000", "any://id=00,shm=x,udp=10.0.0.1:7000,tcp=10.0.0.9:1"] {
            directory.claim(&claim("kv", Kind::Service, good)).unwrap();
            directory.withdraw(&ServiceName::new("kv").unwrap(), Instance(7));
        }
        directory.claim(&claim("news", Kind::Member, "shm://two")).unwrap();
        for (name, kind, uri, word) in [
            ("other", Kind::Service, "shm://x", "add one with uri = shm://x"),
            ("kv", Kind::Service, "tcp://10.0.0.1:7001", "must be at tcp://10.0.0.1:7000 or udp"),
            ("kv", Kind::Member, "tcp://10.0.0.1:7000", "one service"),
            ("news", Kind::Service, "shm://two", "group"),
        ] {
            let shown = directory.claim(&claim(name, kind, uri)).unwrap_err().to_string();
            assert!(shown.contains(word) && shown.contains(path.to_str().unwrap()), "{shown}");
        }
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line, word) in [
            ("[kv]\nuri = nonsense", 2, "no URI"),
            ("[kv]\nuri = tcp://host.example:1", 2, "not looked up"),
            ("[kv]\n\nurl = tcp://10.0.0.1:1", 3, "no key url"),
            ("[kv]\nuri = shm://a shm://a", 2, "twice"),
            ("[kv]\nuri = shm://a shm://b shm://c shm://d shm://e", 2, "more than 4"),
            ("[kv]\nuri = shm://a\nmembers = shm://b", 3, "one line"),
            ("\n[k v]\nuri = shm://a", 2, "no name of a service"),
            ("[kv]", 1, "nothing is said"),
            ("[kv]\nuri = shm://a\n[kv]\nuri = shm://b", 3, "already at line 1"),
            ("uri = shm://a", 1, "before any section"),
        ] {
            let (_folder, path, opened) = with(text);
            let error = opened.err().expect(text);
            assert_eq!(error.directory, path.to_str().unwrap());
            assert!(error.reason.starts_with(&format!("line {line}: ")), "{text:?}: {error}");
            assert!(error.reason.contains(word), "{text:?}: {error}");
        }
        let missing = FileDirectory::open_text("/nowhere/at/all").err().unwrap();
        assert!(missing.reason.contains("No such file"), "{missing}");
        assert!(FileDirectory::open_text("services.ini").err().unwrap().reason.contains("begin with /"));
        assert!(FileDirectory::open_text("/tmp").err().unwrap().reason.contains("not a file"));
    }

    #[test]
    fn a_file_that_is_too_long_is_refused() {
        let (_folder, _, opened) = with(&"#\n".repeat(FILE_BYTES_MAX as usize / 2 + 1));
        assert!(opened.err().unwrap().reason.contains("4 MiB"));
    }
}
