//! Quotas by host: what all peers of an endpoint share, and no host may take for itself.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A host, as far as its address shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    V4(Ipv4Addr),
    /// The network, any of whose 2^64 addresses may be one host's.
    V6([u16; 4]),
}

impl From<SocketAddr> for Host {
    fn from(address: SocketAddr) -> Host {
        match address.ip() {
            IpAddr::V4(v4) => Host::V4(v4),
            IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), v6.segments()) {
                (Some(v4), _) => Host::V4(v4),
                (None, [s0, s1, s2, s3, ..]) => Host::V6([s0, s1, s2, s3]),
            },
        }
    }
}

/// How much there is, and who has how much of it: a host may have no more than is left for all others (ADR 19).
pub(crate) struct Quota {
    max: u64,
    used: u64,
    by_host: HashMap<Host, u64>,
}

impl Quota {
    pub fn new(max: u64) -> Quota {
        Quota { max, used: 0, by_host: HashMap::new() }
    }

    /// So much is left that any host may have `amount` more.
    #[inline]
    pub fn has_plenty_for(&self, amount: u64) -> bool {
        self.used.saturating_mul(2).saturating_add(amount) <= self.max
    }

    /// There is memory to note what one host more has.
    pub fn can_note(&mut self) -> bool {
        self.by_host.try_reserve(1).is_ok()
    }

    /// Whether a host may have `amount` more. Without memory to note it, it may not.
    pub fn has_space_for(&mut self, host: Host, amount: u64) -> bool {
        if !self.has_plenty_for(amount) {
            let remaining = self.max.saturating_sub(self.used);
            let held = self.by_host.get(&host).copied().unwrap_or(0);
            if held.saturating_add(amount) > remaining {
                return false;
            }
        }
        self.can_note()
    }

    /// A host has `amount` more; [`Quota::has_space_for`] was asked, or it is what this side wants itself.
    pub fn take(&mut self, host: Host, amount: u64) {
        self.used = self.used.saturating_add(amount);
        let held = self.by_host.entry(host).or_default();
        *held = held.saturating_add(amount);
    }

    /// A host has `amount` less.
    pub fn give_back(&mut self, host: Host, amount: u64) {
        self.used = self.used.saturating_sub(amount);
        if let Some(held) = self.by_host.get_mut(&host) {
            *held = held.saturating_sub(amount);
            if *held == 0 {
                self.by_host.remove(&host);
            }
        }
    }

    /// Who has the most.
    pub fn most(&self) -> Option<Host> {
        self.by_host.iter().max_by_key(|(_, held)| **held).map(|(host, _)| *host)
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.by_host.capacity() * size_of::<(Host, u64)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> Host {
        address.parse::<SocketAddr>().unwrap().into()
    }

    #[test]
    fn a_host_is_an_address_or_a_network() {
        assert_eq!(host("10.0.0.1:5"), host("10.0.0.1:6"));
        assert_ne!(host("10.0.0.1:5"), host("10.0.0.2:5"));
        assert_eq!(host("[2001:db8::1]:5"), host("[2001:db8::ffff:0:1]:6"));
        assert_ne!(host("[2001:db8:0:1::1]:5"), host("[2001:db8:0:2::1]:5"));
        assert_eq!(host("[::ffff:10.0.0.1]:5"), host("10.0.0.1:5"));
        assert_ne!(host("[::1]:5"), host("0.0.0.0:5"));
    }

    #[test]
    fn one_that_hogs_leaves_half_and_two_leave_a_third() {
        let [one, two, three] = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"].map(host);
        let mut quota = Quota::new(12);
        let fill = |quota: &mut Quota, host| {
            let mut count = 0;
            while quota.has_space_for(host, 1) {
                quota.take(host, 1);
                count += 1;
            }
            count
        };
        assert_eq!(fill(&mut quota, one), 6);
        assert_eq!(fill(&mut quota, two), 3);
        assert!(quota.has_space_for(three, 1) && !quota.has_space_for(three, 4));
        assert_eq!(quota.used, 9);
        quota.give_back(one, 6);
        assert_eq!(fill(&mut quota, two), 3, "half again");
        quota.give_back(two, 6);
        assert_eq!((quota.used, quota.by_host.len()), (0, 0));
    }
}
