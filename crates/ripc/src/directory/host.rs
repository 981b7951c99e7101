//! The services of one host: a folder with a file for each, which its owner keeps locked.
//!
//! The kernel drops a lock when its process ends, however it ends. So a file that nobody has locked belongs to nobody, and a
//! service need do nothing to be found. The folder belongs to one user, so that no other user can take a name there, or replace
//! the record of a service.

use super::{Directory, Instance, Kind, News, Record};
use crate::error::{ClaimError, DirectoryError};
use crate::limits::{MEMBERS_MAX, RECORD_BYTES_MAX};
use crate::name::ServiceName;
use cci_sys::process;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// How often a lock is tried: a process that reads the file holds it for a moment.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A service of this process, with its file, which stays locked.
struct Claim {
    service: ServiceName,
    instance: Instance,
    path: PathBuf,
    /// Held to keep the lock.
    _file: File,
}

/// The services of this host, of one user.
pub struct HostDirectory {
    folder: PathBuf,
    /// Users whose records are trusted, besides this process's own user.
    users: Vec<u32>,
    claims: Vec<Claim>,
    news: VecDeque<News>,
}

/// The content of a service's file.
enum Found {
    Record(Record),
    Nobody,
    Wrong(String),
}

impl HostDirectory {
    /// The folder of this process's user: `cci-services` in `XDG_RUNTIME_DIR`, or else `/tmp/cci-services-UID`. It is made if it is not
    /// there, for this user alone.
    ///
    /// # Errors
    /// [`DirectoryError`] if it can't be made, or belongs to somebody else.
    pub fn open_default() -> Result<HostDirectory, DirectoryError> {
        let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(runtime) if Path::new(&runtime).is_absolute() && Path::new(&runtime).is_dir() => {
                Path::new(&runtime).join("cci-services")
            }
            _ => PathBuf::from(format!("/tmp/cci-services-{}", process::uid())),
        };
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(DirectoryError::unusable(&folder, &error.to_string())),
        }
        let about = fs::symlink_metadata(&folder);
        let about = about.map_err(|error| DirectoryError::unusable(&folder, &error.to_string()))?;
        if !about.is_dir() || about.uid() != process::uid() || about.mode() & 0o022 != 0 {
            let reason = "it must be a folder of this user's in which nobody else may write: remove it, or set CCI_DIRECTORY=host:FOLDER";
            return Err(DirectoryError::unusable(&folder, reason));
        }
        Ok(HostDirectory::of(folder, Vec::new()))
    }

    /// A folder that is there: `/a/folder`, or `/a/folder?users=1001,1002`. Whoever may write there decides who may have names; records of
    /// this process's user are believed, and of the users listed.
    ///
    /// # Errors
    /// [`DirectoryError`] if the text is wrong, or there is no such folder.
    pub fn open_text(text: &str) -> Result<HostDirectory, DirectoryError> {
        let (folder, users) = text.split_once('?').unwrap_or((text, ""));
        let folder = PathBuf::from(folder);
        if !folder.is_absolute() {
            return Err(DirectoryError::bad_text(text, "the folder's path must begin with /"));
        }
        let users: Result<Vec<u32>, _> = match users.strip_prefix("users=") {
            Some(list) => list.split(',').map(str::parse).collect(),
            None if users.is_empty() => Ok(Vec::new()),
            None => {
                return Err(DirectoryError::bad_text(text, "after `?` comes `users=` and numbers of users"));
            }
        };
        let users = users
            .map_err(|_| DirectoryError::bad_text(text, "users are numbers, with commas between them"))?;
        match fs::metadata(&folder) {
            Ok(about) if about.is_dir() => Ok(HostDirectory::of(folder, users)),
            Ok(_) => Err(DirectoryError::unusable(&folder, "it is not a folder")),
            Err(error) => Err(DirectoryError::unusable(&folder, &error.to_string())),
        }
    }

    fn of(folder: PathBuf, users: Vec<u32>) -> HostDirectory {
        HostDirectory { folder, users, claims: Vec::new(), news: VecDeque::new() }
    }

    fn path(&self, record: &Record) -> PathBuf {
        match record.kind {
            Kind::Service => self.folder.join(record.service.as_str()),
            Kind::Member => self.folder.join(format!("{}@{}", record.service, record.instance)),
        }
    }

    /// Opens a file and locks it. `None` if somebody else has it locked.
    fn lock(&self, path: &Path) -> io::Result<Option<File>> {
        for _ in 0..LOCK_TRIES {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(NOFOLLOW);
            let file = options.open(path)?;
            match file.try_lock() {
                // The last owner may have removed the file between the two calls.
                Ok(()) if is_at(&file, path) => return Ok(Some(file)),
                Ok(()) | Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the file of a service.
    fn look(&self, path: &Path) -> Found {
        let file = match OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nobody,
            Err(error) => return Found::Wrong(format!("{}: {error}", path.display())),
        };
        let owner = match file.metadata() {
            Ok(about) if about.is_file() => about.uid(),
            _ => return Found::Wrong(format!("{}: it is not a file", path.display())),
        };
        if owner != process::uid() && !self.users.contains(&owner) {
            let remedy = "name that user in CCI_DIRECTORY=host:FOLDER?users=… if it may have services here";
            return Found::Wrong(format!("{} belongs to user {owner}: {remedy}", path.display()));
        }
        // If it can be locked, it has no owner.
        if file.try_lock_shared().is_ok() {
            return Found::Nobody;
        }
        let mut text = String::with_capacity(RECORD_BYTES_MAX);
        let read = (&file).take(RECORD_BYTES_MAX as u64 + 1).read_to_string(&mut text);
        match read
            .map_err(|error| error.to_string())
            .and_then(|_| Record::parse(&text).map_err(|e| e.to_string()))
        {
            Ok(record) => Found::Record(record),
            // Its owner has locked it, and is about to write.
            Err(_) if text.is_empty() => Found::Nobody,
            Err(reason) => Found::Wrong(format!("{}: {reason}", path.display())),
        }
    }

    /// Finds the service of this name, or the members of the group of this name.
    fn find(&self, service: &ServiceName) -> News {
        let mut records = Vec::new();
        let mut reason = None;
        let mut see = |found: Found| match found {
            Found::Record(record) if record.service == *service => records.push(record),
            Found::Record(record) => {
                reason = Some(format!("its record is of {}, not of {service}", record.service))
            }
            Found::Nobody => {}
            Found::Wrong(wrong) => reason = Some(wrong),
        };
        let found = self.look(&self.folder.join(service.as_str()));
        let is_service = matches!(&found, Found::Record(record) if record.service == *service);
        see(found);
        // A service is no group, so the folder need not be read.
        if !is_service {
            self.members(service).for_each(|member| see(self.look(&member)));
        }
        let service = service.clone();
        match (records.is_empty(), reason) {
            (false, _) => News::Found { service, records },
            (true, Some(reason)) => News::Failed { service, reason },
            (true, None) => News::Absent { service },
        }
    }
}

impl HostDirectory {
    /// The files of a group's members.
    fn members(&self, group: &ServiceName) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let prefix = format!("{group}@");
        let is_it = move |entry: &fs::DirEntry| {
            entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
        };
        entries.filter(is_it).map(|entry| entry.path()).take(MEMBERS_MAX)
    }

    /// The owner of a record's name in the other role: a service is no group, and a group is no service.
    fn other_kind(&self, record: &Record) -> Option<Record> {
        let record_of = |path: PathBuf| match self.look(&path) {
            Found::Record(other) if other.service == record.service => Some(other),
            _ => None,
        };
        match record.kind {
            Kind::Service => self.members(&record.service).find_map(record_of),
            Kind::Member => record_of(self.folder.join(record.service.as_str())),
        }
    }
}

impl Directory for HostDirectory {
    fn describe(&self) -> String {
        format!("the services of this host, in {}", self.folder.display())
    }

    fn claim(&mut self, record: &Record) -> Result<(), ClaimError> {
        let path = self.path(record);
        let unusable = |error: io::Error| ClaimError::Directory {
            service: record.service.clone(),
            directory: path.display().to_string(),
            reason: error.to_string(),
        };
        let taken = |by: String| ClaimError::Taken {
            service: record.service.clone(),
            by,
            directory: self.describe(),
        };
        let Some(mut file) = self.lock(&path).map_err(unusable)? else {
            return Err(taken(match self.look(&path) {
                Found::Record(other) => other.to_string(),
                Found::Nobody | Found::Wrong(_) => "somebody".to_owned(),
            }));
        };
        let text = format!("{record}\n");
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(unusable)?;
        // This follows the write, so that of two processes that claim at once, at least one sees the other.
        if let Some(other) = self.other_kind(record) {
            let _gone_already = fs::remove_file(&path);
            return Err(taken(other.to_string()));
        }
        self.claims.push(Claim {
            service: record.service.clone(),
            instance: record.instance,
            path,
            _file: file,
        });
        Ok(())
    }

    fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        let is_it = |claim: &Claim| claim.service == *service && claim.instance == instance;
        if let Some(index) = self.claims.iter().position(is_it) {
            // It is removed while it is locked, so nobody can have claimed it meanwhile.
            let claim = self.claims.swap_remove(index);
            let _gone_already = fs::remove_file(&claim.path);
        }
    }

    fn ask(&mut self, service: &ServiceName) {
        let found = self.find(service);
        self.news.push_back(found);
    }

    fn poll(&mut self) -> Option<News> {
        self.news.pop_front()
    }
}

impl Drop for HostDirectory {
    fn drop(&mut self) {
        for claim in &self.claims {
            let _gone_already = fs::remove_file(&claim.path);
        }
    }
}

/// In a folder where others may write, a link may lead anywhere.
const NOFOLLOW: i32 = libc::O_NOFOLLOW;

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(at)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (file.dev(), file.ino()) == (at.dev(), at.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, instance: u64, kind: Kind) -> Record {
        let service = ServiceName::new(name).unwrap();
        Record { service, instance: Instance(instance), kind, uris: vec![format!("shm://{instance}")] }
    }

    fn two() -> (tempfile::TempDir, HostDirectory, HostDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap().to_owned();
        let open = || HostDirectory::open_text(&text).unwrap();
        let (one, other) = (open(), open());
        (folder, one, other)
    }

    fn asked(directory: &mut HostDirectory, name: &str) -> News {
        directory.ask(&ServiceName::new(name).unwrap());
        directory.poll().unwrap()
    }

    #[test]
    fn a_service_is_found_while_it_is_claimed() {
        let (_folder, mut one, mut other) = two();
        let here = record("kv", 1, Kind::Service);
        assert_eq!(asked(&mut other, "kv"), News::Absent { service: here.service.clone() });
        one.claim(&here).unwrap();
        let found = News::Found { service: here.service.clone(), records: vec![here.clone()] };
        assert_eq!(asked(&mut other, "kv"), found);
        let refused = other.claim(&record("kv", 2, Kind::Service)).unwrap_err();
        assert!(matches!(&refused, ClaimError::Taken { by, .. } if by.contains("shm://1")), "{refused}");
        one.withdraw(&here.service, here.instance);
        other.claim(&record("kv", 2, Kind::Service)).unwrap();
        one.withdraw(&here.service, here.instance);
        assert!(
            matches!(asked(&mut one, "kv"), News::Found { records, .. } if records[0].instance == Instance(2))
        );
        drop(other);
        assert_eq!(asked(&mut one, "kv"), News::Absent { service: here.service });
    }

    #[test]
    fn members_are_found_together() {
        let (_folder, mut one, mut other) = two();
        for instance in 1..=3 {
            one.claim(&record("news", instance, Kind::Member)).unwrap();
        }
        other.claim(&record("news", 4, Kind::Member)).unwrap();
        let News::Found { records, .. } = asked(&mut one, "news") else { panic!("no members") };
        assert_eq!(records.len(), 4);
    }

    #[test]
    fn a_service_is_no_group() {
        let (_folder, mut one, mut other) = two();
        one.claim(&record("news", 1, Kind::Member)).unwrap();
        let refused = other.claim(&record("news", 2, Kind::Service)).unwrap_err();
        assert!(matches!(&refused, ClaimError::Taken { .. }), "{refused}");
        let name = ServiceName::new("news").unwrap();
        assert!(matches!(asked(&mut other, "news"), News::Found { records, .. } if records.len() == 1));
        one.withdraw(&name, Instance(1));
        other.claim(&record("news", 2, Kind::Service)).unwrap();
        let refused = one.claim(&record("news", 3, Kind::Member)).unwrap_err();
        assert!(matches!(&refused, ClaimError::Taken { .. }), "{refused}");
        // A service that has died has no name any more.
        drop(other);
        one.claim(&record("news", 4, Kind::Member)).unwrap();
    }

    #[test]
    fn records_that_are_wrong_say_so() {
        let (folder, mut one, _) = two();
        let path = folder.path().join("kv");
        fs::write(&path, "nonsense\n").unwrap();
        // Nobody has the file locked, so it belongs to nobody, whatever it contains.
        assert!(matches!(asked(&mut one, "kv"), News::Absent { .. }));
        let owner = File::open(&path).unwrap();
        owner.lock().unwrap();
        assert!(matches!(asked(&mut one, "kv"), News::Failed { reason, .. } if reason.contains("begin")));
        fs::write(&path, record("other", 1, Kind::Service).to_string()).unwrap();
        assert!(matches!(asked(&mut one, "kv"), News::Failed { reason, .. } if reason.contains("other")));
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(matches!(asked(&mut one, "link"), News::Failed { .. }));
        assert!(one.claim(&record("link", 1, Kind::Service)).is_err());
    }

    #[test]
    fn records_of_other_users_are_believed_where_the_owner_says_so() {
        const OTHER: u32 = 54_321;
        let (folder, mut mine, _) = two();
        let path = folder.path().join("kv");
        let theirs = record("kv", 1, Kind::Service);
        fs::write(&path, theirs.to_string()).unwrap();
        let owner = File::open(&path).unwrap();
        owner.lock().unwrap();
        if process::uid() != 0 {
            // Only root may give files away.
            return;
        }
        std::os::unix::fs::chown(&path, Some(OTHER), None).unwrap();
        let refused = asked(&mut mine, "kv");
        let is_named = |reason: &str| reason.contains("belongs to user 54321") && reason.contains("?users=");
        assert!(matches!(&refused, News::Failed { reason, .. } if is_named(reason)), "{refused:?}");
        let text = format!("{}?users=7,{OTHER}", folder.path().display());
        let found = asked(&mut HostDirectory::open_text(&text).unwrap(), "kv");
        assert_eq!(found, News::Found { service: theirs.service.clone(), records: vec![theirs] });
    }

    #[test]
    fn texts_are_checked() {
        for (text, reason) in [
            ("a/folder", "begin with /"),
            ("/nowhere/at/all", "No such file"),
            ("/etc/passwd", "not a folder"),
            ("/tmp?user=1", "users="),
            ("/tmp?users=root", "numbers"),
        ] {
            let error = HostDirectory::open_text(text).err().unwrap().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
