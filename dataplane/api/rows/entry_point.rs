//! Entry points.

/// From the rows of this table.
#[local]
#[since(11030)]
fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: u64);

/// From the rows of this table.
#[local]
#[since(12000)]
fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: i32,
    flags: u64,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
);
