//! A machine's messenger, and a program that does with it whatever chance says.

use super::super::contents;
use super::super::shared::Stage;
use super::ledger::{ERROR, Ledger, MESSAGE, REFUSAL, REPLY, REQUEST};
use super::{SERVER, is_dead};
use crate::rng::Rng;
use cci::messages::{CallId, Event, Limits, Message, Messenger, Offer, ReplyError, Request};
use cci::messages::{SendError, SendId};
use cci::simulated;
use cci::{Attribute, Connection, Endpoint, Memory, SendFlags};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const WHOLE_BYTES_MAX: u64 = 300_000;
const LENT_BYTES_MAX: u64 = 2 << 20;
const STAGED_BYTES_MAX: u64 = 4 << 20;
const ACTIONS_MAX: u64 = 40;
const EVENTS_PER_TURN: u32 = 8;

/// What became of an offer that the program was shown.
enum Decision {
    /// It is still to be made.
    Open,
    /// It comes as a message.
    Lent,
    /// It comes into this memory.
    Into(Memory),
}

/// What is done instead of what chance says, with a message of this length.
#[derive(Clone, Copy)]
pub(super) enum Scripted {
    /// A message is copied from slices.
    Slices(usize),
    /// A message is sent from memory of the library.
    Memory(usize),
    /// A request.
    Call(usize),
}

pub(super) struct Party {
    number: usize,
    messenger: Messenger,
    /// Where its stores are seen late that the system makes for it.
    stage: Option<Rc<Stage>>,
    rng: Rng,
    /// By client.
    links: [Option<Connection>; 2],
    actions_left: u64,
    /// `Some`: what is left of a script, the last first.
    script: Option<Vec<Scripted>>,
    held: Vec<Message>,
    requests: Vec<(usize, Request)>,
    /// By their numbers.
    offers: BTreeMap<u64, (Offer, Decision)>,
    sends: Vec<(usize, SendId)>,
    calls: Vec<(usize, CallId)>,
}

impl Party {
    pub fn new(
        number: usize,
        endpoint: Endpoint,
        stage: Option<Rc<Stage>>,
        seed: u64,
    ) -> Result<Party, String> {
        let limits = Limits::default()
            .whole_bytes_max(WHOLE_BYTES_MAX)
            .lent_bytes_max(LENT_BYTES_MAX)
            .staged_bytes_max(STAGED_BYTES_MAX);
        let messenger = Messenger::new(endpoint, limits).map_err(|error| error.to_string())?;
        let mut rng = Rng::new(seed);
        Ok(Party {
            number,
            messenger,
            stage,
            links: [None; 2],
            actions_left: rng.below(ACTIONS_MAX),
            script: None,
            rng,
            held: Vec::new(),
            requests: Vec::new(),
            offers: BTreeMap::new(),
            sends: Vec::new(),
            calls: Vec::new(),
        })
    }

    /// From now on it does what a script says, and nothing else.
    pub fn follow(&mut self, script: &[Scripted]) {
        self.actions_left = script.len() as u64;
        self.script = Some(script.iter().rev().copied().collect());
    }

    pub fn connect(&mut self, uri: &str, is_ordered: bool) -> Result<(), String> {
        let attribute = if is_ordered { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let (name, timeout) = ([self.number as u8], Some(Duration::from_secs(20)));
        let started = self.messenger.connect(uri, &name, attribute, self.number as u64, timeout);
        started.map_err(|error| error.to_string())
    }

    /// Its process is gone.
    pub fn abandon(self) {
        simulated::abandon_messenger(self.messenger);
    }

    /// Takes events, and does something. Returns whether anything happened.
    pub fn turn(&mut self, ledger: &mut Ledger) -> Result<bool, String> {
        let mut happened = false;
        for _ in 0..EVENTS_PER_TURN {
            let event = self.messenger.next_event();
            if is_dead() {
                return Ok(true);
            }
            self.see_own_stores();
            let Some(event) = event else { break };
            happened = true;
            self.on(event, ledger)?;
        }
        if self.actions_left > 0 && self.rng.pct(50.0) {
            happened |= self.act(ledger)?;
        }
        if self.rng.pct(30.0) {
            happened |= self.decide(ledger)? | self.answer(ledger)?;
        }
        if self.rng.pct(30.0) && !self.held.is_empty() {
            let at = self.rng.below(self.held.len() as u64) as usize;
            drop(self.held.swap_remove(at));
            happened = true;
        }
        let counters = self.messenger.counters();
        if counters.lent_bytes + counters.idle_lent_bytes > LENT_BYTES_MAX
            || counters.staged_bytes + counters.idle_staged_bytes > STAGED_BYTES_MAX
        {
            return Err(format!("machine {} is beyond a cap: {counters:?}", self.number));
        }
        Ok(happened && !is_dead())
    }

    /// What streams bring is stored by calls of the simulated system, and programs read it where it lies. A processor sees its own
    /// stores, so they leave the simulated one's store buffer first.
    fn see_own_stores(&self) {
        if let Some(stage) = &self.stage {
            stage.show(self.number);
        }
    }

    fn link_of(&self, connection: Connection) -> Result<usize, String> {
        let found = self.links.iter().position(|link| *link == Some(connection));
        found.ok_or(format!("machine {} has no {connection:?}", self.number))
    }

    fn on(&mut self, event: Event, ledger: &mut Ledger) -> Result<(), String> {
        match event {
            Event::ConnectRequest(request) => {
                let client = request.data().first().copied().unwrap_or(0);
                // One whose client is gone is refused.
                let _ = self.messenger.accept(request, client.into());
            }
            Event::Connect { context, result } | Event::Accept { context, result } => match result {
                Ok(connection) => self.links[context as usize] = Some(connection),
                Err(_) if ledger.is_over(context as usize) => {}
                Err(failure) => return Err(format!("connecting {context}: {failure}")),
            },
            Event::Sent { context, result, .. } => {
                self.sends.retain(|(id, _)| *id as u64 != context);
                ledger.sent(context, self.number, result)?;
            }
            Event::Message(message) => {
                let link = self.link_of(message.connection())?;
                ledger.came(MESSAGE, self.number, link, &message)?;
                if message.len() as u64 > WHOLE_BYTES_MAX {
                    let is_this = |(offer, decision): &(Offer, Decision)| {
                        matches!(decision, Decision::Lent) && offer.len_bytes() == message.len() as u64
                    };
                    let number =
                        self.offers.iter().find(|(_, entry)| is_this(entry)).map(|(number, _)| *number);
                    self.offers.remove(&number.ok_or("a message that should have been offered")?);
                }
                if self.rng.pct(40.0) {
                    self.held.push(message);
                }
            }
            Event::Offer(offer) => {
                if offer.len_bytes() <= WHOLE_BYTES_MAX {
                    return Err("a short message was offered".to_owned());
                }
                if self.offers.insert(offer.to_bits(), (offer, Decision::Open)).is_some() {
                    return Err("an offer came twice".to_owned());
                }
            }
            Event::Received { offer, result, .. } => {
                let known = self.offers.remove(&offer.to_bits());
                let (_, decision) = known.ok_or("an offer ended that was none")?;
                match (decision, result) {
                    (Decision::Into(memory), Ok(())) => {
                        let mut bytes = vec![0; offer.len_bytes() as usize];
                        let link = self.link_of(offer.connection())?;
                        if !memory.read(0, &mut bytes) {
                            return Err("the memory is too short".to_owned());
                        }
                        ledger.came(MESSAGE, self.number, link, &bytes)?;
                    }
                    (_, Ok(())) => return Err("received into no memory".to_owned()),
                    (_, Err(_)) => {}
                }
            }
            Event::Request(request) => {
                let link = self.link_of(request.connection())?;
                let id = ledger.came(REQUEST, self.number, link, &request)?;
                self.requests.push((id, request));
            }
            // What it is answered then is dropped.
            Event::RequestCancelled(_) | Event::KeepaliveTimedOut { .. } => {}
            Event::Reply { context, result, .. } => {
                self.calls.retain(|(id, _)| *id as u64 != context);
                match result {
                    Ok(message) => {
                        ledger.replied(context, self.number, Ok(&message))?;
                        self.held.push(message);
                    }
                    Err(failure) => ledger.replied(context, self.number, Err(&failure))?,
                }
            }
            Event::Disconnected { connection, .. } => {
                let link = self.link_of(connection)?;
                self.links[link] = None;
                ledger.disconnected(self.number, link)?;
            }
            other => return Err(format!("{other:?}")),
        }
        Ok(())
    }

    fn contents(kind: u32, id: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        contents::fill(kind, id as u32, &mut bytes);
        bytes
    }

    fn length(&mut self, max: u64) -> usize {
        let most = self.rng.pick(&[100, 1_000, 8_184, 20_000, 100_000, 300_000, 800_000]);
        (8 + self.rng.below(max.min(most) - 8)) as usize
    }

    /// Sends, calls, cancels or closes.
    fn act(&mut self, ledger: &mut Ledger) -> Result<bool, String> {
        let link = if self.number == SERVER { self.rng.below(2) as usize } else { self.number };
        let Some(connection) = self.links[link] else { return Ok(false) };
        self.actions_left -= 1;
        let id = ledger.next();
        if let Some(action) = self.script.as_mut().and_then(Vec::pop) {
            match action {
                Scripted::Slices(len) => self.send(connection, id, len, false, ledger)?,
                Scripted::Memory(len) => self.send(connection, id, len, true, ledger)?,
                Scripted::Call(len) => self.call(connection, id, len, None, ledger)?,
            }
            return Ok(true);
        }
        match self.rng.below(100) {
            0..50 => {
                let (len, is_from_memory) = (self.length(u64::MAX), self.rng.pct(40.0));
                self.send(connection, id, len, is_from_memory, ledger)?;
            }
            50..80 => {
                let len = self.length(WHOLE_BYTES_MAX);
                let timeout_us = self.rng.pick(&[50, 1_000, 1_000_000]);
                let timeout = self.rng.pct(30.0).then(|| Duration::from_micros(timeout_us));
                self.call(connection, id, len, timeout, ledger)?;
            }
            80..90 if !self.sends.is_empty() => {
                let (id, send) = self.rng.pick(&self.sends);
                if self.messenger.cancel(send) {
                    ledger.cancel(id);
                }
            }
            90..97 if !self.calls.is_empty() => {
                let (id, call) = self.rng.pick(&self.calls);
                if self.messenger.cancel_call(call) {
                    ledger.cancel(id);
                }
            }
            97.. if self.rng.pct(30.0) => self.disconnect(link, ledger),
            _ => {}
        }
        Ok(true)
    }

    fn send(
        &mut self,
        connection: Connection,
        id: usize,
        len: usize,
        is_from_memory: bool,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let link = self.link_of(connection)?;
        let bytes = Party::contents(MESSAGE, id, len);
        let (context, flags) = (id as u64, SendFlags::NONE);
        let started = if is_from_memory {
            let memory = self.messenger.allocate(len).map_err(|error| error.to_string())?;
            if !memory.write(0, &bytes) {
                return Err("the memory is too short".to_owned());
            }
            let part = [(&memory, 0..len)];
            self.messenger.send(connection, &part, context, flags)
        } else {
            self.messenger.send(connection, &bytes, context, flags)
        };
        if let Some(send) = Party::started(started, link, ledger)? {
            ledger.begin(MESSAGE, self.number, link, len, false);
            self.sends.push((id, send));
        }
        Ok(())
    }

    fn call(
        &mut self,
        connection: Connection,
        id: usize,
        len: usize,
        timeout: Option<Duration>,
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let link = self.link_of(connection)?;
        let bytes = Party::contents(REQUEST, id, len);
        let started = self.messenger.call(connection, &bytes, timeout, id as u64);
        if let Some(call) = Party::started(started, link, ledger)? {
            ledger.begin(REQUEST, self.number, link, len, timeout.is_some());
            self.calls.push((id, call));
        }
        Ok(())
    }

    fn started<T>(started: Result<T, SendError>, link: usize, ledger: &Ledger) -> Result<Option<T>, String> {
        match started {
            Ok(id) => Ok(Some(id)),
            Err(SendError::WouldBlock) => Ok(None),
            Err(SendError::Disconnected | SendError::UnknownConnection) if ledger.is_over(link) => Ok(None),
            Err(error) => Err(format!("refused: {error}")),
        }
    }

    /// Decides on an offer.
    fn decide(&mut self, ledger: &mut Ledger) -> Result<bool, String> {
        let open = self.offers.iter().find(|(_, (_, decision))| matches!(decision, Decision::Open));
        let Some((number, offer)) = open.map(|(number, (offer, _))| (*number, *offer)) else {
            return Ok(false);
        };
        let decision = match self.rng.below(10) {
            0..4 => self.messenger.receive(offer).map(|()| Decision::Lent),
            4..8 => {
                let len = offer.len_bytes() as usize;
                let memory = self.messenger.allocate(len).map_err(|error| error.to_string())?;
                self.messenger.receive_into(offer, &memory, 0, 0).map(|()| Decision::Into(memory))
            }
            _ => {
                let link = self.link_of(offer.connection());
                // Its end may be on the way to the program.
                if self.messenger.refuse(offer, REFUSAL).is_ok() {
                    ledger.refuse(link?, self.number, offer.len_bytes());
                    self.offers.remove(&number);
                }
                return Ok(true);
            }
        };
        if let Ok(decision) = decision {
            self.offers.insert(number, (offer, decision));
            return Ok(true);
        }
        Ok(false)
    }

    /// Answers a request.
    fn answer(&mut self, ledger: &mut Ledger) -> Result<bool, String> {
        if self.requests.is_empty() {
            return Ok(false);
        }
        let at = self.rng.below(self.requests.len() as u64) as usize;
        let (id, request) = self.requests.swap_remove(at);
        let len = self.length(LENT_BYTES_MAX / 2);
        let (reply, error) = (Party::contents(REPLY, id, len), Party::contents(ERROR, id, len));
        let answered = match self.rng.below(10) {
            0 => {
                ledger.drop_request(id);
                return Ok(true);
            }
            1..3 => {
                ledger.answer(id, REPLY, len);
                request.reply(reply);
                return Ok(true);
            }
            3..5 => {
                ledger.answer(id, ERROR, len);
                self.messenger.reply_error(request, id as u32, &error)
            }
            _ => {
                ledger.answer(id, REPLY, len);
                self.messenger.reply(request, &reply)
            }
        };
        match answered {
            Ok(()) | Err(ReplyError::Ended) => Ok(true),
            Err(ReplyError::NotSent { request, error: SendError::WouldBlock }) => {
                self.requests.push((id, request));
                Ok(false)
            }
            Err(error) => Err(format!("a reply: {error}")),
        }
    }

    fn disconnect(&mut self, link: usize, ledger: &mut Ledger) {
        if let Some(connection) = self.links[link] {
            ledger.closes(link);
            self.messenger.disconnect(connection);
        }
    }

    /// Closes what is open.
    pub fn close(&mut self, ledger: &mut Ledger) {
        self.actions_left = 0;
        for link in 0..2 {
            self.disconnect(link, ledger);
        }
    }

    /// Nothing is left: no memory, no buffer, no connection.
    pub fn check_home(&mut self, recv_buffers: u32) -> Result<(), String> {
        let (offers, requests) = (self.offers.len(), self.requests.len());
        if offers + requests > 0 {
            return Err(format!(
                "machine {}: {offers} offers never ended, {requests} requests are left",
                self.number
            ));
        }
        self.held.clear();
        let (counters, free) = (self.messenger.counters(), self.messenger.recv_buffers_free());
        let endpoint = self.messenger.endpoint().counters();
        let is_home = (counters.lent_bytes, counters.staged_bytes, counters.kept_regions) == (0, 0, 0)
            && (endpoint.connections_open, endpoint.regions, free) == (0, 0, recv_buffers);
        let (open, regions) = (endpoint.connections_open, endpoint.regions);
        let what =
            || format!("machine {}: {counters:?}, {open} open, {regions} regions, {free} free", self.number);
        is_home.then_some(()).ok_or_else(what)
    }
}
