//! Where services are: directories, behind one interface.
//!
//! A directory keeps a [`Record`] for each service while its process lives. [`Node`](crate::Node) claims the names of its services there,
//! asks for those of others, and gets answers and changes as [`News`]. Whatever comes from a directory is checked; nobody else than the
//! partners themselves is believed about who they are.

mod host;
mod record;

pub use host::HostDirectory;
pub use record::{Instance, Kind, Record};

use crate::error::{ClaimError, DirectoryError};
use crate::name::ServiceName;

/// What a directory has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Where a service is, or all members of a group that are known: at least one record, all of this name. It replaces what was said of
    /// the name before.
    Found {
        /// Whose.
        service: ServiceName,
        /// Where.
        records: Vec<Record>,
    },
    /// Nobody has this name now.
    Absent {
        /// Which.
        service: ServiceName,
    },
    /// A name that was claimed here belongs to somebody else from now on.
    Lost {
        /// Which.
        service: ServiceName,
        /// To whom, for people.
        to: String,
    },
    /// The directory could not answer.
    Failed {
        /// What was asked for.
        service: ServiceName,
        /// Why not, and what to do.
        reason: String,
    },
}

/// Knows where services are.
pub trait Directory: Send {
    /// What it is and where, for people, such as `the services of this host, in /run/user/1000/cci-services`.
    fn describe(&self) -> String;

    /// Enters a service. It stays there until [`Directory::withdraw`], or until this process dies. May block, for a few seconds at most.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has been entered then.
    fn claim(&mut self, record: &Record) -> Result<(), ClaimError>;

    /// Takes a service out. Nothing happens if it is not there any more, or belongs to somebody else.
    fn withdraw(&mut self, service: &ServiceName, instance: Instance);

    /// Asks for a service; never blocks. [`Directory::poll`] gives the answer, and may tell of later changes without being asked again.
    fn ask(&mut self, service: &ServiceName);

    /// The next answer or change, if there is one; never blocks.
    fn poll(&mut self) -> Option<News>;
}

/// Opens the directory that the environment variable `CCI_DIRECTORY` names; without it, that of this host.
///
/// # Errors
/// [`DirectoryError`] says what is wrong with the text, or why the directory can't be used.
pub fn from_environment() -> Result<Box<dyn Directory>, DirectoryError> {
    match std::env::var("CCI_DIRECTORY") {
        Ok(text) if !text.is_empty() => open(&text),
        Ok(_) | Err(std::env::VarError::NotPresent) => Ok(Box::new(HostDirectory::open_default()?)),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(DirectoryError::bad_text("CCI_DIRECTORY", "it is not UTF-8"))
        }
    }
}

/// Opens a directory by its text: `host`, or `host:/a/folder`.
///
/// # Errors
/// [`DirectoryError`] says what is wrong with the text, or why the directory can't be used.
pub fn open(text: &str) -> Result<Box<dyn Directory>, DirectoryError> {
    match text.split_once(':') {
        None if text == "host" => Ok(Box::new(HostDirectory::open_default()?)),
        Some(("host", folder)) => Ok(Box::new(HostDirectory::open_text(folder)?)),
        _ => Err(DirectoryError::bad_text(text, "a directory is `host` or `host:/a/folder`")),
    }
}
