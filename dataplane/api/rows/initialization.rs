//! Initialisation, versions, errors and entry points.

/// Attaches to a worker. Flags other than 0 are refused.
#[client(init)]
#[since(2000)]
fn cuInit(Flags: u32);

/// The worker's driver, capped at what this shim implements.
#[local(device)]
#[since(2020)]
fn cuDriverGetVersion(driverVersion: *mut i32);

#[local(error)]
#[since(6000)]
fn cuGetErrorString(error: CUresult, pStr: *mut *const c_char);

#[local(error)]
#[since(6000)]
fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char);

/// From the rows of this table.
#[local(proc_address)]
#[since(11030)]
fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: i32, flags: u64);

/// From the rows of this table.
#[local(proc_address)]
#[since(12000)]
fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    cudaVersion: i32,
    flags: u64,
    symbolStatus: *mut CUdriverProcAddressQueryResult,
);

/// The undocumented tables that NVIDIA's libraries need.
#[local(export_table)]
#[since(3000)]
fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid);

#[local(profiler)]
#[since(4000)]
fn cuProfilerInitialize(configFile: *const c_char, outputFile: *const c_char, outputMode: u32);

#[local(profiler)]
#[since(4000)]
fn cuProfilerStart();

#[local(profiler)]
#[since(4000)]
fn cuProfilerStop();
