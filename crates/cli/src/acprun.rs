//! `acprun`, the launcher of ACP 3, by `cci run`: its published options, which have one hyphen.

use crate::failure::{Failure, Outcome};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The name under which the command is `cci acprun`.
pub const NAME: &str = "acprun";

const USAGE: &str = "\
Usage: acprun -np N [options] program [arguments]

Starts N processes of a program for ACP, as `cci run` does, whose exit code it has.

Options:
  -np N            number of processes
  -host a,b        hosts; each takes as many processes as the others
  -nodefile F      a file with a host in each line
  -ndev udp        shared memory inside a host, and UDP or TCP between hosts: what is taken without this option, too
  -smemsize B      bytes of starter memory of each process (10,240 without)
  -smemsize-cl B   accepted; channels take memory when they are made
  -smemsize-dl B   bytes of the heap of each process (64 MiB without)
  -ssh CMD         what reaches a host: it gets the host and a command line
  -ethspeed M      accepted; the path is measured
  -debug           say how `cci run` is called
";

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    processes: Option<u16>,
    hosts: Vec<String>,
    ssh: Option<OsString>,
    /// For the library, which takes them from the program's arguments.
    for_library: Vec<OsString>,
    is_debug: bool,
    program: Vec<OsString>,
}

/// Becomes `cci run` for the same job.
///
/// # Errors
/// The options can't be understood, or `cci run` can't be started.
pub fn run(arguments: &[OsString]) -> Outcome<ExitCode> {
    if arguments.first().is_some_and(|first| ["-h", "-help", "--help"].map(OsStr::new).contains(&&**first)) {
        return crate::text::emit(USAGE.as_bytes()).map(|()| ExitCode::SUCCESS);
    }
    let asked = Asked::parse(arguments, &|path| fs::read_to_string(path))?;
    let is_debug = asked.is_debug;
    let translated = asked.translate()?;
    if is_debug {
        let words = translated.iter().map(|word| word.to_string_lossy());
        eprintln!("acprun: cci {}", words.collect::<Vec<_>>().join(" "));
    }
    let program =
        env::current_exe().map_err(|error| Failure::new(format!("the path of this program: {error}")))?;
    let error = Command::new(program).args(translated).exec();
    Err(Failure::new(format!("starting `cci run`: {error}")))
}

impl Asked {
    fn parse(arguments: &[OsString], read: &dyn Fn(&Path) -> std::io::Result<String>) -> Outcome<Asked> {
        let mut asked = Asked::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let text = argument.to_str().unwrap_or_default();
            let Some(name) = text.strip_prefix('-').filter(|name| !name.is_empty()) else {
                asked.program = [argument].into_iter().chain(rest).cloned().collect();
                return Ok(asked);
            };
            // Two hyphens are as good as one.
            let name = name.strip_prefix('-').unwrap_or(name);
            if name == "debug" {
                asked.is_debug = true;
                continue;
            }
            if name.starts_with("mhook") {
                return Err(Failure::usage(format!(
                    "{text}: memory of malloc is not put into global memory"
                ))
                .remedy("acp_malloc, or acp_register_memory for memory of the program's own"));
            }
            const KNOWN: [&str; 9] = [
                "np",
                "host",
                "nodefile",
                "ndev",
                "smemsize",
                "smemsize-cl",
                "smemsize-dl",
                "ssh",
                "ethspeed",
            ];
            if !KNOWN.contains(&name) {
                return Err(usage(format!("there is no option {text}")));
            }
            let value = rest.next().ok_or_else(|| usage(format!("{text} needs a value")))?;
            asked.take(name, value, read)?;
        }
        Err(usage("there is no program to start".into()))
    }

    fn take(
        &mut self,
        name: &str,
        value: &OsStr,
        read: &dyn Fn(&Path) -> std::io::Result<String>,
    ) -> Outcome {
        let text = value.to_str().unwrap_or_default();
        let number = || {
            let number = text.parse::<u64>().ok();
            number.ok_or_else(|| usage(format!("-{name} is a number, and not {}", value.display())))
        };
        let names =
            |text: &str| text.split([',', '\n']).map(str::trim).map(str::to_owned).collect::<Vec<_>>();
        match name {
            "np" => {
                self.processes =
                    Some(u16::try_from(number()?).map_err(|_| usage(format!("-np {text} is too much")))?)
            }
            "host" => self.hosts = names(text),
            "nodefile" => {
                let file = read(Path::new(value))
                    .map_err(|error| Failure::new(format!("{}: {error}", value.display())))?;
                self.hosts = names(&file);
            }
            "ndev" if text == "udp" => {}
            "ndev" => {
                return Err(Failure::usage(format!("-ndev {text}: there is no such device"))
                    .remedy("-ndev udp, which takes shared memory inside a host"));
            }
            "ssh" => self.ssh = Some(value.to_owned()),
            "ethspeed" => {
                number()?;
            }
            // Starter memory, and what channels and the heap have of it in the published library.
            _ => {
                number()?;
                let option = format!("--acp-size-smem{}", name.strip_prefix("smemsize").unwrap_or_default());
                self.for_library.extend([option.into(), value.to_owned()]);
            }
        }
        self.hosts.retain(|host| !host.is_empty());
        Ok(())
    }

    /// The arguments of `cci` for that.
    fn translate(self) -> Outcome<Vec<OsString>> {
        let processes =
            self.processes.ok_or_else(|| usage("-np says how many processes there are".into()))?;
        let mut arguments: Vec<OsString> = ["run", "-n", &processes.to_string()].map(OsString::from).into();
        if !self.hosts.is_empty() {
            // A host that is named twice takes twice as many.
            let each = usize::from(processes).div_ceil(self.hosts.len());
            let mut slots = BTreeMap::new();
            self.hosts.iter().for_each(|host| *slots.entry(host).or_insert(0) += each);
            let mut named = Vec::new();
            for host in &self.hosts {
                if let Some(slots) = slots.remove(host) {
                    let is_address = host.contains(':') && !host.starts_with('[');
                    let host = if is_address { format!("[{host}]") } else { host.clone() };
                    named.push(format!("{host}:{slots}"));
                }
            }
            arguments.extend(["--hosts".into(), named.join(",").into()]);
        }
        if let Some(ssh) = self.ssh {
            arguments.extend(["--ssh".into(), ssh]);
        }
        arguments.extend(self.program);
        arguments.extend(self.for_library);
        Ok(arguments)
    }
}

fn usage(what: String) -> Failure {
    Failure::usage(what).remedy("`acprun -help` lists the options")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(line: &str) -> Result<String, String> {
        let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let read = |path: &Path| match path.to_str() {
            Some("nodes") => Ok("one\ntwo\n\none\n".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        let arguments = Asked::parse(&arguments, &read).and_then(Asked::translate);
        let arguments = arguments.map_err(|failure| failure.message)?;
        Ok(arguments.iter().map(|word| word.to_str().unwrap_or_default()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn options_of_acprun_are_those_of_cci_run() {
        for (line, expected) in [
            ("-np 4 ./program -np 5", "run -n 4 ./program -np 5"),
            ("-np 3 -host a,b ./p x", "run -n 3 --hosts a:2,b:2 ./p x"),
            ("-np 1 -host fe80::1 ./p", "run -n 1 --hosts [fe80::1]:1 ./p"),
            ("-nodefile nodes -np 6 ./p", "run -n 6 --hosts one:4,two:2 ./p"),
            (
                "-np 2 -ndev udp -ssh ssh4 -ethspeed 1000 --debug -smemsize 4096 -smemsize-cl 1 -smemsize-dl 9 ./p x",
                "run -n 2 --ssh ssh4 ./p x --acp-size-smem 4096 --acp-size-smem-cl 1 --acp-size-smem-dl 9",
            ),
        ] {
            assert_eq!(translated(line).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn what_it_does_not_know_is_refused() {
        for (line, why) in [
            ("-np 2 -wrong ./p", "-wrong"),
            ("-np", "needs a value"),
            ("-np two ./p", "a number"),
            ("-np 70000 ./p", "too much"),
            ("-np 2 -smemsize -5 ./p", "a number"),
            ("-np 2 -ndev ib ./p", "no such device"),
            ("-np 2 -mhook-small ./p", "malloc"),
            ("-np 2", "no program"),
            ("./p", "-np says"),
            ("-np 2 -nodefile gone ./p", "gone"),
        ] {
            let refused = translated(line).expect_err(line);
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
