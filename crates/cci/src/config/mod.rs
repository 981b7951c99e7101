//! The sources of devices: those found on the machine ([`builtin`]), and those given in an INI file ([`ini`]).
//!
//! Only the [`registry`] lists the keys.
//!
//! **Invariant:** nothing here opens an endpoint. What a device can't do is asked of the system and reported as
//! [`crate::Unavailable`], never assumed.

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
