//! `cci get`: fetches a file from a service, wherever the service is, and goes on when it moves.

use super::protocol::{About, CHUNK_BYTES};
use crate::args::GetArgs;
use crate::failure::{Failure, Outcome};
use crate::signals;
use cci_ripc::{CallError, CallId, CallOptions, Event, Message, Node, Partner, Service};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Parts that are asked for at a time.
const PARTS_MAX: usize = 4;
/// How often an interruption is looked for.
const LOOK: Duration = Duration::from_millis(200);
/// After so long without an answer, the user learns what the command waits for.
const SILENCE: Duration = Duration::from_secs(1);

/// Runs the subcommand.
pub fn run(args: &GetArgs) -> Outcome {
    signals::catch_interrupts()?;
    let Some((service, path)) = args.what.split_once('/').filter(|(_, path)| !path.is_empty()) else {
        return Err(Failure::usage(format!("{:?} names no file", args.what))
            .remedy("SERVICE/PATH, such as files/a.txt"));
    };
    let name = super::service_name(service)?;
    let mut node = super::open(args.device.as_ref())?;
    let me = node.client().map_err(|error| Failure::new(error.to_string()))?;
    let from = node.partner(me, &name).map_err(|error| Failure::new(error.to_string()))?;
    let timeout = Duration::from_secs(args.timeout);
    let mut fetch = Fetch {
        node,
        me,
        from,
        path: path.to_owned(),
        timeout,
        bar: ProgressBar::hidden(),
        answered: Instant::now(),
        is_silent: false,
    };
    let about = fetch.about()?;
    let output = match &args.output {
        Some(output) => output.clone(),
        None => PathBuf::from(Path::new(path).file_name().unwrap_or_default()),
    };
    let unfinished =
        output.with_file_name(format!(".{}.part", output.file_name().unwrap_or_default().to_string_lossy()));
    let written = fetch.write(about, &unfinished);
    if let Err(failure) = written {
        let _not_made = fs::remove_file(&unfinished);
        return Err(failure);
    }
    fs::rename(&unfinished, &output).map_err(|error| Failure::new(format!("{}: {error}", output.display())))
}

struct Fetch {
    node: Node,
    me: Service,
    from: Partner,
    path: String,
    timeout: Duration,
    bar: ProgressBar,
    /// When the last answer came.
    answered: Instant,
    /// The user knows that the service does not answer.
    is_silent: bool,
}

impl Fetch {
    fn about(&mut self) -> Outcome<About> {
        let path = self.path.clone();
        self.call(&[b"about", path.as_bytes()])?;
        let answer = loop {
            if let Some((_, result)) = self.next_answer()? {
                break result.map_err(failed)?;
            }
        };
        About::parse(answer.item(0)).ok_or_else(|| Failure::new("the service is no file service"))
    }

    fn write(&mut self, about: About, output: &Path) -> Outcome {
        let not_written = |error: std::io::Error| Failure::new(format!("{}: {error}", output.display()));
        let file = File::create(output).map_err(not_written)?;
        self.bar = bar(about.len_bytes);
        let path = self.path.clone();
        let (mut next, mut parts) = (0, HashMap::new());
        while next < about.len_bytes || !parts.is_empty() {
            while next < about.len_bytes && parts.len() < PARTS_MAX {
                let len_bytes = (about.len_bytes - next).min(CHUNK_BYTES as u64);
                let call =
                    self.call(&[b"read", path.as_bytes(), &next.to_le_bytes(), &len_bytes.to_le_bytes()])?;
                parts.insert(call, (next, len_bytes));
                next += len_bytes;
            }
            let Some((call, result)) = self.next_answer()? else { continue };
            let Some((offset, len_bytes)) = parts.remove(&call) else { continue };
            let bytes = part(&result.map_err(failed)?, about, len_bytes)?;
            file.write_all_at(&bytes, offset).map_err(not_written)?;
            self.bar.inc(len_bytes);
        }
        self.bar.finish();
        Ok(())
    }

    fn call(&mut self, items: &[&[u8]]) -> Outcome<CallId> {
        let options = CallOptions::default().timeout(self.timeout);
        self.node.call(self.from, items, options).map_err(|error| Failure::new(error.to_string()))
    }

    /// Waits for an answer for a moment, and says so if none has come for a while.
    fn next_answer(&mut self) -> Outcome<Option<(CallId, Result<Message, CallError>)>> {
        signals::go_on()?;
        let event = self.node.wait(self.me, Some(LOOK)).map_err(|error| Failure::new(error.to_string()))?;
        let Some(Event::Answer { call, result, .. }) = event else {
            self.notice_silence();
            return Ok(None);
        };
        self.answered = Instant::now();
        if std::mem::take(&mut self.is_silent) && result.is_ok() {
            self.bar.suspend(|| eprintln!("the service answers"));
        }
        Ok(Some((call, result)))
    }

    fn notice_silence(&mut self) {
        let silence = self.answered.elapsed();
        if self.is_silent || silence < SILENCE {
            return;
        }
        self.is_silent = true;
        let reason = if self.node.is_reached(self.from) {
            "the service does not answer".into()
        } else {
            self.node.reach_error(self.from, silence).to_string()
        };
        let timeout_s = self.timeout.as_secs();
        self.bar.suspend(|| eprintln!("{reason}; waiting for up to {timeout_s} s"));
    }
}

/// The bytes of a part, if it is one of the file that was asked for first.
fn part(answer: &Message, about: About, len_bytes: u64) -> Outcome<Vec<u8>> {
    if About::parse(answer.item(0)) != Some(about) {
        return Err(Failure::new("the file has changed meanwhile").remedy("get it again"));
    }
    let bytes =
        answer.long_items().first().and_then(|item| Some(item.as_ref()?.to_vec())).unwrap_or_default();
    if bytes.len() as u64 == len_bytes {
        Ok(bytes)
    } else {
        Err(Failure::new("the service sent a part of another length"))
    }
}

fn failed(error: CallError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        CallError::TimedOut { .. } => {
            failure.remedy("`cci files FOLDER --name NAME` starts a service; --timeout waits longer")
        }
        _ => failure,
    }
}

fn bar(len_bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(len_bytes);
    let style = "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar.set_draw_target(if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    });
    bar
}
