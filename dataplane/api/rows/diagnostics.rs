//! Core dumps, checkpoints, debuggers.

/// Core dumps of the GPU are written on its own host, where a session has no files.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12010)]
fn cuCoredumpGetAttribute(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);

/// Core dumps of the GPU are written on its own host, where a session has no files.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12010)]
fn cuCoredumpGetAttributeGlobal(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);

/// Core dumps of the GPU are written on its own host, where a session has no files.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12010)]
fn cuCoredumpSetAttribute(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);

/// Core dumps of the GPU are written on its own host, where a session has no files.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12010)]
fn cuCoredumpSetAttributeGlobal(attrib: CUcoredumpSettings, value: *mut c_void, size: *mut usize);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessGetRestoreThreadId(pid: i32, tid: *mut i32);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessGetState(pid: i32, state: *mut CUprocessState);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessLock(pid: i32, args: *mut CUcheckpointLockArgs);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessCheckpoint(pid: i32, args: *mut CUcheckpointCheckpointArgs);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessRestore(pid: i32, args: *mut CUcheckpointRestoreArgs);

/// The process named would be one of this host, and the GPU's state is in the worker's.
#[refuse(CUDA_ERROR_NOT_SUPPORTED)]
#[since(12080)]
fn cuCheckpointProcessUnlock(pid: i32, args: *mut CUcheckpointUnlockArgs);

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgApiAttach();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgApiClientPid();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgApiClientRevision();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgApiDetach();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgApiInit();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgAttachHandlerAvailable();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgDebuggerCapabilities();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgDebuggerInitialized();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgDetachSuspendedDevicesMask();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgEnableIntegratedMemcheck();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgEnableLaunchBlocking();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgEnablePreemptionDebugging();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgGetAPI();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgGetAPIVersion();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgInjectionPath();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgIpcFlag();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgMain();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportDriverApiError();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportDriverApiErrorFlags();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportDriverInternalError();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorCode();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorFuncNameAddr();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorFuncNameSize();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorNameAddr();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorNameSize();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorSource();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorStringAddr();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverApiErrorStringSize();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgReportedDriverInternalErrorCode();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgResumeForAttachDetach();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgRpcEnabled();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgSessionId();

/// For debuggers: a variable or entry that cuda-gdb looks up in a process that drives a GPU itself, which this one
/// does not.
#[absent]
fn cudbgUseExternalDebugger();
