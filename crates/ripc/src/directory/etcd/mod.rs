//! Services that are listed in etcd. Its leases remove dead services, and its watches report those that move.
//!
//! A thread of the directory, `cci-directory`, communicates with the cluster, in its own runtime. It ends when the directory is
//! dropped, and removes this process's services before. [`keys`] says where records are.

mod keys;
mod session;
mod settings;
mod thread;

use super::limits::NEWS_MAX;
use super::mailbox::Mailbox;
use super::{Directory, Instance, News, Record};
use crate::error::{ClaimError, DirectoryError};
use crate::name::ServiceName;
use settings::Settings;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use thread::{Command, Refusal, Work};
use tokio::sync::mpsc::{Sender, channel};

/// How long a claim waits for its end. Each answer of the cluster has its own time limit, which is shorter.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// The stack of the thread: HTTP/2 and TLS nest deeply.
const STACK_BYTES: usize = 2 << 20;

/// The services that are listed in an etcd cluster.
pub struct EtcdDirectory {
    description: String,
    mailbox: Arc<Mailbox>,
    /// Dropped to end the thread.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl EtcdDirectory {
    /// Opens a directory by its text: `etcd://HOST:PORT,HOST:PORT`, with the options `prefix` (`/cci/services`), `user` and `password-file`,
    /// `ca` (a file of authorities: TLS is spoken then), `certificate` and `key`, and `ttl` (5): after how many seconds the dead vanish.
    /// It does not wait for the cluster.
    ///
    /// # Errors
    /// [`DirectoryError`]: the text or a file that it names is wrong, or the system refuses a thread.
    pub fn open_text(text: &str) -> Result<EtcdDirectory, DirectoryError> {
        let settings = Settings::parse(text)?;
        let refused = |reason: String| DirectoryError::bad_text(text, &reason);
        let mailbox = Arc::new(Mailbox::new().map_err(|error| refused(error.to_string()))?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| refused(error.to_string()))?;
        let description = format!("etcd at {}, below {}", settings.servers.join(", "), settings.prefix);
        let (commands, receiver) = channel(NEWS_MAX);
        let work = Work::new(settings, mailbox.clone());
        let run = move || runtime.block_on(work.run(receiver));
        // A quiet thread's stack is small. So it starts another thread, which takes no signals either, and ends.
        let (started, thread) = mpsc::channel();
        let starter = cci_sys::thread::spawn_quiet("cci-directory", move || {
            let spawned = Builder::new().name("cci-directory".to_owned()).stack_size(STACK_BYTES).spawn(run);
            let _nobody_waits = started.send(spawned);
        });
        let starter = starter.map_err(|error| refused(error.to_string()))?;
        let spawned = thread.recv();
        let _panicked = starter.join();
        let thread = spawned.map_err(|_| refused("no thread".to_owned()))?;
        let thread = Some(thread.map_err(|error| refused(error.to_string()))?);
        Ok(EtcdDirectory { description, mailbox, commands: Some(commands), thread })
    }

    fn command(&self, command: Command) -> bool {
        self.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok())
    }
}

impl Directory for EtcdDirectory {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn claim(&mut self, record: &Record) -> Result<(), ClaimError> {
        let (done, end) = mpsc::sync_channel(1);
        let is_sent = self.command(Command::Claim(record.clone(), done));
        let nothing = || Err(Refusal::Failed("the directory's thread does not answer".to_owned()));
        let ended =
            if is_sent { end.recv_timeout(CLAIM_TIMEOUT).unwrap_or_else(|_| nothing()) } else { nothing() };
        let (service, directory) = (record.service.clone(), self.description.clone());
        ended.map_err(|refusal| match refusal {
            Refusal::Taken(by) => ClaimError::Taken { service, by, directory },
            Refusal::TooMany => ClaimError::TooMany,
            Refusal::Failed(reason) => ClaimError::Directory { service, directory, reason },
        })
    }

    fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        self.command(Command::Withdraw(service.clone(), instance));
    }

    fn ask(&mut self, service: &ServiceName) {
        if !self.command(Command::Ask(service.clone())) {
            let reason = "the directory's thread is busy: ask again".to_owned();
            self.mailbox.push(News::Failed { service: service.clone(), reason });
        }
    }

    fn poll(&mut self) -> Option<News> {
        self.mailbox.pop()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.mailbox.descriptor())
    }
}

impl Drop for EtcdDirectory {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
