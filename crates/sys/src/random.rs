//! Randomness from the kernel, good enough for nonces and keys.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Result, SysError, Tried};

/// Fills `out` with random bytes. Fails only where the kernel has no `getrandom` or a filter forbids it.
pub fn fill(out: &mut [u8]) -> Result<()> {
    #[cfg(feature = "simulated")]
    if crate::simulated::is_entered() {
        for (byte, random) in out.iter_mut().zip(std::iter::from_fn(crate::simulated::random)) {
            *byte = random as u8;
        }
        return Ok(());
    }
    let mut filled_bytes = 0;
    while let Some(remainder) = out.get_mut(filled_bytes..).filter(|remainder| !remainder.is_empty()) {
        match getrandom(remainder, GetRandomFlags::empty()) {
            Ok(0) => return Err(SysError::refused("random bytes (getrandom)", "none came")),
            Ok(len) => filled_bytes += len,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).tried("random bytes (getrandom)"),
        }
    }
    Ok(())
}

/// 64 random bits.
pub fn u64() -> Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differs_each_time() {
        assert_ne!(u64().unwrap(), u64().unwrap());
        let mut long = vec![0; 100_000];
        fill(&mut long).unwrap();
        assert!(long.iter().filter(|&&byte| byte == 0).count() < 1_000);
        fill(&mut []).unwrap();
    }
}
