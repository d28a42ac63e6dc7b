//! Errors in words.

#[local(error)]
#[since(6000)]
fn cuGetErrorString(error: CUresult, pStr: *mut *const c_char);

#[local(error)]
#[since(6000)]
fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char);
