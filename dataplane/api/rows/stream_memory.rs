//! Streams that write and wait for values.

#[by_hand(0x0609, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(addr, 4)]
#[recorded]
fn cuStreamWriteValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060a, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[at(addr, 4)]
#[recorded]
fn cuStreamWaitValue32(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060b, client)]
#[since(9000)]
#[per_thread(ptsz)]
#[at(addr, 8)]
#[recorded]
fn cuStreamWriteValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x060c, client)]
#[since(9000)]
#[per_thread(ptsz)]
#[at(addr, 8)]
#[recorded]
fn cuStreamWaitValue64(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x060d, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 4)]
#[recorded]
fn cuStreamWriteValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060e, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 4)]
#[recorded]
fn cuStreamWaitValue32_v2(stream: CUstream, addr: CUdeviceptr, value: u32, flags: u32);

#[by_hand(0x060f, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 8)]
#[recorded]
fn cuStreamWriteValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x0610, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[at(addr, 8)]
#[recorded]
fn cuStreamWaitValue64_v2(stream: CUstream, addr: CUdeviceptr, value: u64, flags: u32);

#[by_hand(0x0611, client)]
#[since(8000)]
#[per_thread(ptsz)]
#[limit(256)]
fn cuStreamBatchMemOp(stream: CUstream, count: u32, paramArray: In<[CUstreamBatchMemOpParams; count]>, flags: u32);

#[by_hand(0x0612, client)]
#[since(11070)]
#[per_thread(ptsz)]
#[limit(256)]
fn cuStreamBatchMemOp_v2(stream: CUstream, count: u32, paramArray: In<[CUstreamBatchMemOpParams; count]>, flags: u32);
