//! The channels and segmented buffers of a process, and their requests.

use super::failure::{Result, Wrong, wrong};
use cci_acp::{ChannelRequest, Receiver, SegmentDestination, SegmentSource, Sender};
use libc::c_void;
use std::collections::HashMap;
use std::ptr::without_provenance_mut;

/// As `ACP_CH_REQUESTS_MAX` says.
const REQUESTS_MAX: usize = 8;

pub(super) enum End {
    Sender(Sender),
    Receiver(Receiver),
}

pub(super) enum Buffer {
    Source(SegmentSource),
    Destination(SegmentDestination),
}

pub(super) struct Request {
    pub request: ChannelRequest,
    /// Which channel it is of; none that was freed.
    pub channel: usize,
}

/// The channels and segmented buffers of this process, and their requests, by numbers that were given out as pointers.
#[derive(Default)]
pub(super) struct Ends {
    /// With how many of their requests were not waited for.
    pub channels: HashMap<usize, (End, usize)>,
    pub requests: HashMap<usize, Request>,
    pub buffers: HashMap<usize, Buffer>,
    given: usize,
}

impl Ends {
    pub fn number(&mut self) -> usize {
        self.given += 1;
        self.given
    }

    pub fn requested(&mut self, request: ChannelRequest, channel: usize) -> *mut c_void {
        let number = self.number();
        self.requests.insert(number, Request { request, channel });
        without_provenance_mut(number)
    }

    /// A channel that may have one more request.
    pub fn channel(&mut self, ch: *mut c_void) -> Result<&mut (End, usize)> {
        let channel = self.channels.get_mut(&ch.addr());
        let channel = channel.ok_or_else(|| Wrong("there is no such channel, or it was freed".into()))?;
        if channel.1 >= REQUESTS_MAX {
            return wrong("8 requests of this channel were not waited for");
        }
        Ok(channel)
    }
}
