//! Endpoints in a tokio program: `tokio_echo [DEVICE]` prints its URI and answers every "ping"; `tokio_echo URI` asks it. An
//! endpoint's descriptor is registered with the runtime; its events are taken when that says so.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// The next event. The task sleeps until there is one; others run meanwhile.
async fn next_event(endpoint: &mut AsyncFd<Endpoint>) -> std::io::Result<Event> {
    loop {
        let mut ready = endpoint.readable_mut().await?;
        match ready.get_inner_mut().next_event() {
            Some(event) => return Ok(event),
            // Only now is the descriptor certain to become readable again when something comes.
            None => ready.clear_ready(),
        }
    }
}

async fn serve(mut endpoint: AsyncFd<Endpoint>) -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", endpoint.get_ref().uri());
    loop {
        match next_event(&mut endpoint).await? {
            Event::ConnectRequest(request) => endpoint.get_mut().accept(request, 0)?,
            Event::Recv(message) if *message == *b"ping" => {
                endpoint.get_mut().send(message.connection(), b"pong", 0, SendFlags::SILENT)?;
            }
            _ => {}
        }
    }
}

async fn ask(mut endpoint: AsyncFd<Endpoint>, uri: &str) -> Result<(), Box<dyn std::error::Error>> {
    endpoint.get_mut().connect(uri, b"hello", Attribute::ReliableOrdered, 0, None)?;
    loop {
        match next_event(&mut endpoint).await? {
            Event::Connect { result, .. } => endpoint.get_mut().send(result?, b"ping", 1, SendFlags::NONE)?,
            Event::Recv(message) => {
                println!("{}", String::from_utf8_lossy(&message));
                return Ok(());
            }
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new()?;
    let argument = std::env::args().nth(1);
    let uri = argument.as_deref().filter(|text| text.contains("://"));
    let device = match (uri, &argument) {
        (Some(uri), _) => context.device_for(uri)?,
        (None, Some(name)) => context.device(name).ok_or("no such device: `cci info` lists them")?,
        (None, None) => context.default_device(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::create(device, Options::default())?;
        #[expect(
            deprecated,
            reason = "`register` is unsafe; an endpoint keeps its descriptor for as long as it lives"
        )]
        let endpoint = AsyncFd::new(endpoint)?;
        match uri {
            None => serve(endpoint).await,
            Some(uri) => tokio::time::timeout(Duration::from_secs(10), ask(endpoint, uri)).await?,
        }
    })
}
