//! Clusters, distributed shared memory, barrier objects and bulk copies, as nvcc builds them for sm_90.

mod common;

use std::ffi::{CString, c_int, c_void};
use std::ptr::null_mut;

use common::*;
use orion_cuda::sys::{
    CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_NON_BLOCKING, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_KERNEL_NODE_PARAMS,
    CUDA_SUCCESS, CUlaunchAttribute, CUlaunchAttributeValue, CUlaunchAttributeValue_union__bindgen_ty_1,
    CUlaunchConfig, CUresult,
};
use orion_soft::calls::capture::{cuStreamBeginCapture_v2, cuStreamEndCapture};
use orion_soft::calls::device::cuDeviceGetAttribute;
use orion_soft::calls::execution::{cuFuncGetAttribute, cuFuncSetAttribute, cuLaunchKernelEx};
use orion_soft::calls::graph::{
    cuGraphExecKernelNodeSetParams_v2, cuGraphGetNodes, cuGraphInstantiateWithFlags, cuGraphKernelNodeGetAttribute,
    cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeSetAttribute, cuGraphLaunch,
};
use orion_soft::calls::occupancy::{
    cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveClusters, cuOccupancyMaxPotentialClusterSize,
};
use orion_soft::calls::stream::{cuStreamCreate, cuStreamSynchronize};

fn gpu() -> Gpu {
    let text = CString::new(include_str!("kernels/cluster.ptx")).unwrap();
    Gpu::with(text.as_ptr().cast())
}

fn attribute([x, y, z]: [u32; 3]) -> CUlaunchAttribute {
    let value = CUlaunchAttributeValue { clusterDim: CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z } };
    CUlaunchAttribute { id: CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, pad: [0; 4], value }
}

fn config(grid: [u32; 3], block: u32, shared: u32, attributes: &mut [CUlaunchAttribute]) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: shared,
        hStream: null_mut(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

/// Launches a kernel in clusters.
fn start(
    g: &Gpu,
    name: &str,
    grid: [u32; 3],
    block: u32,
    shared: u32,
    cluster: [u32; 3],
    args: &mut [*mut c_void],
) -> CUresult {
    let mut attributes = [attribute(cluster)];
    let c = config(grid, block, shared, &mut attributes);
    unsafe { cuLaunchKernelEx(&c, g.function(name), args.as_mut_ptr(), null_mut()) }
}

fn line(n: u32) -> [u32; 3] {
    [n, 1, 1]
}

#[test]
fn special_registers_name_the_place_in_the_cluster() {
    let g = gpu();
    let (grid, cluster) = ([4u32, 6, 2], [2u32, 3, 1]);
    let blocks = grid.iter().product::<u32>() as usize;
    let o = Buffer::<u32>::zeroed(16 * blocks);
    ok(start(&g, "where", grid, 1, 0, cluster, &mut args![o.at]));
    for (i, v) in o.read().chunks(16).enumerate() {
        let i = i as u32;
        let at = [i % 4, i / 4 % 6, i / 24];
        let inside: [u32; 3] = std::array::from_fn(|a| at[a] % cluster[a]);
        let rank = inside[0] + 2 * inside[1];
        let mut want = (0..3).map(|a| at[a] / cluster[a]).collect::<Vec<_>>();
        want.extend((0..3).map(|a| grid[a] / cluster[a]));
        want.extend(inside);
        want.extend(cluster);
        want.extend([rank, 6, 1, rank]);
        assert_eq!(v, want, "block {at:?}");
    }
    let o = Buffer::<u32>::zeroed(16 * 3);
    ok(g.launch("where", 3, 1, 0, &mut args![o.at]));
    for (i, v) in o.read().chunks(16).enumerate() {
        assert_eq!(v, [i as u32, 0, 0, 3, 1, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0], "without a cluster");
    }
}

#[test]
fn blocks_reach_each_others_shared_memory() {
    for n in [1u32, 2, 3, 8] {
        let g = gpu();
        let (threads, clusters) = (64, 5);
        let o = Buffer::<i32>::zeroed((32 * n * clusters) as usize);
        ok(start(&g, "exchange", line(n * clusters), threads, 0, line(n), &mut args![o.at]));
        for (i, v) in o.read().chunks(32).enumerate() {
            let rank = i as u32 % n;
            for (k, v) in v[..16].iter().enumerate() {
                let sent = 1000 + 100 * rank as i32 + k as i32;
                assert_eq!(*v, if (k as u32) < n { sent } else { -1 }, "cell {k} of block {i} in clusters of {n}");
            }
            let counted = (threads * n * (n + 1) / 2) as i32;
            let next_is_own = i32::from(n == 1);
            let want = [counted, ((rank + 1) % n) as i32, n as i32 - 1, 1 | next_is_own << 1 | 4, counted];
            assert_eq!(v[16..21], want, "block {i} in clusters of {n}");
        }
    }
}

#[test]
fn generic_pointers_mean_the_block_that_made_them() {
    let g = gpu();
    let (table, o) = (Buffer::<u64>::zeroed(8), Buffer::<i32>::zeroed(8));
    ok(g.launch("pointers", 8, 1, 0, &mut args![table.at, o.at]));
    let want: Vec<i32> = (0..8).map(|b| 7 * (b / 4 * 4 + (b + 1) % 4)).collect();
    assert_eq!(o.read(), want);
}

#[test]
fn a_cluster_barrier_waits_for_every_thread_that_has_not_exited() {
    let g = gpu();
    let (n, rounds) = (4, 6);
    let o = Buffer::<i32>::zeroed(8);
    ok(start(&g, "paces", line(8), 96, 0, line(n), &mut args![o.at, rounds]));
    for (i, v) in o.read().into_iter().enumerate() {
        let next = (i as i32 % 4 + 1) % 4;
        assert_eq!(v, (0..rounds).map(|k| 10 * k + next).sum::<i32>(), "block {i}");
    }
}

#[test]
fn a_barrier_object_takes_arrivals_from_another_block() {
    let g = gpu();
    let (n, rounds) = (4, 5);
    let o = Buffer::<i32>::zeroed(8);
    ok(start(&g, "ring", line(8), 64, 0, line(n), &mut args![o.at, rounds]));
    for (i, v) in o.read().into_iter().enumerate() {
        let from = (i as i32 % 4 + 3) % 4;
        assert_eq!(v, (0..rounds).map(|k| 100 * k + from).sum::<i32>(), "block {i}");
    }
}

#[test]
fn barrier_objects_count_arrivals_drops_and_bytes() {
    let g = gpu();
    let o = Buffer::<u32>::zeroed(15);
    ok(g.launch("states", 1, 32, 0, &mut args![o.at]));
    // Nothing arrived; then five arrivals, four, and three with 24 bytes.
    assert_eq!(o.read(), [0, 1, 5, 3, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 0]);
}

#[test]
fn producer_and_consumer_hand_over_by_barriers() {
    let g = gpu();
    let rounds = 9;
    let a: Vec<i32> = (0..32 * rounds).map(|i| i * i % 1009).collect();
    let (i, o) = (Buffer::new(&a), Buffer::<i32>::zeroed(a.len()));
    ok(g.launch("produce", 1, 64, 0, &mut args![i.at, o.at, rounds]));
    assert!(o.read().iter().enumerate().all(|(i, v)| *v == 2 * a[i ^ 1]));
}

#[test]
fn copies_complete_on_barrier_objects() {
    let g = gpu();
    let a: Vec<i32> = (0..4096).map(|i| 5 * i - 3).collect();
    let (i, o) = (Buffer::new(&a), Buffer::<i32>::zeroed(a.len()));
    ok(g.launch("bulk", 1, 128, 16384, &mut args![i.at, o.at, 16368u32]));
    let (v, n) = (o.read(), 16368 / 4);
    assert!((0..n).all(|k| v[k] == 3 * a[k] + 1));
    assert!(v[n..].iter().all(|v| *v == 0), "bytes beyond the copy");
    let o = Buffer::<i32>::zeroed(64);
    ok(g.launch("copies", 1, 64, 0, &mut args![i.at, o.at]));
    assert!(o.read().iter().enumerate().all(|(k, v)| *v == a[63 - k]));
}

#[test]
fn one_block_sends_to_all_of_its_cluster() {
    let g = gpu();
    let a = [11, 22, 33, 44];
    let (i, o) = (Buffer::new(&a), Buffer::<i32>::zeroed(8 * 8));
    ok(start(&g, "send", line(8), 32, 0, line(4), &mut args![i.at, o.at]));
    for (b, v) in o.read().chunks(8).enumerate() {
        let r = b as i32 % 4;
        assert_eq!(v, [11, 22, 33, 44, r, r * r, 5 + r, 0], "block {b}");
    }
}

#[test]
fn misuse_is_a_fault_of_the_kernel() {
    for (kind, want) in [
        (0, CUDA_ERROR_LAUNCH_FAILED),
        (1, CUDA_ERROR_LAUNCH_FAILED),
        (2, CUDA_ERROR_LAUNCH_FAILED),
        (3, CUDA_ERROR_LAUNCH_FAILED),
        (4, CUDA_ERROR_MISALIGNED_ADDRESS),
        (5, CUDA_ERROR_ILLEGAL_ADDRESS),
        (6, CUDA_ERROR_ILLEGAL_ADDRESS),
        (7, CUDA_ERROR_LAUNCH_FAILED),
    ] {
        let g = gpu();
        let o = Buffer::<i32>::zeroed(8);
        ok(start(&g, "fault", line(4), 32, 0, line(2), &mut args![kind, o.at]));
        assert_eq!(g.sync(), want, "kind {kind}");
    }
}

#[test]
fn cluster_sizes_are_checked_at_the_launch() {
    let g = gpu();
    let o = Buffer::<i32>::zeroed(64);
    let run = |name: &str, grid: u32, cluster: u32| start(&g, name, line(grid), 1, 0, line(cluster), &mut args![o.at]);
    let plain = |name: &str, grid: u32| g.launch(name, grid, 1, 0, &mut args![o.at]);
    let bad = CUDA_ERROR_INVALID_CLUSTER_SIZE;
    assert_eq!(run("where", 6, 4), bad, "4 does not divide 6");
    assert_eq!(run("where", 6, 0), bad);
    assert_eq!(run("exchange", 16, 16), bad, "not portable");
    assert_eq!((plain("pairs", 3), run("pairs", 4, 4)), (bad, bad), "the kernel requires two");
    assert_eq!(plain("any_cluster", 4), bad, "the kernel requires some cluster");
    assert_eq!(run("up_to_four", 8, 8), bad);
    ok(g.sync());
    let ranks = |n: i32| (0..4).map(|b| 10 * n + b % n).collect::<Vec<_>>();
    for (name, cluster, n) in [
        ("pairs", None, 2),
        ("pairs", Some(2), 2),
        ("any_cluster", Some(1), 1),
        ("any_cluster", Some(4), 4),
        ("up_to_four", Some(4), 4),
        ("up_to_four", None, 1),
    ] {
        ok(cluster.map_or_else(|| plain(name, 4), |c| run(name, 4, c)));
        assert_eq!(o.read()[..4], ranks(n));
    }
}

#[test]
fn sixteen_blocks_need_the_kernels_leave() {
    let g = gpu();
    let f = g.function("exchange");
    unsafe { ok(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)) };
    let o = Buffer::<i32>::zeroed(32 * 32);
    ok(start(&g, "exchange", line(32), 32, 0, line(16), &mut args![o.at]));
    assert!(o.read().chunks(32).all(|v| v[16] == 32 * 136));
    assert_eq!(start(&g, "exchange", line(17), 32, 0, line(17), &mut args![o.at]), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

#[test]
fn required_clusters_are_function_attributes() {
    let g = gpu();
    let size = |name| {
        let (f, mut v) = (g.function(name), [0; 4]);
        for (a, v) in (CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET..).zip(&mut v) {
            unsafe { ok(cuFuncGetAttribute(v, a, f)) };
        }
        v
    };
    assert_eq!((size("pairs"), size("where")), ([1, 2, 1, 1], [0; 4]));
    assert_eq!(size("any_cluster"), [1, 0, 0, 0]);
    let set = |name, v: [c_int; 3]| {
        let f = g.function(name);
        (CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH..)
            .zip(v)
            .map(|(a, v)| unsafe { cuFuncSetAttribute(f, a, v) })
            .max()
            .unwrap()
    };
    assert_eq!(set("pairs", [4, 1, 1]), CUDA_ERROR_NOT_PERMITTED);
    ok(set("where", [1, 3, 1]));
    assert_eq!(size("where"), [0, 1, 3, 1]);
    let o = Buffer::<u32>::zeroed(16 * 3);
    ok(g.launch_on(null_mut(), "where", [1, 3, 1], line(1), 0, &mut args![o.at]));
    assert_eq!(o.read().chunks(16).map(|v| v[12]).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn occupancy_of_clusters() {
    let g = gpu();
    let ask = |name, cluster: &[[u32; 3]], shared| {
        let mut attributes: Vec<_> = cluster.iter().map(|c| attribute(*c)).collect();
        let c = config(line(32), 256, shared, &mut attributes);
        let (f, mut active, mut size) = (g.function(name), -1, -1);
        unsafe {
            let r = cuOccupancyMaxActiveClusters(&mut active, f, &c);
            ok(cuOccupancyMaxPotentialClusterSize(&mut size, f, &c));
            (r, active, size)
        }
    };
    let (mut multiprocessors, mut per_multiprocessor, mut launches) = (0, 0, 0);
    unsafe {
        ok(cuDeviceGetAttribute(&mut launches, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0));
        ok(cuDeviceGetAttribute(&mut multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
        let f = g.function("exchange");
        ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut per_multiprocessor, f, 256, 0));
    }
    let blocks = multiprocessors * per_multiprocessor;
    assert_eq!(launches, 1);
    assert_eq!(ask("exchange", &[line(4)], 0), (CUDA_SUCCESS, blocks / 4, 8));
    assert_eq!(ask("exchange", &[line(8)], 0), (CUDA_SUCCESS, blocks / 8, 8));
    assert_eq!(ask("exchange", &[], 0), (CUDA_ERROR_INVALID_CLUSTER_SIZE, -1, 8));
    assert_eq!(ask("exchange", &[line(9)], 0), (CUDA_ERROR_INVALID_CLUSTER_SIZE, -1, 8));
    assert_eq!(ask("up_to_four", &[line(2)], 0).2, 4, "of launch bounds only the cluster's size counts");
    assert_eq!(ask("pairs", &[], 0), (CUDA_SUCCESS, blocks / 2, 2));
    assert_eq!(ask("pairs", &[line(4)], 0).0, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    let f = g.function("exchange");
    unsafe { ok(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)) };
    assert_eq!(ask("exchange", &[line(16)], 0), (CUDA_SUCCESS, blocks / 16, 16));
}

#[test]
fn graphs_keep_the_cluster() {
    let g = gpu();
    let o = Buffer::<u32>::zeroed(16 * 4);
    let (mut s, mut graph, mut node, mut count) = (null_mut(), null_mut(), null_mut(), 1);
    let (mut value, mut x) = (CUlaunchAttributeValue { pad: [0; 64] }, null_mut());
    let mut attributes = [attribute(line(2))];
    let mut c = config(line(4), 1, 0, &mut attributes);
    unsafe {
        ok(cuStreamCreate(&mut s, CU_STREAM_NON_BLOCKING));
        ok(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
        c.hStream = s;
        ok(cuLaunchKernelEx(&c, g.function("where"), args![o.at].as_mut_ptr(), null_mut()));
        ok(cuStreamEndCapture(s, &mut graph));
        ok(cuGraphGetNodes(graph, &mut node, &mut count));
        ok(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &mut value));
        let d = value.clusterDim;
        assert_eq!([d.x, d.y, d.z], line(2));
    }
    for cluster in [2, 4] {
        value.clusterDim.x = cluster;
        unsafe {
            ok(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
            ok(cuGraphInstantiateWithFlags(&mut x, graph, 0));
            ok(cuGraphLaunch(x, s));
            ok(cuStreamSynchronize(s));
        }
        let ranks: Vec<u32> = o.read().chunks(16).map(|v| v[12]).collect();
        assert_eq!(ranks, (0..4).map(|b| b % cluster).collect::<Vec<_>>());
    }
    let mut params: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    let other = Buffer::<u32>::zeroed(16 * 4);
    unsafe {
        ok(cuGraphKernelNodeGetParams_v2(node, &mut params));
        let (mut at, mut list) = (other.at, [null_mut()]);
        list[0] = arg(&mut at);
        params.kernelParams = list.as_mut_ptr();
        ok(cuGraphExecKernelNodeSetParams_v2(x, node, &params));
        ok(cuGraphLaunch(x, s));
        ok(cuStreamSynchronize(s));
    }
    assert_eq!(other.read().chunks(16).map(|v| v[13]).collect::<Vec<_>>(), [4; 4], "with new parameters");
    value.clusterDim.x = 3;
    let r = unsafe { cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value) };
    assert_eq!(r, CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

#[test]
fn other_asynchronous_copies_are_refused() {
    let text = |name: &str, directive: &str, body: &str| {
        format!(".visible .entry {name}() {directive} {{ .reg .b64 %rd<4>; .reg .b32 %r<4>; {body} ret; }}\n")
    };
    let kernels = [
        ("reduce", "", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;"),
        ("masked", "", "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1], [%r1], 16, %r2;"),
        ("fill", "", "st.bulk.weak.shared::cta [%rd1], 16, 0;"),
        ("inside_out", ".blocksareclusters .reqntid 32 .reqnctapercluster 2", ""),
    ];
    let mut ptx = String::from(".version 9.0\n.target sm_90\n.address_size 64\n");
    ptx.extend(kernels.map(|(name, directive, body)| text(name, directive, body)));
    let ptx = CString::new(ptx).unwrap();
    for (name, ..) in kernels {
        let refused = Gpu::with(ptx.as_ptr().cast());
        assert_eq!(refused.launch(name, 2, 32, 0, &mut []), CUDA_ERROR_NOT_SUPPORTED, "{name}");
    }
    let g = gpu();
    assert_eq!(g.launch("tensor", 1, 32, 0, &mut args![0u64, 0u64]), CUDA_ERROR_NOT_SUPPORTED);
    context_has_failed();
}
