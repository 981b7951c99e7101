//! No launcher: a job of one.

use super::{Bootstrap, Joined};
use crate::error::{JobError, Result};
use crate::limits::VALUES_PER_RANK_MAX;
use crate::status::RankStatus;
use std::collections::HashMap;
use std::num::NonZeroU8;

/// The only rank.
#[derive(Default)]
struct Alone {
    values: HashMap<String, Vec<u8>>,
}

pub fn join() -> Joined {
    Joined { bootstrap: Box::new(Alone::default()), rank: 0, size: 1, key: None, ended: None }
}

impl Bootstrap for Alone {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        if self.values.contains_key(key) {
            return Err(JobError::Refused(format!("rank 0 has put the key {key:?} already")));
        }
        if self.values.len() >= VALUES_PER_RANK_MAX {
            return Err(JobError::Refused(format!("a rank puts up to {VALUES_PER_RANK_MAX} keys")));
        }
        self.values.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&mut self, _rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.values.get(key).cloned())
    }

    fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(vec![value.to_owned()])
    }

    fn survive(&mut self) -> Result<()> {
        Ok(())
    }

    fn status(&mut self, _rank: u32) -> Result<RankStatus> {
        Ok(RankStatus::Running)
    }

    fn abort(&mut self, _code: NonZeroU8, _reason: &str) -> Result<()> {
        Ok(())
    }
}
