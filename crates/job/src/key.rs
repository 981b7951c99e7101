//! The secret of a job: whoever has it is a rank.

use crate::error::{JobError, Result};
use crate::limits::JOB_KEY_BYTES;
use std::fmt;

/// A random key that the launcher makes for each job. It is never printed.
#[derive(Clone)]
pub struct JobKey([u8; JOB_KEY_BYTES]);

impl JobKey {
    /// A fresh one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<JobKey> {
        let mut bytes = [0; JOB_KEY_BYTES];
        cci_sys::random::fill(&mut bytes)?;
        Ok(JobKey(bytes))
    }

    /// From the form that [`JobKey::to_hex`] gives.
    ///
    /// # Errors
    /// It is something else.
    pub fn from_hex(text: &str) -> Result<JobKey> {
        let wrong =
            || JobError::Launcher("CCI_JOB_KEY is no key of a job: start the program by its launcher".into());
        let digits = text.as_bytes();
        if digits.len() != 2 * JOB_KEY_BYTES {
            return Err(wrong());
        }
        let mut bytes = [0; JOB_KEY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| pair.get(at).and_then(|&digit| char::from(digit).to_digit(16));
            let (Some(high), Some(low)) = (digit(0), digit(1)) else { return Err(wrong()) };
            *byte = (high << 4 | low) as u8;
        }
        Ok(JobKey(bytes))
    }

    /// For the environment of ranks. It must reach nobody else.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; JOB_KEY_BYTES] {
        &self.0
    }

    /// Takes equally long wherever the two differ.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        other.len() == JOB_KEY_BYTES && self.0.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JobKey")
    }
}

#[cfg(test)]
mod tests {
    use super::JobKey;

    #[test]
    fn survives_the_environment_and_is_not_printed() {
        let key = JobKey::random().unwrap();
        let hex = key.to_hex();
        assert!(JobKey::from_hex(&hex).unwrap().is(key.bytes()));
        assert!(!key.is(JobKey::random().unwrap().bytes()) && !key.is(&key.bytes()[1..]));
        assert_eq!(format!("{key:?}"), "JobKey");
        for wrong in ["", "00", &hex[1..], &format!("{}x", &hex[1..]), &"é".repeat(32)] {
            assert!(JobKey::from_hex(wrong).is_err(), "{wrong}");
        }
    }
}
