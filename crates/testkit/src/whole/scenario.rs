//! What a run is: machines, weather, and a list of steps that can be left out one by one.

use cci::Attribute;

/// A run, whole.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it was drawn from; all chance in the run follows from it, too.
    pub seed: u64,
    /// The machines, each with one endpoint at a time.
    pub machines: Vec<Machine>,
    /// The network as long as no step says otherwise. After the last fault it is [`Weather::fair`].
    pub weather: Weather,
    /// The network of second interfaces.
    pub second_weather: Weather,
    /// What happens, at times of the simulation's own clock.
    pub steps: Vec<Step>,
    /// Endpoints seal what they send, and take nothing else.
    pub sealed: bool,
    /// What connects the machines.
    pub fabric: Fabric,
    /// What is broken on purpose, to see that it is found.
    pub sabotage: Option<Sabotage>,
}

/// What connects the machines.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// A network of datagrams.
    Datagrams,
    /// They are processes of one host, and share memory. `is_weak`: stores become visible in any order that C++ allows.
    SharedMemory {
        /// Otherwise in the order of the program, as on x86-64.
        is_weak: bool,
        /// Of so many system calls one fails while things go wrong; 0: none does.
        fault_per_calls: u64,
    },
    /// TCP streams.
    Streams {
        /// The endpoints are of `any`: those of one host share memory, too.
        any: bool,
        /// Of so many system calls one fails while things go wrong; 0: none does.
        fault_per_calls: u64,
    },
}

/// A machine, its clock, and how its endpoint is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Largest datagram that it sends, bytes.
    pub datagram_bytes_max: u16,
    /// As in [`cci::Options`].
    pub recv_buffers: u32,
    /// As in [`cci::Options`].
    pub send_buffers: u32,
    /// As in [`cci::Options`].
    pub rma_operations: u32,
    /// As in [`cci::Options`].
    pub memory_bytes_max: u64,
    /// As in [`cci::Options`], by its own clock.
    pub send_timeout_ns: u64,
    /// As in [`cci::Options`], by its own clock.
    pub keepalive_ns: Option<u64>,
    /// Datagrams of one batch.
    pub batch: usize,
    /// Bytes that its socket holds.
    pub socket_bytes: usize,
    /// From a datagram's arrival to the program's next look, and from one look to the next.
    pub poll_ns: u64,
    /// How much faster its clock runs than the simulation's, millionths.
    pub rate_ppm: i64,
    /// Whose clock it is: machines of one number are processes of one host.
    pub host: usize,
    /// Its program sleeps on the descriptor: every call leaves it as it should be.
    pub exported: bool,
    /// It has a second interface, and its connections to others that have one are bonded.
    pub is_bonded: bool,
    /// The number of each connection's first bundle; None: it follows from the endpoint's secret.
    pub first_seq: Option<u32>,
    /// How many connections it may have, if its memory allows so many.
    pub connections_max: Option<u32>,
    /// How many requests may wait for its program.
    pub requests_max: Option<u32>,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine {
            datagram_bytes_max: 1_472,
            recv_buffers: 8,
            send_buffers: 16,
            rma_operations: 8,
            memory_bytes_max: 1 << 20,
            send_timeout_ns: 100_000_000_000,
            keepalive_ns: None,
            batch: 16,
            socket_bytes: 212_992,
            poll_ns: 2_000,
            rate_ppm: 0,
            host: 0,
            exported: false,
            is_bonded: false,
            first_seq: None,
            connections_max: None,
            requests_max: None,
        }
    }
}

impl Machine {
    /// It refuses nobody for want of room, and waits long.
    fn is_generous(&self) -> bool {
        self.send_timeout_ns >= 60_000_000_000
            && self.connections_max.is_none()
            && self.requests_max.is_none()
    }
}

/// What the network does to datagrams.
#[derive(Clone, Debug, PartialEq)]
pub struct Weather {
    /// Lost, of 100.
    pub loss_pct: f64,
    /// Arriving twice, of 100.
    pub duplicate_pct: f64,
    /// Least time under way.
    pub delay_ns: u64,
    /// And so much more at most, each for itself.
    pub jitter_ns: u64,
    /// Of 100 datagrams, those held up by `reorder_ns`.
    pub reorder_pct: f64,
    /// How long a reordered datagram is held up.
    pub reorder_ns: u64,
    /// Rate of every machine's link outwards; 0: no limit.
    pub link_bits_per_s: u64,
    /// And inwards.
    pub inward_bits_per_s: u64,
    /// Bytes that wait before it; what finds no room is lost.
    pub link_queue_bytes: u64,
}

impl Default for Weather {
    /// 10 microseconds, and nothing is lost.
    fn default() -> Weather {
        Weather {
            loss_pct: 0.0,
            duplicate_pct: 0.0,
            delay_ns: 10_000,
            jitter_ns: 0,
            reorder_pct: 0.0,
            reorder_ns: 0,
            link_bits_per_s: 0,
            inward_bits_per_s: 0,
            link_queue_bytes: 1_000_000,
        }
    }
}

impl Weather {
    /// A quick network that loses nothing, on the same links.
    #[must_use]
    pub fn fair(&self) -> Weather {
        Weather {
            loss_pct: 0.0,
            duplicate_pct: 0.0,
            delay_ns: self.delay_ns.min(100_000),
            jitter_ns: 0,
            reorder_pct: 0.0,
            reorder_ns: 0,
            ..self.clone()
        }
    }
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, by the simulation's clock.
    pub at_ns: u64,
    /// What.
    pub act: Act,
}

/// Which end of a talk.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It dialled.
    Client,
    /// It accepted.
    Server,
}

/// What happens. What concerns a talk that was never begun, or a machine that is down, does nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A client dials.
    Connect(Talk),
    /// One end of a talk sends messages, as soon as it can.
    Send(u32, End, Job),
    /// One end of a talk works in the other's memory.
    Operate(u32, End, Operating),
    /// The owner deregisters what the other end works in, and registers new memory.
    Deregister(u32, End),
    /// One end disconnects.
    HangUp(u32, End),
    /// One end sets its send timeout, nanoseconds of its own clock.
    SendTimeout(u32, End, u64),
    /// One end sets its keepalive.
    Keepalive(u32, End, u64),
    /// A machine's endpoint is gone without a farewell; after so many nanoseconds there is another at the same address.
    Crash(usize, u64),
    /// Somebody between two machines breaks all streams between them.
    Cut(usize, usize),
    /// A machine loses its power, and has it back after so many nanoseconds: its streams are gone without a word.
    PowerFailure(usize, u64),
    /// A machine's process is stopped for so many nanoseconds.
    Stop(usize, u64),
    /// A machine's clock jumps forward by so many nanoseconds.
    Jump(usize, u64),
    /// Everything from one machine (None: from all) to one (None: to all) is lost for so many nanoseconds.
    Outage(Option<usize>, Option<usize>, u64),
    /// The machines fall into two groups, by the bits of the first number, that hear nothing of each other for so long.
    Split(u64, u64),
    /// Other weather for so long.
    Storm(Weather, u64),
    /// A machine's program keeps the messages that come within so many nanoseconds.
    Hold(usize, Hold, u64),
    /// So many datagrams seen long ago or lately come again.
    Replay(u32),
    /// So many come again, perhaps by other interfaces of the same machines.
    ReplayElsewhere(u32),
    /// Somebody who does not see what others send makes up so many datagrams.
    Forge(u32),
    /// Everything that a machine sends or gets by one of its interfaces is lost for so many nanoseconds.
    Unplug(usize, u8, u64),
    /// Everything that a machine sends by one of its interfaces is lost for so many nanoseconds.
    Mute(usize, u8, u64),
    /// The way from one machine to another takes only so many bytes from now on.
    Narrow(usize, usize, u16),
}

/// How long a program keeps messages, nanoseconds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Each for so long.
    Each(u64),
    /// Each for so long after the one before it was given back.
    OneByOne(u64),
    /// All until the end of a period of so long.
    Together(u64),
    /// Each for a time of its own, so long at most.
    Shuffled(u64),
}

impl Hold {
    /// The longest time that a message may be kept.
    #[must_use]
    pub fn ns_max(self) -> u64 {
        match self {
            // As many as there are receive buffers.
            Hold::OneByOne(ns) => ns * 64,
            Hold::Each(ns) | Hold::Together(ns) | Hold::Shuffled(ns) => ns,
        }
    }
}

/// A connection to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Talk {
    /// Its number, by which other steps name it.
    pub number: u32,
    /// Who dials.
    pub client: usize,
    /// Who is dialled.
    pub server: usize,
    /// What is asked for.
    pub attribute: Attribute,
    /// Length of the request, 16 bytes at least.
    pub request_bytes: usize,
    /// None: tries for ever.
    pub timeout_ns: Option<u64>,
    /// What the server's program does.
    pub answer: Answer,
    /// And how long it thinks about it.
    pub answer_ns: u64,
}

/// What a server's program does with a request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepts.
    Accept,
    /// Rejects.
    Reject,
    /// Has another machine's endpoint accept: a broker and its workers, in one process.
    Broker(usize),
}

impl Talk {
    /// A talk that begins at once, and is accepted at once.
    #[must_use]
    pub fn new(number: u32, client: usize, server: usize, attribute: Attribute) -> Talk {
        Talk {
            number,
            client,
            server,
            attribute,
            request_bytes: 16,
            timeout_ns: None,
            answer: Answer::Accept,
            answer_ns: 0,
        }
    }
}

impl Job {
    /// So many messages of one length, as fast as it goes.
    #[must_use]
    pub fn bulk(messages: u32, bytes: usize) -> Job {
        Job { messages, bytes_min: bytes, bytes_max: bytes, silent_pct: 0.0, burst: 1, gap_ns: 0 }
    }
}

/// Messages to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// How many.
    pub messages: u32,
    /// Shortest, bytes; no message is longer than the connection takes.
    pub bytes_min: usize,
    /// Longest.
    pub bytes_max: usize,
    /// Without a completion, of 100.
    pub silent_pct: f64,
    /// Sent at once.
    pub burst: u32,
    /// Between bursts.
    pub gap_ns: u64,
}

/// Work in the peer's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Operating {
    /// How many operations.
    pub operations: u32,
    /// Length of each place of the region, bytes.
    pub bytes: u32,
    /// How many places there are, 2 at least.
    pub places: u32,
    /// Segments of one operation, at each side, at most.
    pub segments_max: u32,
    /// What the operations are.
    pub kinds: Kinds,
    /// Under way at once.
    pub outstanding_max: u32,
    /// Kinds follow from this.
    pub draw: u64,
}

/// What operations are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Writes, reads, additions, silent ones, and some that must be refused.
    Common,
    /// These, atomics of all kinds, and reads that are fenced behind a write to the same place.
    All,
    /// Nothing but writes.
    Writes,
    /// Nothing but reads.
    Reads,
    /// Nothing but additions.
    Additions,
    /// Nothing but reads, of a file.
    File,
}

impl Kinds {
    /// They are of more than one kind.
    pub(super) fn are_mixed(self) -> bool {
        matches!(self, Kinds::Common | Kinds::All)
    }
}

impl Operating {
    /// So many operations of one kind, of that many bytes, so many of them at once.
    #[must_use]
    pub fn of(kinds: Kinds, operations: u32, bytes: u32, outstanding_max: u32) -> Operating {
        let places = outstanding_max + 1;
        Operating { operations, bytes, places, segments_max: 7, kinds, outstanding_max, draw: 1 }
    }
}

/// A promise broken on purpose.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The network changes a byte of every so many datagrams with data: against that, plain connections have nothing.
    Flip(u32),
    /// Every so many completions are lost between library and program.
    LoseCompletion(u32),
    /// Of every so many messages, one is taken for having come twice.
    Repeat(u32),
}

impl Scenario {
    /// Machines of this kind, each a host of its own, in a network of datagrams.
    #[must_use]
    pub fn plain(machines: usize, machine: &Machine, weather: Weather, steps: Vec<Step>) -> Scenario {
        let machine = |host| Machine { host, ..machine.clone() };
        Scenario {
            seed: 1,
            machines: (0..machines).map(machine).collect(),
            second_weather: weather.clone(),
            weather,
            steps,
            sealed: false,
            fabric: Fabric::Datagrams,
            sabotage: None,
        }
    }

    /// When the last fault ends.
    #[must_use]
    pub fn calm_ns(&self) -> u64 {
        let end = |step: &Step| {
            step.at_ns
                + match step.act {
                    Act::Crash(_, ns)
                    | Act::PowerFailure(_, ns)
                    | Act::Stop(_, ns)
                    | Act::Outage(.., ns)
                    | Act::Unplug(.., ns)
                    | Act::Mute(.., ns)
                    | Act::Split(_, ns)
                    | Act::Storm(_, ns) => ns,
                    Act::Hold(_, Hold::Each(hold_ns), for_ns) => hold_ns.max(for_ns),
                    Act::Hold(_, hold, for_ns) => for_ns + hold.ns_max(),
                    _ => 0,
                }
        };
        self.steps.iter().map(end).max().unwrap_or(0)
    }

    /// System calls are made to fail.
    #[must_use]
    pub fn calls_may_fail(&self) -> bool {
        matches!(
            self.fabric,
            Fabric::SharedMemory { fault_per_calls: 1.., .. } | Fabric::Streams { fault_per_calls: 1.., .. }
        )
    }

    /// Links may end though neither end has a reason to.
    #[must_use]
    pub fn links_may_end(&self) -> bool {
        self.calls_may_fail() || self.steps.iter().any(|step| matches!(step.act, Act::Cut(..)))
    }

    /// Nothing happens that may make anything fail.
    #[must_use]
    pub fn is_gentle(&self) -> bool {
        let gentle = |step: &Step| match &step.act {
            Act::Connect(talk) => {
                talk.answer != Answer::Reject
                    && talk.answer_ns < 1_000_000_000
                    && talk.timeout_ns.is_none_or(|ns| ns >= 60_000_000_000)
            }
            Act::Send(..)
            | Act::Operate(..)
            | Act::Replay(_)
            | Act::ReplayElsewhere(_)
            | Act::Forge(_)
            | Act::Narrow(..) => true,
            Act::Unplug(.., ns) | Act::Mute(.., ns) => *ns < 2_000_000_000,
            Act::Keepalive(_, _, ns) => *ns >= 10_000_000_000,
            Act::Hold(_, hold, _) => hold.ns_max() < 1_000_000_000,
            Act::Stop(_, ns) => *ns < 1_000_000_000,
            _ => false,
        };
        !self.calls_may_fail()
            && self.machines.iter().all(Machine::is_generous)
            && self.steps.iter().all(gentle)
    }
}
