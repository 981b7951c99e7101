//! Launchers that speak PMIx: `mpirun` of Open MPI, `prterun` of PRRTE, `srun --mpi=pmix`.

use super::{Bootstrap, Joined};
use crate::error::{JobError, Result};
use crate::limits::VALUE_BYTES_MAX;
use cci_sys::SysError;
use cci_sys::pmix::Pmix;
use std::collections::HashSet;
use std::num::NonZeroU8;

struct Server {
    pmix: Pmix,
    /// How many exchanges there were: each has a key of its own.
    exchanges: u64,
    /// Keys that this rank has put.
    puts: HashSet<String>,
}

pub fn join() -> Result<Joined> {
    let pmix = Pmix::init().map_err(failed)?;
    let (rank, size) = (pmix.rank(), pmix.size());
    let server = Server { pmix, exchanges: 0, puts: HashSet::new() };
    Ok(Joined { bootstrap: Box::new(server), rank, size, key: None, ended: None })
}

/// Keys of programs are apart from those of exchanges and of the library.
fn key_of(key: &str) -> String {
    format!("cci.key.{key}")
}

impl Server {
    /// Each value has a byte before it, because servers do not keep empty ones.
    fn put_marked(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.pmix.put(key, &[&[0], value].concat()).map_err(failed)
    }

    fn get_marked(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        let marked = self.pmix.get(rank, key, VALUE_BYTES_MAX + 1).map_err(failed)?;
        Ok(marked.and_then(|marked| marked.split_first().map(|(_, value)| value.to_vec())))
    }
}

impl Bootstrap for Server {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        if !self.puts.insert(key.to_owned()) {
            return Err(JobError::Refused(format!(
                "rank {} has put the key {key:?} already",
                self.pmix.rank()
            )));
        }
        self.put_marked(&key_of(key), value)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        self.get_marked(rank, &key_of(key))
    }

    fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        let key = format!("cci.exchange.{}", self.exchanges);
        self.exchanges += 1;
        self.put_marked(&key, value)?;
        self.pmix.fence().map_err(failed)?;
        (0..self.pmix.size())
            .map(|rank| {
                let missing =
                    || JobError::Launcher(format!("the PMIx server has lost the value of rank {rank}"));
                self.get_marked(rank, &key)?.ok_or_else(missing)
            })
            .collect()
    }

    fn abort(&mut self, code: NonZeroU8, reason: &str) -> Result<()> {
        self.pmix.abort(code.get(), reason).map_err(failed)
    }
}

fn failed(error: SysError) -> JobError {
    JobError::Launcher(format!("the launcher should speak PMIx: {error}"))
}
