//! Memory and events of other processes.

/// A handle of the GPU's host: another session on the same host can open it.
#[call(0x038c)]
#[since(4010)]
fn cuIpcGetEventHandle(pHandle: Out<CUipcEventHandle>, event: CUevent);

/// Remembers that another process looks at the event.
#[by_hand(0x038d, client)]
#[since(4010)]
#[creates(phEvent)]
fn cuIpcOpenEventHandle(phEvent: Out<CUevent>, handle: CUipcEventHandle);

/// A handle of the GPU's host: another session on the same host can open it.
#[call(0x038e)]
#[since(4010)]
#[at(dptr, 1)]
fn cuIpcGetMemHandle(pHandle: Out<CUipcMemHandle>, dptr: CUdeviceptr);

#[by_hand(0x038f)]
#[since(11000)]
#[creates(pdptr)]
fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32);

#[by_hand(0x0390)]
#[since(4010)]
#[destroys(dptr)]
fn cuIpcCloseMemHandle(dptr: CUdeviceptr);

#[alias(cuIpcOpenMemHandle_v2)]
#[since(4010)]
fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: u32);
