//! Nodes in tokio's tasks.

use super::driver::{Driver, Reactor};
use super::node::Node;
use crate::node;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep};

/// tokio's reactor and its timer.
struct Tokio {
    descriptor: AsyncFd<OwnedFd>,
    timer: Pin<Box<Sleep>>,
}

impl Reactor for Tokio {
    fn poll_wake(&mut self, context: &mut Context<'_>, within: Duration) -> Poll<io::Result<()>> {
        if let Poll::Ready(ready) = self.descriptor.poll_read_ready(context) {
            ready?.clear_ready();
            return Poll::Ready(Ok(()));
        }
        self.timer.as_mut().reset(Instant::now() + within);
        self.timer.as_mut().poll(context).map(Ok)
    }
}

impl Node {
    /// Makes a node for the tasks of the tokio runtime that this is called in, and spawns its driver there. The runtime has its I/O and its
    /// timer enabled.
    ///
    /// # Errors
    /// The descriptor could not be registered with the runtime.
    pub fn spawn(node: node::Node) -> io::Result<Node> {
        let (node, driver) = Node::with_tokio(node)?;
        tokio::spawn(driver);
        Ok(node)
    }

    /// Makes a node for the tasks of the tokio runtime that this is called in. The program polls the driver, by `tokio::spawn` or in a task
    /// set.
    ///
    /// # Errors
    /// The descriptor could not be registered with the runtime.
    pub fn with_tokio(node: node::Node) -> io::Result<(Node, Driver<impl Reactor>)> {
        let descriptor = node.os_handle().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "`register` is unsafe; a descriptor that is owned stays open as long as it lives"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Node::new(node, Tokio { descriptor, timer: Box::pin(sleep(Duration::ZERO)) }))
    }
}
