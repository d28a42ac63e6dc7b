//! What the system counts for a connection.

// UNSAFETY: getsockopt.

use std::os::fd::{AsRawFd, BorrowedFd};

use orion_telemetry::report::Wire;

pub fn of(socket: BorrowedFd<'_>) -> Option<Wire> {
    // SAFETY: all-zero is valid for plain numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed; an older kernel fills less of it.
    let rc = unsafe {
        let to = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut bytes)
    };
    (rc == 0).then(|| Wire {
        rtt_ns: u64::from(info.tcpi_rtt) * 1000,
        rtt_variance_ns: u64::from(info.tcpi_rttvar) * 1000,
        retransmits: info.tcpi_total_retrans.into(),
        unacked: info.tcpi_unacked.into(),
        sent_bytes: info.tcpi_bytes_acked,
        received_bytes: info.tcpi_bytes_received,
    })
}
