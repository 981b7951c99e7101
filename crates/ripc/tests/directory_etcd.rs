//! Directories in etcd: Debian's `etcd-server`, started by the tests, killed and stopped.
#![cfg(feature = "etcd")]

use cci_ripc::directory::{self, Directory, Instance, Kind, News, Record};
use cci_ripc::{ClaimError, ServiceName};
use cci_sys::process::{Signal, send_signal};
use etcd_client::{Client, PermissionType};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A safety net: nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The directory of a process that was started by a test.
const VARIABLE: &str = "CCI_TEST_ETCD";

struct Etcd {
    child: Child,
    port: u16,
    peer_port: u16,
    tls: Vec<String>,
    folder: tempfile::TempDir,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn is_there() -> bool {
    let version = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_there = version.is_ok_and(|status| status.success());
    if !is_there {
        println!("skipped: there is no etcd here; on Debian, install etcd-server");
    }
    is_there
}

impl Etcd {
    /// None: there is none on this machine.
    fn start() -> Option<Etcd> {
        Etcd::start_with(&[])
    }

    fn start_with(tls: &[String]) -> Option<Etcd> {
        is_there().then(|| {
            let folder = tempfile::tempdir().unwrap();
            let (port, peer_port) = (free_port(), free_port());
            let tls = tls.to_vec();
            Etcd { child: Etcd::spawn(folder.path(), port, peer_port, &tls), port, peer_port, tls, folder }
        })
    }

    fn spawn(folder: &Path, port: u16, peer_port: u16, tls: &[String]) -> Child {
        let scheme = if tls.is_empty() { "http" } else { "https" };
        let (client, peer) =
            (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let child = Command::new("etcd")
            .args(["--data-dir", folder.join("data").to_str().unwrap(), "--name", "test"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("test={peer}"), "--logger", "zap", "--log-level", "error"])
            .args(tls)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let patience = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < patience, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// A directory whose entries outlive what may hold a living process up on a busy machine.
    fn text(&self, options: &str) -> String {
        format!("etcd://127.0.0.1:{}?ttl=10{options}", self.port)
    }

    /// A directory for those who are to die: their entries vanish soon.
    fn text_of_the_dying(&self) -> String {
        format!("etcd://127.0.0.1:{}?ttl=2", self.port)
    }

    fn open(&self) -> Box<dyn Directory> {
        directory::open(&self.text("")).unwrap()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn again(&mut self) {
        self.child = Etcd::spawn(self.folder.path(), self.port, self.peer_port, &self.tls);
    }

    /// Does something with etcd itself.
    fn with<T>(&self, work: impl AsyncFnOnce(Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect([format!("http://127.0.0.1:{}", self.port)], None).await.unwrap();
            work(client).await
        })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

fn record(service: &str, instance: u64, kind: Kind) -> Record {
    let uris = vec![format!("shm://{service}-{instance}")];
    Record { service: name(service), instance: Instance(instance), kind, uris }
}

fn service(instance: u64) -> Record {
    record("kv", instance, Kind::Service)
}

/// Claims; while etcd starts, it answers that it has no leader yet.
fn claim(directory: &mut dyn Directory, record: &Record) -> Result<(), ClaimError> {
    let patience = Instant::now() + PATIENCE;
    loop {
        match directory.claim(record) {
            Err(ClaimError::Directory { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(50));
            }
            claimed => return claimed,
        }
    }
}

fn wait_for(directory: &mut dyn Directory, what: &str, is_it: impl Fn(&News) -> bool) -> News {
    let patience = Instant::now() + PATIENCE;
    let mut last = None;
    loop {
        match directory.poll() {
            Some(news) if is_it(&news) => return news,
            Some(news) => last = Some(news),
            None => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(Instant::now() < patience, "no news: {what}; the last was {last:?}");
    }
}

fn wait_found(directory: &mut dyn Directory, instance: u64) {
    let is_it = |news: &News| matches!(news, News::Found { records, .. } if records[0].instance == Instance(instance));
    wait_for(directory, "found", is_it);
}

fn ask_until_found(directory: &mut dyn Directory) {
    let patience = Instant::now() + PATIENCE;
    loop {
        directory.ask(&name("kv"));
        let answer = wait_for(directory, "an answer", |_| true);
        if matches!(answer, News::Found { .. }) {
            return;
        }
        assert!(Instant::now() < patience, "{answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn wait_absent(directory: &mut dyn Directory) {
    wait_for(directory, "absent", |news| matches!(news, News::Absent { .. }));
}

/// A process with a claim, which reports when it has lost it.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    _input: ChildStdin,
}

impl Process {
    fn start(directory: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_of_a_test", "--nocapture"])
            .env(VARIABLE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let _input = child.stdin.take().unwrap();
        let mut process = Process { child, output, _input };
        assert_eq!(process.read(), "claimed");
        process
    }

    fn read(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the process has ended");
            if let Some((_, said)) = line.trim_end().split_once("said: ") {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// No test of its own: what [`Process::start`] starts.
#[test]
fn a_process_of_a_test() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let mut directory = directory::open(&text).unwrap();
    claim(&mut *directory, &service(7)).unwrap();
    println!("said: claimed");
    std::io::stdout().flush().unwrap();
    let lost = wait_for(&mut *directory, "a loss", |news| matches!(news, News::Lost { .. }));
    println!("said: {lost:?}");
}

#[test]
fn services_are_claimed_found_and_withdrawn() {
    let Some(etcd) = Etcd::start() else { return };
    let (mut one, mut other) = (etcd.open(), etcd.open());
    assert!(other.descriptor().is_some());
    claim(&mut *one, &service(1)).unwrap();
    other.ask(&name("kv"));
    wait_found(&mut *other, 1);
    let refused = other.claim(&service(2)).unwrap_err();
    assert!(matches!(&refused, ClaimError::Taken { by, .. } if by.contains("shm://kv-1")), "{refused}");
    let refused = other.claim(&record("kv", 3, Kind::Member)).unwrap_err();
    assert!(matches!(refused, ClaimError::Taken { .. }), "{refused}");

    // Told without being asked again: it is gone, and it is elsewhere.
    one.withdraw(&name("kv"), Instance(1));
    wait_absent(&mut *other);
    other.claim(&service(2)).unwrap();
    wait_found(&mut *other, 2);
    one.withdraw(&name("kv"), Instance(2));
    drop(one);
    other.ask(&name("kv"));
    wait_found(&mut *other, 2);

    let mut third = etcd.open();
    for instance in 1..=3 {
        other.claim(&record("news", instance, Kind::Member)).unwrap();
    }
    claim(&mut *third, &record("news", 4, Kind::Member)).unwrap();
    assert!(third.claim(&record("news", 5, Kind::Service)).is_err());
    third.ask(&name("news"));
    let all = |news: &News| matches!(news, News::Found { records, .. } if records.len() == 4);
    wait_for(&mut *third, "all members", all);
    drop(other);
    let one = |news: &News| matches!(news, News::Found { records, .. } if records.len() == 1);
    wait_for(&mut *third, "the one that is left", one);
}

#[test]
fn of_two_that_claim_a_name_at_once_exactly_one_wins() {
    let Some(etcd) = Etcd::start() else { return };
    let mut directories = [etcd.open(), etcd.open()];
    for (index, directory) in directories.iter_mut().enumerate() {
        claim(&mut **directory, &record(&format!("warm-{index}"), 1, Kind::Service)).unwrap();
    }
    for round in 0..50 {
        let won = std::thread::scope(|scope| {
            let claims: Vec<_> = directories
                .iter_mut()
                .enumerate()
                .map(|(index, directory)| {
                    let record = record(&format!("n-{round}"), 1 + index as u64, Kind::Service);
                    scope.spawn(move || claim(&mut **directory, &record).is_ok())
                })
                .collect();
            claims.into_iter().map(|claim| claim.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(won, 1, "round {round}");
    }
}

#[test]
fn the_dead_vanish_with_their_leases() {
    let Some(etcd) = Etcd::start() else { return };
    let mut here = etcd.open();
    let process = Process::start(&etcd.text_of_the_dying());
    here.ask(&name("kv"));
    wait_found(&mut *here, 7);
    drop(process);
    wait_absent(&mut *here);
}

#[test]
fn who_slept_through_its_lease_hears_that_its_name_is_lost() {
    let Some(etcd) = Etcd::start() else { return };
    let mut here = etcd.open();
    let mut process = Process::start(&etcd.text_of_the_dying());
    here.ask(&name("kv"));
    wait_found(&mut *here, 7);
    send_signal(process.child.id(), Signal::Stop).unwrap();
    wait_absent(&mut *here);
    claim(&mut *here, &service(8)).unwrap();
    send_signal(process.child.id(), Signal::Continue).unwrap();
    let said = process.read();
    assert!(said.contains("Lost") && said.contains("shm://kv-8"), "{said}");
    here.ask(&name("kv"));
    wait_found(&mut *here, 8);
}

#[test]
fn an_etcd_that_is_down_is_said_to_be_and_what_was_claimed_comes_back() {
    let Some(mut etcd) = Etcd::start() else { return };
    let (mut one, mut other) = (etcd.open(), etcd.open());
    claim(&mut *one, &service(1)).unwrap();
    other.ask(&name("kv"));
    wait_found(&mut *other, 1);

    etcd.kill();
    let is_down =
        |news: &News| matches!(news, News::Failed { reason, .. } if reason.contains("http://127.0.0.1"));
    wait_for(&mut *other, "that it is down", is_down);
    let refused = other.claim(&record("new", 1, Kind::Service)).unwrap_err().to_string();
    assert!(refused.contains("look whether etcd runs"), "{refused}");
    other.ask(&name("kv"));
    wait_for(&mut *other, "that it is still down", is_down);

    etcd.again();
    wait_found(&mut *other, 1);

    // And if it has lost its memory, too.
    etcd.kill();
    std::fs::remove_dir_all(etcd.folder.path().join("data")).unwrap();
    etcd.again();
    ask_until_found(&mut *other);
}

#[test]
fn an_etcd_that_stalls_is_given_up_and_found_again() {
    let Some(etcd) = Etcd::start() else { return };
    let (mut one, mut other) = (etcd.open(), etcd.open());
    claim(&mut *one, &service(1)).unwrap();
    other.ask(&name("kv"));
    wait_found(&mut *other, 1);
    send_signal(etcd.child.id(), Signal::Stop).unwrap();
    wait_for(&mut *other, "that it stalls", |news| matches!(news, News::Failed { .. }));
    send_signal(etcd.child.id(), Signal::Continue).unwrap();
    wait_found(&mut *other, 1);
    let refused = claim(&mut *other, &service(2)).unwrap_err();
    assert!(matches!(refused, ClaimError::Taken { .. }), "{refused}");
}

#[test]
fn malformed_records_are_named_and_a_removed_one_is_entered_again() {
    let Some(etcd) = Etcd::start() else { return };
    let mut here = etcd.open();
    claim(&mut *here, &record("other", 1, Kind::Service)).unwrap();
    here.ask(&name("kv"));
    wait_absent(&mut *here);
    let of_other = service(9).to_string().replace(" kv ", " files ");
    for (value, word) in [
        (&b"nonsense"[..], "does not begin with"),
        (b"\xff\xfe", "not UTF-8"),
        (&vec![b'x'; 500_000], "over 4,096 bytes"),
        (of_other.as_bytes(), "something else"),
    ] {
        etcd.with(async |mut client| client.put("/cci/services/kv/service", value, None).await.unwrap());
        let failed = wait_for(&mut *here, word, |news| matches!(news, News::Failed { .. }));
        let News::Failed { reason, .. } = failed else { unreachable!() };
        assert!(reason.contains(word) && reason.contains("/cci/services/kv/service"), "{reason}");
    }
    etcd.with(async |mut client| client.put("/cci/services/kv/strange/key", "x", None).await.unwrap());
    let taken = here.claim(&service(1)).unwrap_err();
    assert!(matches!(taken, ClaimError::Taken { .. }), "{taken}");
    for key in ["/cci/services/kv/service", "/cci/services/kv/strange/key"] {
        etcd.with(async |mut client| client.delete(key, None).await.unwrap());
    }
    wait_absent(&mut *here);
    here.claim(&service(1)).unwrap();
    wait_found(&mut *here, 1);

    // Somebody removes the record of a service that lives.
    let mut third = etcd.open();
    third.ask(&name("kv"));
    wait_found(&mut *third, 1);
    etcd.with(async |mut client| client.delete("/cci/services/kv/service", None).await.unwrap());
    ask_until_found(&mut *third);
    // Or another one is put in its place.
    etcd.with(async |mut client| {
        client.put("/cci/services/kv/service", service(5).to_string(), None).await.unwrap()
    });
    let lost = wait_for(&mut *here, "the loss", |news| matches!(news, News::Lost { .. }));
    assert!(matches!(lost, News::Lost { to, .. } if to.contains("shm://kv-5")));
}

#[test]
fn users_and_passwords_are_etcds() {
    let Some(etcd) = Etcd::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    claim(&mut *etcd.open(), &record("warm", 1, Kind::Service)).unwrap();
    etcd.with(async |mut client| {
        client.user_add("root", "secret", None).await.unwrap();
        client.user_grant_role("root", "root").await.unwrap();
        client.role_add("services").await.unwrap();
        let permission =
            etcd_client::Permission::new(PermissionType::Readwrite, "/cci/services/").with_prefix();
        client.role_grant_permission("services", permission).await.unwrap();
        client.user_add("node", "open sesame", None).await.unwrap();
        client.user_grant_role("node", "services").await.unwrap();
        client.auth_enable().await.unwrap();
    });
    let open = |password: &str| {
        let text = etcd.text(&format!("&user=node&password-file={password}"));
        directory::open(&text).unwrap()
    };
    let refused = etcd.open().claim(&service(1)).unwrap_err().to_string();
    assert!(refused.contains("user name is empty"), "{refused}");
    let refused = open(&file("wrong", "wrong\n")).claim(&service(1)).unwrap_err().to_string();
    assert!(refused.contains("authentication failed"), "{refused}");
    let mut good = open(&file("good", "open sesame\n"));
    claim(&mut *good, &service(1)).unwrap();
    good.ask(&name("kv"));
    wait_found(&mut *good, 1);
}

/// An authority, and a certificate for 127.0.0.1 with its key. None: there is no openssl here.
fn certificates(folder: &Path) -> Option<()> {
    let run = |arguments: &str| -> Option<()> {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
        openssl.status().is_ok_and(|status| status.success()).then_some(())
    };
    let usage = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";
    std::fs::write(folder.join("usage"), usage).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"))?;
    run(&format!("req {key} -keyout node.key -out node.csr -subj /CN=node"))?;
    run(
        "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out node.pem -extfile usage -days 2",
    )
}

#[test]
fn tls_proves_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    if !is_there() || certificates(folder.path()).is_none() {
        return println!("skipped: it takes etcd and openssl");
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let arguments = [
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", path("ca.pem")),
        format!("--cert-file={}", path("node.pem")),
        format!("--key-file={}", path("node.key")),
    ];
    let etcd = Etcd::start_with(&arguments).unwrap();
    let (authority, certificate, key) = (path("ca.pem"), path("node.pem"), path("node.key"));
    let text = etcd.text(&format!("&ca={authority}&certificate={certificate}&key={key}"));
    let mut good = directory::open(&text).unwrap();
    claim(&mut *good, &service(1)).unwrap();
    good.ask(&name("kv"));
    wait_found(&mut *good, 1);
    for options in [String::new(), format!("&ca={authority}")] {
        let mut bad = directory::open(&etcd.text(&options)).unwrap();
        let refused = bad.claim(&service(2)).unwrap_err();
        assert!(matches!(refused, ClaimError::Directory { .. }), "{options}: {refused}");
    }
}
