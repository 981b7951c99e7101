//! How many answers may be sent: to everybody together, and to each address, so that an address that asks too much costs others
//! nothing.

use super::limits::{ANSWERS_OF_ALL, ANSWERS_OF_ONE};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

const NS_PER_S: u64 = 1_000_000_000;
/// Number of buckets, over which a secret distributes the addresses.
const BUCKETS: usize = 256;

/// A token bucket, which fills with time.
#[derive(Copy, Clone)]
struct Bucket {
    per_s: u64,
    burst: u64,
    /// When it would be full, nanoseconds.
    full_at_ns: u64,
}

impl Bucket {
    fn new((per_s, burst): (u64, u64)) -> Bucket {
        Bucket { per_s, burst, full_at_ns: 0 }
    }

    fn has_one(&self, now_ns: u64) -> bool {
        let each_ns = NS_PER_S / self.per_s;
        self.full_at_ns.saturating_sub(now_ns) + each_ns <= self.burst * each_ns
    }

    fn take(&mut self, now_ns: u64) {
        self.full_at_ns = self.full_at_ns.max(now_ns) + NS_PER_S / self.per_s;
    }
}

/// The answers that may still be sent.
pub(super) struct Rates {
    all: Bucket,
    each: Box<[Bucket]>,
    secret: RandomState,
}

impl Rates {
    pub fn new() -> Rates {
        Rates {
            all: Bucket::new(ANSWERS_OF_ALL),
            each: vec![Bucket::new(ANSWERS_OF_ONE); BUCKETS].into(),
            secret: RandomState::new(),
        }
    }

    /// Whether this address may get one more answer. If so, the answer is counted.
    //= wire.md R-DIR-9
    pub fn permit(&mut self, now_ns: u64, to: IpAddr) -> bool {
        let index = self.secret.hash_one(to) as usize % BUCKETS;
        let Some(one) = self.each.get_mut(index) else { return false };
        let permitted = one.has_one(now_ns) && self.all.has_one(now_ns);
        if permitted {
            one.take(now_ns);
            self.all.take(now_ns);
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_floods_leaves_answers_for_others() {
        let mut rates = Rates::new();
        let flood = IpAddr::from([10, 0, 0, 1]);
        let mut answered = 0;
        for now_ns in (0..10 * NS_PER_S).step_by(10_000) {
            answered += u64::from(rates.permit(now_ns, flood));
        }
        let most = 10 * ANSWERS_OF_ONE.0 + ANSWERS_OF_ONE.1;
        assert!((most - 10..=most).contains(&answered), "{answered}");
        let others = (2..=100).map(|last| IpAddr::from([10, 0, 0, last]));
        let got = others.filter(|other| rates.permit(10 * NS_PER_S, *other)).count();
        assert!(got >= 95, "{got} of 99: a few share the bucket of who floods");

        let mut all = 0;
        for number in 0..1_000_000_u32 {
            all += u64::from(rates.permit(20 * NS_PER_S, IpAddr::from(number.to_be_bytes())));
        }
        assert_eq!(all, ANSWERS_OF_ALL.1, "a million addresses at once");
    }
}
