//! The network between the peers of a soak: its weather, and the link that goes down and comes up again.

use super::relay::Weather;
use crate::failure::{Failure, Outcome};
use cci_measure::iproute;
use cci_measure::site::Site;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What is wrong with the network, and until when.
#[derive(Default)]
pub struct Network {
    /// What the relays do to datagrams.
    pub weather: Arc<Weather>,
    weather_until: Option<Instant>,
    link_up_at: Option<Instant>,
    link_down: bool,
}

impl Network {
    /// Losses, repetitions and delays, each in a thousand datagrams.
    pub fn spoil(&mut self, (lost, repeated, late): (u64, u64, u64), until: Instant) {
        self.weather.set(lost, repeated, late);
        self.weather_until = Some(until);
    }

    /// Datagrams that the weather spoiled.
    pub fn spoiled(&self) -> u64 {
        self.weather.spoiled.load(Ordering::Relaxed)
    }

    /// Takes the link down. False: it is down.
    pub fn take_down(&mut self, until: Instant) -> Outcome<bool> {
        if self.link_down {
            return Ok(false);
        }
        self.set_link(false)?;
        self.link_up_at = Some(until);
        Ok(true)
    }

    /// Neither is the link down, nor will it come up.
    pub const fn has_link(&self) -> bool {
        self.link_up_at.is_none() && !self.link_down
    }

    /// Ends what has lasted long enough. True: the link has come up.
    pub fn tick(&mut self, now: Instant) -> Outcome<bool> {
        if self.weather_until.is_some_and(|until| now > until) {
            self.weather_until = None;
            self.weather.set(0, 0, 0);
        }
        let is_due = self.link_up_at.is_some_and(|at| now > at);
        if is_due {
            self.link_up_at = None;
            self.set_link(true)?;
        }
        Ok(is_due)
    }

    /// Ends everything at once. True: the link has come up.
    pub fn calm_down(&mut self) -> Outcome<bool> {
        self.weather.set(0, 0, 0);
        let was_down = self.link_down;
        if was_down {
            self.link_up_at = None;
            self.set_link(true)?;
        }
        Ok(was_down)
    }

    fn set_link(&mut self, up: bool) -> Outcome {
        self.link_down = !up;
        let state = if up { "up" } else { "down" };
        iproute::ip(&format!("link set {} {state}\n", Site::INTERFACE))?;
        Ok(())
    }
}

/// Programs that are attached to the interfaces of a pair.
pub fn programs_left(site: &Site) -> Outcome<Vec<String>> {
    let mut left = Vec::new();
    for links in [iproute::links(), site.in_peer_namespace(iproute::links)] {
        let links = links.map_err(|error| Failure::new(format!("ip -o link: {error}")))?;
        left.extend(links.into_iter().filter(|line| line.contains("xdp")));
    }
    Ok(left)
}
