//! What a service remembers of requests, so that one that is repeated is carried out once.

use crate::content::Kept;
use crate::directory::Instance;
use crate::handles::Partner;
use crate::limits::{ANSWERS_BYTES_MAX, CALLS_MAX, CLIENTS_MAX};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What became of a request.
enum Outcome {
    /// The program has it.
    Asked,
    Answered(Kept),
    /// The client has the answer whose memory is the program's again (true), or can't get it any more (false).
    Returned(bool),
}

struct Client {
    partner: Partner,
    outcomes: BTreeMap<u64, Outcome>,
    /// Answers below have been forgotten although the client might still ask.
    forgotten_below: u64,
    bytes: usize,
    last_ns: u64,
}

/// Requests of all clients of one service.
#[derive(Default)]
pub struct Answers {
    clients: FxHashMap<Instance, Client>,
    bytes: usize,
}

/// What is to be done about a request that came.
pub enum Verdict {
    /// Give it to the program.
    New,
    /// The program has it already.
    Repeated,
    /// Send this again.
    Answered(Kept),
    /// Whether it was carried out is not known any more.
    Forgotten,
    /// Too many wait: the client is to try again.
    Busy,
}

impl Answers {
    /// A request has come.
    //= wire.md R-RIPC-6
    pub fn asked(
        &mut self,
        client: Instance,
        partner: Partner,
        (number, oldest): (u64, u64),
        now_ns: u64,
    ) -> Verdict {
        if !self.clients.contains_key(&client) && self.clients.len() >= CLIENTS_MAX && !self.forget_idle() {
            return Verdict::Busy;
        }
        let known = self.clients.entry(client).or_insert_with(|| Client {
            partner,
            outcomes: BTreeMap::new(),
            forgotten_below: 0,
            bytes: 0,
            last_ns: now_ns,
        });
        (known.partner, known.last_ns) = (partner, now_ns);
        // What is older has been received: nobody will ask again.
        known.forgotten_below = known.forgotten_below.max(oldest);
        while let Some(first) = known.outcomes.first_entry()
            && *first.key() < oldest
        {
            if let Outcome::Answered(answer) = first.remove() {
                known.bytes -= answer.bytes();
                self.bytes -= answer.bytes();
            }
        }
        match known.outcomes.get(&number) {
            Some(Outcome::Asked | Outcome::Returned(true)) => Verdict::Repeated,
            Some(Outcome::Returned(false)) => Verdict::Forgotten,
            Some(Outcome::Answered(answer)) => Verdict::Answered(answer.clone()),
            None if number < known.forgotten_below => Verdict::Forgotten,
            None if known.outcomes.len() >= 2 * CALLS_MAX => Verdict::Busy,
            None => {
                known.outcomes.insert(number, Outcome::Asked);
                Verdict::New
            }
        }
    }

    /// A request that was found new was not taken after all.
    pub fn not_taken(&mut self, client: Instance, number: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.outcomes.remove(&number);
        }
    }

    /// The partner that a request's answer goes to. `None`: it was answered, or its client is gone for long.
    pub fn client_of(&self, client: Instance, number: u64) -> Option<Partner> {
        let client = self.clients.get(&client)?;
        matches!(client.outcomes.get(&number)?, Outcome::Asked).then_some(client.partner)
    }

    /// Keeps an answer.
    pub fn answered(&mut self, client: Instance, number: u64, answer: Kept) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        if !matches!(known.outcomes.get(&number), Some(Outcome::Asked)) {
            return;
        }
        let bytes = answer.bytes();
        known.bytes += bytes;
        self.bytes += bytes;
        known.outcomes.insert(number, Outcome::Answered(answer));
        while self.bytes > ANSWERS_BYTES_MAX && self.forget_largest() {}
    }

    /// The memory of an answer's long items is the program's again: the answer can't be sent any more.
    pub fn returned(&mut self, client: Instance, number: u64, fetched: bool) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        let Some(outcome) = known.outcomes.get_mut(&number) else { return };
        if let Outcome::Answered(answer) = std::mem::replace(outcome, Outcome::Returned(fetched)) {
            known.bytes -= answer.bytes();
            self.bytes -= answer.bytes();
        }
    }

    /// Forgets the oldest answer of the client that takes most: a client that never says what it has costs nobody else.
    fn forget_largest(&mut self) -> bool {
        let Some(client) = self.clients.values_mut().max_by_key(|client| client.bytes) else { return false };
        let oldest = client.outcomes.iter().find(|(_, outcome)| matches!(outcome, Outcome::Answered(_)));
        let Some((&number, _)) = oldest else { return false };
        if let Some(Outcome::Answered(answer)) = client.outcomes.remove(&number) {
            client.bytes -= answer.bytes();
            self.bytes -= answer.bytes();
        }
        client.forgotten_below = number + 1;
        true
    }

    /// Forgets the client that has been silent for longest and has no request open.
    fn forget_idle(&mut self) -> bool {
        let has_none_open =
            |client: &Client| !client.outcomes.values().any(|outcome| matches!(outcome, Outcome::Asked));
        let idle = self.clients.iter().filter(|(_, client)| has_none_open(client));
        let Some((&instance, _)) = idle.min_by_key(|(_, client)| client.last_ns) else { return false };
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
    use crate::wire::{Head, Kind};

    const CLIENT: Instance = Instance(7);

    fn answer(len: usize) -> Kept {
        let mut answer = Kept::bare(Head::bare(Kind::Answer, 0));
        answer.payload = vec![0; len];
        answer
    }

    fn ask(answers: &mut Answers, client: Instance, number: u64, oldest: u64) -> Verdict {
        answers.asked(client, Partner::default(), (number, oldest), number)
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
            matches!(ask(&mut answers, CLIENT, 1, 1), Verdict::Answered(answer) if answer.payload.len() == 10)
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
