//! Beginning, end and words.

#[here]
fn nvmlInit_v2();

#[here]
fn nvmlInitWithFlags(flags: c_uint);

#[here]
fn nvmlShutdown();

#[here]
fn nvmlInit();

#[here]
fn nvmlErrorString(result: nvmlReturn_t);

#[here]
fn nvmlInternalGetExportTable(table: *mut *const c_void, id: *const u8);
