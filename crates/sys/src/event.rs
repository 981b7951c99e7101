//! Waiting and waking: eventfd, timerfd, epoll.

mod epoll;
mod eventfd;
mod timerfd;

pub use epoll::{Epoll, Event, Events, Interest, Trigger};
pub use eventfd::EventFd;
pub use timerfd::TimerFd;
