//! Multicast groups on UDP (CCI-031): connections that send to a group or receive from it, made without anybody's word.
//!
//! They live beside the protocol of connections ([`with`]), on sockets of their own: one for each group joined
//! ([`member`]), one for all that is sent ([`outlet`]). What may be lost is lost and counted: nothing is acknowledged.

mod groups;
mod link;
mod member;
mod outlet;
mod own_sender;
mod report;
mod settings;
mod with;

pub(super) use groups::Groups;
pub(super) use settings::Settings;
pub(super) use with::WithGroups;
