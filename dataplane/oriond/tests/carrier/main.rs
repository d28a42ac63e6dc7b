//! The same facts about a session, over every carrier: an oriond with echo workers (with the software GPU for what
//! `activity` and `address` ask), and the shim's own client code.

#![allow(non_snake_case, reason = "fields of messages are called as the driver's parameters are")]

mod activity;
mod address;
#[cfg(all(debug_assertions, feature = "rdma"))]
mod broken_pair;
mod budget;
mod bulk;
mod capture;
mod cell;
mod death;
mod door;
mod ends;
mod environment;
mod guest;
mod harness;
mod image;
mod leaks;
mod lease;
mod log;
mod moves;
#[cfg(feature = "rdma")]
mod paged;
mod program;
#[cfg(feature = "rdma")]
mod rdma;
#[cfg(feature = "rdma")]
mod rdma_ranges;
mod share;
mod shared_file;
mod speed;
#[cfg(debug_assertions)]
mod takeover;
mod trust;
mod vsock;

use harness::{Client, Oriond, Transport};

/// Runs the test body over each of [`Transport::ALL`]; `soft` is with the software GPU.
macro_rules! on_each_carrier {
    ($(#[$attr:meta])* fn $name:ident($server:ident: &Oriond, $transport:ident: Transport) $body:block) => {
        crate::on_each_carrier! { with [] $(#[$attr])* fn $name($server: &Oriond, $transport: Transport) $body }
    };
    ($(#[$attr:meta])* soft fn $name:ident($server:ident: &Oriond, $transport:ident: Transport) $body:block) => {
        crate::on_each_carrier! {
            with ["--driver", "soft"] $(#[$attr])* fn $name($server: &Oriond, $transport: Transport) $body
        }
    };
    (
        with [$($argument:literal),*]
        $(#[$attr:meta])* fn $name:ident($server:ident: &Oriond, $transport:ident: Transport) $body:block
    ) => {
        mod $name {
            use super::*;
            fn run($server: &Oriond, $transport: Transport) $body
            crate::on_each_carrier! { test shm Shm [$($argument),*] $(#[$attr])* }
            crate::on_each_carrier! { test tcp Tcp [$($argument),*] $(#[$attr])* }
            crate::on_each_carrier! { test tls Tls [$($argument),*] $(#[$attr])* }
            crate::on_each_carrier! { test ivshmem Ivshmem [$($argument),*] $(#[$attr])* }
            crate::on_each_carrier! {
                test vsock Vsock [$($argument),*]
                #[ignore = "it takes vsock's loopback: dataplane/conformance/vm/vsock.sh has it"] $(#[$attr])*
            }
            crate::on_each_carrier! { test hypervisor Hypervisor [$($argument),*] $(#[$attr])* }
            #[cfg(feature = "rdma")]
            crate::on_each_carrier! {
                test rdma Rdma [$($argument),*]
                #[ignore = "it takes an RDMA device: dataplane/conformance/vm/rdma.sh has one"] $(#[$attr])*
            }
            #[cfg(debug_assertions)]
            crate::on_each_carrier! { test doorbell Doorbell [$($argument),*] $(#[$attr])* }
        }
    };
    (test $carrier:ident $transport:ident [$($argument:literal),*] $(#[$attr:meta])*) => {
        $(#[$attr])*
        #[test]
        fn $carrier() {
            run(&Oriond::start_for(Transport::$transport, &[$($argument),*]), Transport::$transport);
        }
    };
}
pub(crate) use on_each_carrier;

on_each_carrier! {
    fn commands_are_answered_in_order(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        for i in 0..20_000u64 {
            let body = vec![i as u8; 8 * (i as usize % 40)];
            client.post(0x100, &body);
            let reply = client.call(0x101, &body);
            assert_eq!(reply, body, "reply {i}");
        }
    }
}

on_each_carrier! {
    fn many_commands_may_be_under_way(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        let body = [7u8; 1000];
        for _ in 0..20 {
            let first = client.sequence + 1;
            for _ in 0..1000 {
                client.start(0x101, &body);
            }
            for sequence in first..first + 1000 {
                let (header, got) = client.reply();
                assert_eq!((header.sequence, got.as_slice()), (sequence, &body[..]));
            }
        }
    }
}

on_each_carrier! {
    fn the_largest_record_passes(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        let body: Vec<u8> =
            (0..orion_wire::record::RECORD_BYTES_MAX - orion_wire::record::HEADER_BYTES).map(|i| i as u8).collect();
        for _ in 0..100 {
            assert_eq!(client.call(0x101, &body), body);
        }
    }
}

on_each_carrier! {
    fn events_arrive_though_nobody_asked(server: &Oriond, transport: Transport) {
        let mut client = Client::attach(server, transport);
        // Three times what the event ring holds, so it has to fill and drain.
        let (count, bytes) = (3000u64, 1000u64);
        let sequence = client.start(harness::EVENTS, &harness::words(&[count, bytes]));
        for i in 0..count {
            let (header, body) = client.event();
            assert_eq!((header.sequence, body.len() as u64), (i, bytes));
            assert!(body.iter().all(|b| *b == 0x55));
        }
        assert_eq!(client.reply().0.sequence, sequence);
    }
}

on_each_carrier! {
    fn two_sessions_do_not_see_each_other(server: &Oriond, transport: Transport) {
        let mut a = Client::attach(server, transport);
        let mut b = Client::attach(server, transport);
        assert_ne!(a.welcome.session, b.welcome.session);
        assert_ne!(a.welcome.worker_pid, b.welcome.worker_pid);
        a.start(0x101, &[1; 8]);
        b.start(0x101, &[2; 8]);
        assert_eq!((a.reply().1, b.reply().1), (vec![1; 8], vec![2; 8]));
        drop(a);
        assert_eq!(b.call(0x101, &[3; 8]), [3; 8]);
    }
}
