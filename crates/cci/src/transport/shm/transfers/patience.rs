//! How long a target waits for its peers' copies to end when it takes a region back. A peer that keeps its target waiting is
//! barred: it gets no mapping from then on. So the total cost of its copies is bounded, however many regions there are.

use crate::transport::shm::peer::Peer;

/// How long the copies of one process may delay the target at once. A copy checks its live word every MiB, so a process that
/// takes longer was stopped, or means harm. For each nanosecond in which the target does not wait, a nanosecond of this time
/// comes back. So in the long run it waits at most half of its time for one process.
const WAIT_NS_MAX: u64 = 100_000_000;
/// The most processes that are remembered. The first to be forgotten is the process, not barred, that has most of its time left.
/// If all are barred, it is the oldest.
const PROCESSES_MAX: usize = 64;

/// A process, as the kernel identifies it. All processes of a user that are not visible from here count as one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Process {
    uid: u32,
    pid: Option<u32>,
}

impl From<&Peer> for Process {
    fn from(peer: &Peer) -> Process {
        Process { uid: peer.uid, pid: peer.pid }
    }
}

struct Account {
    process: Process,
    /// How long it may still delay the target, as of `at_ns`.
    remaining_ns: u64,
    at_ns: u64,
    is_barred: bool,
}

impl Account {
    fn left_at(&self, now_ns: u64) -> u64 {
        let back_ns = now_ns.saturating_sub(self.at_ns);
        self.remaining_ns.saturating_add(back_ns).min(WAIT_NS_MAX)
    }
}

/// The time for which each process may still delay the target.
#[derive(Default)]
pub(super) struct Patience(Vec<Account>);

impl Patience {
    /// How long the target may wait for a copy of this peer.
    pub fn remaining_ns(&self, peer: &Peer, now_ns: u64) -> u64 {
        match self.account(peer) {
            Some(account) if account.is_barred => 0,
            Some(account) => account.left_at(now_ns),
            None => WAIT_NS_MAX,
        }
    }

    /// Notes that the target has waited for this peer, from `from_ns` until `now_ns`.
    pub fn waited(&mut self, peer: &Peer, from_ns: u64, now_ns: u64) {
        let account = self.account_mut(peer, from_ns);
        account.remaining_ns = account.left_at(from_ns).saturating_sub(now_ns.saturating_sub(from_ns));
        account.at_ns = now_ns;
    }

    /// Notes that this peer did not end a copy in time.
    pub fn bar(&mut self, peer: &Peer, now_ns: u64) {
        self.account_mut(peer, now_ns).is_barred = true;
    }

    pub fn is_barred(&self, peer: &Peer) -> bool {
        self.account(peer).is_some_and(|account| account.is_barred)
    }

    pub fn barred(&self) -> usize {
        self.0.iter().filter(|account| account.is_barred).count()
    }

    pub fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Account>()
    }

    fn account(&self, peer: &Peer) -> Option<&Account> {
        self.0.iter().find(|account| account.process == peer.into())
    }

    fn account_mut(&mut self, peer: &Peer, now_ns: u64) -> &mut Account {
        let process = Process::from(peer);
        let at = self.0.iter().position(|account| account.process == process).unwrap_or_else(|| {
            if self.0.len() >= PROCESSES_MAX {
                let by_need = self.0.iter().enumerate();
                let idlest = by_need.min_by_key(|(_, account)| {
                    (account.is_barred, WAIT_NS_MAX - account.left_at(now_ns).min(WAIT_NS_MAX))
                });
                self.0.remove(idlest.map_or(0, |(at, _)| at));
            }
            self.0.push(Account { process, remaining_ns: WAIT_NS_MAX, at_ns: now_ns, is_barred: false });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(pid: u32, endpoint: u64) -> Peer {
        Peer { endpoint, pid: Some(pid), uid: 7 }
    }

    /// Takes back regions as fast as it can, with a peer that ends each copy a moment before the limit.
    #[test]
    fn who_stays_below_the_limit_holds_the_owner_up_for_half_of_its_time_at_most() {
        let (mut patience, mut now_ns, mut waited_ns, mut caught) = (Patience::default(), 0, 0, false);
        let own_work_ns = 20_000;
        for region in 0..2_047_u64 {
            // Each comes through a new link, and as a new endpoint.
            let peer = peer(1, region);
            now_ns += own_work_ns;
            let remaining_ns = patience.remaining_ns(&peer, now_ns);
            if remaining_ns < 1_000 {
                patience.bar(&peer, now_ns);
                caught = true;
                break;
            }
            let hold_ns = remaining_ns - 1;
            patience.waited(&peer, now_ns, now_ns + hold_ns);
            now_ns += hold_ns;
            waited_ns += hold_ns;
            assert!(
                waited_ns <= WAIT_NS_MAX + (now_ns - waited_ns),
                "region {region}: {waited_ns} of {now_ns}"
            );
        }
        assert!(!caught || patience.is_barred(&peer(1, 99)), "by process, not by endpoint");
        assert!(waited_ns < 2 * WAIT_NS_MAX, "{waited_ns} ns for 2,047 regions");
    }

    #[test]
    fn an_honest_peer_is_waited_for_again_and_again() {
        let (mut patience, mut now_ns) = (Patience::default(), 0);
        for _ in 0..100_000 {
            // A MiB takes 200 us. The target takes a region back every 500.
            now_ns += 300_000;
            assert!(patience.remaining_ns(&peer(1, 1), now_ns) >= 200_000);
            patience.waited(&peer(1, 1), now_ns, now_ns + 200_000);
            now_ns += 200_000;
        }
    }

    #[test]
    fn few_are_remembered_and_those_who_were_caught_longest() {
        let mut patience = Patience::default();
        for pid in 0..10 {
            patience.bar(&peer(pid, 1), 1);
        }
        for pid in 10..1_000 {
            patience.waited(&peer(pid, 1), 2, 3);
        }
        assert!((0..10).all(|pid| patience.is_barred(&peer(pid, 2))));
        for pid in 1_000..2_000 {
            patience.bar(&peer(pid, 1), 4);
        }
        assert!(patience.0.len() <= PROCESSES_MAX && !patience.is_barred(&peer(0, 1)));
        assert!(patience.is_barred(&peer(1_999, 1)) && patience.barred() == PROCESSES_MAX);
    }
}
