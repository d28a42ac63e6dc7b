//! The profiler's switch.

#[local]
#[since(4000)]
fn cuProfilerInitialize(configFile: *const c_char, outputFile: *const c_char, outputMode: u32);

#[local]
#[since(4000)]
fn cuProfilerStart();

#[local]
#[since(4000)]
fn cuProfilerStop();
