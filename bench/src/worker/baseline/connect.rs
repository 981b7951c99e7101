//! TCP connections without a library: one after the other is accepted, confirmed by a byte and closed.

use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci_measure::baseline::failed;
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const LIMIT_NS: u64 = 20_000_000_000;

/// Connections a second, at the side that accepts.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    let (warm_up, all) = (args.count / 10, args.count / 10 + args.count);
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        for _ in 0..all {
            let mut stream = TcpStream::connect(first).map_err(failed(first))?;
            stream.set_read_timeout(Some(Duration::from_nanos(LIMIT_NS))).map_err(failed(first))?;
            stream.read_exact(&mut [0]).map_err(failed(first))?;
            // Closed by a reset: ports would be used up otherwise.
            set_socket_linger(&stream, Some(Duration::ZERO)).map_err(|error| failed(first)(error.into()))?;
        }
        return Ok(None);
    }
    let site = partner::site(args)?;
    let listener = TcpListener::bind((site.address(), 0)).map_err(failed("plain TCP"))?;
    let address = listener.local_addr().map_err(failed("plain TCP"))?;
    let partner = Partner::start(args, &site, &address.to_string())?;
    partner::pin(args)?;
    listener.set_nonblocking(true).map_err(failed("plain TCP"))?;
    // Kept until the partner has closed it, which it has when the next one comes.
    let mut _last = None;
    let mut begin_ns = clock::now_ns();
    for nth in 0..all {
        let mut stream = accept(&listener)?;
        stream.write_all(&[1]).map_err(failed("plain TCP"))?;
        if nth + 1 == warm_up {
            begin_ns = clock::now_ns();
        }
        _last = Some(stream);
    }
    let took_ns = clock::now_ns() - begin_ns;
    partner.end(|| {})?;
    Ok(Some(Reading::of_rate(args.count, took_ns)))
}

fn accept(listener: &TcpListener) -> Outcome<TcpStream> {
    let until_ns = clock::now_ns() + LIMIT_NS;
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Ok(stream),
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed("accept")(error)),
            Err(_) if clock::now_ns() > until_ns => return Err(Failure::new("nobody connects")),
            Err(_) => {}
        }
    }
}
