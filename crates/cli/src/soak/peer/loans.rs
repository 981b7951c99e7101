//! Loans: messages that are sent from where they were written, and received ones that are kept where their sender wrote them.

use cci::{Connection, Endpoint, MappedMessage, SendError, SendFlags};

/// A peer keeps so many messages of other processes where they lie, on all of its connections. With one more, the one that is due
/// first goes.
const HELD_MAX: usize = 48;

/// One that is kept, and what it said when it came.
struct Held {
    message: MappedMessage,
    bytes: Vec<u8>,
    until_ns: u64,
}

impl Held {
    fn check(&self) -> Result<(), String> {
        if self.message.to_vec() == self.bytes {
            return Ok(());
        }
        Err(format!("a lent message of {} bytes changed while it was kept", self.bytes.len()))
    }
}

/// Received messages that lie in memory of other processes.
#[derive(Default)]
pub struct Loans {
    held: Vec<Held>,
}

impl Loans {
    /// Keeps a message until then, or until there are too many.
    pub fn keep(&mut self, message: MappedMessage, bytes: Vec<u8>, until_ns: u64) -> Result<(), String> {
        self.held.push(Held { message, bytes, until_ns });
        if self.held.len() <= HELD_MAX {
            return Ok(());
        }
        let by_time = self.held.iter().enumerate().min_by_key(|(_, held)| held.until_ns);
        let first = by_time.map_or(0, |(at, _)| at);
        self.held.swap_remove(first).check()
    }

    /// Returns what is due at a time to its senders, or all. It must be as it was when it came, whatever became of them.
    pub fn give_back(&mut self, now_ns: Option<u64>) -> Result<(), String> {
        let is_due = |held: &mut Held| now_ns.is_none_or(|now_ns| now_ns > held.until_ns);
        self.held.extract_if(.., is_due).try_for_each(|held| held.check())
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

/// Writes a message to a loan and sends it. Returns whether it was handed over where it lies: then its completion comes when the
/// receiver has returned it, and not in the order of others.
pub fn send(
    endpoint: &mut Endpoint,
    connection: Connection,
    message: &[u8],
    context: u64,
    flags: SendFlags,
) -> Result<bool, SendError> {
    let mut loan = endpoint.loan(connection, message.len())?;
    let is_mapped = loan.is_mapped();
    loan.copy_from_slice(message);
    // One that is not taken gives its memory back.
    endpoint.send_loan(loan, context, flags).map_err(|refused| refused.error)?;
    Ok(is_mapped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::{Attribute, Context, Event, Options};
    use std::time::{Duration, Instant};

    const LEN: usize = 4096;

    /// Two endpoints, and the connection from the first one.
    fn pair() -> (Endpoint, Endpoint, Connection) {
        let context = Context::from_text("[shm]\ntransport = shm\n", std::path::Path::new("soak")).unwrap();
        let device = context.device("shm").unwrap();
        let mut client = Endpoint::create(device, Options::default()).unwrap();
        let mut server = Endpoint::create(device, Options::default()).unwrap();
        client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
        let (start, mut to) = (Instant::now(), None);
        while to.is_none() || server.counters().connections_open == 0 {
            assert!(start.elapsed() < Duration::from_secs(10));
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => {
                    server.set_loans(result.unwrap(), cci::Loans::Mapped).unwrap();
                }
                _ => {}
            }
            if let Some(Event::Connect { result, .. }) = client.next_event() {
                to = Some(result.unwrap());
            }
        }
        (client, server, to.unwrap())
    }

    /// Sends loans until one is handed over, and receives it.
    fn mapped(client: &mut Endpoint, server: &mut Endpoint, to: Connection) -> MappedMessage {
        let start = Instant::now();
        while !send(client, to, &[7; LEN], 1, SendFlags::SILENT).unwrap() {
            assert!(start.elapsed() < Duration::from_secs(10), "none is handed over");
            while server.next_event().is_some() || client.next_event().is_some() {}
        }
        loop {
            assert!(start.elapsed() < Duration::from_secs(10), "it does not come");
            if let Some(Event::Mapped(message)) = server.next_event() {
                return message;
            }
        }
    }

    #[test]
    fn what_is_kept_goes_when_it_is_due_and_a_change_is_found() {
        let (mut client, mut server, to) = pair();
        let mut loans = Loans::default();
        for until_ns in [10, 20] {
            let message = mapped(&mut client, &mut server, to);
            loans.keep(message, vec![7; LEN], until_ns).unwrap();
        }
        loans.give_back(Some(10)).unwrap();
        assert_eq!(loans.len(), 2);
        loans.give_back(Some(11)).unwrap();
        assert_eq!(loans.len(), 1);
        let message = mapped(&mut client, &mut server, to);
        loans.keep(message, vec![8; LEN], 5).unwrap();
        assert!(loans.give_back(Some(6)).is_err(), "not what it was when it came");
        loans.give_back(None).unwrap();
        assert_eq!(loans.len(), 0);
    }
}
