//! Starts processes as the ranks of a job.
#![allow(clippy::unwrap_used, reason = "a test that can't start fails")]

use cci_job::coordinator::Coordinator;
use cci_job::server::RankServer;
use cci_job::{FromHost, JobKey, RankStatus, ToHost};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A job ends within seconds, and on a busy machine within minutes. What takes longer is lost.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Starts `size` processes as the ranks of a job, as `cci run` does, and waits for them.
pub fn launch(size: u32, command: impl Fn() -> Command) -> Vec<Output> {
    let key = JobKey::random().unwrap();
    let server: Arc<OnceLock<Arc<RankServer>>> = Arc::default();
    let answering = server.clone();
    let answer = move |said: ToHost| {
        if let Some(server) = answering.get() {
            server.answer(&said);
        }
    };
    let coordinator = Arc::new(Coordinator::new(vec![(size, Box::new(answer))], |_| {}));
    let asked = coordinator.clone();
    let made = RankServer::listen(0..size, size, key.clone(), move |said: FromHost| asked.received(said));
    let made = server.get_or_init(|| Arc::new(made.unwrap())).clone();
    let start = |rank: u32| {
        let mut command = command();
        command.env("CCI_JOB_SOCKET", made.socket_name()).env("CCI_JOB_RANK", rank.to_string());
        command.env("CCI_JOB_KEY", key.to_hex()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut ranks: Vec<Child> = (0..size).map(start).collect();
    let begun = Instant::now();
    let mut running: Vec<bool> = vec![true; size as usize];
    loop {
        for ((rank, child), runs) in (0..).zip(&mut ranks).zip(&mut running).filter(|(_, runs)| **runs) {
            if let Some(status) = child.try_wait().unwrap() {
                *runs = false;
                let code = status.code().map(|code| RankStatus::Exited(code as u8));
                coordinator.rank_ended(rank, code.unwrap_or(RankStatus::Killed(9)));
            }
        }
        if !running.contains(&true) {
            break;
        }
        if begun.elapsed() > PATIENCE {
            ranks.iter_mut().for_each(|rank| drop(rank.kill()));
            let said = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
            panic!("the job does not end: {:?}", said.collect::<Vec<_>>());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
}
