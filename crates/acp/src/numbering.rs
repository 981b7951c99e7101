//! The numbers of ranks. `acp_reset` gives processes other numbers than the job.

use crate::error::{AcpError, Result};

/// Numbers of ranks. Nothing is stored while each rank has the number that its launcher gave it.
#[derive(Default)]
pub(crate) struct Numbering {
    /// The rank of the job of each number, and the reverse. Both are empty while they are equal.
    job_ranks: Vec<u32>,
    numbers: Vec<u32>,
}

impl Numbering {
    /// Makes a numbering of the number that each rank of the job takes.
    pub fn new(numbers: Vec<u32>) -> Result<Numbering> {
        const WRONG: AcpError = AcpError::Argument(
            "a reset needs a number below the number of ranks from each rank, and no two may give the same",
        );
        let mut job_ranks = vec![u32::MAX; numbers.len()];
        for (job_rank, &number) in (0..).zip(&numbers) {
            match job_ranks.get_mut(number as usize) {
                Some(free @ &mut u32::MAX) => *free = job_rank,
                _ => return Err(WRONG),
            }
        }
        let is_plain = job_ranks == numbers && numbers.is_sorted();
        Ok(if is_plain { Numbering::default() } else { Numbering { job_ranks, numbers } })
    }

    /// The rank of the job that has a number.
    pub fn job_rank(&self, number: u32) -> u32 {
        self.job_ranks.get(number as usize).copied().unwrap_or(number)
    }

    /// The number of a rank of the job.
    pub fn number(&self, job_rank: u32) -> u32 {
        self.numbers.get(job_rank as usize).copied().unwrap_or(job_rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_taken_once() {
        let turned = Numbering::new(vec![1, 2, 0]).unwrap();
        assert_eq!([0, 1, 2].map(|number| turned.job_rank(number)), [2, 0, 1]);
        assert_eq!([0, 1, 2].map(|job_rank| turned.number(job_rank)), [1, 2, 0]);
        let plain = Numbering::new(vec![0, 1, 2]).unwrap();
        assert!(plain.numbers.is_empty());
        assert_eq!((plain.job_rank(2), plain.number(1)), (2, 1));
        let swapped = Numbering::new(vec![1, 0]).unwrap();
        assert_eq!((swapped.job_rank(0), swapped.number(0)), (1, 1));
        for wrong in [vec![0, 0], vec![1, 2], vec![u32::MAX, 0]] {
            assert!(Numbering::new(wrong).is_err());
        }
    }
}
