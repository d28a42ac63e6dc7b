//! Multicast objects.

#[call(0x048d)]
#[since(12010)]
#[creates(mcHandle)]
fn cuMulticastCreate(mcHandle: Out<CUmemGenericAllocationHandle>, prop: In<CUmulticastObjectProp>);

#[call(0x048e)]
#[since(12010)]
fn cuMulticastAddDevice(mcHandle: CUmemGenericAllocationHandle, dev: CUdevice);

#[call(0x048f)]
#[since(12010)]
fn cuMulticastBindMem(
    mcHandle: CUmemGenericAllocationHandle,
    mcOffset: usize,
    memHandle: CUmemGenericAllocationHandle,
    memOffset: usize,
    size: usize,
    flags: u64,
);

#[call(0x0490)]
#[since(12010)]
#[at(memptr, size)]
fn cuMulticastBindAddr(
    mcHandle: CUmemGenericAllocationHandle,
    mcOffset: usize,
    memptr: CUdeviceptr,
    size: usize,
    flags: u64,
);

#[call(0x0491)]
#[since(12010)]
fn cuMulticastUnbind(mcHandle: CUmemGenericAllocationHandle, dev: CUdevice, mcOffset: usize, size: usize);

#[call(0x0492)]
#[since(12010)]
#[no_context]
fn cuMulticastGetGranularity(
    granularity: Out<usize>,
    prop: In<CUmulticastObjectProp>,
    option: CUmulticastGranularity_flags,
);
