//! Batches of 3D copies: pointers and arrays, rows and layers with gaps, and what is refused.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, read, write, zeroed};

facts! { batch_3d:
    Context [
        boxes_are_copied_between_pointers,
        rows_and_layers_may_have_gaps,
        pageable_memory_may_be_either_side,
        a_source_may_be_used_again_if_it_was_read_during_the_call,
        pinned_memory_is_read_in_stream_order,
        a_batch_reads_its_sources_when_it_was_told_to,
        each_order_reads_its_source_at_its_time_while_the_stream_is_held_up,
        a_batch_of_attributes_out_of_order_is_invalid_value,
        extents_of_arrays_count_elements,
        arrays_are_copied_to_arrays,
        a_batch_may_have_many_copies,
        an_empty_extent_is_invalid_value,
        a_copy_without_an_access_order_is_invalid_value,
        a_row_shorter_than_the_copy_is_invalid_value,
        flags_must_be_zero,
        no_copies_are_invalid_value,
        the_default_stream_is_refused,
        the_first_version_tells_which_copy_failed,
    ]
}

fn pointer(address: CUdeviceptr, row: usize, height: usize) -> CUmemcpy3DOperand {
    let mut o: CUmemcpy3DOperand = zeroed();
    o.type_ = CU_MEMCPY_OPERAND_TYPE_POINTER;
    o.op.ptr.ptr = address;
    o.op.ptr.rowLength = row;
    o.op.ptr.layerHeight = height;
    o
}

fn array(array: CUarray, x: usize, y: usize, z: usize) -> CUmemcpy3DOperand {
    let mut o: CUmemcpy3DOperand = zeroed();
    o.type_ = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    o.op.array.array = array;
    o.op.array.offset = CUoffset3D { x, y, z };
    o
}

fn copy(dst: CUmemcpy3DOperand, src: CUmemcpy3DOperand, extent: [usize; 3]) -> CUDA_MEMCPY3D_BATCH_OP {
    let mut op: CUDA_MEMCPY3D_BATCH_OP = zeroed();
    (op.src, op.dst) = (src, dst);
    op.extent = CUextent3D { width: extent[0], height: extent[1], depth: extent[2] };
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    op
}

fn run(cu: &Cuda, stream: CUstream, ops: &mut [CUDA_MEMCPY3D_BATCH_OP]) -> CUresult {
    cu.cuMemcpy3DBatchAsync_v2(ops.len(), ops.as_mut_ptr(), 0, stream)
}

/// Runs one batch to its end.
fn done(cu: &Cuda, ops: &mut [CUDA_MEMCPY3D_BATCH_OP]) -> Verdict {
    let stream = cu.stream()?;
    ok!(run(cu, stream, ops));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn address<T>(of: &[T]) -> CUdeviceptr {
    of.as_ptr() as CUdeviceptr
}

fn boxes_are_copied_between_pointers(cu: &'static Cuda) -> Verdict {
    let (from, to) = (cu.alloc(480)?, cu.alloc(480)?);
    cu.upload(from, &bytes(480))?;
    done(cu, &mut [copy(pointer(to, 0, 0), pointer(from, 0, 0), [10, 8, 6])])?;
    same!(cu.download::<u8>(to, 480)?, bytes(480));
    cu.free(from)?;
    cu.free(to)
}

fn rows_and_layers_may_have_gaps(cu: &'static Cuda) -> Verdict {
    let (from, to) = (cu.alloc(16 * 5 * 3)?, cu.alloc(12 * 4 * 3)?);
    cu.upload(from, &bytes(16 * 5 * 3))?;
    cu.upload(to, &[0xeeu8; 12 * 4 * 3])?;
    // Boxes of 10 x 3 x 2: rows of 16 and layers of 5 here, rows of 12 and layers of 4 there.
    done(cu, &mut [copy(pointer(to, 12, 4), pointer(from, 16, 5), [10, 3, 2])])?;
    let (source, got) = (bytes(16 * 5 * 3), cu.download::<u8>(to, 12 * 4 * 3)?);
    for (i, byte) in got.iter().enumerate() {
        let (x, y, z) = (i % 12, i / 12 % 4, i / 48);
        let inside = x < 10 && y < 3 && z < 2;
        let expected = if inside { source[z * 80 + y * 16 + x] } else { 0xee };
        holds!(*byte == expected, "at {x}, {y}, {z} is {byte:#x}, expected {expected:#x}");
    }
    cu.free(from)?;
    cu.free(to)
}

fn pageable_memory_may_be_either_side(cu: &'static Cuda) -> Verdict {
    let data = cu.alloc(600)?;
    let (from, to) = (bytes(20 * 5 * 6), vec![0u8; 10 * 5 * 6]);
    done(cu, &mut [copy(pointer(data, 0, 0), pointer(address(&from), 20, 0), [10, 5, 6])])?;
    done(cu, &mut [copy(pointer(address(&to), 0, 0), pointer(data, 0, 0), [10, 5, 6])])?;
    let expected: Vec<u8> = from.chunks(20).flat_map(|row| row[..10].to_vec()).collect();
    same!(read_all(&to), expected);
    // Without gaps, too.
    done(cu, &mut [copy(pointer(data, 0, 0), pointer(address(&from), 0, 0), [20, 5, 6])])?;
    same!(cu.download::<u8>(data, 600)?, from);
    cu.free(data)
}

/// The device wrote it behind the compiler's back.
fn read_all(of: &[u8]) -> Vec<u8> {
    of.iter().map(|byte| read(std::ptr::from_ref(byte).cast())).collect()
}

fn a_source_may_be_used_again_if_it_was_read_during_the_call(cu: &'static Cuda) -> Verdict {
    let (stream, data, pinned) = (cu.stream()?, cu.alloc(64)?, cu.pinned(64)?);
    let mut source = bytes(32);
    write(pinned, 0x1111_1111u32);
    let mut ops = [
        copy(pointer(data, 0, 0), pointer(address(&source), 0, 0), [32, 1, 1]),
        copy(pointer(data + 32, 0, 0), pointer(pinned as CUdeviceptr, 0, 0), [4, 1, 1]),
    ];
    for op in &mut ops {
        op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    }
    ok!(run(cu, stream, &mut ops));
    source.fill(0);
    write(pinned, 0x2222_2222u32);
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u8>(data, 32)?, bytes(32));
    same!(cu.word(data + 32)?, 0x1111_1111);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(data)
}

fn pinned_memory_is_read_in_stream_order(cu: &'static Cuda) -> Verdict {
    let (stream, data, pinned) = (cu.stream()?, cu.words(&[0, 0])?, cu.pinned(64)?);
    write(pinned, 1u32);
    let gate = cu.gate(stream)?;
    ok!(run(cu, stream, &mut [copy(pointer(data, 0, 0), pointer(pinned as CUdeviceptr, 0, 0), [4, 1, 1])]));
    write(pinned, 2u32);
    gate.open();
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(data)?, 2);
    ok!(run(cu, stream, &mut [copy(pointer(pinned as CUdeviceptr + 8, 0, 0), pointer(data, 0, 0), [4, 1, 1])]));
    ok!(cu.cuStreamSynchronize(stream));
    same!(read::<u32>(pinned.wrapping_byte_add(8)), 2);
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(data)
}

/// An array of 8 x 4 x 3 elements of two words.
fn pairs(cu: &Cuda) -> Get<CUarray> {
    let mut array = null_mut();
    let description = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 8,
        Height: 4,
        Depth: 3,
        Format: CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 2,
        Flags: 0,
    };
    ok!(cu.cuArray3DCreate_v2(&mut array, &description));
    Ok(array)
}

fn extents_of_arrays_count_elements(cu: &'static Cuda) -> Verdict {
    let pairs = pairs(cu)?;
    let (whole, to) = (bytes(8 * 4 * 3 * 8), vec![0u8; 4 * 2 * 2 * 8]);
    done(cu, &mut [copy(array(pairs, 0, 0, 0), pointer(address(&whole), 0, 0), [8, 4, 3])])?;
    // A box of 3 x 2 x 2 elements from (2, 1, 1), into rows of four.
    done(cu, &mut [copy(pointer(address(&to), 4, 0), array(pairs, 2, 1, 1), [3, 2, 2])])?;
    let got = read_all(&to);
    for (row, (z, y)) in [(1, 1), (1, 2), (2, 1), (2, 2)].into_iter().enumerate() {
        let first = ((z * 4 + y) * 8 + 2) * 8;
        same!(&got[row * 32..row * 32 + 24], &whole[first..first + 24]);
        same!(&got[row * 32 + 24..row * 32 + 32], [0u8; 8]);
    }
    ok!(cu.cuArrayDestroy(pairs));
    Ok(())
}

fn arrays_are_copied_to_arrays(cu: &'static Cuda) -> Verdict {
    let (from, to) = (pairs(cu)?, pairs(cu)?);
    let (whole, got) = (bytes(8 * 4 * 3 * 8), vec![0u8; 5 * 8]);
    done(cu, &mut [copy(array(from, 0, 0, 0), pointer(address(&whole), 0, 0), [8, 4, 3])])?;
    done(cu, &mut [copy(array(to, 0, 0, 0), array(from, 1, 2, 1), [5, 1, 1])])?;
    done(cu, &mut [copy(pointer(address(&got), 0, 0), array(to, 0, 0, 0), [5, 1, 1])])?;
    let first = ((4 + 2) * 8 + 1) * 8;
    same!(read_all(&got), whole[first..first + 40]);
    ok!(cu.cuArrayDestroy(from));
    ok!(cu.cuArrayDestroy(to));
    Ok(())
}

fn a_batch_may_have_many_copies(cu: &'static Cuda) -> Verdict {
    let (from, to) = (cu.alloc(4096)?, cu.alloc(4096)?);
    cu.upload(from, &bytes(4096))?;
    let piece = |i: u64| copy(pointer(to + (63 - i) * 64, 0, 0), pointer(from + i * 64, 0, 0), [64, 1, 1]);
    done(cu, &mut (0..64).map(piece).collect::<Vec<_>>())?;
    let expected: Vec<u8> = bytes(4096).chunks(64).rev().flatten().copied().collect();
    same!(cu.download::<u8>(to, 4096)?, expected);
    cu.free(from)?;
    cu.free(to)
}

/// A batch of one copy that `spoil` makes wrong is refused.
fn refuses(cu: &Cuda, spoil: impl FnOnce(&mut CUDA_MEMCPY3D_BATCH_OP)) -> Verdict {
    let (stream, data) = (cu.stream()?, cu.alloc(256)?);
    let mut op = copy(pointer(data + 128, 0, 0), pointer(data, 0, 0), [8, 2, 1]);
    spoil(&mut op);
    answers!(CUDA_ERROR_INVALID_VALUE, run(cu, stream, &mut [op]));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(data)
}

fn an_empty_extent_is_invalid_value(cu: &'static Cuda) -> Verdict {
    refuses(cu, |op| op.extent.width = 0)?;
    refuses(cu, |op| op.extent.depth = 0)
}

fn a_copy_without_an_access_order_is_invalid_value(cu: &'static Cuda) -> Verdict {
    refuses(cu, |op| op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)
}

fn a_row_shorter_than_the_copy_is_invalid_value(cu: &'static Cuda) -> Verdict {
    refuses(cu, |op| op.src.op.ptr.rowLength = 7)?;
    refuses(cu, |op| op.dst.op.ptr.layerHeight = 1)
}

fn flags_must_be_zero(cu: &'static Cuda) -> Verdict {
    let (stream, data) = (cu.stream()?, cu.alloc(256)?);
    let mut op = copy(pointer(data + 128, 0, 0), pointer(data, 0, 0), [8, 2, 1]);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2(1, &mut op, 1, stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(data)
}

fn no_copies_are_invalid_value(cu: &'static Cuda) -> Verdict {
    let stream = cu.stream()?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync_v2(1, null_mut(), 0, stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn the_default_stream_is_refused(cu: &'static Cuda) -> Verdict {
    let data = cu.alloc(256)?;
    let mut op = copy(pointer(data + 128, 0, 0), pointer(data, 0, 0), [8, 2, 1]);
    answers!(
        [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_SUPPORTED],
        run(cu, null_mut(), std::slice::from_mut(&mut op))
    );
    cu.free(data)
}

/// Or that the failure is none of a certain copy's.
fn the_first_version_tells_which_copy_failed(cu: &'static Cuda) -> Verdict {
    let (stream, data, mut failed) = (cu.stream()?, cu.alloc(256)?, 77);
    let good = copy(pointer(data + 128, 0, 0), pointer(data, 0, 0), [8, 2, 1]);
    let mut bad = good;
    bad.extent.height = 0;
    let mut ops = [good, bad];
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemcpy3DBatchAsync(2, ops.as_mut_ptr(), &mut failed, 0, stream));
    holds!(failed == 1 || failed == usize::MAX, "copy {failed} failed, expected 1");
    ok!(cu.cuMemcpy3DBatchAsync(1, ops.as_mut_ptr(), &mut failed, 0, stream));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(data)
}

/// How long a stream is held up where a call may wait for it.
const HELD_UP: Duration = Duration::from_millis(200);

/// `cuMemcpyBatchAsync_v2` of words, each with its order.
pub fn run_words(
    cu: &Cuda,
    stream: CUstream,
    copies: &[(CUdeviceptr, CUdeviceptr, CUmemcpySrcAccessOrder)],
) -> CUresult {
    let mut to: Vec<_> = copies.iter().map(|c| c.0).collect();
    let mut from: Vec<_> = copies.iter().map(|c| c.1).collect();
    let mut attributes: Vec<CUmemcpyAttributes> =
        copies.iter().map(|c| CUmemcpyAttributes { srcAccessOrder: c.2, ..zeroed() }).collect();
    let (mut sizes, mut indices) = (vec![4; copies.len()], (0..copies.len()).collect::<Vec<_>>());
    let (attributes, count) = (attributes.as_mut_ptr(), copies.len());
    let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
    cu.cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, indices.as_mut_ptr(), count, stream)
}

fn a_batch_reads_its_sources_when_it_was_told_to(cu: &'static Cuda) -> Verdict {
    // A bare GPU's driver waits for the stream in a call that has to read its sources, so nothing may hold that up.
    let (stream, data, pinned) = (cu.stream()?, cu.words(&[0; 3])?, cu.pinned(64)?);
    let at = pinned as CUdeviceptr;
    for round in 1..50u32 {
        let mut pageable = round;
        write(pinned, [round, round]);
        let copies = [
            (data, at, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
            (data + 4, at + 4, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM),
            (data + 8, (&raw const pageable) as CUdeviceptr, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL),
        ];
        ok!(run_words(cu, stream, &copies));
        write(pinned, 0u32);
        write((&raw mut pageable).cast(), 0u32);
        ok!(cu.cuStreamSynchronize(stream));
        same!(cu.download::<u32>(data, 3)?, [round; 3]);
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(data)
}

fn each_order_reads_its_source_at_its_time_while_the_stream_is_held_up(cu: &'static Cuda) -> Verdict {
    const BEFORE: u32 = 71;
    const BEHIND: u32 = 72;
    let (stream, data, pinned) = (cu.stream()?, cu.words(&[0])?, cu.pinned(64)?);
    for (order, may_be_read) in [
        (CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, &[BEHIND][..]),
        (CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL, &[BEFORE]),
        (CU_MEMCPY_SRC_ACCESS_ORDER_ANY, &[BEFORE, BEHIND]),
    ] {
        write(pinned, BEFORE);
        let gate = cu.gate(stream)?;
        // A bare GPU's driver waits for the stream in a call that has to read its source, until this opens it.
        let opener = (order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL).then(|| {
            let (gate, began) = (gate.clone(), Instant::now());
            std::thread::spawn(move || {
                while began.elapsed() < HELD_UP {
                    std::thread::yield_now();
                }
                gate.open();
            })
        });
        ok!(run_words(cu, stream, &[(data, pinned as CUdeviceptr, order)]));
        write(pinned, BEHIND);
        gate.open();
        opener.into_iter().for_each(|opener| opener.join().expect("no panic"));
        ok!(cu.cuStreamSynchronize(stream));
        let word = cu.word(data)?;
        holds!(may_be_read.contains(&word), "order {order} read {word}, of {may_be_read:?}");
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(data)
}

fn a_batch_of_attributes_out_of_order_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (stream, data) = (cu.stream()?, cu.words(&[0; 2])?);
    let invalid = [(data, data + 4, CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)];
    answers!(CUDA_ERROR_INVALID_VALUE, run_words(cu, stream, &invalid));
    let beyond = [(data, data + 4, CU_MEMCPY_SRC_ACCESS_ORDER_ANY + 1)];
    answers!(CUDA_ERROR_INVALID_VALUE, run_words(cu, stream, &beyond));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(data)
}
