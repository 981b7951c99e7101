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
    let printed = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert_eq!(stranger.status.code(), Some(1), "{printed}");
    assert!(printed.contains("not permitted"), "{printed}");
    assert!(printed.contains("same user"), "it says what to do: {printed}");

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
    for (uid, address, why) in [
        (STRANGER_UID, "udp (any)", "not  shared memory: the process there is another user's"),
        (SERVER_UID, "shm (any)", "uses shared memory: the peer's endpoint is on this host"),
    ] {
        let output = ping(&command, uid, &server.uri);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains(address) && printed.contains(why), "{printed}");
    }
}

/// Another user was first to listen under a name: who looks for the endpoint there is not fooled.
#[test]
fn a_name_that_another_user_has_taken_fools_nobody() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    // A name that a program chose; and one of the kind that the library makes, which says whose it is: also to root, who may
    // connect with everybody.
    let chosen = format!("users-{}", std::process::id());
    let made = format!("u{SERVER_UID}-{:016x}", std::process::id());
    for (service, uid) in [(&chosen, SERVER_UID), (&made, SERVER_UID), (&made, 0)] {
        let squatter =
            Server::start_as(STRANGER_UID, &command, &["serve", "--device", "shm", "--service", service]);
        let victim = ping(&command, uid, &format!("shm://{service}"));
        let printed = String::from_utf8_lossy(&victim.stderr).into_owned();
        assert_eq!(victim.status.code(), Some(1), "{service}, user {uid}: {printed}");
        assert!(printed.contains("not permitted"), "{printed}");
        // The process that was meant can't listen there, and says so.
        let serve = ["serve", "--device", "shm", "--service", service];
        let output = Command::new(&command).args(serve).uid(SERVER_UID).gid(SERVER_UID).output().unwrap();
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
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    for uid in [0, SERVER_UID] {
        let config = folder.sealed(uid, "");
        let server = Server::start_with(uid, &command, &["serve", "--device", "lan"], Some(&config));
        let name = shm_name(&server.uri).expect("a part for shared memory");
        // Every user of the host finds the name.
        let names =
            Command::new("cat").arg("/proc/net/unix").uid(NOBODY_UID).gid(NOBODY_UID).output().unwrap();
        assert!(String::from_utf8_lossy(&names.stdout).contains(&format!("@cci/{name}")), "{name}");
        // Root, too, where it is not the user of the server.
        for stranger in [NOBODY_UID, if uid == 0 { STRANGER_UID } else { 0 }] {
            let output = ping(&command, stranger, &format!("shm://{name}"));
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(
                output.status.code(),
                Some(1),
                "user {stranger} at the server of user {uid}: {printed}"
            );
            assert!(printed.contains("not permitted"), "{printed}");
        }
        let own = ping(&command, uid, &format!("shm://{name}"));
        assert_eq!(own.status.code(), Some(0), "{}", String::from_utf8_lossy(&own.stderr));
    }
}

#[test]
fn where_names_have_rights_no_connection_goes_without_a_name() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so the files would have to be another user's");
        return;
    };
    for list in ["allow_connect", "allow_rma_read", "allow_rma_write"] {
        let config = folder.sealed(0, &format!("{list} = node1\n"));
        let server = Server::start_with(0, &command, &["serve", "--device", "lan"], Some(&config));
        assert_eq!(shm_name(&server.uri), None, "{list}: {}", server.uri);
        let arguments =
            ["ping", &server.uri, "--device", "lan", "--count", "2", "--interval", "1ms", "--explain"];
        let output = Command::new(&command).args(arguments).env("CCI_CONFIG", &config).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{printed}{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains("peer node1 known by Noise"), "{list}: {printed}");
    }
}

#[test]
fn root_serves_other_users_only_where_its_configuration_says_so() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    for device in ["shm", "any"] {
        let server = Server::start_with(0, &command, &["serve", "--device", device], None);
        let name = if device == "any" { shm_name(&server.uri) } else { server.uri.strip_prefix("shm://") };
        let output = ping(&command, NOBODY_UID, &format!("shm://{}", name.expect("a name")));
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{device}: {printed}");
        assert!(
            printed.contains("not permitted") && printed.contains("all_users = on"),
            "{device}: {printed}"
        );
    }
    let config = folder.file(0, "open.ini", "[open]\ntransport = shm\nall_users = on\n");
    for uid in [0, SERVER_UID] {
        let server = Server::start_with(uid, &command, &["serve", "--device", "open"], Some(&config));
        let output = ping(&command, NOBODY_UID, &server.uri);
        assert_eq!(output.status.code(), Some(0), "user {uid}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_client_trusts_its_own_user_root_and_whom_it_named() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    let config = folder.file(0, "open.ini", "[open]\ntransport = shm\nall_users = on\n");
    let chosen = format!("trust-{}", std::process::id());
    let serve = ["serve", "--device", "open", "--service", &chosen];
    let server = Server::start_with(STRANGER_UID, &command, &serve, Some(&config));
    // The server is open to all; the name does not say whose it is.
    for uid in [0, SERVER_UID] {
        let output = ping(&command, uid, &server.uri);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "user {uid}: {printed}");
        assert!(printed.contains("not permitted"), "{printed}");
        let arguments = ["ping", &server.uri, "--device", "open", "--count", "1"];
        let output = Command::new(&command)
            .args(arguments)
            .env("CCI_CONFIG", &config)
            .uid(uid)
            .gid(uid)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "user {uid}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What an endpoint has mapped and open is out of reach for another user's process: its descriptors (rings, regions, bells) by
/// /proc, its memory by /proc and by tracing.
#[test]
fn another_users_process_reads_nothing_of_an_endpoint() {
    let folder = Folder::new();
    let Some(command) = folder.command() else {
        println!("skipped: not root, so no process of another user can be started");
        return;
    };
    let server = Server::start(&command, "shm");
    let own = ping(&command, SERVER_UID, &server.uri);
    assert_eq!(own.status.code(), Some(0), "{}", String::from_utf8_lossy(&own.stderr));
    let id = server.child.id();
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

struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(command: &Path, device: &str) -> Server {
        Server::start_as(SERVER_UID, command, &["serve", "--device", device])
    }

    fn start_as(uid: u32, command: &Path, arguments: &[&str]) -> Server {
        Server::start_with(uid, command, arguments, None)
    }

    fn start_with(uid: u32, command: &Path, arguments: &[&str], config: Option<&Path>) -> Server {
        let mut command = Command::new(command);
        command.args(arguments).uid(uid).gid(uid).stdout(Stdio::piped());
        if let Some(config) = config {
            command.env("CCI_CONFIG", config);
        }
        let mut child = command.spawn().unwrap();
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
