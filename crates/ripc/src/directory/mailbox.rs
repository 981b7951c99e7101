//! News of a directory's thread for the node, with a descriptor that is readable while there are some.

use super::News;
use super::limits::NEWS_MAX;
use crate::name::ServiceName;
use cci_sys::SysError;
use cci_sys::event::EventFd;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// News in order. Of several about the place of one service, only the latest waits.
pub(super) struct Mailbox {
    news: Mutex<VecDeque<News>>,
    /// Whether there are news, to be read without the lock or a system call. It is written with the lock.
    has_news: AtomicBool,
    /// Readable as long as there are news.
    ready: EventFd,
}

impl Mailbox {
    pub fn new() -> Result<Mailbox, SysError> {
        Ok(Mailbox { news: Mutex::default(), has_news: AtomicBool::new(false), ready: EventFd::new()? })
    }

    pub fn push(&self, news: News) {
        let mut waiting = self.lock();
        if let Some(service) = place_of(&news) {
            waiting.retain(|older| place_of(older) != Some(service));
        }
        if waiting.len() >= NEWS_MAX {
            waiting.pop_front();
        }
        waiting.push_back(news);
        // Relaxed: a reader that sees the flag takes the lock. One that does not is woken by the descriptor and checks again.
        if !self.has_news.swap(true, Ordering::Relaxed) {
            // Fails only if a peer has the descriptor as well. Nobody has this one.
            let _signalled = self.ready.signal();
        }
    }

    pub fn pop(&self) -> Option<News> {
        if !self.has_news.load(Ordering::Relaxed) {
            return None;
        }
        let mut waiting = self.lock();
        let first = waiting.pop_front();
        if waiting.is_empty() && self.has_news.swap(false, Ordering::Relaxed) {
            let _was_signalled = self.ready.drain();
        }
        first
    }

    /// Readable as long as there are news.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<News>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service whose place the news report.
fn place_of(news: &News) -> Option<&ServiceName> {
    match news {
        News::Found { service, .. } | News::Absent { service } | News::Failed { service, .. } => {
            Some(service)
        }
        News::Lost { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_a_service_waits_and_losses_all_do() {
        let mailbox = Mailbox::new().unwrap();
        let name = |text: &str| ServiceName::new(text).unwrap();
        let lost = News::Lost { service: name("a"), to: "b".to_owned() };
        mailbox.push(News::Absent { service: name("a") });
        mailbox.push(lost.clone());
        mailbox.push(News::Failed { service: name("a"), reason: "down".to_owned() });
        mailbox.push(News::Absent { service: name("b") });
        assert_eq!(mailbox.pop(), Some(lost));
        assert!(matches!(mailbox.pop(), Some(News::Failed { .. })));
        assert_eq!(mailbox.pop(), Some(News::Absent { service: name("b") }));
        assert_eq!(mailbox.pop(), None);
        for number in 0..=NEWS_MAX {
            mailbox.push(News::Absent { service: name(&number.to_string()) });
        }
        assert_eq!(mailbox.lock().len(), NEWS_MAX);
    }
}
