//! The driver's log.

/// Kept in the client: the shim's own messages, and those of the worker's driver, which come with the reply to the
/// call that caused them.
#[local]
#[since(12090)]
#[creates(callback_out)]
fn cuLogsRegisterCallback(callbackFunc: CUlogsCallback, userData: *mut c_void, callback_out: *mut CUlogsCallbackHandle);

/// Kept in the client: the shim's own messages, and those of the worker's driver, which come with the reply to the
/// call that caused them.
#[local]
#[since(12090)]
#[destroys(callback)]
fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle);

/// Kept in the client: the shim's own messages, and those of the worker's driver, which come with the reply to the
/// call that caused them.
#[local]
#[since(12090)]
fn cuLogsCurrent(iterator_out: *mut CUlogIterator, flags: u32);

/// Kept in the client: the shim's own messages, and those of the worker's driver, which come with the reply to the
/// call that caused them.
#[local]
#[since(12090)]
fn cuLogsDumpToFile(iterator: *mut CUlogIterator, pathToFile: *const c_char, flags: u32);

/// Kept in the client: the shim's own messages, and those of the worker's driver, which come with the reply to the
/// call that caused them.
#[local]
#[since(12090)]
fn cuLogsDumpToMemory(iterator: *mut CUlogIterator, buffer: *mut c_char, size: *mut usize, flags: u32);
