//! gRPC (tonic), two processes, over a UNIX socket (`unix`) or loopback TCP (`tcp`): for scale.
//!
//! A round trip is a unary call with LEN bytes each way; messages one way are one client-streaming call, whose answer
//! comes when the server has them all. Each side is one single-threaded runtime that never sleeps: a task that is always
//! ready makes it ask the kernel without waiting, and at every tick (the default is every 61st). TCP without Nagle's
//! delay; windows large enough that the stream never waits for them. Without TLS.
#![forbid(unsafe_code)]

use peers::{Arguments, CORES, Failure, Measure, pin, report};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{ClientStreamingService, NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// Clients that call at once, on a connection each.
const CLIENTS: u64 = 64;
/// The longest message that is taken.
const MESSAGE_BYTES_MAX: usize = 1 << 26;
/// Flow control of HTTP/2, both sides: never the limit.
const WINDOW: u32 = 1 << 26;

#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(bytes = "bytes", tag = "1")]
    body: bytes::Bytes,
}

/// What protoc would generate, without protoc.
#[derive(Clone, Copy)]
struct Benchmark;

impl NamedService for Benchmark {
    const NAME: &'static str = "Benchmark";
}

impl UnaryService<Message> for Benchmark {
    type Response = Message;
    type Future = std::future::Ready<Result<Response<Message>, Status>>;

    fn call(&mut self, request: Request<Message>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

impl ClientStreamingService<Message> for Benchmark {
    type Response = Message;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Message>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<Message>>) -> Self::Future {
        Box::pin(async move {
            let mut messages = request.into_inner();
            let mut count: u64 = 0;
            while messages.message().await?.is_some() {
                count += 1;
            }
            Ok(Response::new(Message { body: count.to_le_bytes().to_vec().into() }))
        })
    }
}

impl Service<http::Request<Body>> for Benchmark {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = *self;
        Box::pin(async move {
            let grpc = tonic::server::Grpc::new(ProstCodec::default());
            let mut grpc = grpc.apply_max_message_size_config(Some(MESSAGE_BYTES_MAX), None);
            Ok(match request.uri().path() {
                "/Benchmark/Echo" => grpc.unary(service, request).await,
                "/Benchmark/Swallow" => grpc.client_streaming(service, request).await,
                _ => Status::unimplemented("no such call").into_http(),
            })
        })
    }
}

async fn serve(arguments: &Arguments, meet_at: &str) -> Result<(), Failure> {
    let server = || {
        Server::builder()
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .add_service(Benchmark)
    };
    match arguments.transport.as_str() {
        "unix" => server().serve_with_incoming(UnixListenerStream::new(UnixListener::bind(meet_at)?)).await?,
        "tcp" => {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            std::fs::write(meet_at, listener.local_addr()?.to_string())?;
            let accepted = tokio_stream::StreamExt::map(TcpListenerStream::new(listener), |stream| {
                stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            });
            server().serve_with_incoming(accepted).await?;
        }
        other => return Err(format!("{other}: unix or tcp").into()),
    }
    Ok(())
}

/// Waits until the server is there.
async fn connect(arguments: &Arguments, meet_at: &str) -> Result<Channel, Failure> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let uri = match arguments.transport.as_str() {
            "unix" => format!("unix://{meet_at}"),
            _ => format!("http://{}", std::fs::read_to_string(meet_at).unwrap_or_default()),
        };
        let tried = match Endpoint::from_shared(uri) {
            Ok(endpoint) => {
                endpoint
                    .tcp_nodelay(true)
                    .initial_stream_window_size(WINDOW)
                    .initial_connection_window_size(WINDOW)
                    .connect()
                    .await
            }
            Err(error) => Err(error),
        };
        match tried {
            Ok(channel) => return Ok(channel),
            Err(error) if Instant::now() > until => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[derive(Clone)]
struct Client {
    grpc: tonic::client::Grpc<Channel>,
    message: Message,
}

impl Client {
    async fn ping(&mut self, trips: u64) -> Result<(), Failure> {
        for _ in 0..trips {
            self.grpc.ready().await?;
            let path = http::uri::PathAndQuery::from_static("/Benchmark/Echo");
            let codec = ProstCodec::<Message, Message>::default();
            self.grpc.unary(Request::new(self.message.clone()), path, codec).await?;
        }
        Ok(())
    }

    async fn stream(&mut self, messages: u64) -> Result<(), Failure> {
        self.grpc.ready().await?;
        let message = self.message.clone();
        let all = tokio_stream::iter((0..messages).map(move |_| message.clone()));
        let path = http::uri::PathAndQuery::from_static("/Benchmark/Swallow");
        let codec = ProstCodec::<Message, Message>::default();
        let answer = self.grpc.client_streaming(Request::new(all), path, codec).await?;
        if answer.into_inner().body[..] == messages.to_le_bytes() {
            Ok(())
        } else {
            Err("messages were lost".into())
        }
    }
}

/// Calls of all clients at once, each with one under way.
async fn all(clients: &[Client], calls: u64) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for (client, at) in clients.iter().zip(0..) {
        let mut client = client.clone();
        let share = (calls + CLIENTS - 1 - at) / CLIENTS;
        tasks.spawn(async move { client.ping(share).await.map_err(|error| error.to_string()) });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn call(arguments: &Arguments, meet_at: &str) -> Result<(), Failure> {
    let message = Message { body: vec![7; arguments.len_bytes].into() };
    let count = if arguments.measure == Measure::Calls { CLIENTS } else { 1 };
    let mut clients = Vec::new();
    for _ in 0..count {
        let grpc = tonic::client::Grpc::new(connect(arguments, meet_at).await?);
        clients.push(Client { grpc, message: message.clone() });
    }
    let client = &mut clients[0].clone();
    let mut begun = Instant::now();
    for part in [arguments.warm_up(), arguments.count] {
        begun = Instant::now();
        match arguments.measure {
            Measure::HalfTrip => client.ping(part).await?,
            Measure::Rate => client.stream(part).await?,
            Measure::Calls => all(&clients, part).await?,
        }
    }
    report(arguments, begun.elapsed());
    Ok(())
}

/// Runs it on this thread, which never sleeps meanwhile.
fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build()?;
    runtime.block_on(async {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
        work.await
    })
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse("unix")?;
    if let Some(meet_at) = &arguments.meet_at {
        pin(CORES[1])?;
        return run(serve(&arguments, meet_at));
    }
    let meet_at = format!("/tmp/cci-bench-grpc-{}", std::process::id());
    // Ended when this ends: it serves for ever.
    let server = arguments.start_other_end(&meet_at)?;
    let outcome = pin(CORES[0]).and_then(|()| run(call(&arguments, &meet_at)));
    drop(server);
    let _ = std::fs::remove_file(&meet_at);
    outcome
}
