//! Graphs built node by node.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, as_void, counter, counter_argument, read, tally, write, zeroed};

facts! { graph:
    Context [
        an_empty_one_runs,
        creation_flags_must_be_zero,
        a_kernel_node_runs_at_each_launch,
        arguments_are_copied_when_the_node_is_added,
        dependencies_order_the_nodes,
        a_copy_reads_the_host_at_each_launch,
        a_copy_does_so_although_another_node_was_changed,
        a_copy_to_the_host_that_is_disabled_leaves_alone_what_is_there,
        a_host_node_runs_here,
        a_host_node_can_be_changed_between_launches,
        nodes_are_counted_and_listed,
        a_node_tells_its_type,
        a_node_tells_its_neighbours,
        edges_are_listed,
        a_dependency_can_be_removed,
        a_cycle_cannot_be_instantiated,
        a_node_of_another_graph_is_invalid_value,
        a_destroyed_node_is_gone,
        a_clone_has_its_own_nodes,
        a_child_runs_inside,
        a_kernel_node_tells_its_parameters,
        an_executable_keeps_what_it_was_made_of,
        parameters_of_an_executable_can_be_set,
        an_update_with_the_same_shape_succeeds,
        an_update_with_another_shape_is_refused,
        a_node_can_be_disabled,
        an_uploaded_one_runs,
        one_may_be_destroyed_while_its_executable_lives,
        instantiating_null_is_invalid_value,
        launching_null_is_invalid_value,
        event_nodes_record_and_wait,
        memory_nodes_allocate_and_free,
        memory_that_no_node_frees_outlives_its_graph.not_in_a_crowd("another may be given the freed address"),
        memory_of_graphs_is_counted.not_in_a_crowd("a device counts that of all threads together"),
        a_graph_is_drawn,
        what_lies_between_rows_that_a_graph_writes_is_the_hosts,
        one_that_finds_no_memory_says_so_itself.not_in_a_crowd("it takes most of what is free"),
        a_generic_node_is_a_node,
        launches_of_one_executable_do_not_overlap,
    ]
}

fn graph(cu: &Cuda) -> Get<CUgraph> {
    let mut graph = null_mut();
    ok!(cu.cuGraphCreate(&mut graph, 0));
    Ok(graph)
}

fn instantiate(cu: &Cuda, graph: CUgraph) -> Get<CUgraphExec> {
    let mut exec = null_mut();
    ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    Ok(exec)
}

fn run(cu: &Cuda, exec: CUgraphExec) -> Verdict {
    let stream = cu.stream()?;
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn kernel_params(function: CUfunction, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    let mut params: CUDA_KERNEL_NODE_PARAMS = zeroed();
    params.func = function;
    (params.gridDimX, params.gridDimY, params.gridDimZ) = (1, 1, 1);
    (params.blockDimX, params.blockDimY, params.blockDimZ) = (1, 1, 1);
    params.kernelParams = arguments.as_mut_ptr();
    params
}

/// A node that runs one thread of a kernel whose parameter is an address.
fn kernel_node(
    cu: &Cuda,
    graph: CUgraph,
    after: &[CUgraphNode],
    function: CUfunction,
    mut address: CUdeviceptr,
) -> Get<CUgraphNode> {
    let (mut node, mut arguments) = (null_mut(), [as_void(&mut address)]);
    let params = kernel_params(function, &mut arguments);
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, after.as_ptr(), after.len(), &params));
    Ok(node)
}

fn memset_node(cu: &Cuda, graph: CUgraph, after: &[CUgraphNode], address: CUdeviceptr, value: u32) -> Get<CUgraphNode> {
    let mut node = null_mut();
    let params = CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: 1, height: 1 };
    let context = cu.context()?;
    ok!(cu.cuGraphAddMemsetNode(&mut node, graph, after.as_ptr(), after.len(), &params, context));
    Ok(node)
}

fn one_word_copy() -> CUDA_MEMCPY3D {
    let mut copy: CUDA_MEMCPY3D = zeroed();
    (copy.WidthInBytes, copy.Height, copy.Depth) = (4, 1, 1);
    copy
}

fn copy_node(cu: &Cuda, graph: CUgraph, after: &[CUgraphNode], copy: &CUDA_MEMCPY3D) -> Get<CUgraphNode> {
    let (mut node, context) = (null_mut(), cu.context()?);
    ok!(cu.cuGraphAddMemcpyNode(&mut node, graph, after.as_ptr(), after.len(), copy, context));
    Ok(node)
}

fn to_host_copy(from: CUdeviceptr, to: *mut c_void) -> CUDA_MEMCPY3D {
    let mut copy = one_word_copy();
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, to);
    copy
}

fn to_device_copy(from: *const c_void, to: CUdeviceptr) -> CUDA_MEMCPY3D {
    let mut copy = one_word_copy();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, from);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, to);
    copy
}

fn an_empty_one_runs(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let exec = instantiate(cu, graph)?;
    run(cu, exec)?;
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn creation_flags_must_be_zero(cu: &'static Cuda) -> Verdict {
    let mut graph = null_mut();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGraphCreate(&mut graph, 1));
    Ok(())
}

fn a_kernel_node_runs_at_each_launch(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    kernel_node(cu, graph, &[], increment, address)?;
    let exec = instantiate(cu, graph)?;
    for _ in 0..3 {
        run(cu, exec)?;
    }
    same!(cu.word(address)?, 3);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn arguments_are_copied_when_the_node_is_added(cu: &'static Cuda) -> Verdict {
    let (module, fill) = cu.kernel("fill")?;
    let (graph, mut out) = (graph(cu)?, cu.words(&[0])?);
    let (mut value, mut n, mut node) = (5u32, 1u32, null_mut());
    let mut arguments = [as_void(&mut out), as_void(&mut value), as_void(&mut n)];
    let params = kernel_params(fill, &mut arguments);
    ok!(cu.cuGraphAddKernelNode_v2(&mut node, graph, std::ptr::null(), 0, &params));
    write(as_void(&mut value), 6u32);
    arguments.fill(null_mut());
    let exec = instantiate(cu, graph)?;
    run(cu, exec)?;
    same!(cu.word(out)?, 5);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(out)
}

fn dependencies_order_the_nodes(cu: &'static Cuda) -> Verdict {
    let module = cu.module()?;
    let (increment, twice) = (cu.function(module, "increment")?, cu.function(module, "twice")?);
    let (graph, address, pinned) = (graph(cu)?, cu.words(&[0])?, cu.pinned(4)?);
    let set = memset_node(cu, graph, &[], address, 10)?;
    let add = kernel_node(cu, graph, &[set], increment, address)?;
    let double = kernel_node(cu, graph, &[add], twice, address)?;
    copy_node(cu, graph, &[double], &to_host_copy(address, pinned))?;
    let exec = instantiate(cu, graph)?;
    for _ in 0..2 {
        write(pinned, 0u32);
        run(cu, exec)?;
        same!(read::<u32>(pinned), 22);
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(address)
}

fn a_copy_reads_the_host_at_each_launch(cu: &'static Cuda) -> Verdict {
    let (graph, address, pinned) = (graph(cu)?, cu.words(&[0])?, cu.pinned(4)?);
    let mut pageable = vec![1u32];
    let second = cu.words(&[0])?;
    copy_node(cu, graph, &[], &to_device_copy(pinned, address))?;
    copy_node(cu, graph, &[], &to_device_copy(pageable.as_ptr().cast(), second))?;
    let exec = instantiate(cu, graph)?;
    for round in [3u32, 4, 5] {
        write(pinned, round);
        write(pageable.as_mut_ptr().cast(), round + 10);
        run(cu, exec)?;
        same!((cu.word(address)?, cu.word(second)?), (round, round + 10));
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(second)?;
    cu.free(address)
}

fn a_copy_does_so_although_another_node_was_changed(cu: &'static Cuda) -> Verdict {
    let (graph, written, copied, pinned) = (graph(cu)?, cu.words(&[0])?, cu.words(&[0])?, cu.pinned(4)?);
    let (mut pageable, second) = (vec![1u32], cu.words(&[0])?);
    let write_of = |value: u64| -> [u64; 6] { [CU_STREAM_MEM_OP_WRITE_VALUE_32.into(), written, value, 0, 0, 0] };
    let context = cu.context()?;
    let mut operation = write_of(1);
    let mut values: CUDA_BATCH_MEM_OP_NODE_PARAMS = zeroed();
    (values.ctx, values.count, values.paramArray) = (context, 1, operation.as_mut_ptr().cast());
    let mut node = null_mut();
    ok!(cu.cuGraphAddBatchMemOpNode(&mut node, graph, null_mut(), 0, &values));
    copy_node(cu, graph, &[], &to_device_copy(pinned, copied))?;
    copy_node(cu, graph, &[], &to_device_copy(pageable.as_ptr().cast(), second))?;
    let exec = instantiate(cu, graph)?;
    for round in [3u32, 4, 5] {
        operation = write_of(u64::from(round) + 20);
        values.paramArray = operation.as_mut_ptr().cast();
        ok!(cu.cuGraphExecBatchMemOpNodeSetParams(exec, node, &values));
        write(pinned, round);
        write(pageable.as_mut_ptr().cast(), round + 10);
        run(cu, exec)?;
        same!((cu.word(written)?, cu.word(copied)?, cu.word(second)?), (round + 20, round, round + 10));
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuMemFreeHost(pinned));
    [written, copied, second].into_iter().try_for_each(|address| cu.free(address))
}

/// To pinned memory, to pageable memory, and a fill of pinned memory; then they are made again.
fn a_copy_to_the_host_that_is_disabled_leaves_alone_what_is_there(cu: &'static Cuda) -> Verdict {
    let (graph, from, pinned, filled) = (graph(cu)?, cu.words(&[7])?, cu.pinned(4)?, cu.pinned(4)?);
    let mut pageable = vec![1u32];
    let places = [pinned, pageable.as_mut_ptr().cast(), filled];
    let fill = CUDA_MEMSET_NODE_PARAMS { dst: filled as u64, pitch: 0, value: 7, elementSize: 4, width: 1, height: 1 };
    let mut nodes = [null_mut(); 3];
    for (node, place) in nodes.iter_mut().zip(&places[..2]) {
        *node = copy_node(cu, graph, &[], &to_host_copy(from, *place))?;
    }
    ok!(cu.cuGraphAddMemsetNode(&mut nodes[2], graph, null_mut(), 0, &fill, cu.context()?));
    let exec = instantiate(cu, graph)?;
    for enabled in [1, 0, 1] {
        for node in nodes {
            ok!(cu.cuGraphNodeSetEnabled(exec, node, enabled));
        }
        for round in [20, 30] {
            places.iter().for_each(|place| write(*place, round));
            run(cu, exec)?;
            same!(places.map(|place| read::<u32>(place)), [if enabled == 1 { 7 } else { round }; 3]);
        }
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuMemFreeHost(pinned));
    ok!(cu.cuMemFreeHost(filled));
    cu.free(from)
}

fn host_node(
    cu: &Cuda,
    graph: CUgraph,
    after: &[CUgraphNode],
    count: &'static std::sync::atomic::AtomicU32,
) -> Get<CUgraphNode> {
    let mut node = null_mut();
    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(tally), userData: counter_argument(count) };
    ok!(cu.cuGraphAddHostNode(&mut node, graph, after.as_ptr(), after.len(), &params));
    Ok(node)
}

fn a_host_node_runs_here(cu: &'static Cuda) -> Verdict {
    let (graph, count) = (graph(cu)?, counter());
    host_node(cu, graph, &[], count)?;
    let exec = instantiate(cu, graph)?;
    run(cu, exec)?;
    run(cu, exec)?;
    same!(count.load(Ordering::SeqCst), 2);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

/// Each launch runs what was set when it was launched, also when that has been replaced before the launch comes to run.
fn a_host_node_can_be_changed_between_launches(cu: &'static Cuda) -> Verdict {
    let (graph, first, stream) = (graph(cu)?, counter(), cu.stream()?);
    let node = host_node(cu, graph, &[], first)?;
    let exec = instantiate(cu, graph)?;
    let gate = cu.gate(stream)?;
    ok!(cu.cuGraphLaunch(exec, stream));
    let later: Vec<_> = (0..50).map(|_| counter()).collect();
    for count in &later {
        let params = CUDA_HOST_NODE_PARAMS { fn_: Some(tally), userData: counter_argument(count) };
        ok!(cu.cuGraphExecHostNodeSetParams(exec, node, &params));
        ok!(cu.cuGraphLaunch(exec, stream));
    }
    gate.open();
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuStreamSynchronize(stream));
    same!(first.load(Ordering::SeqCst), 1);
    same!(later.iter().map(|count| count.load(Ordering::SeqCst)).collect::<Vec<_>>(), vec![1; 50]);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    Ok(())
}

fn empty_node(cu: &Cuda, graph: CUgraph, after: &[CUgraphNode]) -> Get<CUgraphNode> {
    let mut node = null_mut();
    ok!(cu.cuGraphAddEmptyNode(&mut node, graph, after.as_ptr(), after.len()));
    Ok(node)
}

fn nodes_are_counted_and_listed(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    let second = empty_node(cu, graph, &[first])?;
    let mut count = 0;
    ok!(cu.cuGraphGetNodes(graph, null_mut(), &mut count));
    same!(count, 2);
    let (mut nodes, mut room) = ([null_mut(); 4], 4);
    ok!(cu.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut room));
    same!((room, nodes.contains(&first), nodes.contains(&second)), (2, true, true));
    holds!(nodes[2].is_null() && nodes[3].is_null(), "room left over was not set to null");
    let (mut roots, mut room) = ([null_mut(); 1], 1);
    ok!(cu.cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &mut room));
    same!((roots[0], room), (first, 1));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_node_tells_its_type(cu: &'static Cuda) -> Verdict {
    let (module, noop) = cu.kernel("increment")?;
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    for (node, expected) in [
        (empty_node(cu, graph, &[])?, CU_GRAPH_NODE_TYPE_EMPTY),
        (kernel_node(cu, graph, &[], noop, address)?, CU_GRAPH_NODE_TYPE_KERNEL),
        (memset_node(cu, graph, &[], address, 1)?, CU_GRAPH_NODE_TYPE_MEMSET),
        (host_node(cu, graph, &[], counter())?, CU_GRAPH_NODE_TYPE_HOST),
    ] {
        let mut kind = 99;
        ok!(cu.cuGraphNodeGetType(node, &mut kind));
        same!(kind, expected);
    }
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_node_tells_its_neighbours(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    let second = empty_node(cu, graph, &[first])?;
    let (mut before, mut count) = ([null_mut(); 2], 2);
    ok!(cu.cuGraphNodeGetDependencies_v2(second, before.as_mut_ptr(), null_mut(), &mut count));
    same!((before[0], count), (first, 1));
    let (mut after, mut count) = ([null_mut(); 2], 2);
    ok!(cu.cuGraphNodeGetDependentNodes_v2(first, after.as_mut_ptr(), null_mut(), &mut count));
    same!((after[0], count), (second, 1));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn edges(cu: &Cuda, graph: CUgraph) -> Get<Vec<(CUgraphNode, CUgraphNode)>> {
    let mut count = 0;
    ok!(cu.cuGraphGetEdges_v2(graph, null_mut(), null_mut(), null_mut(), &mut count));
    let (mut from, mut to) = (vec![null_mut(); count], vec![null_mut(); count]);
    if count > 0 {
        ok!(cu.cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), null_mut(), &mut count));
    }
    Ok(from.into_iter().zip(to).collect())
}

fn edges_are_listed(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    let second = empty_node(cu, graph, &[])?;
    same!(edges(cu, graph)?, vec![]);
    ok!(cu.cuGraphAddDependencies_v2(graph, &first, &second, std::ptr::null(), 1));
    same!(edges(cu, graph)?, vec![(first, second)]);
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_dependency_can_be_removed(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    let second = empty_node(cu, graph, &[first])?;
    ok!(cu.cuGraphRemoveDependencies_v2(graph, &first, &second, std::ptr::null(), 1));
    same!(edges(cu, graph)?, vec![]);
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_cycle_cannot_be_instantiated(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    let second = empty_node(cu, graph, &[first])?;
    let added = cu.cuGraphAddDependencies_v2(graph, &second, &first, std::ptr::null(), 1);
    if added == CUDA_SUCCESS {
        let mut exec = null_mut();
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    } else {
        same!(added, CUDA_ERROR_INVALID_VALUE);
    }
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_node_of_another_graph_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let (one, other) = (graph(cu)?, graph(cu)?);
    let (foreign, mut node) = (empty_node(cu, other, &[])?, null_mut());
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGraphAddEmptyNode(&mut node, one, &foreign, 1));
    ok!(cu.cuGraphDestroy(one));
    ok!(cu.cuGraphDestroy(other));
    Ok(())
}

fn a_destroyed_node_is_gone(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let first = empty_node(cu, graph, &[])?;
    empty_node(cu, graph, &[first])?;
    ok!(cu.cuGraphDestroyNode(first));
    let mut count = 0;
    ok!(cu.cuGraphGetNodes(graph, null_mut(), &mut count));
    same!((count, edges(cu, graph)?), (1, vec![]));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_clone_has_its_own_nodes(cu: &'static Cuda) -> Verdict {
    let graph = graph(cu)?;
    let (first, mut clone, mut found) = (empty_node(cu, graph, &[])?, null_mut(), null_mut());
    ok!(cu.cuGraphClone(&mut clone, graph));
    ok!(cu.cuGraphNodeFindInClone(&mut found, first, clone));
    holds!(found != first, "the clone shares a node");
    ok!(cu.cuGraphDestroyNode(first));
    let mut count = 0;
    ok!(cu.cuGraphGetNodes(clone, null_mut(), &mut count));
    same!(count, 1);
    ok!(cu.cuGraphDestroy(clone));
    ok!(cu.cuGraphDestroy(graph));
    Ok(())
}

fn a_child_runs_inside(cu: &'static Cuda) -> Verdict {
    let module = cu.module()?;
    let (increment, twice) = (cu.function(module, "increment")?, cu.function(module, "twice")?);
    let (child, parent, address) = (graph(cu)?, graph(cu)?, cu.words(&[1])?);
    kernel_node(cu, child, &[], increment, address)?;
    let mut node = null_mut();
    ok!(cu.cuGraphAddChildGraphNode(&mut node, parent, std::ptr::null(), 0, child));
    kernel_node(cu, parent, &[node], twice, address)?;
    ok!(cu.cuGraphDestroy(child));
    let exec = instantiate(cu, parent)?;
    run(cu, exec)?;
    same!(cu.word(address)?, 4);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(parent));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn a_kernel_node_tells_its_parameters(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    let node = kernel_node(cu, graph, &[], increment, address)?;
    let mut params: CUDA_KERNEL_NODE_PARAMS = zeroed();
    ok!(cu.cuGraphKernelNodeGetParams_v2(node, &mut params));
    same!((params.gridDimX, params.blockDimX, params.sharedMemBytes), (1, 1, 0));
    same!(params.func, increment);
    let first: *mut c_void = read(params.kernelParams.cast());
    same!(read::<u64>(first), address);
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn set_params(cu: &Cuda, function: CUfunction, node: CUgraphNode, mut address: CUdeviceptr) -> CUresult {
    let mut arguments = [as_void(&mut address)];
    cu.cuGraphKernelNodeSetParams_v2(node, &kernel_params(function, &mut arguments))
}

fn an_executable_keeps_what_it_was_made_of(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, first, second) = (graph(cu)?, cu.words(&[0])?, cu.words(&[0])?);
    let node = kernel_node(cu, graph, &[], increment, first)?;
    let exec = instantiate(cu, graph)?;
    ok!(set_params(cu, increment, node, second));
    run(cu, exec)?;
    same!((cu.word(first)?, cu.word(second)?), (1, 0));
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(first)?;
    cu.free(second)
}

fn parameters_of_an_executable_can_be_set(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, first, mut second) = (graph(cu)?, cu.words(&[0])?, cu.words(&[0])?);
    let node = kernel_node(cu, graph, &[], increment, first)?;
    let exec = instantiate(cu, graph)?;
    let mut arguments = [as_void(&mut second)];
    ok!(cu.cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel_params(increment, &mut arguments)));
    run(cu, exec)?;
    same!((cu.word(first)?, cu.word(second)?), (0, 1));
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(first)?;
    cu.free(second)
}

fn an_update_with_the_same_shape_succeeds(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (one, other, first, second) = (graph(cu)?, graph(cu)?, cu.words(&[0])?, cu.words(&[0])?);
    kernel_node(cu, one, &[], increment, first)?;
    kernel_node(cu, other, &[], increment, second)?;
    let exec = instantiate(cu, one)?;
    let mut info: CUgraphExecUpdateResultInfo = zeroed();
    ok!(cu.cuGraphExecUpdate_v2(exec, other, &mut info));
    same!(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(cu, exec)?;
    same!((cu.word(first)?, cu.word(second)?), (0, 1));
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(one));
    ok!(cu.cuGraphDestroy(other));
    ok!(cu.cuModuleUnload(module));
    cu.free(first)?;
    cu.free(second)
}

fn an_update_with_another_shape_is_refused(cu: &'static Cuda) -> Verdict {
    let (one, other) = (graph(cu)?, graph(cu)?);
    empty_node(cu, one, &[])?;
    let first = empty_node(cu, other, &[])?;
    empty_node(cu, other, &[first])?;
    let exec = instantiate(cu, one)?;
    let mut info: CUgraphExecUpdateResultInfo = zeroed();
    answers!(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cu.cuGraphExecUpdate_v2(exec, other, &mut info));
    same!(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    run(cu, exec)?;
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(one));
    ok!(cu.cuGraphDestroy(other));
    Ok(())
}

fn a_node_can_be_disabled(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    let node = kernel_node(cu, graph, &[], increment, address)?;
    let (exec, mut enabled) = (instantiate(cu, graph)?, 9);
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 0));
    ok!(cu.cuGraphNodeGetEnabled(exec, node, &mut enabled));
    run(cu, exec)?;
    same!((enabled, cu.word(address)?), (0, 0));
    ok!(cu.cuGraphNodeSetEnabled(exec, node, 1));
    run(cu, exec)?;
    same!(cu.word(address)?, 1);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn an_uploaded_one_runs(cu: &'static Cuda) -> Verdict {
    let (graph, address, stream) = (graph(cu)?, cu.words(&[0])?, cu.stream()?);
    memset_node(cu, graph, &[], address, 6)?;
    let exec = instantiate(cu, graph)?;
    ok!(cu.cuGraphUpload(exec, stream));
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 6);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn one_may_be_destroyed_while_its_executable_lives(cu: &'static Cuda) -> Verdict {
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    memset_node(cu, graph, &[], address, 6)?;
    let exec = instantiate(cu, graph)?;
    ok!(cu.cuGraphDestroy(graph));
    run(cu, exec)?;
    same!(cu.word(address)?, 6);
    ok!(cu.cuGraphExecDestroy(exec));
    cu.free(address)
}

fn instantiating_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut exec = null_mut();
    answers!(
        [CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE],
        cu.cuGraphInstantiateWithFlags(&mut exec, null_mut(), 0)
    );
    Ok(())
}

fn launching_null_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGraphLaunch(null_mut(), null_mut()));
    Ok(())
}

fn event_nodes_record_and_wait(cu: &'static Cuda) -> Verdict {
    let (graph, address, event) = (graph(cu)?, cu.words(&[0])?, cu.event()?);
    let set = memset_node(cu, graph, &[], address, 4)?;
    let (mut record, mut wait) = (null_mut(), null_mut());
    ok!(cu.cuGraphAddEventRecordNode(&mut record, graph, &set, 1, event));
    ok!(cu.cuGraphAddEventWaitNode(&mut wait, graph, &record, 1, event));
    let (exec, stream) = (instantiate(cu, graph)?, cu.stream()?);
    ok!(cu.cuGraphLaunch(exec, stream));
    ok!(cu.cuEventSynchronize(event));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.word(address)?, 4);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuEventDestroy_v2(event));
    cu.free(address)
}

/// A graph that allocates so many bytes and frees them.
fn allocating(cu: &Cuda, bytes: usize) -> Get<Result<CUgraphExec, CUresult>> {
    let (graph, mut alloc, mut free) = (graph(cu)?, null_mut(), null_mut());
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = bytes;
    let added = cu.cuGraphAddMemAllocNode(&mut alloc, graph, std::ptr::null(), 0, &mut params);
    if added != CUDA_SUCCESS {
        return Ok(Err(added));
    }
    ok!(cu.cuGraphAddMemFreeNode(&mut free, graph, &alloc, 1, params.dptr));
    let exec = instantiate(cu, graph)?;
    ok!(cu.cuGraphDestroy(graph));
    Ok(Ok(exec))
}

/// Whichever call it is that is refused, what comes after is not told of it.
fn one_that_finds_no_memory_says_so_itself(cu: &'static Cuda) -> Verdict {
    let (mut available, mut total) = (0, 0);
    ok!(cu.cuMemGetInfo_v2(&mut available, &mut total));
    let (stream, taken) = (cu.stream()?, cu.alloc(available / 4 * 3)?);
    let code = match allocating(cu, available / 2)? {
        Err(refused) => refused,
        Ok(exec) => {
            let code = cu.cuGraphLaunch(exec, stream);
            ok!(cu.cuGraphExecDestroy(exec));
            code
        }
    };
    same!(code, CUDA_ERROR_OUT_OF_MEMORY);
    ok!(cu.cuMemGetInfo_v2(&mut available, &mut total));
    cu.free(taken)?;
    ok!(cu.cuStreamSynchronize(stream));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuDeviceGraphMemTrim(0));
    Ok(())
}

fn memory_nodes_allocate_and_free(cu: &'static Cuda) -> Verdict {
    let (graph, pinned) = (graph(cu)?, cu.pinned(4)?);
    let (mut alloc, mut free) = (null_mut(), null_mut());
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = 4096;
    ok!(cu.cuGraphAddMemAllocNode(&mut alloc, graph, std::ptr::null(), 0, &mut params));
    holds!(params.dptr != 0, "the node has no address");
    let set = memset_node(cu, graph, &[alloc], params.dptr, 17)?;
    let copy = copy_node(cu, graph, &[set], &to_host_copy(params.dptr, pinned))?;
    ok!(cu.cuGraphAddMemFreeNode(&mut free, graph, &copy, 1, params.dptr));
    let exec = instantiate(cu, graph)?;
    for _ in 0..2 {
        write(pinned, 0u32);
        run(cu, exec)?;
        same!(read::<u32>(pinned), 17);
    }
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuMemFreeHost(pinned));
    Ok(())
}

/// A graph that allocates 4096 bytes, writes the word to them and does not free them, launched once.
fn left_by_a_graph(cu: &Cuda, word: u32) -> Get<CUdeviceptr> {
    let (graph, mut alloc) = (graph(cu)?, null_mut());
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = 4096;
    ok!(cu.cuGraphAddMemAllocNode(&mut alloc, graph, std::ptr::null(), 0, &mut params));
    memset_node(cu, graph, &[alloc], params.dptr, word)?;
    let exec = instantiate(cu, graph)?;
    run(cu, exec)?;
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    Ok(params.dptr)
}

/// As CUDA's guide says: "Graph destruction does not automatically free any live graph-allocated memory".
fn memory_that_no_node_frees_outlives_its_graph(cu: &'static Cuda) -> Verdict {
    let (first, second, stream) = (left_by_a_graph(cu, 17)?, left_by_a_graph(cu, 18)?, cu.stream()?);
    holds!(first != second, "memory in use was allocated again");
    same!((cu.word(first)?, cu.word(second)?), (17, 18));
    ok!(cu.cuMemFreeAsync(first, stream));
    ok!(cu.cuStreamSynchronize(stream));
    cu.free(second)?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemFree_v2(second));
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuDeviceGraphMemTrim(0));
    Ok(())
}

fn memory_of_graphs_is_counted(cu: &'static Cuda) -> Verdict {
    let asked = |attribute| -> Get<u64> {
        let mut bytes = 0u64;
        ok!(cu.cuDeviceGetGraphMemAttribute(0, attribute, as_void(&mut bytes)));
        Ok(bytes)
    };
    let left = left_by_a_graph(cu, 1)?;
    for attribute in [
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
    ] {
        holds!(asked(attribute)? >= 4096, "attribute {attribute} counts {} bytes of 4096", asked(attribute)?);
    }
    let (mut zero, mut one) = (0u64, 1u64);
    for attribute in [CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceSetGraphMemAttribute(0, attribute, as_void(&mut one)));
    }
    for attribute in [CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT] {
        answers!(CUDA_ERROR_INVALID_VALUE, cu.cuDeviceSetGraphMemAttribute(0, attribute, as_void(&mut zero)));
    }
    cu.free(left)?;
    holds!(asked(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)? >= 4096, "the most is forgotten with the memory");
    ok!(cu.cuDeviceGraphMemTrim(0));
    ok!(cu.cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, as_void(&mut zero)));
    ok!(cu.cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, as_void(&mut zero)));
    Ok(())
}

/// A copy of rows and a fill of rows, to pinned memory, launched again and again while the host changes the rest of it.
fn what_lies_between_rows_that_a_graph_writes_is_the_hosts(cu: &'static Cuda) -> Verdict {
    let (pinned, stream, device) = (cu.pinned(64)?, cu.stream()?, cu.alloc(64)?);
    let mut copy: CUDA_MEMCPY2D = zeroed();
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, device, 8);
    (copy.dstMemoryType, copy.dstHost, copy.dstPitch) = (CU_MEMORYTYPE_HOST, pinned, 16);
    (copy.WidthInBytes, copy.Height) = (8, 3);
    for is_fill in [false, true] {
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok!(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        match is_fill {
            false => ok!(cu.cuMemcpy2DAsync_v2(&copy, stream)),
            true => ok!(cu.cuMemsetD2D8Async(pinned.addr() as CUdeviceptr, 16, 77, 8, 3, stream)),
        }
        ok!(cu.cuStreamEndCapture(stream, &mut graph));
        ok!(cu.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        for round in 1..10u8 {
            write(pinned, [round + 100; 64]);
            ok!(cu.cuMemsetD8Async(device, round, 64, stream));
            ok!(cu.cuGraphLaunch(exec, stream));
            ok!(cu.cuStreamSynchronize(stream));
            let mut expected = [round + 100; 64];
            let value = if is_fill { 77 } else { round };
            (0..3).for_each(|row| expected[16 * row..16 * row + 8].fill(value));
            same!((is_fill, read::<[u8; 64]>(pinned)), (is_fill, expected));
        }
        ok!(cu.cuGraphExecDestroy(exec));
        ok!(cu.cuGraphDestroy(graph));
    }
    ok!(cu.cuStreamDestroy_v2(stream));
    ok!(cu.cuMemFreeHost(pinned));
    cu.free(device)
}

fn a_graph_is_drawn(cu: &'static Cuda) -> Verdict {
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    let first = memset_node(cu, graph, &[], address, 1)?;
    memset_node(cu, graph, &[first], address, 2)?;
    let path = std::env::temp_dir().join(format!("orion-drawn-{}-{:?}", std::process::id(), graph));
    let name = std::ffi::CString::new(path.to_string_lossy().as_bytes()).map_err(|e| e.to_string())?;
    let drawn = |flags| -> Get<String> {
        ok!(cu.cuGraphDebugDotPrint(graph, name.as_ptr(), flags));
        let text = std::fs::read_to_string(&path).map_err(|e| format!("reading {}: {e}", path.display()))?;
        std::fs::remove_file(&path).map_err(|e| format!("removing {}: {e}", path.display()))?;
        Ok(text)
    };
    let (brief, text) = (drawn(0)?, drawn(CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)?);
    holds!(text.starts_with("digraph"), "it begins with {:?}", text.lines().next());
    holds!(text.matches("MEMSET").count() >= 2 && text.contains(" -> "), "it says {text}");
    holds!(
        brief.len() < text.len(),
        "without a flag it says {brief}, and with CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE {text}"
    );
    ok!(cu.cuGraphDestroy(graph));
    cu.free(address)
}

fn a_generic_node_is_a_node(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, mut address, mut node) = (graph(cu)?, cu.words(&[0])?, null_mut());
    let mut arguments = [as_void(&mut address)];
    let mut params: CUgraphNodeParams = zeroed();
    params.type_ = CU_GRAPH_NODE_TYPE_KERNEL;
    let mut kernel: CUDA_KERNEL_NODE_PARAMS_v3 = zeroed();
    kernel.func = increment;
    (kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ) = (1, 1, 1);
    (kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ) = (1, 1, 1);
    kernel.kernelParams = arguments.as_mut_ptr();
    params.__bindgen_anon_1.kernel = kernel;
    ok!(cu.cuGraphAddNode_v2(&mut node, graph, std::ptr::null(), std::ptr::null(), 0, &mut params));
    let exec = instantiate(cu, graph)?;
    run(cu, exec)?;
    same!(cu.word(address)?, 1);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}

fn launches_of_one_executable_do_not_overlap(cu: &'static Cuda) -> Verdict {
    let (module, increment) = cu.kernel("increment")?;
    let (graph, address) = (graph(cu)?, cu.words(&[0])?);
    kernel_node(cu, graph, &[], increment, address)?;
    let (exec, first, second) = (instantiate(cu, graph)?, cu.stream()?, cu.stream()?);
    for _ in 0..20 {
        ok!(cu.cuGraphLaunch(exec, first));
        ok!(cu.cuGraphLaunch(exec, second));
    }
    ok!(cu.cuCtxSynchronize());
    same!(cu.word(address)?, 40);
    ok!(cu.cuGraphExecDestroy(exec));
    ok!(cu.cuGraphDestroy(graph));
    ok!(cu.cuStreamDestroy_v2(first));
    ok!(cu.cuStreamDestroy_v2(second));
    ok!(cu.cuModuleUnload(module));
    cu.free(address)
}
