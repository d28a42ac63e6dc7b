//! Errors in words.

#[local]
#[since(6000)]
fn cuGetErrorString(error: CUresult, pStr: *mut *const c_char);

#[local]
#[since(6000)]
fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char);
