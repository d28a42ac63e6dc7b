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

fn nvmlInternalGetExportTable();
