//! Directories, which know where services are, behind one interface.
//!
//! A directory keeps a [`Record`] for each service while its process lives. [`Node`](crate::Node) claims the names of its
//! services there, asks for those of others, and gets answers and changes as [`News`]. Everything that comes from a directory is
//! checked. It is not trusted to say who a partner is: partners prove that themselves.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod host;
mod limits;
mod mailbox;
mod multicast;
mod record;
mod text;

#[cfg(feature = "etcd")]
pub use etcd::EtcdDirectory;
pub use file::FileDirectory;
pub use host::HostDirectory;
pub use multicast::{MulticastCounters, MulticastDirectory};
pub use record::{Instance, Kind, Record};

use crate::error::{ClaimError, DirectoryError};
use crate::name::ServiceName;
use cci::Context;
use std::env::VarError;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// A report of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The place of a service, or of all known members of a group: at least one record, all of this name. It replaces the
    /// previous report about the name.
    Found {
        /// The name.
        service: ServiceName,
        /// The places of the service or of the members.
        records: Vec<Record>,
    },
    /// Nobody has this name now.
    Absent {
        /// The name.
        service: ServiceName,
    },
    /// A name that was claimed here belongs to another process from now on.
    Lost {
        /// The name.
        service: ServiceName,
        /// The new owner, as a text for people.
        to: String,
    },
    /// The directory could not answer.
    Failed {
        /// The name that was asked for.
        service: ServiceName,
        /// Why it could not answer, and what to do.
        reason: String,
    },
}

/// A directory of services.
pub trait Directory: Send {
    /// Describes the directory for people, such as `the services of this host, in /run/user/1000/cci-services`.
    fn describe(&self) -> String;

    /// Enters a service. It stays there until [`Directory::withdraw`], or until this process dies. May block, for a few seconds at most.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has been entered then.
    fn claim(&mut self, record: &Record) -> Result<(), ClaimError>;

    /// Removes a service. Does nothing if it is not there any more, or belongs to another process.
    fn withdraw(&mut self, service: &ServiceName, instance: Instance);

    /// Asks for a service; never blocks. [`Directory::poll`] gives the answer, and may report later changes without being asked again.
    fn ask(&mut self, service: &ServiceName);

    /// The next answer or change, if there is one; never blocks.
    fn poll(&mut self) -> Option<News>;

    /// A descriptor that is readable while [`Directory::poll`] has news, if the directory has one. It wakes a node that sleeps. A
    /// directory without one is polled from time to time. The node asks for it once, when it is opened.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The environment variable that names a directory.
const VARIABLE: &str = "CCI_DIRECTORY";

/// The forms of the text, for the error about a wrong one.
const TEXTS: &str = "write host, host:/FOLDER, file:/PATH, multicast://GROUP:PORT?interface=NAME or etcd://HOST:PORT?prefix=/PREFIX";

/// Opens the directory that the environment variable `CCI_DIRECTORY` names; else the one that the section `[services]` of the
/// configuration file (`CCI_CONFIG`) names; without both, that of this host.
///
/// # Errors
/// [`DirectoryError`] says what is wrong with the text or the file, or why the directory can't be used.
pub fn from_environment() -> Result<Box<dyn Directory>, DirectoryError> {
    let variable = std::env::var(VARIABLE);
    let is_given = variable.as_ref().is_ok_and(|text| !text.is_empty());
    let file = std::env::var_os("CCI_CONFIG").filter(|path| !is_given && !path.is_empty());
    let Some(file) = file else { return choose(variable, None) };
    let context = Context::from_file(Path::new(&file));
    let context = context.map_err(|error| DirectoryError::bad_text("CCI_CONFIG", &error.to_string()))?;
    choose(variable, context.services_directory())
}

fn choose(
    variable: Result<String, VarError>,
    configured: Option<&str>,
) -> Result<Box<dyn Directory>, DirectoryError> {
    match variable {
        Ok(text) if !text.is_empty() => open(&text),
        Ok(_) | Err(VarError::NotPresent) => open(configured.unwrap_or("host")),
        Err(VarError::NotUnicode(_)) => Err(DirectoryError::bad_text(VARIABLE, "it is not UTF-8")),
    }
}

/// Opens a directory by its text: `host`, `host:/a/folder` ([`HostDirectory`]), `file:/a/file` ([`FileDirectory`]),
/// `multicast://239.1.2.3:7800?interface=eth0` ([`MulticastDirectory`]) or `etcd://10.0.0.1:2379?prefix=/cci/services`, with the
/// feature `etcd`.
///
/// # Errors
/// [`DirectoryError`] says what is wrong with the text, or why the directory can't be used.
pub fn open(text: &str) -> Result<Box<dyn Directory>, DirectoryError> {
    let wrong = |reason: &str| Err(DirectoryError::bad_text(text, reason));
    match text.split_once(':') {
        None if text == "host" => Ok(Box::new(HostDirectory::open_default()?)),
        Some(("host", folder)) => Ok(Box::new(HostDirectory::open_text(folder)?)),
        Some(("file", path)) => Ok(Box::new(FileDirectory::open_text(path)?)),
        Some(("multicast", _)) => Ok(Box::new(MulticastDirectory::open_text(text)?)),
        #[cfg(feature = "etcd")]
        Some(("etcd", _)) => Ok(Box::new(EtcdDirectory::open_text(text)?)),
        #[cfg(not(feature = "etcd"))]
        Some(("etcd", _)) => wrong("this build of CCI knows no etcd: build cci-ripc with the feature etcd"),
        Some((scheme, _)) => wrong(&format!("there is no directory {scheme:?}; {TEXTS}")),
        None => wrong(TEXTS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_texts_say_what_there_is() {
        for (text, word) in [
            ("", "multicast://"),
            ("hosts", "etcd://"),
            ("dns://x", "no directory \"dns\""),
            ("host:folder", "begin with /"),
            ("file:services", "begin with /"),
            ("file:/nowhere/at/all", "No such file"),
            ("multicast:239.1.2.3", "multicast://GROUP:PORT"),
            ("multicast://10.0.0.1:80", "no multicast group"),
            #[cfg(not(feature = "etcd"))]
            ("etcd://127.0.0.1:2379", "feature etcd"),
            #[cfg(feature = "etcd")]
            ("etcd:", "etcd://HOST:PORT"),
        ] {
            let error = open(text).err().expect(text);
            assert!(error.reason.contains(word), "{error}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            format!("file:{}", path.display())
        });
        let described = |variable, configured| choose(variable, configured).unwrap().describe();
        assert!(described(Ok(one.clone()), Some(&other)).ends_with("/one"));
        assert!(described(Ok(String::new()), Some(&other)).ends_with("/other"));
        assert!(described(Err(VarError::NotPresent), Some(&other)).ends_with("/other"));
        let not_text = Err(VarError::NotUnicode(std::os::unix::ffi::OsStringExt::from_vec(vec![0xff])));
        assert!(choose(not_text, Some(&one)).err().unwrap().to_string().contains("CCI_DIRECTORY"));
    }
}
