//! What is done with channels, whatever they are made of.

mod loaded;
pub mod rate;

use super::dialled::Dialled;
use super::partner::{self, Partner};
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::work::Work;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::half_trip;

/// The work over this kind of channel, on whichever side this process is. The partner has no reading.
pub fn run<C: Dialled>(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        let mut channel = C::dial(args, first)?;
        match args.work {
            Work::HalfTrip { len } | Work::LoanTrip { len } | Work::BlockingTrip { len } => {
                half_trip::answer(&mut channel, len, args.count)?
            }
            Work::Rate { len } | Work::Stream { len } | Work::Handled { len } | Work::Long { len } => {
                rate::take(&mut channel, args.count, len)?
            }
            Work::Loaded { len, .. } => loaded::echo(&mut channel, len)?,
            _ => return Err(not_done(args)),
        }
        return Ok(None);
    }
    let site = partner::site(args)?;
    let (listening, address) = C::listen(args, &site)?;
    // Before `pin`, which it would inherit.
    let partner = Partner::start(args, &site, &address)?;
    partner::pin(args)?;
    let mut channel = C::accept(listening, args)?;
    let reading = match args.work {
        Work::HalfTrip { len } | Work::LoanTrip { len } | Work::BlockingTrip { len } => {
            half_trip::mean_ns(&mut channel, len, args.count).map(Reading::of)?
        }
        Work::Rate { len } | Work::Stream { len } | Work::Handled { len } => {
            rate::send(&mut channel, args.count, len)?
        }
        Work::Long { len } => rate::send(&mut channel, args.count, len)?.of_messages(len),
        Work::Loaded { len, percent } => loaded::run(&mut channel, len, percent)?,
        _ => return Err(not_done(args)),
    };
    partner.end(|| channel.linger())?;
    Ok(Some(reading))
}

/// What the command line allows but nobody can do.
pub fn not_done(args: &WorkArgs) -> Failure {
    Failure::new(format!("{} does not do {}", args.by.word(), args.work))
}
