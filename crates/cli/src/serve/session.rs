//! What the server keeps of each client: the measurement under way, and the memory it lends.

use super::lending::Lending;
use crate::pattern::Pattern;
use crate::protocol::{self, Answer, Order, Report};
use crate::tally::Tally;
use cci::{Attribute, Connection};
use cci_sys::clock;

/// The clock is read once in so many messages: reading it costs as much as a message.
const CLOCK_EVERY: u64 = 64;
/// How long messages that were sent reliably may take to come after the client has seen them complete.
const RELIABLE_GRACE_NS: u64 = 2_000_000_000;
/// On UU, what has not come after this long of silence is lost.
const UNRELIABLE_GRACE_NS: u64 = 20_000_000;

/// One client's measurements, one at a time.
pub struct Session {
    /// Where answers go.
    pub control: Connection,
    /// The data connection made last.
    pub data: Option<Connection>,
    /// An order that waits for the data connection that the client has and we are still to hear of.
    pub waiting: Option<Order>,
    /// Memory that the client may reach.
    pub lending: Lending,
    measurement: Option<Measurement>,
}

struct Measurement {
    attribute: Attribute,
    echo: bool,
    tally: Tally,
    first_ns: u64,
    /// When the last message had come, or a little later.
    last_ns: u64,
    /// The clock was not read since a message came.
    stale: bool,
    /// Messages that the client says it sent, and when it said so.
    finished: Option<(u64, u64)>,
}

impl Session {
    /// Nothing is measured yet.
    pub fn new(control: Connection) -> Session {
        Session { control, data: None, waiting: None, lending: Lending::default(), measurement: None }
    }

    /// True while messages are expected.
    pub fn is_measuring(&self) -> bool {
        self.measurement.is_some()
    }

    /// An order about messages came. The answer, unless it follows later.
    pub fn order(&mut self, order: Order) -> Option<Answer> {
        match order {
            Order::Start { echo, attribute, len } => {
                let Some(attribute) = protocol::attribute(&attribute) else {
                    return Some(Answer::Confused("no such kind of connection".to_owned()));
                };
                self.measurement = Some(Measurement {
                    attribute,
                    echo,
                    tally: Tally::new(attribute, len as usize),
                    first_ns: 0,
                    last_ns: 0,
                    stale: false,
                    finished: None,
                });
                Some(Answer::Ready)
            }
            Order::Finish { sent } => match &mut self.measurement {
                None => Some(Answer::Confused("nothing was started".to_owned())),
                Some(measurement) => {
                    measurement.finished = Some((sent, clock::now_ns()));
                    self.report()
                }
            },
            Order::Memory { .. } | Order::Fill { .. } | Order::Check { .. } | Order::Poll(_) => {
                Some(Answer::Confused("not an order about messages".to_owned()))
            }
        }
    }

    /// A data connection delivered a message: true = send it back. To be called before it is sent back, and
    /// [`Session::verify`] after, so that verifying is not part of the round trip.
    pub fn wants_echo(&self) -> bool {
        self.measurement.as_ref().is_some_and(|measurement| measurement.echo)
    }

    /// Counts and checks a message of the data connection.
    #[inline]
    pub fn verify(&mut self, message: &[u8], pattern: &Pattern) {
        let Some(measurement) = &mut self.measurement else { return };
        let nth = measurement.tally.received;
        if nth == 0 {
            measurement.first_ns = clock::now_ns();
        }
        measurement.tally.take(message, pattern);
        measurement.stale = true;
        if nth.is_multiple_of(CLOCK_EVERY) {
            measurement.read_clock();
        }
    }

    /// No message is there right now. The report, if this was what it waited for.
    pub fn idle(&mut self) -> Option<Answer> {
        let measurement = self.measurement.as_mut()?;
        if measurement.stale && !measurement.echo {
            measurement.read_clock();
        }
        if measurement.finished.is_some() { self.report() } else { None }
    }

    /// The report, if everything came or nothing more will.
    fn report(&mut self) -> Option<Answer> {
        let measurement = self.measurement.as_mut()?;
        let (sent, reported_ns) = measurement.finished?;
        let received = measurement.tally.received;
        if measurement.stale {
            measurement.read_clock();
        }
        if received < sent {
            let now_ns = clock::now_ns();
            let over = if measurement.attribute.is_reliable() {
                now_ns > reported_ns + RELIABLE_GRACE_NS
            } else {
                now_ns > reported_ns.max(measurement.last_ns) + UNRELIABLE_GRACE_NS
            };
            if !over {
                return None;
            }
        }
        let measurement = self.measurement.take()?;
        Some(Answer::Report(Report {
            received,
            verified: measurement.tally.verified,
            elapsed_ns: measurement.last_ns.saturating_sub(measurement.first_ns),
            first_wrong: measurement.tally.first_wrong,
        }))
    }
}

impl Measurement {
    fn read_clock(&mut self) {
        self.last_ns = clock::now_ns();
        self.stale = false;
    }
}
