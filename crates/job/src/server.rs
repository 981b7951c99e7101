//! The launcher's side on each host: takes its ranks in, and carries what they ask and are answered.

use crate::ended::EndedTable;
use crate::error::{JobError, Result};
use crate::key::JobKey;
use crate::relayed::{FromHost, News, ToHost};
use crate::wire::{FromLauncher, FromRank, Say, VERSION};
use rustix::net::sockopt::socket_peercred;
use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Who connects says at once who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// A rank that asks reads the answer.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
const RANK_STACK_BYTES: usize = 128 * 1024;

/// Takes in the ranks of one host. For launchers, until their process ends: it has a thread that listens, and one for each
/// rank that has joined.
pub struct RankServer {
    shared: Arc<Shared>,
    name: String,
}

struct Shared {
    ranks: Range<u32>,
    size: u32,
    key: JobKey,
    /// Where answers go; none before that rank has joined.
    answers: Vec<OnceLock<UnixStream>>,
    /// Where ranks look who has ended. None: the system has no memory for it, and they go by their connections.
    ended: Option<EndedTable>,
    to_coordinator: Box<dyn Fn(FromHost) + Send + Sync>,
}

impl RankServer {
    /// Listens for these ranks of a job of `size` with that key. `to_coordinator` is called on threads of the server; it
    /// carries what ranks say to [`crate::coordinator::Coordinator::received`].
    ///
    /// # Errors
    /// The system refuses the socket or the thread.
    pub fn listen(
        ranks: Range<u32>,
        size: u32,
        key: JobKey,
        to_coordinator: impl Fn(FromHost) + Send + Sync + 'static,
    ) -> Result<RankServer> {
        let name = format!("cci-job-{:016x}", cci_sys::random::u64()?);
        let listener = SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(JobError::system("a socket for the ranks"))?;
        let answers = ranks.clone().map(|_| OnceLock::new()).collect();
        let ended = EndedTable::create(size).ok();
        let to_coordinator = Box::new(to_coordinator);
        let shared = Arc::new(Shared { ranks, size, key, answers, ended, to_coordinator });
        let serving = shared.clone();
        thread::Builder::new()
            .spawn(move || serving.accept_all(&listener))
            .map_err(JobError::system("a thread for the ranks"))?;
        Ok(RankServer { shared, name })
    }

    /// The name of its socket, for `CCI_JOB_SOCKET` in the environment of ranks.
    pub fn socket_name(&self) -> &str {
        &self.name
    }

    /// Gives ranks what the coordinator says to them, or lets them see it. Calls come one after the other.
    pub fn answer(&self, said: &ToHost) {
        let Shared { ranks, ended, .. } = &*self.shared;
        match said {
            ToHost::Answer { rank: Some(rank), answer } => self.shared.write(*rank, &answer.encode()),
            ToHost::Answer { rank: None, answer } => {
                let frame = answer.encode();
                ranks.clone().for_each(|rank| self.shared.write(rank, &frame));
            }
            ToHost::Ended { rank, has_died } => {
                if let Some(ended) = ended {
                    ended.enter(*rank, *has_died);
                }
            }
        }
    }
}

impl Shared {
    fn accept_all(self: Arc<Self>, listener: &UnixListener) {
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // No descriptor is left: a rank that ends gives some back.
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let serving = self.clone();
            // The stack of a rank's thread holds no frame: frames are on the heap.
            // Where there is none, the rank sees that its socket was closed.
            drop(thread::Builder::new().stack_size(RANK_STACK_BYTES).spawn(move || serving.serve(stream)));
        }
    }

    fn serve(&self, stream: UnixStream) {
        // The kernel's word: only the same user gets as far as the key.
        if socket_peercred(&stream).ok().map(|peer| peer.uid.as_raw()) != Some(cci_sys::process::uid()) {
            return;
        }
        let limited = stream
            .set_read_timeout(Some(HELLO_LIMIT))
            .and_then(|()| stream.set_write_timeout(Some(WRITE_LIMIT)));
        let (Ok(()), Ok(answers)) = (limited, stream.try_clone()) else { return };
        let mut from = BufReader::new(stream);
        let Ok(hello) = FromRank::read(&mut from) else { return };
        let rank = match self.admit(hello, answers) {
            Ok(rank) => rank,
            Err(reason) => {
                // One that does not wait for its answer needs none.
                let _ = FromLauncher::Failed { reason }.write(from.get_mut());
                return;
            }
        };
        self.say(rank, News::Joined);
        let ended = self.ended.as_ref().map(EndedTable::place);
        let welcome = FromLauncher::Welcome { size: self.size, ended };
        if welcome.write(from.get_mut()).is_ok() && from.get_ref().set_read_timeout(None).is_ok() {
            while let Ok(asked) = FromRank::read(&mut from) {
                if matches!(asked, FromRank::Hello { .. }) {
                    break;
                }
                self.say(rank, News::Asks(asked));
            }
        }
        let _ = from.get_ref().shutdown(Shutdown::Both);
        self.say(rank, News::Left);
    }

    fn admit(&self, hello: FromRank, answers: UnixStream) -> Result<u32, String> {
        let FromRank::Hello { version, key, rank } = hello else {
            return Err("the first frame of a rank says who it is".into());
        };
        if version != VERSION {
            return Err(format!(
                "the program has CCI {version}, and its launcher CCI {VERSION}: build both with one"
            ));
        }
        if !self.key.is(&key) {
            return Err("CCI_JOB_KEY is not the key of this job".into());
        }
        if rank >= self.size {
            return Err(format!("there is no rank {rank} in a job of {}", self.size));
        }
        let place = self.place(rank).ok_or_else(|| format!("rank {rank} belongs to another host"))?;
        place.set(answers).map_err(|_| format!("rank {rank} has joined already: a rank joins once"))?;
        Ok(rank)
    }

    fn place(&self, rank: u32) -> Option<&OnceLock<UnixStream>> {
        self.answers.get(rank.checked_sub(self.ranks.start)? as usize)
    }

    fn write(&self, rank: u32, frame: &[u8]) {
        let Some(mut stream) = self.place(rank).and_then(OnceLock::get) else { return };
        if stream.write_all(frame).is_err() {
            // It has ended, or reads nothing: its own thread sees that, and says so.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn say(&self, rank: u32, what: News) {
        (self.to_coordinator)(FromHost { rank, what });
    }
}
