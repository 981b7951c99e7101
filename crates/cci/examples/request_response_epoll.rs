//! Requests and responses in programs that have an event loop of their own: the endpoint's descriptor is one among others
//! in epoll.
//!
//! `cargo run --release -p cci --example request_response_epoll` is the server: it prints its URI and ends with its
//! standard input. With the URI behind it, and perhaps a number of requests, it is the client.
//!
//! A request is an identifier and a number; the response is the identifier and the number's square.

use cci::{Attribute, Connection, Context, Endpoint, Event, Message, Options, SendError, SendFlags, Status};
use rustix::event::epoll;
use std::error::Error;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Requests under way at once.
const UNDER_WAY: u64 = 8;
const ENDPOINT: u64 = 0;
const INPUT: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut endpoint = Endpoint::create(Context::new()?.default_device(), Options::default())?;
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&set, endpoint.os_handle(), epoll::EventData::new_u64(ENDPOINT), epoll::EventFlags::IN)?;
    match arguments.next() {
        None => serve(&mut endpoint, &set),
        Some(uri) => {
            ask(&mut endpoint, &set, &uri, arguments.next().map_or(Ok(1000), |count| count.parse())?)
        }
    }
}

/// Sleeps until a descriptor is readable: true if it is standard input. `timeout` None: for ever.
fn sleep(set: &OwnedFd, timeout: Option<Duration>) -> Result<Option<u64>, Box<dyn Error>> {
    let timeout = timeout.map(rustix::event::Timespec::try_from).transpose()?;
    let mut ready = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    match epoll::wait(set, &mut ready, timeout.as_ref()) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(ready[0].data.u64())),
        Err(rustix::io::Errno::INTR) => Ok(Some(ENDPOINT)),
        Err(error) => Err(error.into()),
    }
}

fn serve(endpoint: &mut Endpoint, set: &OwnedFd) -> Result<(), Box<dyn Error>> {
    let mut input = std::io::stdin();
    // Fails for a plain file, which never blocks: then only the endpoint is watched.
    let _ = epoll::add(set, input.as_fd(), epoll::EventData::new_u64(INPUT), epoll::EventFlags::IN);
    println!("{}", endpoint.uri());
    loop {
        while let Some(event) = endpoint.next_event() {
            match event {
                Event::ConnectRequest(request) => endpoint.accept(request, 0)?,
                Event::Recv(message) => answer(endpoint, &message)?,
                _ => {}
            }
        }
        // Nothing is there now. The descriptor is level-triggered, so nothing can be missed from here on.
        if sleep(set, None)? == Some(INPUT) && input.read(&mut [0; 256])? == 0 {
            return Ok(());
        }
    }
}

fn answer(endpoint: &mut Endpoint, request: &Message) -> Result<(), SendError> {
    let from = request.connection();
    let Some((id, value)) = parse(request) else { return Ok(()) };
    match endpoint.send(from, &emit(id, value.wrapping_mul(value)), 0, SendFlags::SILENT) {
        Err(SendError::Disconnected) => {}
        other => other?,
    }
    Ok(())
}

fn ask(endpoint: &mut Endpoint, set: &OwnedFd, uri: &str, count: u64) -> Result<(), Box<dyn Error>> {
    endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, Some(Duration::from_secs(10)))?;
    let mut server: Option<Connection> = None;
    let (mut asked, mut answered) = (0, 0);
    while answered < count {
        while let Some(event) = endpoint.next_event() {
            match event {
                Event::Connect { result, .. } => server = Some(result?),
                Event::Send { status, .. } if status != Status::Success => {
                    return Err(format!("a request failed: {status}").into());
                }
                Event::Recv(response) => {
                    let right = parse(&response).is_some_and(|(id, square)| square == id.wrapping_mul(id));
                    answered += 1;
                    if !right {
                        return Err("a wrong response".into());
                    }
                }
                _ => {}
            }
        }
        while let Some(server) = server
            && asked < count
            && asked - answered < UNDER_WAY
        {
            endpoint.send(server, &emit(asked, asked), 0, SendFlags::NONE)?;
            asked += 1;
        }
        if answered < count && sleep(set, Some(Duration::from_secs(10)))?.is_none() {
            return Err("no response within 10 s".into());
        }
    }
    println!("{answered} requests answered");
    Ok(())
}

fn emit(id: u64, value: u64) -> [u8; 16] {
    let mut message = [0; 16];
    message[..8].copy_from_slice(&id.to_le_bytes());
    message[8..].copy_from_slice(&value.to_le_bytes());
    message
}

fn parse(message: &[u8]) -> Option<(u64, u64)> {
    let (id, value) = message.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*id), u64::from_le_bytes(value.try_into().ok()?)))
}
