//! What group connections report: counters and explanations.

use super::groups::Groups;
use super::link::{End, Link};
use super::outlet::Outlets;
use crate::counters::{ConnectionCounters, DropReason};
use crate::explain::{Explanation, Fact, PathOption};
use crate::transport::datagram::udp_uri;

impl Groups {
    pub fn connection_counters(&self, link: u64) -> ConnectionCounters {
        let Some(link) = self.link(link) else { return ConnectionCounters::default() };
        let Link { messages, bytes, connection, .. } = *link;
        match (link.end, &self.out) {
            (End::Receive { .. }, _) => ConnectionCounters {
                messages_received: messages,
                bytes_received: bytes,
                ..ConnectionCounters::default()
            },
            (End::Send { outlet, .. }, out) => {
                let in_progress = out.as_ref().map_or(0, |out| out.sends_in_progress(outlet, connection));
                ConnectionCounters {
                    messages_sent: messages,
                    bytes_sent: bytes,
                    sends_in_progress: in_progress.into(),
                    ..ConnectionCounters::default()
                }
            }
        }
    }

    pub fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
        let sent = self.out.as_ref().map(Outlets::stats).unwrap_or_default();
        let mut came = self.past;
        for (_, member) in self.members.iter() {
            came.add(&member.counts());
        }
        let errors = self.out.as_ref().map_or(0, |out| out.errors) + sent.soft_errors + came.errors;
        into.extend([
            ("group_datagrams_sent", sent.datagrams),
            ("group_datagram_bytes_sent", sent.bytes),
            ("group_send_syscalls", sent.syscalls),
            ("group_send_would_block", sent.would_block),
            ("group_datagrams_received", came.datagrams),
            ("group_datagram_bytes_received", came.bytes),
            ("group_recv_syscalls", came.syscalls),
            ("group_datagrams_missing", came.missing),
            ("group_datagrams_late", came.late),
            ("group_senders_forgotten", came.forgotten),
            ("group_socket_errors", errors),
        ]);
        let all = [
            ("group-own", came.own),
            ("group-other", came.other),
            ("group-repeat", came.repeats),
            ("group-too-late", came.too_late),
            ("group-too-early", came.too_early),
            ("group-malformed", came.malformed),
            ("group-message-too-long", came.too_long),
            ("group-no-receive-buffer", came.no_buffer),
            ("group-socket-buffer-full", came.socket_full),
            ("group-truncated", came.truncated),
            ("group-too-big-for-link", sent.too_big),
            ("group-unreachable", sent.unreachable),
            ("group-socket-failed", sent.failed),
        ];
        let met = all.into_iter().filter(|(_, count)| *count > 0);
        drops.extend(met.map(|(name, count)| DropReason { name, count }));
    }

    pub fn explain(&self, link: u64, into: &mut Explanation) {
        let Some(link) = self.link(link) else { return };
        let name = &self.settings.interface_name;
        let option =
            |path: &str, chosen, reason: String| PathOption { path: path.to_owned(), chosen, reason };
        into.facts.push(("interface", name.clone().into()));
        let group = match link.end {
            End::Send { outlet, .. } => {
                let hops = self.settings.keys.hops;
                let far = match hops {
                    0 => "this host",
                    1 => "this link; further by multicast_ttl in the configuration",
                    _ => "as far as routers carry the group",
                };
                into.facts.push(("hop limit", Fact::Count(hops.into())));
                into.facts.push(("reaches", far.into()));
                into.facts.push(("members", "unknown: nobody answers for a group".into()));
                let sent = self.out.as_ref().map_or(0, |out| out.datagrams_sent(outlet));
                into.facts.push(("datagrams sent to the group", Fact::Count(sent)));
                let bytes = self.settings.datagram_bytes_max;
                into.facts.push(("largest datagram", Fact::Bytes(bytes as u64)));
                let reason = format!("one datagram by {name} reaches every member");
                into.paths.push(option("UDP multicast", true, reason));
                let gso = "old kernels hand members on this host the batch uncut; several datagrams share a system call";
                into.paths.push(option("UDP multicast with GSO", false, gso.to_owned()));
                self.out.as_ref().and_then(|out| out.group(outlet))
            }
            End::Receive { member } => {
                let member = self.members.get(member);
                if let Some(member) = member {
                    let counts = member.counts();
                    into.facts.extend([
                        ("senders heard", Fact::Count(member.senders.count() as u64)),
                        ("datagrams missing", Fact::Count(counts.missing)),
                        ("messages lost for want of a receive buffer", Fact::Count(counts.no_buffer)),
                        ("socket receive buffer", Fact::Bytes(member.socket.recv_buffer_bytes() as u64)),
                    ]);
                }
                let reason =
                    format!("joined on {name}; what comes by other interfaces is not for this endpoint");
                into.paths.push(option("UDP multicast", true, reason));
                member.map(|member| member.group)
            }
        };
        let own = if self.settings.keys.own { "received" } else { "not received (multicast_loop = on)" };
        into.facts.push(("own messages", own.into()));
        into.facts.push(("largest message", Fact::Bytes(self.settings.message_bytes_max as u64)));
        into.peer = group.map_or_else(String::new, |group| udp_uri::format(group, Some(name)));
    }
}
