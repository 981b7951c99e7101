//! `cci files`: serves the files of a folder, to whoever reaches the service.

use super::protocol::{About, Ask, CHUNK_BYTES};
use crate::args::FilesArgs;
use crate::failure::{Failure, Outcome};
use crate::signals;
use cci::Memory;
use cci_ripc::{Content, Event, Node, Part, Ticket};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Parts of files that are lent at a time. Requests beyond are answered when some are back.
const LENT_MAX: usize = 32;
/// Requests that wait for memory.
const WAITING_MAX: usize = 1_024;
/// How long a part is lent to a client that is there.
const LEASE: Duration = Duration::from_secs(60);
/// How long it stays lent to one whose connection has ended, and who may come back.
const DISCONNECTED: Duration = Duration::from_secs(5);
/// How often an interruption is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// Runs the subcommand, until it is interrupted.
pub fn run(args: &FilesArgs) -> Outcome {
    let stop = signals::catch_interrupts()?;
    let name = super::service_name(&args.name)?;
    let root = args.folder.canonicalize();
    let root = root.map_err(|error| Failure::new(format!("{}: {error}", args.folder.display())))?;
    if !root.is_dir() {
        return Err(Failure::new(format!("{} is not a folder", root.display())));
    }
    let mut node = super::open(args.device.as_ref())?;
    let service = node.register(&name).map_err(|error| Failure::new(error.to_string()))?;
    node.set_lease(service, LEASE, DISCONNECTED).map_err(|error| Failure::new(error.to_string()))?;
    eprintln!("{name}: {} at {}; Ctrl-C ends it", root.display(), node.uri());
    let mut files =
        Files { root, free: Vec::new(), made: 0, waiting: Vec::new(), lent: vec![None; LENT_MAX] };
    while !stop.load(Ordering::Relaxed) {
        let event = node.wait(service, Some(LOOK)).map_err(|error| Failure::new(error.to_string()))?;
        match event {
            Some(Event::Request(request)) => {
                let ticket = request.ticket();
                let ask = request.message().items().map(<[u8]>::to_vec).collect();
                files.answer(&mut node, ask, ticket);
            }
            Some(Event::Returned { context, .. }) => files.returned(&mut node, context),
            Some(Event::NameLost { to }) => {
                return Err(Failure::new(format!("{name} belongs to somebody else now: {to}")));
            }
            Some(Event::DeviceFailed) => return Err(Failure::new("the device failed")),
            _ => {}
        }
    }
    node.unregister(service);
    Ok(())
}

struct Files {
    root: PathBuf,
    /// Memory that is not lent.
    free: Vec<Memory>,
    made: usize,
    /// Requests for which there was no memory.
    waiting: Vec<(Vec<Vec<u8>>, Ticket)>,
    /// What is lent, by the context of its lease.
    lent: Vec<Option<Memory>>,
}

impl Files {
    /// Answers a request, now or when there is memory for it. An answer that can't be sent is repeated when the client asks again.
    fn answer(&mut self, node: &mut Node, ask: Vec<Vec<u8>>, ticket: Ticket) {
        let reason = match Ask::parse(ask.iter().map(Vec::as_slice)) {
            Ok(Ask::About { path }) => match self.find(path) {
                Ok((_, about)) => {
                    let _repeated = node.answer(ticket, &about.to_bytes());
                    return;
                }
                Err(reason) => reason,
            },
            Ok(Ask::Read { path, offset, len_bytes }) => {
                let Some(memory) = self.take(node) else {
                    if self.waiting.len() < WAITING_MAX {
                        self.waiting.push((ask, ticket));
                    } else {
                        let _repeated = node.refuse(ticket, b"too many read files at once");
                    }
                    return;
                };
                match self.read(path, offset, len_bytes, &memory) {
                    Ok((about, 0)) => {
                        self.free.push(memory);
                        let _repeated = node.answer(ticket, &about.to_bytes());
                        return;
                    }
                    Ok((about, len)) => return self.lend(node, ticket, about, memory, len),
                    Err(reason) => {
                        self.free.push(memory);
                        reason
                    }
                }
            }
            Err(reason) => reason.to_owned(),
        };
        let _repeated = node.refuse(ticket, reason.as_bytes());
    }

    fn lend(&mut self, node: &mut Node, ticket: Ticket, about: About, memory: Memory, len: usize) {
        let Some(context) = self.lent.iter().position(Option::is_none) else { return self.free.push(memory) };
        let part = [Part::new(&memory, 0..len)];
        let head = about.to_bytes();
        let content = Content::from(&head).long_items(&part).context(context as u64);
        match node.answer(ticket, content) {
            Ok(()) => self.lent[context] = Some(memory),
            Err(_) => self.free.push(memory),
        }
    }

    fn returned(&mut self, node: &mut Node, context: u64) {
        let lent = usize::try_from(context).ok().and_then(|context| self.lent.get_mut(context)?.take());
        self.free.extend(lent);
        if !self.waiting.is_empty() {
            let (ask, ticket) = self.waiting.remove(0);
            self.answer(node, ask, ticket);
        }
    }

    fn take(&mut self, node: &mut Node) -> Option<Memory> {
        if let Some(memory) = self.free.pop() {
            return Some(memory);
        }
        if self.made == LENT_MAX {
            return None;
        }
        let memory = node.allocate(CHUNK_BYTES).ok()?;
        self.made += 1;
        Some(memory)
    }

    /// A file within the folder, wherever links lead.
    fn find(&self, path: &str) -> Result<(PathBuf, About), String> {
        let refused = |error: std::io::Error| format!("{path}: {error}");
        let found = self.root.join(path.trim_start_matches('/')).canonicalize().map_err(refused)?;
        let about = fs::metadata(&found).map_err(refused)?;
        if !found.starts_with(&self.root) || !about.is_file() {
            return Err(format!("{path}: no such file here"));
        }
        Ok((found, of(&about)))
    }

    fn read(
        &self,
        path: &str,
        offset: u64,
        len_bytes: u64,
        memory: &Memory,
    ) -> Result<(About, usize), String> {
        let (found, _) = self.find(path)?;
        let failed = |error: std::io::Error| format!("{path}: {error}");
        let file = File::open(&found).map_err(failed)?;
        let about = of(&file.metadata().map_err(failed)?);
        let left = about.len_bytes.saturating_sub(offset).min(len_bytes).min(memory.len() as u64);
        let mut bytes = vec![0; left as usize];
        file.read_exact_at(&mut bytes, offset).map_err(failed)?;
        if !memory.write(0, &bytes) {
            return Err(format!("{path}: the part is too long"));
        }
        Ok((about, bytes.len()))
    }
}

fn of(about: &fs::Metadata) -> About {
    let modified_ns = about.mtime().wrapping_mul(1_000_000_000).wrapping_add(about.mtime_nsec());
    About { len_bytes: about.len(), modified_ns: modified_ns as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_folder_is_found() {
        let folder = std::env::temp_dir().join(format!("cci-files-{}", std::process::id()));
        fs::create_dir_all(folder.join("inside/deep")).unwrap();
        fs::write(folder.join("secret"), "secret").unwrap();
        fs::write(folder.join("inside/deep/file"), "file").unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("inside/link")).unwrap();
        let root = folder.join("inside").canonicalize().unwrap();
        let files = Files { root, free: Vec::new(), made: 0, waiting: Vec::new(), lent: Vec::new() };
        for good in ["deep/file", "/deep/file", "deep/../deep/file"] {
            assert_eq!(files.find(good).unwrap().1.len_bytes, 4, "{good}");
        }
        for bad in ["../secret", "link", "deep", "", "/etc/passwd", "none", "deep/file/x"] {
            assert!(files.find(bad).is_err(), "{bad}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
