//! What a service remembers of requests, so that a repeated request is carried out once.

use crate::content::Kept;
use crate::directory::Instance;
use crate::handles::Partner;
use crate::limits::{ANSWERS_BYTES_MAX, CALLS_MAX, CLIENTS_MAX};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// What happened to a request.
enum Outcome {
    /// The program has it.
    Asked,
    Answered(Kept),
    /// The memory of the answer's long items belongs to the program again. If true, the client has the answer; if false, it can't
    /// get it any more.
    Returned(bool),
}

struct Client {
    partner: Partner,
    outcomes: Outcomes,
    /// Answers to requests with lower numbers were forgotten, although the client might still ask.
    forgotten_below: u64,
    bytes: usize,
    /// When the client last asked, as the number of requests that had come by then.
    last: u64,
}

/// The outcomes of a client's requests, in the order of their numbers. The requests nearly always come in this order.
#[derive(Default)]
struct Outcomes(VecDeque<(u64, Outcome)>);

impl Outcomes {
    /// The place of a request's number, or the place where it would be.
    #[inline]
    fn place(&self, number: u64) -> Result<usize, usize> {
        match self.0.back() {
            Some((last, _)) if *last == number => Ok(self.0.len() - 1),
            Some((last, _)) if *last > number => self.0.binary_search_by_key(&number, |(number, _)| *number),
            _ => Err(self.0.len()),
        }
    }

    #[inline]
    fn get_mut(&mut self, number: u64) -> Option<&mut Outcome> {
        let place = self.place(number).ok()?;
        self.0.get_mut(place).map(|(_, outcome)| outcome)
    }

    fn remove(&mut self, number: u64) -> Option<Outcome> {
        let place = self.place(number).ok()?;
        self.0.remove(place).map(|(_, outcome)| outcome)
    }

    /// Takes the first outcome, if its number is smaller.
    #[inline]
    fn pop_below(&mut self, number: u64) -> Option<Outcome> {
        if self.0.front()?.0 >= number {
            return None;
        }
        self.0.pop_front().map(|(_, outcome)| outcome)
    }
}

/// The requests of all clients of one service.
#[derive(Default)]
pub struct Answers {
    clients: FxHashMap<Instance, Client>,
    bytes: usize,
    /// How many requests have come.
    asked: u64,
}

/// What to do about a request that came.
pub enum Verdict {
    /// Give it to the program.
    New,
    /// The program has it already.
    Repeated,
    /// Send this answer again.
    Answered(Kept),
    /// It is not known any more whether the request was carried out.
    Forgotten,
    /// Too many requests wait, so the client must try again.
    Busy,
}

impl Answers {
    /// Handles a request that has come.
    //= wire.md R-RIPC-6
    pub fn asked(&mut self, client: Instance, partner: Partner, (number, oldest): (u64, u64)) -> Verdict {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) && !self.forget_idle() {
            return Verdict::Busy;
        }
        self.asked += 1;
        let known = self.clients.entry(client).or_insert_with(|| Client {
            partner,
            outcomes: Outcomes::default(),
            forgotten_below: 0,
            bytes: 0,
            last: 0,
        });
        (known.partner, known.last) = (partner, self.asked);
        // The client has received older answers, so it will not ask for them again.
        known.forgotten_below = known.forgotten_below.max(oldest);
        while let Some(received) = known.outcomes.pop_below(oldest) {
            if let Outcome::Answered(answer) = received {
                known.bytes -= answer.bytes();
                self.bytes -= answer.bytes();
            }
        }
        let place = match known.outcomes.place(number) {
            Ok(place) => {
                return match known.outcomes.0.get(place) {
                    Some((_, Outcome::Answered(answer))) => Verdict::Answered(answer.clone()),
                    Some((_, Outcome::Returned(false))) => Verdict::Forgotten,
                    _ => Verdict::Repeated,
                };
            }
            Err(place) => place,
        };
        if number < known.forgotten_below {
            return Verdict::Forgotten;
        }
        if known.outcomes.0.len() >= 2 * CALLS_MAX {
            return Verdict::Busy;
        }
        known.outcomes.0.insert(place, (number, Outcome::Asked));
        Verdict::New
    }

    /// Notes that a new request was not taken after all.
    pub fn not_taken(&mut self, client: Instance, number: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.outcomes.remove(number);
        }
    }

    /// The partner to which a request's answer goes. `None` if it was answered, or its client is gone for long.
    pub fn client_of(&mut self, client: Instance, number: u64) -> Option<Partner> {
        let client = self.clients.get_mut(&client)?;
        matches!(client.outcomes.get_mut(number)?, Outcome::Asked).then_some(client.partner)
    }

    /// Keeps an answer.
    pub fn answered(&mut self, client: Instance, number: u64, answer: Kept) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(outcome @ Outcome::Asked) = known.outcomes.get_mut(number) else { return };
        let bytes = answer.bytes();
        *outcome = Outcome::Answered(answer);
        known.bytes += bytes;
        self.bytes += bytes;
        while self.bytes > ANSWERS_BYTES_MAX && self.forget_largest() {}
    }

    /// Notes that the memory of an answer's long items belongs to the program again. The answer can't be sent any more.
    pub fn returned(&mut self, client: Instance, number: u64, fetched: bool) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(outcome) = known.outcomes.get_mut(number) else { return };
        if let Outcome::Answered(answer) = std::mem::replace(outcome, Outcome::Returned(fetched)) {
            known.bytes -= answer.bytes();
            self.bytes -= answer.bytes();
        }
    }

    /// Forgets the oldest answer of the client that takes most memory. So a client that never reports what it has received costs
    /// others nothing.
    fn forget_largest(&mut self) -> bool {
        let Some(client) = self.clients.values_mut().max_by_key(|client| client.bytes) else { return false };
        let oldest = client.outcomes.0.iter().find(|(_, outcome)| matches!(outcome, Outcome::Answered(_)));
        let Some(&(number, _)) = oldest else { return false };
        if let Some(Outcome::Answered(answer)) = client.outcomes.remove(number) {
            client.bytes -= answer.bytes();
            self.bytes -= answer.bytes();
        }
        client.forgotten_below = number + 1;
        true
    }

    /// Forgets the client that has been silent longest and has no open request.
    fn forget_idle(&mut self) -> bool {
        let has_none_open =
            |client: &Client| !client.outcomes.0.iter().any(|(_, outcome)| matches!(outcome, Outcome::Asked));
        let idle = self.clients.iter().filter(|(_, client)| has_none_open(client));
        let Some((&instance, _)) = idle.min_by_key(|(_, client)| client.last) else { return false };
        if let Some(client) = self.clients.remove(&instance) {
            self.bytes -= client.bytes;
        }
        true
    }

    /// Bytes that answers take.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::wire::{Head, Kind};

    const CLIENT: Instance = Instance(7);

    fn answer(len: usize) -> Kept {
        let bytes = vec![0; len];
        Kept::new(Head { items: 1, ..Head::bare(Kind::Answer, 0) }, &Content::from(&bytes[..]))
    }

    fn ask(answers: &mut Answers, client: Instance, number: u64, oldest: u64) -> Verdict {
        answers.asked(client, Partner::default(), (number, oldest))
    }

    #[test]
    fn a_request_is_carried_out_once_however_often_it_comes() {
        let mut answers = Answers::default();
        assert!(matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::New));
        assert!(matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::Repeated));
        assert!(matches!(ask(&mut answers, Instance(8), 1, 1), Verdict::New), "another client's");
        answers.answered(CLIENT, 1, answer(10));
        assert!(answers.client_of(CLIENT, 1).is_none(), "answered");
        assert!(
            matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::Answered(answer) if answer.items().next() == Some(&[0; 10]))
        );
        assert!(matches!(ask(&mut answers, CLIENT, 2, 2), Verdict::New));
        assert_eq!(answers.bytes(), 0, "the client has the first");
        assert!(matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::Forgotten), "an old copy");
    }

    #[test]
    fn answers_are_bounded_and_who_takes_most_loses_first() {
        let mut answers = Answers::default();
        assert!(matches!(ask(&mut answers, Instance(8), 1, 1), Verdict::New));
        answers.answered(Instance(8), 1, answer(1000));
        for number in 1..=40 {
            assert!(matches!(ask(&mut answers, CLIENT, number, 1), Verdict::New));
            answers.answered(CLIENT, number, answer(1 << 20));
            assert!(answers.bytes() <= ANSWERS_BYTES_MAX);
        }
        assert!(matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::Forgotten));
        assert!(matches!(ask(&mut answers, CLIENT, 40, 1), Verdict::Answered(_)));
        assert!(matches!(ask(&mut answers, Instance(8), 1, 1), Verdict::Answered(_)), "others keep theirs");
    }

    #[test]
    fn clients_are_bounded() {
        let mut answers = Answers::default();
        for client in 0..CLIENTS_MAX as u64 {
            assert!(matches!(ask(&mut answers, Instance(client), 1, 1), Verdict::New));
        }
        assert!(
            matches!(ask(&mut answers, Instance(u64::MAX), 1, 1), Verdict::Busy),
            "all have open requests"
        );
        answers.answered(Instance(5), 1, answer(1));
        assert!(matches!(ask(&mut answers, Instance(u64::MAX), 1, 1), Verdict::New));
    }
}
