//! Launchers that speak PMI-1: MPICH's `mpiexec` (hydra), `srun --mpi=pmi2`.
//!
//! Lines of `name=value`, the first of which is `cmd`, over a socket that the launcher has left open under the number in
//! `PMI_FD` (Balaji et al., "PMI: A Scalable Parallel Process-Management Interface", 2010; `simple_pmi.c` of MPICH).
//! Values may have no spaces, so bytes travel as hexadecimal digits, in parts that the launcher takes.

use super::{Bootstrap, Joined, number};
use crate::error::{JobError, Result};
use crate::limits::{PMI_LINE_BYTES_MAX, VALUE_BYTES_MAX};
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroU8;
use std::os::unix::net::UnixStream;

/// Below these a launcher takes less than the standard says.
const KEY_LEN_MIN: usize = 32;
const VALUE_LEN_MIN: usize = 128;
/// No more than this of a value goes into a line: Slurm takes lines of up to 1,024 bytes, whatever it says of values, and
/// ends the job where one is longer.
const VALUE_LEN_MAX: usize = 512;

struct Pmi {
    stream: BufReader<UnixStream>,
    space: String,
    key_len_max: usize,
    part_bytes: usize,
    rank: u32,
    size: u32,
    /// How many exchanges there were: each has keys of its own.
    exchanges: u64,
    /// Keys that this rank has put.
    puts: HashSet<String>,
}

/// An answer: names and values.
struct Answer(HashMap<String, String>);

pub fn join(descriptor: &str) -> Result<Joined> {
    let wrong =
        |_| JobError::Launcher(format!("PMI_FD should be the number of a descriptor: {descriptor:?}"));
    let inherited = cci_sys::process::inherited(descriptor.parse().map_err(wrong)?)
        .map_err(|error| JobError::Launcher(format!("PMI_FD={descriptor}: {error}")))?;
    let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
    if rank >= size {
        return Err(JobError::Launcher(format!("PMI_RANK={rank} is none of PMI_SIZE={size}")));
    }
    let pmi = Pmi::init(UnixStream::from(inherited), rank, size)?;
    Ok(Joined { bootstrap: Box::new(pmi), rank, size, key: None, ended: None })
}

impl Pmi {
    fn init(stream: UnixStream, rank: u32, size: u32) -> Result<Pmi> {
        let mut pmi = Pmi {
            stream: BufReader::new(stream),
            space: String::new(),
            key_len_max: 0,
            part_bytes: 0,
            rank,
            size,
            exchanges: 0,
            puts: HashSet::new(),
        };
        pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?.check()?;
        let maxes = pmi.ask("cmd=get_maxes", "maxes")?;
        pmi.key_len_max = maxes.number("keylen_max")?;
        let value_len_max = maxes.number("vallen_max")?;
        if pmi.key_len_max < KEY_LEN_MIN || value_len_max < VALUE_LEN_MIN {
            return Err(JobError::Launcher("the PMI launcher takes too short keys or values".into()));
        }
        // Some count the end of a text.
        pmi.part_bytes = (value_len_max.min(VALUE_LEN_MAX) - 1) / 2;
        pmi.space = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?.text("kvsname")?.to_owned();
        Ok(pmi)
    }

    fn ask(&mut self, line: &str, answer: &str) -> Result<Answer> {
        self.say(line)?;
        let mut line = Vec::new();
        let limit = PMI_LINE_BYTES_MAX as u64;
        let read = self.stream.by_ref().take(limit).read_until(b'\n', &mut line);
        read.map_err(JobError::system("reading from the PMI launcher"))?;
        let answered = Answer::parse(&line).ok_or_else(|| {
            JobError::Launcher(match line.is_empty() {
                true => "the PMI launcher has closed the connection: it has ended, or a rank has".into(),
                false => "the PMI launcher answers what is no PMI-1".into(),
            })
        })?;
        if answered.text("cmd")? == answer {
            Ok(answered)
        } else {
            Err(JobError::Launcher(format!(
                "the PMI launcher answers {:?} instead of {answer}",
                answered.text("cmd")?
            )))
        }
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let failed = JobError::system("writing to the PMI launcher");
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(failed)
    }

    fn put_bytes(&mut self, key: &str, value: &[u8]) -> Result<()> {
        // The first part begins with the length of all.
        let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("{:04x}{digits}", value.len());
        for (number, part) in text.as_bytes().chunks(2 * self.part_bytes).enumerate() {
            let part = String::from_utf8_lossy(part);
            let line = format!("cmd=put kvsname={} key={key}.{number} value={part}", self.space);
            self.ask(&line, "put_result")?.check()?;
        }
        Ok(())
    }

    fn get_bytes(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let nonsense = || JobError::Launcher(format!("the PMI launcher has nonsense under the key {key}"));
        let mut text = String::new();
        let mut text_len = usize::MAX;
        for number in 0..=2 * VALUE_BYTES_MAX / self.part_bytes {
            let answer =
                self.ask(&format!("cmd=get kvsname={} key={key}.{number}", self.space), "get_result")?;
            if number == 0 && !answer.is_ok() {
                return Ok(None);
            }
            answer.check()?;
            text.push_str(answer.text("value")?);
            if number == 0 {
                let len = text.get(..4).and_then(|len| usize::from_str_radix(len, 16).ok());
                text_len = 4 + 2 * len.filter(|&len| len <= VALUE_BYTES_MAX).ok_or_else(nonsense)?;
            }
            if text.len() >= text_len {
                break;
            }
        }
        let digits = text.get(4..text_len).filter(|_| text.len() == text_len).ok_or_else(nonsense)?;
        let bytes = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
        bytes.collect::<Option<_>>().map(Some).ok_or_else(nonsense)
    }

    fn barrier(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in", "barrier_out").map(drop)
    }

    /// A key of ours may have any characters, and a launcher's may not.
    fn key_of(&self, rank: u32, key: &str) -> Result<String> {
        let digits: String = key.bytes().map(|byte| format!("{byte:02x}")).collect();
        let encoded = format!("cci.{rank}.{digits}");
        // A point and the number of a part follow.
        if encoded.len() + 4 > self.key_len_max {
            return Err(JobError::Argument(format!(
                "this launcher takes keys that are shorter than {key:?}"
            )));
        }
        Ok(encoded)
    }
}

impl Bootstrap for Pmi {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let encoded = self.key_of(self.rank, key)?;
        if !self.puts.insert(key.to_owned()) {
            return Err(JobError::Refused(format!("rank {} has put the key {key:?} already", self.rank)));
        }
        self.put_bytes(&encoded, value)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Vec<u8>>> {
        let encoded = self.key_of(rank, key)?;
        self.get_bytes(&encoded)
    }

    fn exchange(&mut self, value: &[u8]) -> Result<Vec<Vec<u8>>> {
        let number = self.exchanges;
        self.exchanges += 1;
        self.put_bytes(&format!("ccix.{number}.{}", self.rank), value)?;
        self.barrier()?;
        (0..self.size)
            .map(|rank| {
                let missing =
                    || JobError::Launcher(format!("the PMI launcher has lost the value of rank {rank}"));
                self.get_bytes(&format!("ccix.{number}.{rank}"))?.ok_or_else(missing)
            })
            .collect()
    }

    fn abort(&mut self, code: NonZeroU8, _reason: &str) -> Result<()> {
        self.say(&format!("cmd=abort exitcode={code}"))
    }
}

impl Drop for Pmi {
    fn drop(&mut self) {
        // A launcher that does not answer has ended the job already.
        let _ = self.ask("cmd=finalize", "finalize_ack");
    }
}

impl Answer {
    fn parse(line: &[u8]) -> Option<Answer> {
        let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
        let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        // Words without a name belong to messages for people.
        let pairs: HashMap<_, _> = line.split_ascii_whitespace().filter_map(pair).collect();
        pairs.contains_key("cmd").then_some(Answer(pairs))
    }

    fn text(&self, name: &str) -> Result<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| JobError::Launcher(format!("the PMI launcher's answer lacks {name}")))
    }

    fn number(&self, name: &str) -> Result<usize> {
        let wrong = |_| JobError::Launcher(format!("the PMI launcher's {name} is no number"));
        self.text(name)?.parse().map_err(wrong)
    }

    /// Some leave the code out where nothing failed.
    fn is_ok(&self) -> bool {
        self.0.get("rc").is_none_or(|code| code == "0")
    }

    fn check(&self) -> Result<()> {
        if self.is_ok() {
            return Ok(());
        }
        let why = self.0.get("msg").map_or("no reason given", String::as_str);
        Err(JobError::Launcher(format!("the PMI launcher refuses: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A launcher that gives each line the next of its answers.
    fn answering(answers: &[&'static str]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let answers = answers.to_vec();
        thread::spawn(move || {
            let mut lines = BufReader::new(theirs.try_clone().unwrap()).lines();
            for answer in answers {
                lines.next();
                (&theirs).write_all(answer.as_bytes()).unwrap();
            }
        });
        ours
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    const NAME: &str = "cmd=my_kvsname kvsname=kvs_1\n";

    #[test]
    fn reads_what_was_put() {
        let value = "cmd=get_result rc=0 msg=success value=0003010203\n";
        let mut pmi = Pmi::init(answering(&[INIT, MAXES, NAME, value]), 0, 1).unwrap();
        assert_eq!(pmi.get(0, "key").unwrap(), Some(vec![1, 2, 3]));
        let missing = "cmd=get_result rc=-1 msg=key_not_found value=unknown\n";
        let mut pmi = Pmi::init(answering(&[INIT, MAXES, NAME, missing]), 0, 1).unwrap();
        assert_eq!(pmi.get(0, "key").unwrap(), None);
    }

    #[test]
    fn nonsense_is_an_error() {
        for start in [
            &[][..],
            &["\n"],
            &["cmd\n"],
            &["cmd=other rc=0\n"],
            &["cmd=response_to_init rc=-1\n"],
            &["cmd=response_to_init rc=0"],
            &[INIT, "cmd=maxes keylen_max=64\n"],
            &[INIT, "cmd=maxes keylen_max=64 vallen_max=-5\n"],
            &[INIT, "cmd=maxes keylen_max=8 vallen_max=8\n"],
            &[INIT, MAXES, "cmd=my_kvsname\n"],
        ] {
            assert!(
                matches!(
                    Pmi::init(answering(start), 0, 1),
                    Err(JobError::Launcher(_) | JobError::System { .. })
                ),
                "{start:?}"
            );
        }
        for value in [
            "cmd=get_result rc=0\n",
            "cmd=get_result rc=0 value=\n",
            "cmd=get_result rc=0 value=0001\n",
            "cmd=get_result rc=0 value=000101ff\n",
            "cmd=get_result rc=0 value=0001xx\n",
            "cmd=get_result rc=0 value=ffff00\n",
            "cmd=get_result rc=0 value=ééé\n",
        ] {
            let mut pmi = Pmi::init(answering(&[INIT, MAXES, NAME, value]), 0, 1).unwrap();
            assert!(pmi.get(0, "key").is_err(), "{value:?}");
        }
    }
}
