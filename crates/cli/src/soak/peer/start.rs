//! How a peer process begins: what it is to be comes on standard input.

use super::super::talk::{PeerMessage, Setup};
use super::{messenger, process};
use crate::failure::{Failure, Outcome};
use std::io::BufRead;
use std::sync::mpsc;

/// Runs the subcommand.
pub fn run() -> Outcome {
    let mut lines = std::io::stdin().lock().lines();
    let setup = lines.next().and_then(Result::ok).and_then(|line| serde_json::from_str::<Setup>(&line).ok());
    let setup = setup.ok_or_else(|| {
        Failure::usage("this is a part of `cci soak`, which starts it").remedy("cci soak --help")
    })?;
    drop(lines);
    let (sender, orders) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else { break };
            if sender.send(order).is_err() {
                break;
            }
        }
    });
    let ended = if setup.messengers {
        messenger::Peer::new(setup, orders)?.run()
    } else {
        process::Peer::new(setup, orders)?.run()
    };
    match ended {
        Ok(()) => Ok(()),
        Err(failure) => {
            process::report(&PeerMessage::Wrong(failure.to_string()));
            Err(failure)
        }
    }
}
