//! A question to a multicast group and its answer, without a library: both sides sleep until a datagram comes.

use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::work::CONTACT_PAUSE;
use crate::worker::ours::connect::median;
use crate::worker::partner::{self, Partner};
use cci_measure::baseline::failed;
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 2);
const LIMIT: Duration = Duration::from_secs(20);
/// As long as the questions and answers of the directory.
const QUESTION_BYTES: usize = 480;
const ANSWER_BYTES: usize = 128;

/// What one question takes: the median. The partner asks, and reports it with its last question.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        ask(args, first)?;
        return Ok(None);
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("plain UDP"))?;
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).map_err(failed("joining a group"))?;
    socket.set_read_timeout(Some(LIMIT)).map_err(failed("plain UDP"))?;
    let address = socket.local_addr().map_err(failed("plain UDP"))?;
    let partner = Partner::start(args, &partner::site(args)?, &address.port().to_string())?;
    partner::pin(args)?;
    let mut question = [0; QUESTION_BYTES];
    let median_ns = loop {
        let (len, from) = socket.recv_from(&mut question).map_err(failed("plain UDP"))?;
        if let (8, Some(ns)) = (len, question.first_chunk()) {
            break u64::from_le_bytes(*ns);
        }
        socket.send_to(&[1; ANSWER_BYTES], from).map_err(failed("plain UDP"))?;
    };
    partner.end(|| {})?;
    Ok(Some(Reading::of(median_ns as f64)))
}

fn ask(args: &WorkArgs, port: &str) -> Outcome {
    let port = port.parse().map_err(|_| Failure::new("no port"))?;
    let group = SocketAddr::from((GROUP, port));
    // On loopback: what is sent from there goes there.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("plain UDP"))?;
    socket.set_read_timeout(Some(LIMIT)).map_err(failed("plain UDP"))?;
    let sockopt = rustix::net::sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST);
    sockopt.map_err(|error| failed("plain UDP")(error.into()))?;
    let mut took_ns = Vec::new();
    for _ in 0..args.count {
        std::thread::sleep(CONTACT_PAUSE);
        let began_ns = clock::now_ns();
        socket.send_to(&[1; QUESTION_BYTES], group).map_err(failed("plain UDP"))?;
        socket.recv_from(&mut [0; ANSWER_BYTES]).map_err(failed("plain UDP"))?;
        took_ns.push(clock::now_ns() - began_ns);
    }
    socket.send_to(&median(took_ns).to_le_bytes(), group).map_err(failed("plain UDP")).map(drop)
}
