// SPDX-License-Identifier: Apache-2.0
// Routes gets by content on a link of Linux (SwitchKV, section 3.1.2): by their hash, if there is a rule for it, and else to their backend.
//
//   what the frame is                       looked up in         found                    not found
//   a get: a datagram to the cluster's port `hashes`, `nodes`    goes there               dropped
//   what else has a get's address           -                    -                        dropped
//   what goes to a member                   `nodes`              goes there               up
//   all else                                -                    -                        up: to the host, as without this program
//
// A fragment is no datagram here, nor is what has options or extensions before its UDP header, or a tag before its IP header.
// Always true: what is not the cluster's is not changed; a frame is changed only if it goes where it is then addressed to; a place is one
// aligned word, which the kernel writes at once in practice, so that whoever reads one while it is made anew reads the one or the other.
// Only bytes are compared: the layout of places and counts is the loader's (`tables.rs`).
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Which encoding: `tables.rs` says the same.
#define ENCODING_IPV6 6
#define ENCODING_MAC 4

// Set by the loader before this is loaded; the verifier takes them for constants.
const volatile __u8 ENCODING = ENCODING_IPV6;
// Of IPv6 addresses the 32 first bits, of IPv4 addresses 16 in front of 16 zeros. In network byte order.
const volatile __u32 PREFIX = 0;
// The port of gets, in network byte order.
const volatile __u16 GETS_PORT = 0;
// Of a host's own link its address, in the order of bytes that it has there.
const volatile __u64 OWN_MAC = 0;

// Kinds of nodes' places, and of IPv6 addresses (`Ipv6Plan`).
#define KIND_MEMBER 0
#define KIND_GET 1
// The last 64 bits of a member's own IPv6 address.
#define MEMBER_VALUE 1
// The first byte of MAC addresses (`MacPlan`).
#define MAC_GET 0x0a
#define MAC_MEMBER 0x06

#define PORTS 4096
#define NODES (1 << 16)

// What becomes of a frame, in the four highest bits of a place; the twelve below them are the port.
#define WAY_NONE 0
// Out by the port as it is.
#define WAY_PORT 1
// Out by the port, to the place's MAC address.
#define WAY_PORT_TO_MAC 2
// Out by the link that it came by, to the place's MAC address, from its own.
#define WAY_BACK_TO_MAC 3
// To this host, at the place's MAC address, without which it would not take the frame.
#define WAY_UP_TO_MAC 4

struct place {
	__u8 mac[ETH_ALEN];
	// In the order of bytes of this machine.
	__u16 way_and_port;
} __attribute__((aligned(8)));

_Static_assert(sizeof(struct place) == sizeof(__u64), "a place is one word");

// The part of the address that says whose get it is: of an IPv6 address the 96 lowest bits; the MAC address behind zeros.
struct get {
	__u32 words[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct get);
	__type(value, __u64);
	// Made as large as the loader says.
	__uint(max_entries, 1);
} hashes SEC(".maps");

// By kind and number.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 2 * NODES);
} nodes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
	__uint(max_entries, PORTS);
} ports SEC(".maps");

// What has become of frames.
enum count {
	BY_HASH,
	BY_BACKEND,
	OF_NOBODY,
	TO_MEMBER,
	OF_OTHERS,
	COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, COUNTS);
} counts SEC(".maps");

// Frames that were given to a link to be sent, by port.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, PORTS);
} sent SEC(".maps");

static __always_inline void note(void *counters, __u32 which)
{
	__u64 *count = bpf_map_lookup_elem(counters, &which);

	if (count)
		(*count)++;
}

static __always_inline int end(enum count count, int verdict)
{
	note(&counts, count);
	return verdict;
}

static __always_inline int go(struct ethhdr *eth, struct place place, enum count count)
{
	__u32 port = place.way_and_port & (PORTS - 1);
	int way = place.way_and_port >> 12, verdict;
	__u64 own = OWN_MAC;

	note(&counts, count);
	if (way != WAY_PORT)
		__builtin_memcpy(eth->h_dest, place.mac, ETH_ALEN);
	switch (way) {
	case WAY_BACK_TO_MAC:
		__builtin_memcpy(eth->h_source, &own, ETH_ALEN);
		return XDP_TX;
	case WAY_UP_TO_MAC:
		return XDP_PASS;
	}
	verdict = bpf_redirect_map(&ports, port, XDP_DROP);
	if (verdict == XDP_REDIRECT)
		note(&sent, port);
	return verdict;
}

static __always_inline int is_there(struct place place)
{
	return place.way_and_port >> 12 != WAY_NONE;
}

static __always_inline struct place found(__u64 *word)
{
	union {
		__u64 word;
		struct place place;
	} found = { .word = word ? *(volatile __u64 *)word : 0 };

	return found.place;
}

static __always_inline struct place place_of(__u32 kind, __u16 node)
{
	__u32 index = kind * NODES + node;

	return found(bpf_map_lookup_elem(&nodes, &index));
}

static __always_inline int route_get(struct ethhdr *eth, struct get get, __u16 backend)
{
	struct place place = found(bpf_map_lookup_elem(&hashes, &get));

	if (is_there(place))
		return go(eth, place, BY_HASH);
	place = place_of(KIND_GET, backend);
	if (is_there(place))
		return go(eth, place, BY_BACKEND);
	return end(OF_NOBODY, XDP_DROP);
}

static __always_inline int route_member(struct ethhdr *eth, __u16 node)
{
	struct place place = place_of(KIND_MEMBER, node);

	return is_there(place) ? go(eth, place, TO_MEMBER) : end(OF_OTHERS, XDP_PASS);
}

static __always_inline int route_ipv6(struct ethhdr *eth, void *data_end)
{
	struct ipv6hdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	struct get get;
	__u32 *to;
	__u16 kind, node;

	if ((void *)(ip + 1) > data_end)
		return end(OF_OTHERS, XDP_PASS);
	to = ip->daddr.in6_u.u6_addr32;
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || to[0] != PREFIX)
		return end(OF_OTHERS, XDP_PASS);
	kind = bpf_ntohs(ip->daddr.in6_u.u6_addr16[2]);
	node = bpf_ntohs(ip->daddr.in6_u.u6_addr16[3]);
	if (kind == KIND_MEMBER && to[2] == 0 && to[3] == bpf_htonl(MEMBER_VALUE))
		return route_member(eth, node);
	if (kind != KIND_GET)
		return end(OF_OTHERS, XDP_PASS);
	if ((void *)(udp + 1) > data_end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP || udp->dest != GETS_PORT)
		return end(OF_NOBODY, XDP_DROP);
	get.words[0] = to[1];
	get.words[1] = to[2];
	get.words[2] = to[3];
	return route_get(eth, get, node);
}

// Bytes of the two addresses together: what is in front of the MAC address is none of theirs.
static __always_inline struct get get_of_mac(const __u8 *mac)
{
	union {
		__u8 bytes[sizeof(struct get)];
		struct get get;
	} of = {};

	__builtin_memcpy(&of.bytes[sizeof(of.bytes) - ETH_ALEN], mac, ETH_ALEN);
	return of.get;
}

static __always_inline int route_mac(struct ethhdr *eth, void *data_end)
{
	struct iphdr *ip = (void *)(eth + 1);
	struct udphdr *udp = (void *)(ip + 1);
	const __u8 *to = eth->h_dest;
	__u32 ip_to;

	if (to[0] == MAC_MEMBER && to[1] == 0 && to[2] == 0 && to[3] == 0)
		return route_member(eth, to[4] << 8 | to[5]);
	if (to[0] != MAC_GET)
		return end(OF_OTHERS, XDP_PASS);
	if ((void *)(udp + 1) > data_end || eth->h_proto != bpf_htons(ETH_P_IP) || ip->version != 4 || ip->ihl != 5 ||
	    ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff) || udp->dest != GETS_PORT)
		return end(OF_NOBODY, XDP_DROP);
	ip_to = bpf_ntohl(ip->daddr);
	// A rule for the hash takes it whosever it is, as a switch's does.
	if (ip_to >> 16 != bpf_ntohl(PREFIX) >> 16)
		ip_to = 0;
	return route_get(eth, get_of_mac(to), ip_to);
}

SEC("xdp")
int route(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *data_end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > data_end)
		return end(OF_OTHERS, XDP_PASS);
	return ENCODING == ENCODING_IPV6 ? route_ipv6(eth, data_end) : route_mac(eth, data_end);
}

// What a router is measured beside: all goes out by port 1, and nothing is looked up.
SEC("xdp")
int forward(struct xdp_md *ctx)
{
	return bpf_redirect_map(&ports, 1, XDP_DROP);
}

// And what takes frames in, to be counted by the link.
SEC("xdp")
int drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Apache-2.0";
