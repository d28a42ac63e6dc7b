//! Events.

/// Not awaited: the shim chooses the handle.
#[by_hand(0x0680, client)]
#[since(2000)]
#[creates(phEvent)]
fn cuEventCreate(phEvent: Out<CUevent>, Flags: u32);

#[by_hand(0x0681, client)]
#[since(4000)]
#[destroys(hEvent)]
fn cuEventDestroy_v2(hEvent: CUevent);

#[alias(cuEventDestroy_v2)]
#[since(2000)]
fn cuEventDestroy(hEvent: CUevent);

#[by_hand(0x0682, client)]
#[since(2000)]
#[per_thread(ptsz)]
fn cuEventRecord(hEvent: CUevent, hStream: CUstream);

#[by_hand(0x0683, client)]
#[since(11010)]
#[per_thread(ptsz)]
fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: u32);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0684)]
#[since(2000)]
fn cuEventQuery(hEvent: CUevent);

/// Parked in the worker, so that other threads' commands go on.
#[by_hand(0x0685)]
#[since(2000)]
fn cuEventSynchronize(hEvent: CUevent);

#[call(0x0686)]
#[since(12080)]
fn cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent);

#[call(0x0687)]
#[since(2000)]
fn cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: CUevent, hEnd: CUevent);
