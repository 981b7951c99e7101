//! Two AF_XDP sockets at the ends of a pair of interfaces: a frame for each message, both polling.

use crate::args::WorkArgs;
use crate::worker::dialled::Dialled;
use cci_measure::baseline::failed;
use cci_measure::channel::{Channel, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::clock;
use cci_sys::ethernet::{EndpointLock, FrameHeader, FrameSocket, Link, Mac};
use cci_sys::xdp::{Attachment, Options, Program, Refusal, Socket, Wanted};

/// The number of both ends: each is alone in its namespace.
const ENDPOINT: u32 = 7;
const HEADER_BYTES: usize = 14;
/// Frames handed out before they are given back, of the 2,048 that can wait.
const RELEASE_AFTER: u32 = 64;
/// Shorter than any message of an exchange, so that one that comes late does not count.
const HELLO: &[u8] = &[0];
const LIMIT_NS: u64 = 20_000_000_000;
/// The first frame is said again when there is no answer.
const HELLO_NS: u64 = 10_000_000;

/// One end.
pub struct PlainXdp {
    socket: Socket,
    header: FrameHeader,
    unsent: bool,
    held: u32,
    _seat: (Attachment, EndpointLock),
}

impl PlainXdp {
    fn open(to: Mac) -> Outcome<PlainXdp> {
        let refused = |refusal: Refusal| Failure::new(refusal.to_string()).remedy(refusal.remedy());
        let link = Link::of(Site::INTERFACE)?;
        let lock = EndpointLock::take(link.mac, ENDPOINT)?;
        let program = Program::attach(link.index, Wanted::Auto).map_err(refused)?;
        let options = Options {
            interface_index: link.index,
            frame_bytes_max: link.mtu_bytes + HEADER_BYTES,
            recv_frames: 2_048,
            send_frames: 512,
        };
        let socket = Socket::open(&options).map_err(refused)?;
        let seat = Attachment::create(program, &lock, link.mac, Some(&socket)).map_err(refused)?;
        let header = FrameHeader { to, from: link.mac, to_endpoint: ENDPOINT, from_endpoint: ENDPOINT };
        Ok(PlainXdp { socket, header, unsent: false, held: 0, _seat: (seat, lock) })
    }

    /// Where the next frame came from.
    fn sender(&mut self) -> Option<Mac> {
        let from = self.socket.receive().and_then(|frame| Some(FrameHeader::parse(frame).ok()?.0.from));
        self.socket.release();
        from
    }
}

impl Channel for PlainXdp {
    const RELIABLE: bool = false;

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        let head = self.header.emit(message.len() as u16);
        let len = head.len() + message.len();
        let Some(slot) = self.socket.begin(len) else { return Ok(false) };
        let (start, rest) = slot.split_at_mut(head.len());
        start.copy_from_slice(&head);
        rest.get_mut(..message.len()).unwrap_or_default().copy_from_slice(message);
        self.socket.commit(len);
        self.unsent = true;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) {
        // What is not taken goes with the next one; where the interface is gone nothing comes, which is reported.
        self.unsent = self.socket.flush().is_err();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        if self.unsent {
            self.socket.flush().map_err(failed("sending"))?;
            self.unsent = false;
        }
        if self.held >= RELEASE_AFTER {
            self.socket.release();
            self.held = 0;
        }
        let Some(frame) = self.socket.receive() else {
            if self.held > 0 {
                self.socket.release();
                self.held = 0;
            }
            return Ok(None);
        };
        self.held += 1;
        let payload = FrameHeader::parse(frame).ok().map(|(_, payload)| payload);
        Ok(payload.filter(|payload| payload.len() > HELLO.len()).map(stamp))
    }
}

impl Dialled for PlainXdp {
    type Listening = PlainXdp;

    fn listen(_args: &WorkArgs, _site: &Site) -> Outcome<(PlainXdp, String)> {
        let first = PlainXdp::open([0; 6])?;
        let words: Vec<String> = first.header.from.iter().map(u8::to_string).collect();
        Ok((first, words.join(":")))
    }

    fn accept(mut first: PlainXdp, _args: &WorkArgs) -> Outcome<PlainXdp> {
        let until_ns = clock::now_ns() + LIMIT_NS;
        while clock::now_ns() < until_ns {
            if let Some(partner) = first.sender() {
                first.header.to = partner;
                // So that it stops saying hello.
                first.send(HELLO)?;
                first.flush();
                return Ok(first);
            }
        }
        Err(Failure::new("nobody connects"))
    }

    fn dial(_args: &WorkArgs, first: &str) -> Outcome<PlainXdp> {
        let mut to = [0; 6];
        for (byte, word) in to.iter_mut().zip(first.split(':')) {
            *byte = word.parse().map_err(|_| Failure::new(format!("{first} is no address")))?;
        }
        let mut partner = PlainXdp::open(to)?;
        let until_ns = clock::now_ns() + LIMIT_NS;
        while clock::now_ns() < until_ns {
            partner.send(HELLO)?;
            partner.flush();
            let again_ns = clock::now_ns() + HELLO_NS;
            while clock::now_ns() < again_ns {
                if partner.sender().is_some() {
                    return Ok(partner);
                }
            }
        }
        Err(Failure::new("no answer"))
    }
}
