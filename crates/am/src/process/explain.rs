//! The state between this process and a rank, to explain why nothing comes or why nothing can be sent.

use super::Process;
use super::link::Reach;
use crate::error::Result;
use crate::wire::{ContextName, Header};
use std::fmt;

/// The state between this process and a rank, as seen here. `Display` writes it in lines for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RankExplanation {
    /// The rank.
    pub rank: u32,
    /// Why nothing comes from the rank any more, if it is gone.
    pub gone: Option<String>,
    /// The endpoint's explanation of the connection, if one is open.
    pub connection: Option<cci::Explanation>,
    /// Credits for messages to the rank: free ones, and all.
    pub credits: (u32, u32),
    /// How many of the free credits are reserved for handlers.
    pub credits_for_handlers: u32,
    /// Credits of the rank that were not given back yet. They travel with the next message, or when there are many.
    pub credits_owed: u32,
    /// Records that wait to be sent to the rank.
    pub records_unsent: usize,
    /// Records of the rank that wait here, since the first one has no handler yet.
    pub records_held: usize,
    /// The handler that the first one waits for.
    pub waits_for: Option<WaitsFor>,
    /// Whether a handler of a message of the rank runs now. Nothing else is handled until it returns.
    pub is_handling: bool,
    /// Whether something has come, from any rank, and was not handled yet, because the program does not poll, or handlers are not
    /// run.
    pub has_due: bool,
    /// Operations on the rank's memory that have not ended.
    pub operations: u64,
}

/// A handler that was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitsFor {
    /// The name of its context, or the context's number among those without a name.
    pub context: Result<String, u32>,
    /// Whether this process has made that context.
    pub has_context: bool,
    /// The handler's number in the context.
    pub handler: u16,
}

impl Process {
    /// Explains the state between this process and a rank: the credits, and what waits for what. It changes nothing.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn explain(&mut self, rank: u32) -> Result<RankExplanation> {
        self.check_rank(rank)?;
        let (has_due, operations) = (self.has_due(), self.memory.under_way(Some(rank)));
        let (all, for_handlers) = self.links.credits();
        let link = self.links.link(rank);
        let (gone, connection) = match &link.reach {
            Reach::Gone(why) => (Some(why.clone()), None),
            Reach::Open(connection) => (None, Some(*connection)),
            Reach::Unused | Reach::Connecting | Reach::Own => (None, None),
        };
        let first = link.held.front().and_then(|record| Header::decode(record.bytes()));
        let named = first.and_then(|header| {
            let (name, _) = link.context(header.context).ok()?;
            Some((name.clone(), header.handler))
        });
        let waits_for = named.map(|(name, handler)| WaitsFor {
            has_context: self.dispatcher.contexts.by_name(&name).is_some(),
            context: match name {
                ContextName::Named(name) => Ok(name),
                ContextName::Unnamed(number) => Err(number),
            },
            handler,
        });
        Ok(RankExplanation {
            rank,
            gone,
            credits: (link.credits, all),
            credits_for_handlers: for_handlers,
            credits_owed: link.owed,
            records_unsent: link.outbox.len(),
            records_held: link.held.len(),
            waits_for,
            is_handling: self.dispatcher.handles(rank),
            has_due,
            operations,
            connection: connection.and_then(|connection| self.links.endpoint().explain(connection)),
        })
    }
}

impl fmt::Display for RankExplanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, all) = self.credits;
        match (&self.gone, &self.connection) {
            (Some(why), _) => writeln!(out, "rank {} is gone: {why}", self.rank)?,
            (None, Some(_)) => writeln!(out, "rank {} is connected", self.rank)?,
            (None, None) => writeln!(out, "no connection with rank {}", self.rank)?,
        }
        writeln!(out, "  credits for messages to it: {free} of {all} are free")?;
        if free <= self.credits_for_handlers {
            writeln!(
                out,
                "  the program's messages wait: the last {} credits are for handlers. The others come back when the messages were handled there: does it poll, and has it all handlers?",
                self.credits_for_handlers
            )?;
        }
        if self.credits_owed > 0 {
            writeln!(out, "  credits of its to be given back: {}", self.credits_owed)?;
        }
        if self.records_unsent > 0 {
            writeln!(out, "  records that wait for space on their way to it: {}", self.records_unsent)?;
        }
        if let Some(waits_for) = &self.waits_for {
            writeln!(
                out,
                "  records of its that wait here: {}, the first one for {waits_for}",
                self.records_held
            )?;
        }
        if self.is_handling {
            writeln!(out, "  a handler of a message of its runs, and has not returned")?;
        } else if self.has_due {
            writeln!(
                out,
                "  something has come and was not handled: this process does not poll, or holds handlers back"
            )?;
        }
        if self.operations > 0 {
            writeln!(out, "  operations on its memory that have not ended: {}", self.operations)?;
        }
        self.connection.as_ref().map_or(Ok(()), |connection| write!(out, "{connection}"))
    }
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "handler {} of ", self.handler)?;
        match &self.context {
            Ok(name) => write!(out, "the context {name:?}")?,
            Err(number) => write!(out, "context {number} of those without a name")?,
        }
        out.write_str(if self.has_context {
            ", which is not registered"
        } else {
            ", which this process has not made"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{poll_all, runtimes, turn};
    use crate::AmError;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_handler_that_never_comes_is_named_and_so_are_credits_that_are_out() {
        for device in ["shm", "udp-lo"] {
            let mut all = runtimes(device, 2);
            assert!(all[0].explain(2).is_err());
            let text = all[0].explain(1).unwrap().to_string();
            assert!(
                text.contains("no connection with rank 1") && text.contains("256 of 256 are free"),
                "{text}"
            );
            let library = all[0].named_context("library").unwrap();
            let mut sent = 0;
            while !matches!(all[0].try_request(library, 1, 7, &[], b"for nobody"), Err(AmError::WouldBlock)) {
                sent += 1;
            }
            turn(&mut all, |all| all[1].explain(0).unwrap().records_held == sent);
            let text = all[0].explain(1).unwrap().to_string();
            let expected =
                ["rank 1 is connected", "64 of 256 are free", "the last 64 credits are for handlers"];
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
            let text = all[1].explain(0).unwrap().to_string();
            let waits = "wait here: 192, the first one for handler 7 of the context \"library\", which this process has not made";
            assert!(text.contains(waits), "{text}");

            let library = all[1].named_context("library").unwrap();
            poll_all(&mut all);
            let text = all[1].explain(0).unwrap().to_string();
            assert!(text.contains("the context \"library\", which is not registered"), "{text}");
            let (handled, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let (count, is_running) = (handled.clone(), seen.clone());
            let take = move |runtime: &mut crate::Runtime, message: &crate::Message<'_>| {
                count.set(count.get() + 1);
                is_running.set(runtime.explain(message.sender()).unwrap().is_handling);
            };
            all[1].register(library, 7, take).unwrap();
            turn(&mut all, |_| handled.get() == sent);
            let explanation = all[1].explain(0).unwrap();
            assert!(seen.get() && explanation.waits_for.is_none() && !explanation.is_handling);
        }
    }

    #[test]
    fn a_context_without_a_name_is_known_by_its_number() {
        let mut all = runtimes("shm", 2);
        let _ = all[0].context().unwrap();
        let second = all[0].context().unwrap();
        let _ = all[1].context().unwrap();
        all[0].request(second, 1, 3, &[], &[]).unwrap();
        turn(&mut all, |all| all[1].explain(0).unwrap().records_held == 1);
        let text = all[1].explain(0).unwrap().to_string();
        assert!(
            text.contains("handler 3 of context 1 of those without a name, which this process"),
            "{text}"
        );
    }
}
