//! What the command says where something can't be done: the reason that is the true one, and what to do.

mod common;

use common::*;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command under another program, such as `unshare`, which changes what it may do. None where that can't be run here.
fn under(program: &str, options: &[&str], args: &[&str]) -> Option<Output> {
    let run = |what: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(options).arg(what).args(args).env_remove("CCI_CONFIG").stdin(Stdio::null());
        command.output().ok()
    };
    if !run("true", &[])?.status.success() {
        println!("skipped: {program} does not work here");
        return None;
    }
    run(env!("CARGO_BIN_EXE_cci"), args)
}

/// The command after a shell's `ulimit`.
fn limited(limit: &str, args: &[&str]) -> Output {
    let script = format!("ulimit {limit}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_cci")]).args(args);
    command.env_remove("CCI_CONFIG").stdin(Stdio::null()).output().expect("a shell")
}

#[track_caller]
fn check_words(output: &Output, wanted: &[&str], unwanted: &[&str]) {
    let printed = format!("{}{}", stdout(output), stderr(output));
    for word in wanted {
        assert!(printed.contains(word), "{word:?} is missing in:\n{printed}");
    }
    for word in unwanted {
        assert!(!printed.contains(word), "{word:?} is in:\n{printed}");
    }
}

#[test]
fn info_does_not_deny_what_there_is() {
    check_words(&cci(&["info"]), &["encryption", "security = psk"], &["not in this version"]);
    assert!(json(&cci(&["info", "--json"])).get("not_in_this_version").is_none());
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let output = cci(&["serve", "--device", "shm", "--service", "/nonexist/x"]);
    assert_eq!(output.status.code(), EXIT_FAILED);
    check_words(
        &output,
        &["folder /nonexist does not exist", "mkdir -p /nonexist"],
        &["lock", "--service bench"],
    );

    let folder = folder("directory");
    let ini = folder.join("devices.ini");
    std::fs::write(&ini, "[mine]\ntransport = shm\ndirectory = /nonexist\n").expect("written");
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        command.args(args).env("CCI_CONFIG", &ini).stdin(Stdio::null()).output().expect("it runs")
    };
    let output = run(&["serve", "--device", "mine"]);
    assert_eq!(output.status.code(), EXIT_FAILED);
    check_words(&output, &["/nonexist", "`directory`", "does not exist"], &["lock", "--service bench"]);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_configuration_without_a_device_is_named() {
    let folder = folder("empty");
    let ini = folder.join("empty.ini");
    for text in ["", "# nothing yet\n"] {
        std::fs::write(&ini, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        let output = command.arg("info").env("CCI_CONFIG", &ini).output().expect("it runs");
        assert_eq!(output.status.code(), EXIT_FAILED);
        check_words(
            &output,
            &["empty.ini", "names no device", "transport = shm"],
            &["neither shared memory"],
        );
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_device_without_the_right_for_it_is_not_called_down() {
    let info = json(&cci(&["info", "--json"]));
    let devices = info["devices"].as_array().expect("devices");
    let Some(eth) = devices.iter().find(|device| device["transport"] == "eth") else {
        println!("skipped: no Ethernet interface is up here");
        return;
    };
    let name = eth["name"].as_str().expect("a name");
    let without = ["--bounding-set=-net_raw", "--inh-caps=-net_raw"];
    let Some(output) = under("setpriv", &without, &["serve", "--device", name]) else { return };
    assert_eq!(output.status.code(), EXIT_FAILED);
    check_words(&output, &["not permitted", "CAP_NET_RAW"], &["is down", "ip link set"]);
}

#[test]
fn a_namespace_without_an_interface_that_is_up_is_told() {
    let Some(output) = under("unshare", &["-n"], &["info"]) else { return };
    check_words(&output, &["down: lo", "ip link set lo up"], &["nothing is unavailable"]);
    for uri in ["udp://127.0.0.1:7", "tcp://127.0.0.1:7"] {
        let Some(output) = under("unshare", &["-n"], &["ping", uri]) else { return };
        assert_eq!(output.status.code(), EXIT_FAILED);
        check_words(&output, &["no network interface is up", "ip link set lo up"], &[]);
    }
}

#[test]
fn the_limit_of_file_sizes_is_told() {
    let common = ["--iterations", "5", "--sizes", "8", "--only", "messages", "--type", "ro"];
    let perf = |device: &'static str, page: &str| {
        limited("-f 8", &[&["perf", "--device", device, "--html", page][..], &common[..]].concat())
    };
    let folder = folder("limited");
    let page = folder.join("page.html");
    let page = page.to_str().expect("UTF-8");
    // Nothing of shared memory fits.
    let output = perf("shm", page);
    assert_eq!(output.status.code(), EXIT_FAILED, "{}", stderr(&output));
    check_words(&output, &["limit of file sizes", "ulimit -f"], &[]);
    // The page does not fit, and that does not end the command by a signal.
    if devices().iter().any(|name| name == "udp-lo") {
        let output = perf("udp-lo", page);
        assert_eq!(output.status.code(), EXIT_FAILED, "{}", stderr(&output));
        check_words(&output, &["page.html", "limit of file sizes", "ulimit -f"], &[]);
    }
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Each URI of the examples is one that a server of the same examples serves.
#[test]
fn the_examples_of_the_help_work() {
    let mut tried = 0;
    for command in ["ping", "perf"] {
        let help = succeeded(&cci(&[command, "--help"]));
        let lines: Vec<Vec<&str>> = help.lines().map(|line| line.split_whitespace().collect()).collect();
        let word_after = |line: &[&str], option: &str| {
            line.windows(2).find(|pair| pair[0] == option).map(|pair| pair[1].to_owned())
        };
        let servers = lines.iter().filter(|line| line.contains(&"serve") || line.contains(&"--server"));
        let services: Vec<String> = servers.filter_map(|line| word_after(line, "--service")).collect();
        for line in &lines {
            for uri in line.iter().filter(|word| line.first() == Some(&"cci") && word.contains("://")) {
                let service = uri.rsplit(['/', ':']).next().expect("a service");
                assert!(services.iter().any(|known| known == service), "nothing serves {uri} in:\n{help}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 4, "{tried}");
}

/// A server for all devices with this service, which ends when it has announced `wanted`.
fn served(service: &str, wanted: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(["serve", "--service", service, "--lifeline", "--json"]).env_remove("CCI_CONFIG");
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = pipes.spawn().expect("the command starts");
    let mut lines = BufReader::new(server.stdout.take().expect("piped"));
    let mut announced = String::new();
    // Nothing is left to be read when it ends, whatever it has announced until then.
    while wanted.iter().any(|word| !announced.contains(word))
        && lines.read_line(&mut announced).expect("UTF-8") > 0
    {}
    let mut output = server.wait_with_output().expect("it ends with its standard input");
    lines.read_to_string(&mut announced).expect("UTF-8");
    output.stdout = announced.into_bytes();
    output
}

/// With a service, no device takes what another one of the same command has.
#[test]
fn a_server_on_every_device_does_not_collide_with_itself() {
    let service = (4000 + std::process::id() % 20_000).to_string();
    let wanted = ["\"any\"", &format!("shm://{service}")];
    check_words(&served(&service, &wanted), &wanted, &["in use", "left out"]);
    let name = format!("words-{}", std::process::id());
    let wanted = ["\"any\"", &format!("shm://{name}")];
    let output = served(&name, &wanted);
    check_words(&output, &wanted, &["in use"]);
    let left_out = stderr(&output).lines().filter(|line| line.contains("left out")).count();
    assert!(left_out <= 1, "one line for all devices that need a number: {}", stderr(&output));
}

#[test]
fn the_alias_shows_the_progress_of_a_build() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cargo/config.toml");
    let text = std::fs::read_to_string(config).expect("the configuration of cargo");
    let alias = text.lines().find(|line| line.starts_with("cci =")).expect("the alias");
    assert!(!alias.contains("--quiet"), "a build of minutes would be silent: {alias}");
}
