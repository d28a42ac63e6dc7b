// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// How are the connections of a server's ports: round trips, what was sent again, and what is queued on this side?

#include "bpf_endian.h"

#include "histogram.h"
#include "threads.h"

#define AF_INET 2
#define AF_INET6 10

// A port in a network namespace.
struct port {
    __u32 namespace;
    __u32 port;
};

struct peer {
    // IPv4 in the first four.
    __u8 address[16];
    __u16 port;
    __u16 own_port;
    __u32 family;
};

struct connection {
    // Segments of the peer that were seen, and segments that were sent to it again.
    __u64 received;
    __u64 retransmits;
    // As the kernel smooths it.
    __u64 smoothed_ns;
    // Bytes: sent and not acknowledged, not sent yet, come and not read yet; now, and at most.
    __u64 unacked;
    __u64 unsent;
    __u64 unread;
    __u64 unacked_max;
    __u64 unsent_max;
    __u64 unread_max;
    // Up to where the peer had acknowledged when a round trip was last counted.
    __u64 acked;
    // Round trips in nanoseconds, of which the kernel knows the microsecond.
    struct histogram round_trips;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_PORTS_MAX);
    __type(key, struct port);
    __type(value, __u32);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ORION_CONNECTIONS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct peer);
    __type(value, struct connection);
} connections SEC(".maps");

// What a new connection begins as, which is too large for the stack.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct connection);
} nothing SEC(".maps");

static __always_inline struct connection *connection_of(const struct sock *sk)
{
    struct port port = {
        .namespace = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum),
        .port = BPF_CORE_READ(sk, __sk_common.skc_num),
    };
    struct peer peer = {};
    struct connection *found;
    __u32 zero = 0;

    if (!bpf_map_lookup_elem(&ports, &port))
        return 0;
    peer.own_port = port.port;
    peer.port = bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
    peer.family = BPF_CORE_READ(sk, __sk_common.skc_family);
    if (peer.family == AF_INET) {
        __be32 address = BPF_CORE_READ(sk, __sk_common.skc_daddr);
        __builtin_memcpy(peer.address, &address, sizeof address);
    } else if (peer.family == AF_INET6) {
        BPF_CORE_READ_INTO(&peer.address, sk, __sk_common.skc_v6_daddr.in6_u.u6_addr8);
    } else {
        return 0;
    }
    found = bpf_map_lookup_elem(&connections, &peer);
    if (!found) {
        struct connection *fresh = bpf_map_lookup_elem(&nothing, &zero);
        if (!fresh)
            return 0;
        bpf_map_update_elem(&connections, &peer, fresh, BPF_NOEXIST);
        found = bpf_map_lookup_elem(&connections, &peer);
        if (!found)
            lose();
    }
    return found;
}

static __always_inline void queued(__u64 *now, __u64 *most, __u32 bytes)
{
    *now = bytes;
    if (bytes > *most)
        *most = bytes;
}

// A segment of an established connection has come.
SEC("tp_btf/tcp_probe")
int BPF_PROG(receives, const struct sock *sk)
{
    const struct tcp_sock *tcp = (const struct tcp_sock *)sk;
    struct connection *connection = connection_of(sk);
    __u32 acked, next;

    if (!connection)
        return 0;
    __sync_fetch_and_add(&connection->received, 1);
    acked = BPF_CORE_READ(tcp, snd_una);
    next = BPF_CORE_READ(tcp, snd_nxt);
    queued(&connection->unacked, &connection->unacked_max, next - acked);
    queued(&connection->unsent, &connection->unsent_max, BPF_CORE_READ(tcp, write_seq) - next);
    queued(&connection->unread, &connection->unread_max, BPF_CORE_READ(tcp, rcv_nxt) - BPF_CORE_READ(tcp, copied_seq));
    connection->smoothed_ns = (__u64)(BPF_CORE_READ(tcp, srtt_us) >> 3) * 1000;
    // The kernel has not looked into this segment yet, so this is what the one before has told. One that acknowledged
    // nothing has told nothing.
    if (connection->acked && connection->acked != (__u64)acked + 1)
        record(&connection->round_trips, (__u64)BPF_CORE_READ(tcp, rack.rtt_us) * 1000);
    connection->acked = (__u64)acked + 1;
    return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(sends_again, const struct sock *sk)
{
    struct connection *connection = connection_of(sk);

    if (connection)
        __sync_fetch_and_add(&connection->retransmits, 1);
    return 0;
}
