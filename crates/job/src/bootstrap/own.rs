//! The launcher `cci run`.

use super::{Bootstrap, Joined, number, variable};
use crate::ended::Ended;
use crate::error::{JobError, Result};
use crate::key::JobKey;
use crate::status::RankStatus;
use crate::wire::{FromLauncher, FromRank, Say, VERSION};
use rustix::net::sockopt::socket_peercred;
use std::io::{self, BufReader};
use std::num::NonZeroU8;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

struct Launcher {
    stream: BufReader<UnixStream>,
}

pub fn join(name: &str) -> Result<Joined> {
    let rank = number("CCI_JOB_RANK")?;
    let hex = variable("CCI_JOB_KEY")?
        .ok_or_else(|| JobError::Launcher("the launcher has not set CCI_JOB_KEY".into()))?;
    let key = JobKey::from_hex(&hex)?;
    let stream = SocketAddr::from_abstract_name(name)
        .and_then(|address| UnixStream::connect_addr(&address))
        .map_err(|error| {
            JobError::Launcher(format!(
                "`cci run` should listen at CCI_JOB_SOCKET={name}, and does not: {error}"
            ))
        })?;
    let peer = socket_peercred(&stream).map_err(|error| failed(error.into()))?;
    if peer.uid.as_raw() != cci_sys::process::uid() {
        // Before the key goes there.
        return Err(JobError::Refused("another user listens where the launcher should".into()));
    }
    let mut launcher = Launcher { stream: BufReader::new(stream) };
    let hello = FromRank::Hello { version: VERSION.into(), key: *key.bytes(), rank };
    let FromLauncher::Welcome { size, ended } = launcher.ask(&hello)? else { return Err(nonsense()) };
    if rank >= size {
        return Err(nonsense());
    }
    let ended = ended.and_then(|place| Ended::open(&place, size));
    Ok(Joined { bootstrap: Box::new(launcher), rank, size, key: Some(key), ended })
}

impl Launcher {
    fn ask(&mut self, what: &FromRank) -> Result<FromLauncher> {
        what.write(self.stream.get_mut()).map_err(failed)?;
        match FromLauncher::read(&mut self.stream).map_err(failed)? {
            FromLauncher::Failed { reason } => Err(JobError::Refused(reason)),
            FromLauncher::Gone { rank } => Err(JobError::Gone { rank }),
            answer => Ok(answer),
        }
    }
}

impl Bootstrap for Launcher {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        match self.ask(&FromRank::Put { key: key.to_owned(), value: value.to_owned() })? {
            FromLauncher::Done => Ok(()),
            _ => Err(nonsense()),
        }
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        match self.ask(&FromRank::Get { rank, key: key.to_owned() })? {
            FromLauncher::Value { value } => Ok(value),
            _ => Err(nonsense()),
        }
    }

    fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        match self.ask(&FromRank::Exchange { value: value.to_owned() })? {
            FromLauncher::Exchanged { values } => Ok(values),
            _ => Err(nonsense()),
        }
    }

    fn abort(&mut self, code: NonZeroU8, reason: &str) -> Result<()> {
        FromRank::Abort { code, reason: reason.to_owned() }.write(self.stream.get_mut()).map_err(failed)
    }

    fn survive(&mut self) -> Result<()> {
        match self.ask(&FromRank::Survive)? {
            FromLauncher::Done => Ok(()),
            _ => Err(nonsense()),
        }
    }

    fn status(&mut self, rank: u32) -> Result<RankStatus> {
        match self.ask(&FromRank::Status { rank })? {
            FromLauncher::Status { status } => Ok(status),
            _ => Err(nonsense()),
        }
    }
}

fn nonsense() -> JobError {
    JobError::Launcher("the launcher answers something else than what was asked".into())
}

fn failed(error: io::Error) -> JobError {
    match error.kind() {
        io::ErrorKind::InvalidData => nonsense(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            JobError::Launcher("the launcher has closed the connection: it has ended, or was killed".into())
        }
        _ => JobError::System { what: "talking to the launcher", error },
    }
}
