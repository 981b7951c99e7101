//! Where devices come from: found on the machine ([`builtin`]), or given in an INI file ([`ini`]).
//!
//! Which keys there are is said in one place, [`registry`].
//!
//! **Invariant:** nothing here opens an endpoint. What a device cannot do is found out by asking the system, and
//! said in [`crate::Unavailable`], not assumed.

mod any;
pub(crate) mod builtin;
mod check;
mod eth;
pub(crate) mod ini;
mod keys;
mod note;
mod registry;
mod schema;
mod security;
mod services;
mod shm;
pub(crate) mod syntax;
mod tcp;
mod udp;

pub use note::ConfigNote;
