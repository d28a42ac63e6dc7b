//! Functions of the application that a stream calls.

/// The function runs in the application's process.
#[by_hand(0x0301)]
#[since(10000)]
#[per_thread(ptsz)]
fn cuLaunchHostFunc(hStream: CUstream, fn_: CUhostFn, userData: *mut c_void);

#[by_hand(0x0605)]
#[since(5000)]
#[per_thread(ptsz)]
fn cuStreamAddCallback(hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: u32);
