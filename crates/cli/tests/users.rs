//! Two users on one host: a process of another user can't connect over shared memory; the same user can.

mod common;

use common::{Server, stderr, stdout};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Users that own nothing; they need not be in any table.
const SERVER_UID: u32 = 65_530;
const STRANGER_UID: u32 = 65_531;

#[test]
fn another_users_process_may_not_connect_over_shared_memory() {
    let Some(folder) = Folder::with_command() else { return };
    let server = folder.serve(SERVER_UID, &["--device", "shm"], None);
    // It says what to do.
    folder.check_ping(STRANGER_UID, &server.uri, 1, &["not permitted", "same user"]);
    folder.check_ping(SERVER_UID, &server.uri, 0, &[]);
    folder.check_ping(0, &server.uri, 0, &[]);
}

#[test]
fn another_users_process_goes_another_way_on_the_device_any() {
    let Some(folder) = Folder::with_command() else { return };
    let server = folder.serve(SERVER_UID, &["--device", "any"], None);
    if !server.uri.contains(",udp=") {
        println!("skipped: no network interface is up here");
        return;
    }
    for (uid, address, why) in [
        (STRANGER_UID, "udp (any)", "not  shared memory: the process there is another user's"),
        (SERVER_UID, "shm (any)", "uses shared memory: the peer's endpoint is on this host"),
    ] {
        let output = folder.ping(uid, &server.uri);
        let printed = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{printed}{}", stderr(&output));
        assert!(printed.contains(address) && printed.contains(why), "{printed}");
    }
}

/// Another user was first to listen under a name: who looks for the endpoint there is not fooled.
#[test]
fn a_name_that_another_user_has_taken_fools_nobody() {
    let Some(folder) = Folder::with_command() else { return };
    // A name that a program chose; and one of the kind that the library makes, which says whose it is: also to root, who may
    // connect with everybody.
    let chosen = format!("users-{}", std::process::id());
    let made = format!("u{SERVER_UID}-{:016x}", std::process::id());
    for (service, uid) in [(&chosen, SERVER_UID), (&made, SERVER_UID), (&made, 0)] {
        let serve = ["serve", "--device", "shm", "--service", service];
        let squatter = folder.serve(STRANGER_UID, &serve[1..], None);
        folder.check_ping(uid, &format!("shm://{service}"), 1, &["not permitted"]);
        // The process that was meant can't listen there, and says so.
        let output = folder.command(SERVER_UID, &serve).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        drop(squatter);
    }
}

/// Whom nobody knows, and who has no key.
const NOBODY_UID: u32 = 65_534;
const KEY: &str = "node1 = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// The name of the server's shared-memory socket, as its URI lists it.
fn shm_name(uri: &str) -> Option<&str> {
    uri.split([',', '/']).find_map(|part| part.strip_prefix("shm="))
}

#[test]
fn a_sealed_endpoint_is_closed_to_other_users_of_the_host() {
    let Some(folder) = Folder::with_command() else { return };
    for uid in [0, SERVER_UID] {
        let config = folder.sealed(uid, "");
        let server = folder.serve(uid, &["--device", "lan"], Some(&config));
        let name = shm_name(&server.uri).expect("a part for shared memory");
        // Every user of the host finds the name.
        let names =
            Command::new("cat").arg("/proc/net/unix").uid(NOBODY_UID).gid(NOBODY_UID).output().unwrap();
        assert!(String::from_utf8_lossy(&names.stdout).contains(&format!("@cci/{name}")), "{name}");
        // Root, too, where it is not the user of the server.
        for stranger in [NOBODY_UID, if uid == 0 { STRANGER_UID } else { 0 }] {
            folder.check_ping(stranger, &format!("shm://{name}"), 1, &["not permitted"]);
        }
        folder.check_ping(uid, &format!("shm://{name}"), 0, &[]);
    }
}

#[test]
fn where_names_have_rights_no_connection_goes_without_a_name() {
    let Some(folder) = Folder::with_command() else { return };
    for list in ["allow_connect", "allow_rma_read", "allow_rma_write"] {
        let config = folder.sealed(0, &format!("{list} = node1\n"));
        let server = folder.serve(0, &["--device", "lan"], Some(&config));
        assert_eq!(shm_name(&server.uri), None, "{list}: {}", server.uri);
        let arguments =
            ["ping", &server.uri, "--device", "lan", "--count", "2", "--interval", "1ms", "--explain"];
        let output = folder.command(0, &arguments).env("CCI_CONFIG", &config).output().unwrap();
        let printed = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{printed}{}", stderr(&output));
        assert!(printed.contains("peer node1 known by Noise"), "{list}: {printed}");
    }
}

#[test]
fn root_serves_other_users_only_where_its_configuration_says_so() {
    let Some(folder) = Folder::with_command() else { return };
    for device in ["shm", "any"] {
        let server = folder.serve(0, &["--device", device], None);
        let name = if device == "any" { shm_name(&server.uri) } else { server.uri.strip_prefix("shm://") };
        let uri = format!("shm://{}", name.expect("a name"));
        folder.check_ping(NOBODY_UID, &uri, 1, &["not permitted", "all_users = on"]);
    }
    let config = folder.file(0, "open.ini", "[open]\ntransport = shm\nall_users = on\n");
    for uid in [0, SERVER_UID] {
        let server = folder.serve(uid, &["--device", "open"], Some(&config));
        folder.check_ping(NOBODY_UID, &server.uri, 0, &[]);
    }
}

#[test]
fn a_client_trusts_its_own_user_root_and_whom_it_named() {
    let Some(folder) = Folder::with_command() else { return };
    let config = folder.file(0, "open.ini", "[open]\ntransport = shm\nall_users = on\n");
    let chosen = format!("trust-{}", std::process::id());
    let server = folder.serve(STRANGER_UID, &["--device", "open", "--service", &chosen], Some(&config));
    // The server is open to all; the name does not say whose it is.
    for uid in [0, SERVER_UID] {
        folder.check_ping(uid, &server.uri, 1, &["not permitted"]);
        let arguments = ["ping", &server.uri, "--device", "open", "--count", "1"];
        let output = folder.command(uid, &arguments).env("CCI_CONFIG", &config).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "user {uid}: {}", stderr(&output));
    }
}

/// What an endpoint has mapped and open is out of reach for another user's process: its descriptors (rings, regions, bells) by
/// /proc, its memory by /proc and by tracing.
#[test]
fn another_users_process_reads_nothing_of_an_endpoint() {
    let Some(folder) = Folder::with_command() else { return };
    let server = folder.serve(SERVER_UID, &["--device", "shm"], None);
    folder.check_ping(SERVER_UID, &server.uri, 0, &[]);
    let id = server.process.id();
    let tries = [
        format!("ls /proc/{id}/fd"),
        format!("cat /proc/{id}/maps"),
        format!("head -c 1 /proc/{id}/mem"),
        format!("for n in 3 4 5 6 7 8 9 10 11 12; do head -c 1 /proc/{id}/fd/$n && exit 0; done; exit 1"),
        format!("kill -STOP {id}"),
    ];
    for what in tries {
        let output =
            Command::new("sh").args(["-c", &what]).uid(STRANGER_UID).gid(STRANGER_UID).output().unwrap();
        assert!(!output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
        assert!(output.stdout.is_empty(), "{what}: {}", String::from_utf8_lossy(&output.stdout));
    }
    // Nothing of it lies in a file system.
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let theirs = files.filter(|file| {
        let owner = file.metadata().map(|data| std::os::unix::fs::MetadataExt::uid(&data));
        owner.is_ok_and(|uid| uid == SERVER_UID)
    });
    assert_eq!(theirs.count(), 0);
}

/// A place where every user may run the command: the build folder may lie in root's home.
struct Folder(PathBuf);

impl Folder {
    /// With a copy of the command. `None`, and a word on that, if this process can't become another user.
    fn with_command() -> Option<Folder> {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = Folder(std::env::temp_dir().join(format!("cci-users-{}-{number}", std::process::id())));
        std::fs::create_dir(&folder.0).unwrap();
        let copy = folder.0.join("cci");
        std::fs::copy(env!("CARGO_BIN_EXE_cci"), &copy).unwrap();
        for path in [&folder.0, &copy] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let tried = folder.command(STRANGER_UID, &["--version"]).output();
        if tried.is_ok_and(|output| output.status.success()) {
            return Some(folder);
        }
        println!("skipped: not root, so no process of another user can be started");
        None
    }

    /// The command as a user runs it.
    fn command(&self, uid: u32, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.join("cci"));
        command.args(arguments).uid(uid).gid(uid).env_remove("CCI_CONFIG");
        command
    }

    fn ping(&self, uid: u32, uri: &str) -> Output {
        let arguments = ["ping", uri, "--count", "2", "--interval", "1ms", "--timeout", "5s", "--explain"];
        self.command(uid, &arguments).output().unwrap()
    }

    /// A ping that ends like this, and says that on standard error.
    #[track_caller]
    fn check_ping(&self, uid: u32, uri: &str, code: i32, words: &[&str]) {
        let output = self.ping(uid, uri);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "user {uid} at {uri}: {printed}");
        assert!(words.iter().all(|word| printed.contains(word)), "user {uid} at {uri}: {printed}");
    }

    fn serve(&self, uid: u32, arguments: &[&str], config: Option<&Path>) -> Server {
        let mut command = self.command(uid, &[&["serve"], arguments].concat());
        config.map(|config| command.env("CCI_CONFIG", config));
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let uri_in =
            |line: String| line.split_whitespace().find(|word| word.contains("://")).map(str::to_owned);
        let uri = lines.by_ref().map_while(Result::ok).find_map(uri_in).expect("the server prints its URI");
        // Its later lines must not fill the pipe; they end with it.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, uri }
    }
}

impl Folder {
    /// A file that belongs to a user and that others may read, but for keys.
    fn file(&self, uid: u32, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        let mode = if name.ends_with(".psk") { 0o600 } else { 0o644 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        path
    }

    /// The configuration of a sealed device `lan` on every path, for a server of this user.
    fn sealed(&self, uid: u32, lines: &str) -> PathBuf {
        let key = self.file(uid, &format!("{uid}.psk"), KEY);
        let key = key.display();
        let text =
            format!("[lan]\ntransport = any\nip = 127.0.0.1\nsecurity = psk\npsk_file = {key}\n{lines}");
        self.file(uid, &format!("{uid}.ini"), &text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
