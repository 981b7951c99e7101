//! Memory that a client may read, write and change: one region for each client, and a bound for all of them.

use crate::memory;
use crate::protocol::{Answer, LENT_BYTES_MAX, Lent};
use cci::{Access, Connection, Endpoint, Foreign, Memory, RegionHandle, Registration};

/// All clients together get no more.
const ALL_BYTES_MAX: u64 = 4 * LENT_BYTES_MAX;

/// What one client has.
#[derive(Default)]
pub struct Lending {
    lent: Option<(Memory, RegionHandle)>,
    /// The client works on it: poll.
    pub wants_polling: bool,
}

/// What a client asks for.
pub struct Wanted {
    /// Bytes; 0 gives back what it has.
    pub len_bytes: u64,
    /// Of the heap.
    pub foreign: bool,
    /// The connection that may reach it.
    pub only: Option<Connection>,
    /// Whether the client gets its address in this process.
    pub with_address: bool,
}

impl Lending {
    /// Bytes lent.
    pub fn len_bytes(&self) -> u64 {
        self.lent.as_ref().map_or(0, |(memory, _)| memory.len() as u64)
    }

    /// Takes back what was lent before, and lends anew. `all_bytes` are lent now, to this client and others.
    pub fn lend(&mut self, endpoint: &mut Endpoint, wanted: &Wanted, all_bytes: u64) -> Answer {
        let others_bytes = all_bytes.saturating_sub(self.len_bytes());
        self.take_back(endpoint);
        if wanted.len_bytes == 0 {
            return Answer::Ready;
        }
        if wanted.len_bytes > LENT_BYTES_MAX {
            return Answer::Refused(format!("a client gets {LENT_BYTES_MAX} bytes of memory at most"));
        }
        if others_bytes + wanted.len_bytes > ALL_BYTES_MAX {
            return Answer::Refused("its memory is lent to other clients; try again later".to_owned());
        }
        match register(endpoint, wanted) {
            Ok((memory, handle)) => {
                let own = wanted.with_address.then(|| (std::process::id(), memory.as_ptr() as u64));
                self.lent = Some((memory, handle));
                Answer::Memory(Lent { handle: handle.to_bytes(), own })
            }
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    /// Fills the first `len` bytes.
    pub fn fill(&self, seed: u64, len: u64) -> Answer {
        match &self.lent {
            Some((memory, _)) => {
                memory::fill(memory, seed, usize::try_from(len).unwrap_or(usize::MAX));
                Answer::Ready
            }
            None => no_memory(),
        }
    }

    /// Compares the first `len` bytes.
    pub fn check(&self, seed: u64, len: u64) -> Answer {
        let Some((memory, _)) = &self.lent else { return no_memory() };
        match memory::check(memory, seed, usize::try_from(len).unwrap_or(usize::MAX)) {
            Ok(()) => Answer::Ready,
            Err(reason) => Answer::Differs(reason),
        }
    }

    /// The client is gone.
    pub fn end(&mut self, endpoint: &mut Endpoint) {
        self.take_back(endpoint);
        self.wants_polling = false;
    }

    fn take_back(&mut self, endpoint: &mut Endpoint) {
        if let Some((_, handle)) = self.lent.take() {
            // It is one of ours: this can't fail.
            let _ = endpoint.deregister(&handle);
        }
    }
}

fn register(endpoint: &mut Endpoint, wanted: &Wanted) -> Result<(Memory, RegionHandle), cci::RegisterError> {
    // Bounded by `LENT_BYTES_MAX`.
    let len = wanted.len_bytes as usize;
    let memory = if wanted.foreign {
        Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
    } else {
        endpoint.allocate(len)?
    };
    let what = Registration { range: None, access: Access::ALL, only: wanted.only };
    let handle = endpoint.register(&memory, what)?;
    Ok((memory, handle))
}

fn no_memory() -> Answer {
    Answer::Confused("no memory was asked for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::{Context, Options};

    #[test]
    fn clients_get_bounded_memory_and_give_it_back() {
        let context = Context::new().unwrap();
        let mut endpoint = Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap();
        let mut clients: Vec<Lending> = Vec::new();
        let wanted = |len_bytes, foreign| Wanted { len_bytes, foreign, only: None, with_address: false };
        let mut lend = |clients: &mut Vec<Lending>, index: usize, wanted: &Wanted| {
            let all = clients.iter().map(Lending::len_bytes).sum();
            let answer = clients[index].lend(&mut endpoint, wanted, all);
            (answer, endpoint.counters().regions)
        };
        for index in 0..4 {
            clients.push(Lending::default());
            let (answer, regions) = lend(&mut clients, index, &wanted(LENT_BYTES_MAX, index % 2 == 1));
            assert!(matches!(answer, Answer::Memory(Lent { own: None, .. })), "{answer:?}");
            assert_eq!(regions, index as u64 + 1);
        }
        clients.push(Lending::default());
        let (more, _) = lend(&mut clients, 4, &wanted(1, false));
        let (too_long, _) = lend(&mut clients, 4, &wanted(LENT_BYTES_MAX + 1, false));
        assert!(matches!((more, too_long), (Answer::Refused(_), Answer::Refused(_))));
        assert!(matches!(clients[4].fill(1, 8), Answer::Confused(_)));
        // One that asks again gives back first; one that is done leaves room.
        let (again, regions) = lend(&mut clients, 0, &wanted(LENT_BYTES_MAX, true));
        assert!(matches!((again, regions), (Answer::Memory(_), 4)));
        assert!(matches!(clients[0].fill(9, u64::MAX), Answer::Ready));
        assert!(matches!(clients[0].check(9, LENT_BYTES_MAX), Answer::Ready));
        assert!(matches!(clients[0].check(8, 8), Answer::Differs(_)));
        assert!(matches!(lend(&mut clients, 1, &wanted(0, false)), (Answer::Ready, 3)));
        assert!(matches!(lend(&mut clients, 4, &wanted(1, false)), (Answer::Memory(_), 4)));
    }
}
