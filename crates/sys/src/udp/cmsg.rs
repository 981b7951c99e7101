//! Control messages: what the kernel says beside a datagram, and what we say to it.

/// `struct cmsghdr` on Linux: length (a `size_t`, header counted), level, type.
const LEN_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = LEN_BYTES + 8;
const _: () = assert!(HEADER_BYTES == size_of::<libc::cmsghdr>(), "the layout below");
/// Two messages of one int each, as they can come with a datagram, and some to spare.
const RECV_BYTES: usize = 64;
/// `CMSG_SPACE` of a u16.
const SEGMENT_BYTES: usize = HEADER_BYTES + LEN_BYTES;

/// Room for what comes with a datagram.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct RecvControl(pub(super) [u8; RECV_BYTES]);

/// The request to split a payload into datagrams (`UDP_SEGMENT`).
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct SegmentControl(pub(super) [u8; SEGMENT_BYTES]);

impl SegmentControl {
    pub(super) fn new(segment_bytes: u16) -> SegmentControl {
        let mut bytes = [0; SEGMENT_BYTES];
        let parts: [&[u8]; 4] = [
            &(HEADER_BYTES + size_of::<u16>()).to_ne_bytes(),
            &libc::SOL_UDP.to_ne_bytes(),
            &libc::UDP_SEGMENT.to_ne_bytes(),
            &segment_bytes.to_ne_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        SegmentControl(bytes)
    }
}

/// The length of the datagrams that the kernel joined (the last may be shorter), if the control messages in `bytes` have it.
/// Ends at the first that makes no sense.
#[inline]
pub(super) fn segment_bytes(bytes: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut remainder = bytes;
    while let Some((level, kind, body, next)) = split(remainder) {
        if let (libc::SOL_UDP, libc::UDP_GRO, Some(value)) = (level, kind, body.first_chunk::<4>()) {
            // An int; 0 or less would mean nothing.
            found = usize::try_from(i32::from_ne_bytes(*value)).ok().filter(|&segment| segment > 0);
        }
        remainder = next;
    }
    found
}

/// The first control message in `bytes`: level, type, body; and what follows it.
fn split(bytes: &[u8]) -> Option<(i32, i32, &[u8], &[u8])> {
    let (len, _) = bytes.split_first_chunk::<LEN_BYTES>()?;
    let len = usize::from_ne_bytes(*len);
    let (level, after) = bytes.get(LEN_BYTES..len)?.split_first_chunk::<4>()?;
    let (kind, body) = after.split_first_chunk::<4>()?;
    // The last one may come without its padding.
    let next = bytes.get(len.checked_next_multiple_of(LEN_BYTES)?..).unwrap_or_default();
    Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), body, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_BYTES + body.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(LEN_BYTES), 0);
        bytes
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        let gro = message(libc::SOL_UDP, libc::UDP_GRO, &1_200_i32.to_ne_bytes());
        let other = message(libc::IPPROTO_IP, libc::IP_TOS, &[1]);
        let lost = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let all = [other, gro.clone(), lost].concat();
        assert_eq!(segment_bytes(&all), Some(1_200));
        assert_eq!(segment_bytes(&gro[..20]), Some(1_200), "without padding");
        assert_eq!(segment_bytes(&[]), None);
        let negative = message(libc::SOL_UDP, libc::UDP_GRO, &(-1_i32).to_ne_bytes());
        assert_eq!(segment_bytes(&negative), None);
    }

    #[test]
    fn what_we_write_is_a_control_message() {
        let written = SegmentControl::new(1_452).0;
        let (level, kind, body, next) = split(&written).unwrap();
        assert_eq!((level, kind), (libc::SOL_UDP, libc::UDP_SEGMENT));
        assert_eq!(body, 1_452_u16.to_ne_bytes());
        assert!(next.is_empty());
    }

    /// No bytes panic, loop for ever, or give a segment length of 0. Seeded: the same bytes every time.
    #[test]
    fn any_bytes_are_survived() {
        let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut random = move || {
            // xorshift64
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let valid = [
            message(libc::SOL_UDP, libc::UDP_GRO, &1_200_i32.to_ne_bytes()),
            message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes()),
        ]
        .concat();
        for _ in 0..200_000 {
            let mut bytes = valid.clone();
            for _ in 0..random() % 6 {
                let at = random() as usize % bytes.len();
                // Small values too: most of what matters is a length.
                bytes[at] = if random() % 2 == 0 { random() as u8 } else { (random() % 40) as u8 };
            }
            bytes.truncate(random() as usize % (bytes.len() + 1));
            assert_ne!(segment_bytes(&bytes), Some(0));
        }
        for len in [0, 1, 15, 16, 17, 47, 48, 49, usize::MAX, usize::MAX - 7, usize::MAX / 2] {
            let mut bytes = valid.clone();
            bytes[..LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
            segment_bytes(&bytes);
        }
    }
}
