//! Jobs by the real launcher: `cci run` starts this test program again, as ranks.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod common;

use cci::{Context, Event, Options, SendFlags};
use cci_job::{Job, JobError, Peer, RankEvent, RankStatus, Ranks};
use common::slurm;
use common::ssh::Hosts;
use common::*;
use rustix::process::{Signal, getpid, kill_process};
use std::env;
use std::process::{Command, Output, Stdio, exit};
use std::time::{Duration, Instant};

/// What a rank shall do; not set in the tests themselves.
const ROLE: &str = "CCI_TEST_ROLE";
/// How many rounds of the long tests.
const ROUNDS: &str = "CCI_LAUNCHER_ROUNDS";
/// PRRTE asks for it.
const AS_ROOT: [(&str, &str); 2] = [("PRTE_ALLOW_RUN_AS_ROOT", "1"), ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
/// On how many hosts ranks run, where it is more than one.
const HOSTS: &str = "CCI_TEST_HOSTS";
/// What takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(50);

fn launch(ranks: &str, role: &str, variables: &[(&str, &str)]) -> Output {
    // Longer than anything here takes.
    launch_within("60s", ranks, role, variables)
}

fn launch_within(timeout: &str, ranks: &str, role: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(["run", "-n", ranks, "--timeout", timeout, "env"]);
    command.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
    command.arg(env::current_exe().unwrap()).args(["--exact", "as_a_rank", "--nocapture"]);
    command.env(ROLE, role).stdin(Stdio::null()).output().unwrap()
}

/// Not a test where no launcher has started it: what ranks do.
#[test]
fn as_a_rank() {
    let Ok(role) = env::var(ROLE) else { return };
    match role.as_str() {
        "everything" => everything(),
        "all to all" => all_to_all(),
        "ends by itself" => ends_by_itself(),
        "exchanges" => {
            let meet = || {
                let mut job = Job::join()?;
                (0..200).try_for_each(|_| job.barrier())
            };
            match meet() {
                Ok(()) => {}
                Err(JobError::Gone { rank: 2 }) => exit(4),
                Err(error) => fail(&error),
            }
        }
        "barriers" => match barriers(200) {
            Ok(()) => {}
            Err(JobError::Gone { rank: 2 }) => exit(4),
            Err(error) => fail(&error),
        },
        "puts too much" => {
            let mut job = Job::join().unwrap();
            for number in 0..64 {
                job.put(&format!("key {number}"), &[number]).unwrap();
            }
            assert!(
                matches!(job.put("one more", b""), Err(JobError::Refused(why)) if why.contains("64 keys"))
            );
            job.barrier().unwrap();
            for number in 0..64 {
                let value = job.get(job.size() - 1, &format!("key {number}")).unwrap();
                assert_eq!(value, Some(vec![number]));
            }
            assert_eq!(job.get(0, "one more").unwrap(), None);
            job.barrier().unwrap();
        }
        "waits" => waits(),
        "survives" => survives(None),
        "survives a death" => survives(Some(100)),
        "some survive" => {
            let mut job = Job::join().unwrap();
            if job.rank() != 3 {
                job.survive().unwrap();
            }
            job.barrier().unwrap();
            if job.rank() == 2 {
                exit(9);
            }
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        "ask who died" => ask_who_died(),
        "loses one" => loses_one(),
        "dies" => {
            let mut job = Job::join().unwrap();
            if job.rank() == 1 {
                exit(9);
            }
            assert!(job.barrier().is_err());
        }
        "leaves" => {
            let mut job = Job::join().unwrap();
            if job.rank() != 1 {
                assert!(matches!(job.barrier(), Err(JobError::Gone { rank: 1 })));
            }
        }
        "never joins" => {
            if env::var("CCI_JOB_RANK").unwrap() != "1" {
                assert!(matches!(Job::join(), Err(JobError::Gone { rank: 1 })));
            }
        }
        "is late" => {
            let mut job = Job::join().unwrap();
            if job.rank() % 2 == 1 {
                std::thread::sleep(std::time::Duration::from_secs(600));
            }
            let _ = job.barrier();
        }
        "aborts" => {
            let mut job = Job::join().unwrap();
            if job.rank() == 2 {
                assert!(matches!(job.abort(0, "no failure"), Err(JobError::Argument(_))));
                job.abort(42, "the input\nmakes no sense").unwrap();
            }
            let _ = job.barrier();
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        "joins" => drop(Job::join().inspect_err(fail).unwrap()),
        "joins twice" => {
            let _job = Job::join().unwrap();
            fail(&Job::join().err().unwrap());
        }
        other => panic!("no such role: {other}"),
    }
}

fn fail(error: &JobError) {
    eprintln!("{error}");
    exit(3);
}

fn everything() {
    let mut job = Job::join().unwrap();
    let (rank, size) = (job.rank(), job.size());
    // As many on each host.
    let local_size = size / env::var(HOSTS).map_or(1, |hosts| hosts.parse().unwrap());
    let place = (job.host(), job.local_rank(), job.local_size());
    assert_eq!(place, (rank / local_size, rank % local_size, local_size));
    for round in 0..50_u32 {
        // Of different lengths, up to the longest.
        let value = |rank: u32| vec![rank as u8; ((rank + round) * 97 % 4097) as usize];
        let values = job.exchange(&value(rank)).unwrap();
        assert_eq!(values, (0..size).map(value).collect::<Vec<_>>());
        job.barrier().unwrap();
    }
    job.put("name", &rank.to_le_bytes()).unwrap();
    assert!(matches!(job.put("name", b"again"), Err(JobError::Refused(_))));
    job.barrier().unwrap();
    for other in 0..size {
        assert_eq!(job.get(other, "name").unwrap().unwrap(), other.to_le_bytes());
    }
    assert_eq!(job.get(0, "another").unwrap(), None);
    let too_long = "k".repeat(65);
    let wrong = [
        job.get(size, "name").err(),
        job.get(0, "").err(),
        job.put(&too_long, b"").err(),
        job.put("long", &[0; 4097]).err(),
        job.exchange(&[0; 4097]).err(),
    ];
    assert!(wrong.iter().all(|error| matches!(error, Some(JobError::Argument(_)))), "{wrong:?}");
    job.barrier().unwrap();
}

/// An endpoint of the job on `any`, connected with all ranks, from each of which a message has come.
fn connected(job: &mut Job) -> Ranks {
    let context = Context::new().unwrap();
    let mut ranks = Ranks::open(job, context.device("any").unwrap(), Options::default()).unwrap();
    for rank in 0..job.size() {
        ranks.connect(Peer::of(rank), PATIENCE).unwrap();
    }
    let (mut open, mut received) = (0, 0);
    while open < job.size() || received < job.size() {
        match ranks.wait(Some(PATIENCE)).unwrap().unwrap() {
            RankEvent::Connected { connection, .. } => {
                open += 1;
                ranks.endpoint().send(connection, &[1; 1000], 0, SendFlags::SILENT).unwrap();
            }
            RankEvent::Endpoint(Event::Recv(message)) => {
                assert_eq!(*message, [1; 1000]);
                received += 1;
            }
            other => panic!("rank {}: {other:?}", job.rank()),
        }
    }
    job.barrier().unwrap();
    ranks
}

fn all_to_all() {
    let mut job = Job::join().unwrap();
    let mut ranks = connected(&mut job);
    let held_bytes = ranks.endpoint().counters().memory.total_bytes;
    assert!(held_bytes <= 40_000_000, "{held_bytes} bytes");
    assert_eq!(ranks.book_bytes(), 0, "one rank has it for all");
    job.barrier().unwrap();
}

/// Passes barriers over connections.
fn barriers(turns: u32) -> Result<(), JobError> {
    let mut job = Job::join()?;
    let context = Context::new().unwrap();
    let mut ranks = Ranks::open(&mut job, context.device("any").unwrap(), Options::default())?;
    for _ in 0..turns {
        ranks.barrier(PATIENCE)?;
        match ranks.wait(Some(PATIENCE))? {
            Some(RankEvent::Barrier(end)) => end?,
            other => panic!("rank {}: {other:?}", job.rank()),
        }
    }
    assert!(ranks.close(PATIENCE), "whoever waits for this rank gets what it has said");
    Ok(())
}

/// All ranks but one wait for the last, at the launcher and over connections, and use less than a hundredth of a core meanwhile.
fn waits() {
    let mut job = Job::join().unwrap();
    let context = Context::new().unwrap();
    let mut ranks = Ranks::open(&mut job, context.device("any").unwrap(), Options::default()).unwrap();
    let pass = |ranks: &mut Ranks| {
        ranks.barrier(PATIENCE).unwrap();
        match ranks.wait(Some(PATIENCE)).unwrap() {
            Some(RankEvent::Barrier(end)) => end.unwrap(),
            other => panic!("{other:?}"),
        }
    };
    // The first one opens its connections.
    pass(&mut ranks);
    job.barrier().unwrap();
    for over_connections in [true, false] {
        if job.rank() == 0 {
            std::thread::sleep(Duration::from_secs(3));
        }
        let (start, used_before) = (Instant::now(), processor_time());
        if over_connections {
            pass(&mut ranks);
        } else {
            job.barrier().unwrap();
        }
        let (waited, used) = (start.elapsed(), processor_time() - used_before);
        // On a machine that is busy a rank may come late, and wait for too short a time to show it.
        if job.rank() > 0 && waited > Duration::from_secs(2) {
            assert!(used * 100 < waited, "rank {}: {used:?} in {waited:?}", job.rank());
        }
    }
    assert!(ranks.close(PATIENCE));
}

/// What all threads of this process have used.
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let used_ns = |thread: std::fs::DirEntry| -> u64 {
        let numbers = std::fs::read_to_string(thread.path().join("schedstat")).unwrap();
        numbers.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(threads.map(|thread| used_ns(thread.unwrap())).sum())
}

/// Goes on without rank 2, which may die in a turn.
fn survives(dies_in: Option<u32>) {
    let meet = || {
        let mut job = Job::join()?;
        job.survive()?;
        for turn in 0..200 {
            if job.rank() == 2 && dies_in == Some(turn) {
                exit(9);
            }
            job.barrier()?;
        }
        Ok(())
    };
    match meet() {
        Ok(()) | Err(JobError::Gone { rank: 2 }) => {
            // For longer than it takes to be ended.
            std::thread::sleep(std::time::Duration::from_millis(100));
            println!("\nsurvived");
        }
        Err(error) => fail(&error),
    }
}

/// Rank 1 exits, rank 2 is killed, rank 3 leaves and works on: rank 0 learns that of each, and ends the job.
fn ask_who_died() {
    let mut job = Job::join().unwrap();
    job.survive().unwrap();
    job.barrier().unwrap();
    match job.rank() {
        1 => exit(9),
        2 => kill_process(getpid(), Signal::KILL).unwrap(),
        3 => drop(job),
        _ => {
            assert_eq!(job.status(0, Duration::ZERO).unwrap(), RankStatus::Running);
            assert_eq!(job.status(1, PATIENCE).unwrap(), RankStatus::Exited(9));
            assert_eq!(job.status(2, PATIENCE).unwrap(), RankStatus::Killed(9));
            let until = Instant::now() + PATIENCE;
            while job.status(3, Duration::from_millis(10)).unwrap() != RankStatus::Left {
                assert!(Instant::now() < until);
            }
            assert!(matches!(job.status(job.size(), PATIENCE), Err(JobError::Argument(_))));
            println!("\nsurvived");
            job.abort(5, "rank 3 shall end").unwrap();
        }
    }
    std::thread::sleep(Duration::from_secs(600));
}

/// Rank 2 is killed. Over UDP only the launcher knows: the others of its host wait for it until they have lost it, and still have each other.
fn loses_one() {
    let mut job = Job::join().unwrap();
    let context = Context::new().unwrap();
    let mut ranks = Ranks::open(&mut job, context.device("udp-lo").unwrap(), Options::default()).unwrap();
    job.survive().unwrap();
    job.barrier().unwrap();
    let rank = job.rank();
    let others: Vec<u32> =
        (0..job.size()).filter(|&other| other != rank && job.host_of(other) == Some(job.host())).collect();
    for &other in &others {
        ranks.connect(Peer::of(other), PATIENCE).unwrap();
    }
    let to_hear = others.iter().filter(|&&other| other != 2).count();
    let to_lose = others.len() - to_hear;
    let (mut open, mut heard, mut lost) = (0, 0, 0);
    while heard < to_hear || lost < to_lose {
        match ranks.wait(Some(PATIENCE)).unwrap().unwrap() {
            RankEvent::Connected { .. } => {
                open += 1;
                for &other in others.iter().filter(|_| open == others.len()) {
                    let connection = ranks.connection(Peer::of(other)).unwrap();
                    ranks.endpoint().send(connection, b"here", 0, SendFlags::SILENT).unwrap();
                }
            }
            RankEvent::Endpoint(Event::Recv(message)) => {
                assert_eq!(*message, *b"here");
                heard += 1;
            }
            RankEvent::Ended { peer, .. } if peer.rank() == 2 => lost += 1,
            // It has heard all, and has left.
            RankEvent::Ended { .. } => {}
            other => panic!("rank {rank}: {other:?}"),
        }
    }
    if rank == 2 {
        // All others of the host have all their connections then.
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    assert!(ranks.close(PATIENCE));
    println!("\nsurvived");
}

fn ends_by_itself() {
    let mut job = Job::join().unwrap();
    let mut ranks = connected(&mut job);
    if job.rank() == 1 {
        exit(0);
    }
    match ranks.wait(Some(PATIENCE)).unwrap() {
        Some(RankEvent::Ended { peer, .. }) => assert_eq!(peer, Peer::of(1)),
        other => panic!("rank {}: {other:?}", job.rank()),
    }
    assert_eq!(ranks.connection(Peer::of(1)), None);
    // The others are there until this one has seen who was not.
    assert!(matches!(job.barrier(), Err(JobError::Gone { rank: 1 })));
    exit(0);
}

#[test]
fn ranks_speak_to_all_in_little_memory() {
    succeeded(&launch("64", "all to all", &[]));
}

#[test]
fn ranks_pass_barriers_over_connections() {
    for ranks in ["1", "2", "23"] {
        succeeded(&launch(ranks, "barriers", &[]));
    }
}

#[test]
fn ranks_that_wait_in_a_barrier_sleep() {
    succeeded(&launch("64", "waits", &[]));
}

#[test]
fn a_rank_that_ends_is_named_to_those_that_it_spoke_to() {
    succeeded(&launch("2", "ends by itself", &[]));
}

#[test]
fn ranks_exchange_put_get_and_wait_for_each_other() {
    for ranks in ["1", "2", "7"] {
        succeeded(&launch(ranks, "everything", &[]));
    }
}

#[test]
fn a_rank_puts_so_many_keys_and_no_more() {
    succeeded(&launch("2", "puts too much", &[]));
    let alone = Command::new(env::current_exe().unwrap())
        .args(["--exact", "as_a_rank", "--nocapture"])
        .env(ROLE, "puts too much")
        .output();
    succeeded(&alone.unwrap());
}

#[test]
fn sixty_four_ranks_meet() {
    succeeded(&launch("64", "joins", &[]));
}

#[test]
fn ranks_of_two_hosts_meet_and_are_told_of_deaths() {
    let mark = format!("CCI_TEST_MARK=job-{}", std::process::id());
    let hosts = Hosts::start("job-hosts", &mark);
    let launch = |role: &str, timeout: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        command.arg("run").args(hosts.args("one:2,two:2")).args(["--timeout", timeout]);
        command.arg(env::current_exe().unwrap()).args(["--exact", "as_a_rank", "--nocapture"]);
        let output = command.env(ROLE, role).env(HOSTS, "2").stdin(Stdio::null()).output().unwrap();
        hosts.assert_empty();
        output
    };
    succeeded(&launch("everything", "60s"));
    assert_eq!(launch("dies", "60s").status.code(), Some(9));
    succeeded(&launch("leaves", "60s"));
    let lost = launch("loses one", "60s");
    assert_eq!((lost.status.code(), survivors(&lost)), (Some(137), 3), "{}", stderr(&lost));
    succeeded(&launch("never joins", "60s"));
    let asked = launch("ask who died", "60s");
    assert_eq!(survivors(&asked), 1, "{}", stderr(&asked));
    let aborted = launch("aborts", "60s");
    assert_eq!(aborted.status.code(), Some(42));
    assert!(
        stderr(&aborted).contains("rank 2 on two ends the job with code 42: the input"),
        "{}",
        stderr(&aborted)
    );
    let late = launch("is late", "5s");
    assert_eq!(late.status.code(), Some(124));
    assert!(stderr(&late).contains("the others wait for ranks 1, 3"), "{}", stderr(&late));
}

fn is_here(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Ranks that another launcher starts, if that is here.
fn meet_under(launcher: &[&str]) {
    let (program, options) = launcher.split_first().unwrap();
    if !is_here(program) {
        println!("skipped: {program} is not here");
        return;
    }
    for ranks in ["1", "4"] {
        let mut command = Command::new(program);
        command.args(options).args(["-n", ranks]).arg(env::current_exe().unwrap());
        command
            .args(["--exact", "as_a_rank", "--nocapture"])
            .env(ROLE, "everything")
            .envs(AS_ROOT)
            .stdin(Stdio::null());
        succeeded(&command.output().unwrap());
    }
}

/// PMI-1, for real.
#[test]
fn ranks_of_mpich_meet() {
    meet_under(&["mpiexec.hydra"]);
}

/// PMIx, for real.
#[test]
fn ranks_of_open_mpi_meet() {
    meet_under(&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]);
}

/// PMIx of another version, for real.
#[test]
fn ranks_of_prrte_meet() {
    meet_under(&["prterun", "--oversubscribe"]);
}

/// Both protocols by which Slurm speaks to ranks, on one node and across two. These two are one host: what distinguishes hosts is
/// their kernel and name.
#[test]
fn ranks_of_slurm_meet() {
    if rounds().is_none() {
        println!("skipped: part of the long tests, with {ROUNDS}");
        return;
    }
    let program = env::current_exe().unwrap();
    for (nodes, place) in [("n1", "-N 1 -n 2 -w n1"), ("n1 n2", "-N 2 -n 4")] {
        for mpi in ["pmi2", "pmix"] {
            let program = program.display();
            let script = format!("srun {place} --mpi={mpi} '{program}' --exact as_a_rank --nocapture");
            let Some(output) = slurm::run(nodes, &script, &[(ROLE, "everything")]) else {
                println!("skipped: Slurm is not here");
                return;
            };
            let passed = succeeded(&output).matches("test result: ok").count();
            assert_eq!(passed, if nodes == "n1" { 2 } else { 4 }, "{place} {mpi}");
        }
    }
}

/// Ranks that SIGKILL ends under other launchers. What they do about it is theirs; that nobody waits for ever is ours.
#[test]
fn ranks_die_under_other_launchers() {
    let Some(rounds) = rounds() else {
        println!("skipped: part of the long tests, with {ROUNDS}");
        return;
    };
    for (launcher, rank) in [
        (&["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"][..], "PMIX_RANK"),
        (&["mpiexec.hydra"], "PMI_RANK"),
        (&["prterun", "--oversubscribe"], "PMIX_RANK"),
    ] {
        if !is_here(launcher[0]) {
            continue;
        }
        for number in 0..rounds {
            let script = format!("if [ ${rank} = 2 ]; then sleep $1; kill -9 $$; fi & shift; exec \"$@\"");
            let mut command = Command::new("timeout");
            command
                .args(["--kill-after=5", "60"])
                .args(launcher)
                .args(["-n", "4", "sh", "-c", &script, "sh"]);
            command.arg(instant(number, 200_000)).arg(env::current_exe().unwrap());
            command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, "exchanges").envs(AS_ROOT);
            // 124 where `timeout` had to end it.
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert_ne!(output.status.code(), Some(124), "{launcher:?} hangs: {}", stderr(&output));
        }
    }
}

/// Seconds, spread evenly below so many microseconds.
fn instant(number: u64, below_us: u64) -> String {
    let after_us = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    format!("{:.6}", (after_us % below_us) as f64 * 1e-6)
}

/// How often the long tests try what depends on chance; none in the short ones.
fn rounds() -> Option<u64> {
    env::var(ROUNDS).ok().map(|rounds| rounds.parse().unwrap())
}

#[test]
fn without_a_launcher_it_is_a_job_of_one() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "as_a_rank"]).env(ROLE, "everything").env("CCI_JOB_RANK", "0");
    succeeded(&command.output().unwrap());
}

#[test]
fn a_rank_that_is_gone_is_named_to_those_who_wait() {
    let output = launch("4", "dies", &[]);
    assert_eq!(output.status.code(), Some(9), "{}", stderr(&output));
    succeeded(&launch("4", "leaves", &[]));
    succeeded(&launch("4", "never joins", &[]));
}

#[test]
fn a_timeout_says_who_was_waited_for() {
    // Long enough for the others to get to the barrier, also on a machine that is busy.
    let output = launch_within("5s", "4", "is late", &[]);
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("the others wait for ranks 1, 3"), "{}", stderr(&output));
}

#[test]
fn a_rank_can_end_the_job() {
    let output = launch("4", "aborts", &[]);
    assert_eq!(output.status.code(), Some(42));
    let said = stderr(&output);
    assert!(said.contains("rank 2 on ") && said.contains("with code 42: the input makes no sense"), "{said}");
}

#[test]
fn only_ranks_of_the_job_get_in() {
    let no_key = "0".repeat(64);
    for (variables, why) in [
        (&[("CCI_JOB_KEY", no_key.as_str())][..], "not the key of this job"),
        (&[("CCI_JOB_KEY", "secret")], "no key of a job"),
        (&[("CCI_JOB_RANK", "3")], "no rank 3 in a job of 2"),
        (&[("CCI_JOB_RANK", "first")], "should be a number"),
        (&[("CCI_JOB_SOCKET", "cci-job-of-nobody")], "should listen at CCI_JOB_SOCKET=cci-job-of-nobody"),
    ] {
        let output = launch("2", "joins", variables);
        assert_eq!(output.status.code(), Some(3), "{why}");
        assert!(stderr(&output).contains(why), "{why}: {}", stderr(&output));
    }
    let output = launch("1", "joins twice", &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("rank 0 has joined already"), "{}", stderr(&output));
}

#[test]
fn a_launcher_that_ranks_cannot_speak_to_is_an_error() {
    for (variable, value, why) in [
        ("PMIX_RANK", "0", "should speak PMIx"),
        ("SLURM_STEP_NUM_TASKS", "4", "srun --mpi=pmi2"),
        ("PMI_FD", "nine", "number of a descriptor"),
        ("PMI_FD", "999", "PMI_FD=999"),
        ("PMI_RANK", "1", "several ranks"),
    ] {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, "joins").env("CCI_JOB_RANK", "0");
        let output = command.env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{variable}={value}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

fn survivors(output: &Output) -> usize {
    String::from_utf8_lossy(&output.stdout).lines().filter(|line| *line == "survived").count()
}

#[test]
fn a_death_ends_the_job_unless_all_living_ranks_survive_it() {
    let survived = launch("4", "survives a death", &[]);
    let said = stderr(&survived);
    assert_eq!((survived.status.code(), survivors(&survived)), (Some(9), 3), "{said}");
    assert!(said.contains(" exited with code 9; the other ranks go on"), "{said}");
    let ended = launch("4", "some survive", &[]);
    let said = stderr(&ended);
    assert_eq!(ended.status.code(), Some(9), "{said}");
    assert!(said.contains("; the other ranks are ended"), "{said}");
}

#[test]
fn a_rank_that_is_killed_is_missed_over_datagrams() {
    let output = launch("4", "loses one", &[]);
    assert_eq!((output.status.code(), survivors(&output)), (Some(137), 3), "{}", stderr(&output));
}

#[test]
fn ranks_that_go_on_learn_how_others_ended() {
    let output = launch("4", "ask who died", &[]);
    assert_eq!(survivors(&output), 1, "{}", stderr(&output));
}

/// Ranks that SIGKILL ends at any instant of start, exchange or barrier over connections, and end. Whoever waits for one is not left waiting.
#[test]
fn ranks_die_at_random_instants() {
    for number in 0..rounds().unwrap_or(40) {
        // Over the time that a whole job takes here.
        let seconds = instant(number, 10_000);
        let script = "if [ $CCI_JOB_RANK = 2 ]; then sleep $1; kill -9 $$; fi & shift; exec \"$@\"";
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        let role = ["exchanges", "barriers", "survives"][number as usize % 3];
        command.args(["run", "-n", "4", "--timeout", "60s", "sh", "-c", script, "sh", &seconds]);
        command.arg(env::current_exe().unwrap()).args(["--exact", "as_a_rank", "--nocapture"]);
        let output = command.env(ROLE, role).stdin(Stdio::null()).output().unwrap();
        let said = stderr(&output);
        if said.contains("; the other ranks go on") {
            assert!(survivors(&output) >= 3, "{seconds}: {said}");
        }
        match output.status.code() {
            // Rank 2 was seen first, or one that its death had failed, or all had ended before.
            Some(137) => assert!(said.contains("rank 2 (process "), "{seconds}: {said}"),
            Some(4) => assert!(said.contains(" exited with code 4"), "{seconds}: {said}"),
            Some(0) => {}
            other => panic!("{role}, {seconds}: {other:?}: {said}"),
        }
    }
}
