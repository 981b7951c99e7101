//! Hosts that a test makes, and a command that reaches them as ssh would.
//!
//! A host is a thread of the test: what it starts is no descendant of `cci run`, and is in a network namespace of its own,
//! with a name of its own, where the system allows that. The command passes its standard streams on through named pipes.

use super::{folder, wait_until};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// `HOST COMMAND`, as ssh is called. What ends it closes the pipes, as the end of a connection does.
const SSH: &str = r#"#!/bin/bash
host=$1; shift
at=${0%/*}/$$
printf '%s' "$*" > $at.command
mkfifo $at.in $at.out $at.err
echo "$$ $host" > ${0%/*}/requests
exec 3<&0
cat <&3 3<&- > $at.in &
cat $at.err >&2 &
errors=$!
cat $at.out
wait $errors
for turn in $(seq 500); do [ -s $at.code ] && break; sleep 0.01; done
exit $(cat $at.code)
"#;

/// Any hosts, by any names.
pub struct Hosts {
    folder: PathBuf,
    mark: String,
}

impl Hosts {
    /// `mark` is in the environment of all that runs there: `NAME=VALUE`.
    pub fn start(name: &str, mark: &str) -> Hosts {
        let folder = folder(name);
        let requests = folder.join("requests");
        assert!(Command::new("mkfifo").arg(&requests).status().expect("mkfifo").success());
        let hosts = Hosts { folder: folder.clone(), mark: mark.to_owned() };
        fs::write(hosts.ssh(), SSH).expect("a script");
        fs::set_permissions(hosts.ssh(), fs::Permissions::from_mode(0o755)).expect("a script");
        // Open for writing too, so that it does not end between requests.
        let requests = OpenOptions::new().read(true).write(true).open(requests).expect("the pipe");
        let mark = mark.to_owned();
        thread::spawn(move || {
            for request in BufReader::new(requests).lines().map_while(Result::ok) {
                let (id, host) = request.split_once(' ').expect("who asks, and for what");
                serve(&folder.join(id), host.to_owned(), &mark);
            }
        });
        hosts
    }

    /// The command, for `--ssh`.
    pub fn ssh(&self) -> PathBuf {
        self.folder.join("ssh")
    }

    /// What `cci run` needs to reach `hosts`.
    pub fn args(&self, hosts: &str) -> Vec<String> {
        ["--hosts", hosts, "--ssh", self.ssh().to_str().expect("a path")].map(str::to_owned).to_vec()
    }

    /// Nothing that was started there runs any more, nor what that has started.
    pub fn assert_empty(&self) {
        wait_until("nothing is left on the hosts", || super::marked(&self.mark).is_empty());
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(at: &std::path::Path, host: String, mark: &str) {
    let file = |what: &str| at.with_extension(what);
    let (line, code) = (fs::read_to_string(file("command")).expect("a command"), file("code"));
    let (input, output, error) = (file("in"), file("out"), file("err"));
    let (name, value) = mark.split_once('=').expect("a variable");
    let environment = HashMap::from([(name, value), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")])
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect::<Vec<_>>();
    thread::spawn(move || {
        let mut command = Command::new("unshare");
        let named = format!("hostname {host} && ip link set lo up; {line}");
        command.args(["--net", "--uts", "sh", "-c", &named]).env_clear().envs(environment).current_dir("/");
        // Each waits for the other side of its pipe.
        let open = |path: PathBuf| OpenOptions::new().write(true).open(path);
        let input = File::open(input).expect("a pipe");
        let (error, output) = (open(error).expect("a pipe"), open(output).expect("a pipe"));
        let mut child = command
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(error))
            .spawn()
            .expect("unshare");
        drop(command);
        let status = child.wait().expect("a child");
        // Whoever asked may have gone, and the folder with it.
        let _ = fs::write(code, status.code().unwrap_or(255).to_string());
    });
}
