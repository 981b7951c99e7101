//! A rank of a simulated job: what it does of the plan, and how it handles what is due.

use super::super::shared::Stage;
use super::model::{self, Kind, Model};
use super::plan::{Act, HANDLERS, RankPlan, Together};
use crate::rng::mix;
use cci::{Atomic, AtomicKind, AtomicWidth, Memory, simulated};
use cci_am::description::Description;
use cci_am::limits::ARGS_MAX;
use cci_am::process::{Collective, Due, Process, Starter, Token, Transfer};
use cci_am::{Accumulation, AmError, Change, Context, Elements, Number, Part, Reduction, Team};
use cci_job::Ranks;
use std::collections::HashMap;
use std::rc::Rc;

/// Of messages, one in so many has its handler start another one.
const MORE_OF: u64 = 8;
/// After so many turns in which a rank could not get on, it registers a handler that others may wait for.
const STUCK_TURNS: u32 = 50;
const SUM: Reduction = Reduction::Add;

pub(super) struct Party {
    rank: usize,
    ranks: usize,
    process: Process,
    /// Where its stores are seen late that the system makes for it.
    stage: Option<Rc<Stage>>,
    memory: Memory,
    /// By rank, where its memory begins.
    places: Vec<u64>,
    contexts: [Option<Context>; 2],
    is_registered: [[bool; HANDLERS as usize]; 2],
    /// World, those of equal parity, and all the other way round.
    teams: Vec<Team>,
    /// The act that is next, and how many of its messages are sent.
    at: usize,
    sent: u32,
    /// So many turns without handlers are left.
    held: u32,
    barriers: usize,
    is_inside: bool,
    /// So many turns has it not got on.
    stuck_turns: u32,
    /// Memory that operations write from and read to, by their cookies.
    used: HashMap<u64, Memory>,
}

impl Party {
    pub fn new(ranks: Ranks, stage: Option<Rc<Stage>>) -> Result<Party, String> {
        let mut process = Process::new(ranks);
        let memory = process.allocate(model::MEMORY_BYTES).map_err(|error| error.to_string())?;
        let unnamed = process.context().map_err(|error| error.to_string())?;
        let rank = process.rank() as usize;
        let log = memory.as_ptr().addr() as u64 + model::LOG_AT as u64;
        let is_set = memory.write(model::POINTER_AT, &log.to_ne_bytes())
            && memory.write(model::CONSTANT_AT, &Model::constant(rank));
        process.register_memory(&memory).map_err(|error| error.to_string())?;
        is_set.then_some(()).ok_or("the memory is too short")?;
        Ok(Party {
            rank,
            ranks: process.size() as usize,
            process,
            stage,
            memory,
            places: Vec::new(),
            contexts: [Some(unnamed), None],
            is_registered: [[false; HANDLERS as usize]; 2],
            teams: Vec::new(),
            at: 0,
            sent: 0,
            held: 0,
            barriers: 0,
            is_inside: false,
            stuck_turns: 0,
            used: HashMap::new(),
        })
    }

    pub fn place(&self) -> u64 {
        self.memory.as_ptr().addr() as u64
    }

    /// Where everybody's memory begins.
    pub fn meet(&mut self, places: &[u64]) {
        self.places = places.to_vec();
    }

    /// Its process is gone.
    pub fn abandon(self) {
        simulated::abandon(self.process.into_endpoint());
    }

    /// Makes teams, which the death of a rank does not disturb. Returns whether all are made.
    pub fn gather(&mut self, model: &mut Model) -> Result<bool, String> {
        if self.teams.is_empty() {
            self.teams.push(Team::WORLD);
            self.begin_split()?;
        }
        self.process.progress();
        self.see_own_stores();
        while let Some((cookie, cards)) = self.process.next_collected() {
            let cards = cards.map_err(|error| error.to_string())?;
            let (color, _) = self.color(cookie as usize);
            let team = self.process.split(Team::WORLD, &cards, color).map_err(|error| error.to_string())?;
            self.teams.push(team);
            if self.teams.len() < 3 {
                self.begin_split()?;
            }
        }
        self.handle(model)?;
        Ok(self.teams.len() == 3)
    }

    fn color(&self, team: usize) -> (i32, i32) {
        (if team == 1 { self.rank as i32 % 2 } else { 0 }, -(self.rank as i32))
    }

    fn begin_split(&mut self) -> Result<(), String> {
        let team = self.teams.len();
        let (color, key) = self.color(team);
        let data = self.process.split_card(color, key);
        let begun = self.process.collect(Team::WORLD, Collective::Allgather { data }, team as u64);
        begun.map_err(|error| error.to_string())
    }

    /// The members of a team, by their numbers there.
    fn members(&self, team: usize) -> Vec<usize> {
        match team {
            0 => (0..self.ranks).collect(),
            1 => (0..self.ranks).rev().filter(|rank| rank % 2 == self.rank % 2).collect(),
            _ => (0..self.ranks).rev().collect(),
        }
    }

    /// Handles what is due, and does something. Returns whether anything happened.
    pub fn turn(&mut self, plan: &RankPlan, model: &mut Model) -> Result<bool, String> {
        self.process.progress();
        if simulated::is_dead() {
            return Ok(true);
        }
        self.see_own_stores();
        let mut happened = self.held > 0;
        if self.held > 0 {
            self.held -= 1;
        } else {
            happened |= self.handle_of(Some(plan), model)?;
        }
        if simulated::is_dead() {
            return Ok(true);
        }
        if self.act(plan, model)? {
            self.stuck_turns = 0;
            return Ok(true);
        }
        self.stuck_turns += 1;
        Ok(self.relent()? || happened)
    }

    /// Where all wait for the handlers of others, each registers its own, one after the other. Returns whether it did.
    fn relent(&mut self) -> Result<bool, String> {
        let missing = (0..2).flat_map(|context| (0..HANDLERS).map(move |handler| (context, handler)));
        let mut missing = missing.filter(|&(context, at)| !self.is_registered[context][usize::from(at)]);
        match missing.next().filter(|_| self.stuck_turns.is_multiple_of(STUCK_TURNS)) {
            Some((context, handler)) => self.register(context == 1, handler).map(|()| true),
            None => Ok(false),
        }
    }

    /// What streams bring is stored by calls of the simulated system. A processor sees its own stores.
    fn see_own_stores(&self) {
        if let Some(stage) = &self.stage {
            stage.show(self.rank);
        }
    }

    fn handle(&mut self, model: &mut Model) -> Result<bool, String> {
        self.handle_of(None, model)
    }

    fn handle_of(&mut self, plan: Option<&RankPlan>, model: &mut Model) -> Result<bool, String> {
        let Some(mut batch) = self.process.take_due() else { return Ok(false) };
        let mut happened = false;
        while !simulated::is_dead()
            && let Some(due) = self.process.next(&mut batch)
        {
            happened = true;
            match due {
                Due::Message(delivery) => {
                    let mut args = [0; ARGS_MAX];
                    let &[id, answers, handler] = delivery.args.decode(&mut args) else {
                        return Err("other arguments".into());
                    };
                    if delivery.handler != handler as u64 {
                        return Err(format!("message {id} came to another handler"));
                    }
                    let (token, context) = (delivery.token, delivery.context);
                    model.handled(self.rank, delivery.sender as usize, id, delivery.data)?;
                    self.answer(model, (id, answers, handler as u16), token, delivery.sender, context)?;
                    self.process.end(token);
                }
                Due::Done { cookie, result } => {
                    let used = self.used.remove(&cookie);
                    let read = used.map(|memory| {
                        let mut bytes = vec![0; memory.len()];
                        let _ = memory.read(0, &mut bytes);
                        bytes
                    });
                    model.done(self.rank, cookie, &result, read.as_deref())?;
                }
                Due::Collected { cookie, result } => {
                    let act = model.act_of(cookie).and_then(|act| plan?.acts.get(act));
                    let Some(Act::Collect { together, root, len, .. }) = act else {
                        return Err("an end of no collective".into());
                    };
                    let result = result.as_ref().map(Vec::as_slice);
                    model.collected(self.rank, cookie, (*together, *root, *len), result)?;
                }
                Due::Gone { rank, why } => model.gone(self.rank, rank as usize, &why)?,
            }
        }
        self.process.put_back(batch);
        Ok(happened)
    }

    /// What a handler does.
    fn answer(
        &mut self,
        model: &mut Model,
        (id, answers, handler): (i64, i64, u16),
        token: Token,
        sender: u32,
        context: Context,
    ) -> Result<(), String> {
        let chance = mix(id as u64);
        let len = (chance % 64) as usize;
        if answers > 0 {
            let (next, data) = model.next_message(len);
            let args = [next as i64, answers - 1, handler.into()];
            self.process.reply(token, handler, &args, &data).map_err(|error| format!("a reply: {error}"))?;
            model.sent(self.rank, sender as usize, len)?;
        }
        if chance.is_multiple_of(MORE_OF) {
            let to = (chance / MORE_OF) as usize % self.ranks;
            let (next, data) = model.next_message(len);
            let args = [next as i64, 0, handler.into()];
            let more = self.process.request(Starter::Handler, context, to as u32, handler, &args, &data);
            if started(more, to, model)? == Some(true) {
                model.sent(self.rank, to, len)?;
            }
        }
        Ok(())
    }

    fn context(&mut self, is_named: bool) -> Result<Context, String> {
        let place = &mut self.contexts[usize::from(is_named)];
        if place.is_none() {
            *place = Some(self.process.named_context("named").map_err(|error| error.to_string())?);
        }
        place.ok_or("no context".into())
    }

    fn register(&mut self, is_named: bool, handler: u16) -> Result<(), String> {
        let known = &mut self.is_registered[usize::from(is_named)][usize::from(handler)];
        if !std::mem::replace(known, true) {
            let context = self.context(is_named)?;
            let registered = self.process.register(context, handler, handler.into());
            registered.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Whether all of the plan is done.
    pub fn is_done(&self, plan: &RankPlan) -> bool {
        self.at > plan.acts.len()
    }

    /// Does what is next. Returns whether it did anything.
    fn act(&mut self, plan: &RankPlan, model: &mut Model) -> Result<bool, String> {
        if self.is_inside {
            let passed = self.process.has_passed();
            if simulated::is_dead() {
                return Ok(true);
            }
            match passed {
                Ok(false) => return Ok(false),
                Ok(true) => model.passes(self.rank, self.barriers - 1, self.process.are_all_idle())?,
                Err(_) => self.may_fail(plan, model)?,
            }
            self.is_inside = false;
            self.at += 1;
            return Ok(true);
        }
        let Some(&act) = plan.acts.get(self.at) else {
            // No message waits for its handler at the end.
            if self.at == plan.acts.len() {
                self.at += 1;
                for handler in 0..HANDLERS {
                    self.register(false, handler)?;
                    self.register(true, handler)?;
                }
                return Ok(true);
            }
            return Ok(false);
        };
        if self.begin(act, plan, model)? {
            self.at += 1;
            self.sent = 0;
            return Ok(true);
        }
        Ok(false)
    }

    fn may_fail(&self, plan: &RankPlan, model: &Model) -> Result<(), String> {
        let is_dead = (0..plan.ranks).any(|rank| model.is_dead(rank));
        is_dead.then_some(()).ok_or("a barrier failed though all live".into())
    }

    /// False: it has to be tried again.
    fn begin(&mut self, act: Act, plan: &RankPlan, model: &mut Model) -> Result<bool, String> {
        let me = self.rank;
        match act {
            Act::Send { from, to, is_named, handler, len, count, answers } if from == me => {
                let context = self.context(is_named)?;
                while self.sent < count {
                    let (id, data) = model.next_message(len);
                    let args = [id as i64, answers.into(), handler.into()];
                    let sent =
                        self.process.request(Starter::Program, context, to as u32, handler, &args, &data);
                    match started(sent, to, model)? {
                        Some(true) => model.sent(me, to, len)?,
                        Some(false) => return Ok(true),
                        None => return Ok(false),
                    }
                    self.sent += 1;
                }
            }
            Act::Register { rank, is_named, handler } if rank == me => self.register(is_named, handler)?,
            Act::Accumulate { from, to } if from == me => return self.operate(to, Kind::Accumulate, model),
            Act::FetchAdd { from, to } if from == me => return self.operate(to, Kind::FetchAdd, model),
            Act::IndexedPut { from, to, len } if from == me => {
                return self.operate(to, Kind::IndexedPut { len }, model);
            }
            Act::Put { from, to, has_gaps } if from == me => {
                return self.operate(to, Kind::Put { has_gaps }, model);
            }
            Act::Get { from, to } if from == me => return self.operate(to, Kind::Get, model),
            Act::Collect { team, together, root, len } => {
                let members = self.members(team);
                let cookie = model.starts(me, self.at, &members) as u64;
                let place = members.iter().position(|&member| member == me).unwrap_or_default();
                let collective = collective(together, root, len, self.at, &members, place);
                let begun = self.process.collect(self.teams[team], collective, cookie);
                if !simulated::is_dead()
                    && let Err(error) = begun
                {
                    model.collected(me, cookie, (together, root, len), Err(&error))?;
                }
            }
            Act::Barrier => {
                model.comes(self.barriers);
                self.barriers += 1;
                self.is_inside = self.process.arrive().is_ok();
                if !self.is_inside {
                    self.may_fail(plan, model)?;
                }
                return Ok(!self.is_inside);
            }
            Act::Hold { rank, turns } if rank == me => self.held = turns,
            _ => {}
        }
        Ok(true)
    }

    /// Begins an operation on a rank's memory. False: it has to be tried again.
    fn operate(&mut self, to: usize, kind: Kind, model: &mut Model) -> Result<bool, String> {
        let (id, data) = model.begin(self.rank, to, kind);
        let len = data.len().max(model::CONSTANT_BYTES);
        let memory = self.process.allocate(len).map_err(|error| error.to_string())?;
        // Two ones, for those that add.
        let ones = [1_u64.to_ne_bytes(), 1_u64.to_ne_bytes()].concat();
        if !memory.write(0, if data.is_empty() { &ones } else { &data }) {
            return Err("the memory is too short".into());
        }
        let (rank, place, cookie) = (to as u32, self.places[to], id as u64);
        let slot = place + (model::SLOTS_AT + model::SLOT_BYTES * id) as u64;
        let part = |len_bytes| Part { memory: memory.clone(), offset: 0, len_bytes };
        let process = &mut self.process;
        let begun = match kind {
            Kind::Accumulate => {
                let apart = (model::OWN_WORDS_AT - model::SHARED_AT + 8 * id) as isize;
                let there = strided(2, apart)?;
                let here = Elements { count: 2, description: bytes(8)? };
                let (what, remote) =
                    ((Accumulation::Reduce(SUM), Number::U64), place + model::SHARED_AT as u64);
                process.accumulate(what, rank, (remote, there), (&memory, 0, here), cookie).map(|()| None)
            }
            Kind::FetchAdd => {
                let (kind, width) = (AtomicKind::FetchAdd, AtomicWidth::Eight);
                let change = Change::Core(Atomic { kind, width, operand: 1, compare: 0 });
                process.atomic(rank, place + model::COUNTER_AT as u64, change, cookie)
            }
            Kind::IndexedPut { len } => {
                process.indexed_put(rank, place + model::POINTER_AT as u64, part(len), cookie).map(|()| None)
            }
            Kind::Put { has_gaps: false } => {
                process.transfer(Transfer::Put, rank, slot, &part(model::PUT_BYTES), cookie)
            }
            Kind::Put { has_gaps: true } => {
                let there = strided(model::PUT_BYTES / 8, 16)?;
                let here = Elements { count: model::PUT_BYTES / 8, description: bytes(8)? };
                process.transfer_described(Transfer::Put, rank, (slot, there), (&memory, 0, here), cookie)
            }
            Kind::Get => {
                let remote = place + model::CONSTANT_AT as u64;
                process.transfer(Transfer::Get, rank, remote, &part(model::CONSTANT_BYTES), cookie)
            }
        };
        match begun {
            _ if simulated::is_dead() => Ok(true),
            Ok(None) => {
                self.used.insert(cookie, memory);
                Ok(true)
            }
            // It has ended where it began.
            Ok(Some(value)) => {
                let mut bytes = vec![0; memory.len()];
                let _ = memory.read(0, &mut bytes);
                model.done(self.rank, cookie, &Ok(value), Some(&bytes))?;
                Ok(true)
            }
            Err(AmError::WouldBlock) => {
                model.take_back();
                Ok(false)
            }
            Err(error) => Err(format!("operation {id} was refused: {error}")),
        }
    }

    /// What it has not done yet, for people.
    pub fn left(&self, plan: &RankPlan) -> String {
        let (acts, operations) =
            (plan.acts.get(self.at..).unwrap_or_default(), self.process.operations(None));
        let next = acts.first();
        format!("{} teams, {} acts, next {next:?}, {operations} operations", self.teams.len(), acts.len())
    }

    /// Asks for all credits back.
    pub fn settle(&mut self) {
        self.process.settle();
    }

    /// Everything is home.
    pub fn check_home(&self, model: &Model) -> Result<(), String> {
        if !self.process.is_idle() {
            return Err(format!("rank {} is not idle: credits or operations are left", self.rank));
        }
        if !self.used.is_empty() || self.process.operations(None) > 0 {
            return Err(format!("rank {} has operations left", self.rank));
        }
        let mut bytes = vec![0; model::MEMORY_BYTES];
        if !self.memory.read(0, &mut bytes) {
            return Err("the memory is too short".into());
        }
        model.check_memory(self.rank, &bytes, self.place() + model::LOG_AT as u64)
    }
}

/// Whether a message was started. None: not now. `Some(false)`: its rank is dead.
fn started(result: Result<(), AmError>, to: usize, model: &Model) -> Result<Option<bool>, String> {
    match result {
        Ok(()) => Ok(Some(true)),
        Err(AmError::WouldBlock) => Ok(None),
        Err(AmError::Gone { rank, .. }) if model.is_dead(to) && rank as usize == to => Ok(Some(false)),
        Err(error) => Err(format!("a message was refused: {error}")),
    }
}

fn bytes(count: usize) -> Result<Description, String> {
    Description::bytes(count).map_err(|error| format!("{error:?}"))
}

/// So many words, so many bytes from one to the next.
fn strided(words: usize, stride_bytes: isize) -> Result<Elements, String> {
    let description =
        Description::strided(&[8, words], &[stride_bytes]).map_err(|error| format!("{error:?}"))?;
    Ok(Elements { count: 1, description })
}

/// What a member of a team, with this place in it, starts.
fn collective(
    together: Together,
    root: u32,
    len: usize,
    act: usize,
    members: &[usize],
    place: usize,
) -> Collective {
    let size = members.len();
    let root = root as usize % size;
    let given = |for_member| model::given(act, members[place], for_member, len);
    let (data, with, root) = (given(0), (Number::U64, SUM), root as u32);
    match together {
        Together::Barrier => Collective::Barrier,
        Together::Broadcast => {
            Collective::Broadcast { root, data: if root as usize == place { data } else { vec![0; len] } }
        }
        Together::Gather => Collective::Gather { root, data },
        Together::Scatter => {
            let is_root = root as usize == place;
            let data = if is_root { (0..size).flat_map(given).collect() } else { Vec::new() };
            Collective::Scatter { root, data, len_bytes: len }
        }
        Together::Allgather => Collective::Allgather { data },
        Together::Alltoall => {
            let part = |member: usize| member * len..(member + 1) * len;
            let parts = (0..size).map(|member| (part(member), part(member))).collect();
            let data = (0..size).flat_map(given).collect();
            Collective::Alltoall { parts, data, result: vec![0; size * len] }
        }
        Together::Reduce => Collective::Reduce { root, data, with },
        Together::Allreduce => Collective::Allreduce { data, with },
        Together::Scan => Collective::Scan { data, with },
    }
}
