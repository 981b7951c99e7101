//! `cci files` and `cci get`: a folder as a service, and fetching from it by the service's name.

mod get;
mod protocol;
mod serve;

pub use get::run as get;
pub use serve::run as serve;

use crate::failure::{Failure, Outcome};
use cci_ripc::{Node, Options, ServiceName};

/// A node on the device that was asked for, or on any.
fn open(device: Option<&String>) -> Outcome<Node> {
    let options = match device {
        Some(name) => Options::default().device(crate::devices::named(&crate::devices::context()?, name)?),
        None => Options::default(),
    };
    Node::open(options).map_err(|error| Failure::new(error.to_string()))
}

fn service_name(name: &str) -> Outcome<ServiceName> {
    ServiceName::new(name).map_err(|error| Failure::usage(error.to_string()))
}
