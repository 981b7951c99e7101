//! iceoryx2: `bench/peers/rust/src/bin/iceoryx2.rs`, the shape of its own publish-subscribe benchmark between two processes.

use super::leftovers::Tidied;
use super::program::{Installed, Program, no_launcher};

/// Its `ipc::Service`.
pub fn publish_subscribe(installed: &Installed) -> Tidied {
    let program = Program {
        name: "iceoryx2",
        program: "iceoryx2",
        transport: "ipc",
        set_up: "publish-subscribe, zero copy, polls; queue of 1, for the rate 256 that block",
        launcher: no_launcher,
        variables: &[],
        installed: installed.clone(),
    };
    Tidied { program, prefix: "cci-bench-iox2-" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::program::tests::line;
    use crate::reading::Reading;
    use crate::work::Work;
    use std::path::PathBuf;

    #[test]
    fn programs_are_called_as_they_expect_and_what_they_say_is_understood() {
        let installed = Installed::new(PathBuf::from("p"));
        let peer = publish_subscribe(&installed);
        assert_eq!(line(&peer.program, Work::HalfTrip { len: 8 }), "p/iceoryx2 half-trip 8 1000 ipc");
        let peer = crate::peers::aeron::udp(&installed);
        assert_eq!(line(&peer.program, Work::Rate { len: 64 }), "p/aeron rate 64 1000 udp");
        // As iceoryx2, Aeron (half trip, rate) and gRPC printed them.
        for (printed, value) in [
            (r#"{"value": 157.8, "unit": "ns"}"#, 157.8),
            (r#"{"value": 81.5, "unit": "ns"}"#, 81.5),
            (r#"{"value": 86302901.1, "unit": "1/s"}"#, 86_302_901.1),
            (r#"{"value": 10514641, "unit": "1/s"}"#, 10_514_641.0),
        ] {
            assert_eq!(serde_json::from_str::<Reading>(printed).unwrap(), Reading::of(value));
        }
    }
}
