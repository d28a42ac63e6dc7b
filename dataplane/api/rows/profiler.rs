//! The profiler's switch.

#[local(profiler)]
#[since(4000)]
fn cuProfilerInitialize(configFile: *const c_char, outputFile: *const c_char, outputMode: u32);

#[local(profiler)]
#[since(4000)]
fn cuProfilerStart();

#[local(profiler)]
#[since(4000)]
fn cuProfilerStop();
