//! Network namespaces without names: a thread enters a fresh one, others join it by a descriptor.
//!
//! A namespace belongs to threads, not to the process: one process can have a thread here and a thread there. A thread
//! or a child process begins in the namespace of the thread that starts it; a socket stays for good in the one it was
//! made in. Nothing is mounted below `/run/netns`, so the kernel takes a namespace away, with its interfaces, when the
//! last thread, socket and [`Namespace`] in it are gone, however the process ended.
//!
//! All of it needs `CAP_SYS_ADMIN`.

use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::error::{Result, Tried};

/// A network namespace, kept alive for as long as this is. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Namespace {
    fd: Arc<OwnedFd>,
    /// What the kernel distinguishes namespaces by.
    inode: u64,
}

impl Namespace {
    /// The one that the calling thread is in.
    pub fn current() -> Result<Namespace> {
        // Not /proc/self: that is the main thread's.
        let file = File::open("/proc/thread-self/ns/net").tried("open this thread's network namespace")?;
        let inode = file.metadata().tried("look at this thread's network namespace")?.ino();
        Ok(Namespace { fd: Arc::new(file.into()), inode })
    }

    /// Makes a fresh one, with nothing in it but a loopback interface that is down, and enters it.
    pub fn fresh() -> Result<Inside> {
        let before = Namespace::current()?;
        // SAFETY: only FILES can take descriptors away from who counts on them.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .tried("enter a fresh network namespace (unshare CLONE_NEWNET)")?;
        Inside::since(before)
    }

    /// Enters it, until the guard is dropped.
    pub fn enter(&self) -> Result<Inside> {
        let before = Namespace::current()?;
        self.enter_thread()?;
        Inside::since(before)
    }

    /// A path that leads to it for as long as this value lives: for commands that take a namespace by its name or path.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    fn enter_thread(&self) -> Result<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))
            .tried("enter a network namespace (setns)")
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Namespace) -> bool {
        self.inode == other.inode
    }
}

impl Eq for Namespace {}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The calling thread is in another namespace than before, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it goes back at once"]
pub struct Inside {
    before: Namespace,
    now: Namespace,
    /// Going back concerns this thread.
    _here: PhantomData<*const ()>,
}

impl Inside {
    fn since(before: Namespace) -> Result<Inside> {
        match Namespace::current() {
            Ok(now) => Ok(Inside { before, now, _here: PhantomData }),
            Err(error) => {
                before.enter_thread()?;
                Err(error)
            }
        }
    }

    /// The namespace the thread is in now: others enter it too.
    pub fn namespace(&self) -> &Namespace {
        &self.now
    }

    /// Goes back now, and reports if that failed.
    pub fn leave(self) -> Result<()> {
        // The drop that follows goes to where the thread is by then.
        self.before.enter_thread()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It was entered with the right to leave it; who must know calls `leave`.
        let _ = self.before.enter_thread();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// None without the rights for it, which is said.
    fn fresh() -> Option<Inside> {
        Namespace::fresh().map_err(|error| println!("skipped: {error}")).ok()
    }

    #[test]
    fn a_thread_goes_in_and_comes_back() {
        let before = Namespace::current().unwrap();
        let Some(inside) = fresh() else { return };
        assert_eq!(Namespace::current().unwrap(), *inside.namespace());
        assert_ne!(*inside.namespace(), before);
        let found = crate::net::interfaces().unwrap();
        assert!(found.iter().all(|interface| interface.loopback && !interface.up), "{found:?}");
        inside.leave().unwrap();
        assert_eq!(Namespace::current().unwrap(), before);
    }

    #[test]
    fn threads_begin_where_their_starter_is_and_others_stay_where_they_are() {
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let elsewhere = std::thread::spawn(move || {
            let _ = asked.recv();
            Namespace::current().unwrap()
        });
        let before = Namespace::current().unwrap();
        let Some(inside) = fresh() else { return };
        let inner = inside.namespace().clone();
        let started = std::thread::spawn(|| Namespace::current().unwrap()).join().unwrap();
        assert_eq!(started, inner);
        ask.send(()).unwrap();
        assert_eq!(elsewhere.join().unwrap(), before);
        drop(inside);
        // Kept alive by the descriptor alone, and entered by another thread.
        std::thread::spawn(move || {
            let guard = inner.enter().unwrap();
            assert_eq!(Namespace::current().unwrap(), inner);
            drop(guard);
            assert_eq!(Namespace::current().unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_socket_stays_where_it_was_made() {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = outside.local_addr().unwrap();
        let Some(inside) = fresh() else { return };
        outside.send_to(b"from outside", to).unwrap();
        let inner = UdpSocket::bind("127.0.0.1:0");
        // Its loopback interface is down.
        assert!(inner.is_err() || inner.unwrap().send_to(b"from inside", to).is_err());
        drop(inside);
        let mut received = [0; 32];
        assert_eq!(outside.recv(&mut received).unwrap(), 12);
    }
}
