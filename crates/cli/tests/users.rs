//! Two users on one host: a process of another user can't connect over shared memory; the same user can.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Users that own nothing; they need not be in any table.
const SERVER_UID: u32 = 65_530;
const STRANGER_UID: u32 = 65_531;

#[test]
fn another_users_process_may_not_connect_over_shared_memory() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    let server = Server::start(&command, "shm");
    let stranger = ping(&command, STRANGER_UID, &server.uri);
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert_eq!(stranger.status.code(), Some(1), "{said}");
    assert!(said.contains("not permitted"), "{said}");
    assert!(said.contains("same user"), "it says what to do: {said}");

    let own = ping(&command, SERVER_UID, &server.uri);
    assert_eq!(own.status.code(), Some(0), "{}", String::from_utf8_lossy(&own.stderr));
    let root = ping(&command, 0, &server.uri);
    assert_eq!(root.status.code(), Some(0), "{}", String::from_utf8_lossy(&root.stderr));
}

#[test]
fn another_users_process_goes_another_way_on_the_device_any() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    let server = Server::start(&command, "any");
    if !server.uri.contains(",udp=") {
        println!("skipped: no network interface is up here");
        return;
    }
    for (uid, way, why) in [
        (STRANGER_UID, "udp (any)", "not  shared memory: the process there is another user's"),
        (SERVER_UID, "shm (any)", "uses shared memory: the peer's endpoint is on this host"),
    ] {
        let output = ping(&command, uid, &server.uri);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(way) && said.contains(why), "{said}");
    }
}

fn ping(command: &Path, uid: u32, uri: &str) -> Output {
    let arguments = ["ping", uri, "--count", "2", "--interval", "1ms", "--timeout", "5s", "--explain"];
    Command::new(command).args(arguments).uid(uid).gid(uid).output().unwrap()
}

/// A place where every user may run the command: the build folder may lie in root's home.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cci-users-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Folder(path)
    }

    /// The command's copy; None if this process can't become another user.
    fn command(&self) -> Option<PathBuf> {
        let copy = self.0.join("cci");
        std::fs::copy(env!("CARGO_BIN_EXE_cci"), &copy).unwrap();
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
        let tried = Command::new(&copy).arg("--version").uid(STRANGER_UID).gid(STRANGER_UID).output();
        tried.is_ok_and(|output| output.status.success()).then_some(copy)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(command: &Path, device: &str) -> Server {
        let mut child = Command::new(command)
            .args(["serve", "--device", device])
            .uid(SERVER_UID)
            .gid(SERVER_UID)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let uri = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_whitespace().find(|word| word.contains("://")).map(str::to_owned));
        let uri = uri.expect("the server prints its URI");
        // Its later lines must not fill the pipe; they end with it.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, uri }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
