// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What SeaStar's network processor did for each arriving message, done by the kernel where a frame enters it (XDP):
// knows our ethertype, finds the endpoint a frame is for, checks that it belongs to a connection which that endpoint
// has (id and nonce), and puts it into the ring of the process that owns the endpoint (CCI 2013, IV.B and IV.B.2).
//
// Everything else passes untouched, and so does what is of our ethertype, which is experimental and anybody's, but for
// none of our endpoints. Only frames for an endpoint registered here can be dropped.
//
// Layouts: docs/wire.md ("Ethernet", "Established connections") and xdp/program.rs, which fills the maps.
// Built by `cargo xtask bpf` into steer.o, which is committed: building CCI needs no clang.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// From linux/bpf.h, which is not needed otherwise.
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };
enum { MAP_HASH = 1, MAP_PERCPU_ARRAY = 6, MAP_XSKMAP = 17, F_NO_PREALLOC = 1 };
struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*redirect_map)(void *map, u32 key, u64 flags) = (void *)51;
// The tag of a virtual LAN that the driver has taken out of the frame; 0: there was one. This number stands for the kernel's
// bpf_xdp_metadata_rx_vlan_tag, which program.rs puts in where the kernel has it, and an error where it has not.
static int (*rx_vlan_tag)(const struct xdp_md *ctx, u16 *protocol, u16 *tag) = (void *)0x63636900;

#define SEC(name) __attribute__((section(name), used))
#define NETWORK_ORDER(x) ((u16)((x) << 8 | (x) >> 8))
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields on the wire are little-endian");

struct map {
	u32 type, key_bytes, value_bytes, entries, flags;
};

// Values of `endpoints`.
struct endpoint {
	u32 slot;  // in `sockets`; NO_SLOT: it has no ring
	u32 queue; // receive queue its ring belongs to
	u16 mac[3]; // address of the interface, as it stands in frames
	u8 check;  // CHECK_...: what must hold of frames of established connections
	u8 zero;
};
#define NO_SLOT 0xffffffffu
enum { CHECK_NOTHING, CHECK_NONCE, CHECK_NONCE_AND_ID };

// Keys and values of `connections`.
struct connection {
	u32 endpoint, index;
};
struct valid {
	u64 nonce;
	u32 generation, zero;
};

// Indices of `counters`.
enum { PASSED, REDIRECTED, WRONG_NONCE, UNKNOWN_CONNECTION, NO_ENDPOINT, MALFORMED, COUNTERS };

struct map cci_sockets SEC("maps") = { MAP_XSKMAP, 4, 4, 256, 0 };
struct map cci_endpoints SEC("maps") = { MAP_HASH, 4, sizeof(struct endpoint), 1024, F_NO_PREALLOC };
struct map cci_connections SEC("maps") = { MAP_HASH, sizeof(struct connection), sizeof(struct valid), 262144, F_NO_PREALLOC };
struct map cci_counters SEC("maps") = { MAP_PERCPU_ARRAY, 4, 8, COUNTERS, 0 };

// Frames begin where their IP header would be aligned to 4: all that can be relied on is 2, and some processors insist.
#define IN_FRAME __attribute__((packed, aligned(2)))

struct frame {
	u16 to[3], from[3];
	u16 ethertype;
	u8 version, zero;
	u32 to_endpoint, from_endpoint;
	u16 payload_bytes;
	u8 spare[6];
} IN_FRAME;

// The protocol's header of an established connection, as far as it matters here.
struct datagram {
	u8 version_and_type, other[3];
	u32 index, generation, sender_index;
	u64 nonce;
} IN_FRAME;
_Static_assert(sizeof(struct frame) == 32 && sizeof(struct datagram) == 24, "no gaps");
_Static_assert(sizeof(struct endpoint) == 16 && sizeof(struct valid) == 16, "no gaps");

static inline int count(u32 which, int verdict)
{
	u64 *counter = map_lookup(&cci_counters, &which);
	if (counter)
		*counter += 1;
	return verdict;
}

// Whether the version is ours and the type one of DATA, ACK, PING, CLOSE, CLOSE_ACK. Handshakes are the process's own.
static inline int is_established(u8 version_and_type)
{
	return version_and_type >= 0x18 && version_and_type <= 0x1c;
}

// The section makes the kernel pass frames that lie in several pieces, too: their headers are in the first.
SEC("xdp.frags") int cci_steer_v1(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct frame *frame = data;

	// A frame with a tag has the tag's ethertype here: it is for the interface of its virtual LAN, which comes later.
	if (data + 14 > end || frame->ethertype != NETWORK_ORDER(0x88b5))
		return XDP_PASS;
	if ((void *)(frame + 1) > end || frame->version != 1 || frame->zero != 0)
		return count(MALFORMED, XDP_PASS);

	u32 to = frame->to_endpoint;
	struct endpoint *endpoint = map_lookup(&cci_endpoints, &to);
	if (!endpoint)
		return count(NO_ENDPOINT, XDP_PASS);
	// Without the interface's own filter (it is promiscuous) frames to others are seen here.
	if (frame->to[0] != endpoint->mac[0] || frame->to[1] != endpoint->mac[1] || frame->to[2] != endpoint->mac[2])
		return count(NO_ENDPOINT, XDP_PASS);

	//= wire.md R-ETH-6
	// So is one whose tag was taken out. Without a number (priority only) it belongs to no virtual LAN.
	u16 protocol, tag;
	if (!rx_vlan_tag(ctx, &protocol, &tag) && (tag & 0xfff))
		return count(NO_ENDPOINT, XDP_PASS);

	struct datagram *datagram = (void *)(frame + 1);
	if ((void *)datagram + 1 > end || !frame->payload_bytes)
		return count(MALFORMED, XDP_DROP);
	if (endpoint->check && is_established(datagram->version_and_type)) {
		if ((void *)(datagram + 1) > end || frame->payload_bytes < sizeof(*datagram))
			return count(MALFORMED, XDP_DROP);
		struct connection key = { to, datagram->index };
		struct valid *valid = map_lookup(&cci_connections, &key);
		// Of an older generation: that connection is not there any more.
		if (valid && valid->generation != datagram->generation)
			valid = 0;
		if (valid && valid->nonce != datagram->nonce)
			return count(WRONG_NONCE, XDP_DROP);
		if (!valid && endpoint->check == CHECK_NONCE_AND_ID)
			return count(UNKNOWN_CONNECTION, XDP_DROP);
	}

	// A ring takes the frames of its own queue only; those of others go through the process's packet socket.
	if (endpoint->slot == NO_SLOT || endpoint->queue != ctx->rx_queue_index)
		return count(PASSED, XDP_PASS);
	// Without a socket there (its process has just gone) the frame passes.
	if (redirect_map(&cci_sockets, endpoint->slot, XDP_PASS) != XDP_REDIRECT)
		return count(PASSED, XDP_PASS);
	return count(REDIRECTED, XDP_REDIRECT);
}

char cci_license[] SEC("license") = "Dual MIT/GPL";
