//! Services in processes of their own, which are killed.

use std::process::Command;

/// An example of this crate, which the test command has built.
fn example(name: &str) -> Command {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    Command::new(path.join("examples").join(name))
}

/// What the example says of `args`, which does well, on a device.
fn restarts(device: &str, args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cci.ini");
    std::fs::write(&config, format!("[{device}]\ntransport = {device}\n")).unwrap();
    let services = folder.path().join("services");
    std::fs::create_dir(&services).unwrap();
    let mut command = example("restarts");
    command.args(args).env("CCI_CONFIG", config);
    let output = command.env("CCI_DIRECTORY", format!("host:{}", services.display())).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{device}:\n{text}");
    assert!(output.status.success(), "{device}: {text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("each ended once").count(), 4, "{device}: {text}");
    text
}

#[test]
fn a_service_that_is_killed_under_load_loses_no_call() {
    for device in ["shm", "udp", "tcp", "any"] {
        let text = restarts(device, &["8"]);
        assert!(text.contains("killed and started anew 8 times"), "{device}: {text}");
        assert!(text.matches(" 0 lost").count() >= 3, "{device}: {text}");
    }
}

/// Nothing is lost of calls that only one process may carry out, either, and no value.
#[test]
fn a_service_that_is_handed_over_under_load_loses_nothing() {
    for device in ["shm", "udp", "tcp", "any"] {
        let text = restarts(device, &["3", "hand-over"]);
        assert!(text.contains("handed over 3 times"), "{device}: {text}");
        assert_eq!(text.matches(" 0 lost").count(), 4, "{device}: {text}");
    }
}

#[test]
fn what_is_published_comes_to_all_subscribers() {
    for device in ["shm", "udp", "tcp"] {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("cci.ini");
        std::fs::write(&config, format!("[{device}]\ntransport = {device}\n")).unwrap();
        let start = |args: &[&str]| {
            let mut command = example("news");
            command.args(args).env("CCI_CONFIG", &config);
            command.env("CCI_DIRECTORY", format!("host:{}", folder.path().display()));
            command.stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let subscribers = [start(&["subscribe"]), start(&["subscribe"])];
        let publisher = start(&["publish", "2", "first", "second"]).wait_with_output().unwrap();
        assert!(publisher.status.success(), "{device}: {publisher:?}");
        for subscriber in subscribers {
            let output = subscriber.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "listening\nfirst\nsecond\n", "{device}");
        }
    }
}
