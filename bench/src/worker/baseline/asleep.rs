//! Two processes that wake each other in the plainest way: eventfds, and a word with `futex`.

use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci_measure::baseline::failed;
use cci_measure::baseline::{self, SharedWord};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::clock;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Half of a round trip: each writes to the other's counter and sleeps reading its own. The partner has them as its
/// standard input and output.
pub fn eventfd(args: &WorkArgs) -> Outcome<Option<Reading>> {
    let all = args.count / 10 + args.count;
    if args.partner_of.is_some() {
        partner::pin(args)?;
        let mut mine = File::from(inherited(&io::stdin())?);
        let mut theirs = File::from(inherited(&io::stdout())?);
        for _ in 0..all {
            hear(&mut mine)?;
            wake(&mut theirs)?;
        }
        return Ok(None);
    }
    let made = || baseline::eventfd().map_err(failed("eventfd"));
    let (mut mine, mut theirs) = (made()?, made()?);
    let copy = |file: &File| file.try_clone().map(Stdio::from).map_err(failed("eventfd"));
    let partner = Partner::start_with(args, &Site::same_host(), "inherited", (copy(&theirs)?, copy(&mine)?))?;
    let reading = timed(args, || {
        wake(&mut theirs)?;
        hear(&mut mine)
    })?;
    partner.end(|| {})?;
    Ok(Some(reading))
}

fn wake(counter: &mut File) -> Outcome {
    counter.write_all(&1u64.to_ne_bytes()).map_err(failed("eventfd"))
}

fn hear(counter: &mut File) -> Outcome {
    counter.read_exact(&mut [0; 8]).map_err(failed("eventfd"))
}

/// Two processes that wake each other through one word: odd numbers are for the partner, even ones are its answers.
pub fn futex(args: &WorkArgs) -> Outcome<Option<Reading>> {
    let all = args.count / 10 + args.count;
    let hear = |word: &SharedWord, value: u32| match word.sleep_until(value, LIMIT) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new("nothing comes")),
        Err(error) => Err(failed("futex")(error)),
    };
    // It wraps around: only neighbours are distinguished.
    let (question, answer) = (|trip: u64| (2 * trip + 1) as u32, |trip: u64| (2 * trip + 2) as u32);
    if args.partner_of.is_some() {
        partner::pin(args)?;
        let word = SharedWord::open(inherited(&io::stdin())?)?;
        for trip in 0..all {
            hear(&word, question(trip))?;
            word.store(answer(trip)).map_err(failed("futex"))?;
        }
        return Ok(None);
    }
    let word = SharedWord::create()?;
    let shared = word.fd().ok_or_else(|| Failure::new("the word has no descriptor"))?;
    let shared = shared.try_clone_to_owned().map_err(failed("futex"))?;
    let partner =
        Partner::start_with(args, &Site::same_host(), "inherited", (Stdio::from(shared), Stdio::null()))?;
    let mut trip = 0;
    let reading = timed(args, || {
        word.store(question(trip)).map_err(failed("futex"))?;
        hear(&word, answer(trip))?;
        trip += 1;
        Ok(())
    })?;
    partner.end(|| {})?;
    Ok(Some(reading))
}

fn inherited(stream: &impl AsFd) -> Outcome<OwnedFd> {
    stream.as_fd().try_clone_to_owned().map_err(failed("what the first process left"))
}

/// Half of the mean round trip.
fn timed(args: &WorkArgs, mut trip: impl FnMut() -> Outcome) -> Outcome<Reading> {
    partner::pin(args)?;
    for _ in 0..args.count / 10 {
        trip()?;
    }
    let begin_ns = clock::now_ns();
    for _ in 0..args.count {
        trip()?;
    }
    let took_ns = clock::now_ns() - begin_ns;
    Ok(Reading::of(took_ns as f64 / args.count.max(1) as f64 / 2.0))
}
