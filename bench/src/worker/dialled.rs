//! Channels between the two processes of a turn: how each kind is set up.

use crate::args::WorkArgs;
use cci_measure::baseline::{PlainTcp, PlainUdp, failed};
use cci_measure::channel::Channel;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(20);

/// A channel that one process listens for and the other one dials.
pub trait Dialled: Channel {
    /// The first side, not connected yet.
    type Listening;

    /// Opens the first side, and says where it is.
    fn listen(args: &WorkArgs, site: &Site) -> Outcome<(Self::Listening, String)>;

    /// Takes the partner's connection.
    fn accept(listening: Self::Listening, args: &WorkArgs) -> Outcome<Self>;

    /// Connects the partner's side to the first one.
    fn dial(args: &WorkArgs, first: &str) -> Outcome<Self>;
}

impl<const SLEEPS: bool> Dialled for PlainTcp<SLEEPS> {
    type Listening = TcpListener;

    fn listen(_args: &WorkArgs, site: &Site) -> Outcome<(TcpListener, String)> {
        let listener = TcpListener::bind((site.address(), 0)).map_err(failed("plain TCP"))?;
        let address = listener.local_addr().map_err(failed("plain TCP"))?;
        Ok((listener, address.to_string()))
    }

    fn accept(listener: TcpListener, args: &WorkArgs) -> Outcome<Self> {
        let (stream, _) = listener.accept().map_err(failed("plain TCP"))?;
        PlainTcp::over(stream, message_bytes(args)?)
    }

    fn dial(args: &WorkArgs, first: &str) -> Outcome<Self> {
        PlainTcp::over(TcpStream::connect(first).map_err(failed(first))?, message_bytes(args)?)
    }
}

fn message_bytes(args: &WorkArgs) -> Outcome<u32> {
    args.work.message_bytes().ok_or_else(|| Failure::new("no messages"))
}

impl<const SLEEPS: bool> Dialled for PlainUdp<SLEEPS> {
    type Listening = UdpSocket;

    fn listen(_args: &WorkArgs, site: &Site) -> Outcome<(UdpSocket, String)> {
        let socket = UdpSocket::bind((site.address(), 0)).map_err(failed("plain UDP"))?;
        socket.set_read_timeout(Some(LIMIT)).map_err(failed("plain UDP"))?;
        let address = socket.local_addr().map_err(failed("plain UDP"))?;
        Ok((socket, address.to_string()))
    }

    fn accept(socket: UdpSocket, _args: &WorkArgs) -> Outcome<Self> {
        let (_, partner) = socket.recv_from(&mut [0; 8]).map_err(failed("plain UDP"))?;
        socket.connect(partner).map_err(failed("plain UDP"))?;
        PlainUdp::over(socket)
    }

    fn dial(_args: &WorkArgs, first: &str) -> Outcome<Self> {
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed("plain UDP"))?;
        socket.connect(first).map_err(failed(first))?;
        socket.send(b"hello").map_err(failed(first))?;
        PlainUdp::over(socket)
    }
}
