//! The peer processes of a soak: each has a place, where it is started again after it was killed.

use super::child::Child;
use super::plan::Plan;
use super::random::mix;
use super::relay::{Relay, Weather};
use super::talk::{Address, Order, PeerMessage, Setup};
use crate::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::process::Signal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after a fault sessions may still end because of it: the longest time-out, and some more.
pub const EXCUSE: Duration = Duration::from_secs(45);

/// A place for a peer, which may be between two processes.
pub struct Slot {
    /// What its next process gets.
    pub setup: Setup,
    /// Its process.
    pub child: Option<Child>,
    /// To be started again then.
    pub start_at: Option<Instant>,
    /// To go on then.
    pub continue_at: Option<Instant>,
    /// Sessions with it may end early until then.
    pub excused_until: Option<Instant>,
    relay: Option<Relay>,
}

impl Slot {
    /// Sessions with it may end early now.
    pub fn is_excused(&self, now: Instant) -> bool {
        self.excused_until.is_some_and(|until| now <= until)
    }
}

/// The peers, in the order of their indices.
pub struct Peers {
    /// Where they are.
    pub site: Site,
    /// Their places.
    pub slots: Vec<Slot>,
}

impl Peers {
    /// Starts all of them, in a soak of this seed.
    pub fn start(plan: &Plan, site: Site, seed: u64) -> Outcome<Peers> {
        let mut slots = Vec::new();
        for index in 0..plan.peers {
            let setup = plan.setup(index, seed);
            let child = Some(Child::start(&setup, &site, Plan::is_there(index))?);
            let (start_at, continue_at, excused_until) = (None, None, None);
            slots.push(Slot { setup, child, start_at, continue_at, excused_until, relay: None });
        }
        Ok(Peers { site, slots })
    }

    /// Those that run.
    pub fn children(&self) -> impl Iterator<Item = &Child> {
        self.slots.iter().filter_map(|slot| slot.child.as_ref())
    }

    /// Those that run, to be changed.
    pub fn children_mut(&mut self) -> impl Iterator<Item = &mut Child> {
        self.slots.iter_mut().filter_map(|slot| slot.child.as_mut())
    }

    /// The process at a place, if there is one.
    pub fn child(&mut self, index: usize) -> Option<&mut Child> {
        self.slots.get_mut(index)?.child.as_mut()
    }

    /// Sessions of all of them may end early for a while.
    pub fn excuse_all(&mut self, now: Instant) {
        self.slots.iter_mut().for_each(|slot| slot.excused_until = Some(now + EXCUSE));
    }

    /// Says something to all of them.
    pub fn order(&mut self, order: &Order) {
        self.children_mut().for_each(|child| child.order(order));
    }

    /// Starts again who is to start, and has those go on who were stopped for long enough.
    pub fn go_on(&mut self, now: Instant) -> Outcome {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.start_at.is_some_and(|at| now > at) {
                slot.start_at = None;
                slot.excused_until = Some(now + EXCUSE);
                slot.setup.seed = mix(slot.setup.seed);
                slot.child = Some(Child::start(&slot.setup, &self.site, Plan::is_there(index))?);
            }
            let Some(child) = &mut slot.child else { continue };
            if slot.continue_at.is_some_and(|at| now > at) {
                slot.continue_at = None;
                // One that was stopped for a moment has no excuse, and needs none.
                slot.excused_until = slot.excused_until.map(|until| until.max(now + EXCUSE));
                child.signal(Signal::Continue);
                child.stopped = false;
                (child.heard, child.progress.1) = (now, now);
            }
        }
        Ok(())
    }

    /// What they have said since, and who has ended by itself.
    pub fn listen(&mut self) -> Vec<(usize, PeerMessage)> {
        let mut messages = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(child) = &mut slot.child else { continue };
            while let Some(one) = child.listen() {
                messages.push((index, one));
            }
            let is_last =
                |one: &(usize, PeerMessage)| matches!(one.1, PeerMessage::Done(_) | PeerMessage::Wrong(_));
            if child.drained
                && !child.done
                && !messages.last().is_some_and(|one| one.0 == index && is_last(one))
                && let Some(status) = child.ended()
            {
                let words = child.words();
                messages.push((index, PeerMessage::Wrong(format!("ended by itself, {status}: {words}"))));
            }
        }
        messages
    }

    /// One listens, behind a relay if there is weather: everybody is to know where it is.
    pub fn ready(&mut self, index: usize, uri: String, weather: Option<&Arc<Weather>>) -> Outcome {
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let mut address = uri;
        if let Some(weather) = weather
            && let Some(server) = address.strip_prefix("udp://").and_then(|at| at.parse::<SocketAddr>().ok())
        {
            match &slot.relay {
                Some(relay) => relay.point_to(server),
                None => {
                    let relay = Relay::start(server, weather.clone(), slot.setup.seed);
                    let failed = |error| Failure::new(format!("a relay: {error}"));
                    slot.relay = Some(relay.map_err(failed)?);
                }
            }
            if let Some(relay) = &slot.relay {
                address = format!("udp://{}", relay.front());
            }
        }
        if let Some(child) = &mut slot.child {
            child.uri = Some(address);
        }
        let uri_of = |slot: &Slot| slot.child.as_ref().and_then(|child| child.uri.clone());
        let all = self.slots.iter().enumerate();
        let peers: Vec<Address> = all
            .filter_map(|(index, slot)| Some(Address { index: index as u32, uri: uri_of(slot)? }))
            .collect();
        if peers.len() > 1 {
            self.order(&Order::Peers(peers));
        }
        Ok(())
    }
}
