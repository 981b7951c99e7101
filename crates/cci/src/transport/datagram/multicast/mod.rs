//! Multicast groups over UDP (CCI-031): connections that send to a group or receive from it. No peer is asked for them.
//!
//! They stand beside the protocol and its connections ([`with`]), and have sockets of their own: one for each group that was
//! joined ([`member`]), and one for everything that is sent ([`outlet`]). Nothing is acknowledged. Lost datagrams are counted.

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
