//! A node as tasks see it.

use super::driver::{Driver, Reactor};
use super::service::Service;
use super::state::Shared;
use crate::error::ClaimError;
use crate::handles;
use crate::name::ServiceName;
use crate::node;
use std::fmt;
use std::sync::Arc;

/// A node for tasks: see [the module](super). Clones are the same node.
pub struct Node {
    shared: Arc<Shared>,
}

impl Node {
    /// Makes a node for tasks, and its driver, which the program spawns. The reactor watches the node's descriptor
    /// ([`cci_ripc::Node::os_handle`](crate::Node::os_handle)), of which it has its own duplicate. Services that were registered before are
    /// reached by [`Node::with`] only.
    pub fn new<R: Reactor>(node: node::Node, reactor: R) -> (Node, Driver<R>) {
        let shared = Arc::new(Shared::new(node));
        (Node { shared: shared.clone() }, Driver::new(shared, reactor))
    }

    /// Where the node is.
    pub fn uri(&self) -> &str {
        &self.shared.uri
    }

    /// Registers a service: see [`cci_ripc::Node::register`](crate::Node::register). It blocks for as long as the directory takes.
    ///
    /// # Errors
    /// [`ClaimError`]: the name is taken, or the directory can't be used.
    pub fn register(&self, name: &ServiceName) -> Result<Service, ClaimError> {
        self.open(|node| node.register(name))
    }

    /// Joins a group: see [`cci_ripc::Node::join`](crate::Node::join). It blocks for as long as the directory takes.
    ///
    /// # Errors
    /// Those of [`Node::register`].
    pub fn join(&self, group: &ServiceName) -> Result<Service, ClaimError> {
        self.open(|node| node.join(group))
    }

    /// Makes a service that nobody can look up: see [`cci_ripc::Node::client`](crate::Node::client).
    ///
    /// # Errors
    /// [`ClaimError::TooMany`], or that the system has no random numbers.
    pub fn client(&self) -> Result<Service, ClaimError> {
        self.open(node::Node::client)
    }

    fn open(
        &self,
        claim: impl FnOnce(&mut node::Node) -> Result<handles::Service, ClaimError>,
    ) -> Result<Service, ClaimError> {
        let mut state = self.shared.lock();
        let service = claim(&mut state.node)?;
        state.opened(service);
        Ok(Service::new(&self.shared, service))
    }

    /// Has the node beneath do something that needs no waiting: allocate memory, give windows, count. Nobody gets the events of what else is
    /// begun here.
    pub fn with<T>(&self, act: impl FnOnce(&mut node::Node) -> T) -> T {
        let mut state = self.shared.lock();
        let done = act(&mut state.node);
        state.wake_driver();
        done
    }
}

impl Clone for Node {
    fn clone(&self) -> Node {
        self.shared.lock().handles += 1;
        Node { shared: self.shared.clone() }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handles -= 1;
        state.wake_driver();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("uri", &self.uri()).finish_non_exhaustive()
    }
}
