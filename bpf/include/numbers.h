// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
// Numbers that the programs in the kernel and their reader share. Rust reads this file too (src/numbers.rs), so each
// of them stands here alone, as a plain number.

#ifndef ORION_NUMBERS_H
#define ORION_NUMBERS_H

// A histogram is log-linear: so many bits of a value decide, so a bucket is at most a sixteenth of its value wide.
#define ORION_SUB_BITS 4
// Values from 2^40 on, 18 minutes in nanoseconds, are in the last bucket.
#define ORION_TOP_BIT 40
// (ORION_TOP_BIT - ORION_SUB_BITS + 1) << ORION_SUB_BITS
#define ORION_BUCKETS 592

// Who is looked at: a slot is the threads of one role in one process.
#define ORION_SLOTS_MAX 512
#define ORION_PROCESSES_MAX 512
#define ORION_THREADS_MAX 8192

#define ORION_PORTS_MAX 64
#define ORION_CONNECTIONS_MAX 1024
#define ORION_COMPLETIONS_MAX 4096
#define ORION_IOCTLS_MAX 4096

#define ORION_PROBES_MAX 64
#define ORION_PAIRS_MAX 2048
#define ORION_UNDER_WAY_MAX 8192
// What a USDT probe's cookie says: which one, whether it begins or ends something, how many arguments name that, and
// which pair it belongs to.
#define ORION_COOKIE_KIND_SHIFT 16
#define ORION_COOKIE_NAMES_SHIFT 24
#define ORION_COOKIE_PAIR_SHIFT 32
#define ORION_NAMES_MAX 3
#define ORION_KIND_ALONE 0
#define ORION_KIND_BEGIN 1
#define ORION_KIND_END 2

// An opcode of io_uring that is not known: of one more result of a request that goes on the kernel does not say it.
#define ORION_NO_OPCODE 255

#endif
