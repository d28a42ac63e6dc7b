//! Metrics sampled on the device.

#[lacking]
fn nvmlGpmMetricsGet(metricsGet: *mut nvmlGpmMetricsGet_t);

#[lacking]
fn nvmlGpmSampleFree(gpmSample: nvmlGpmSample_t);

#[lacking]
fn nvmlGpmSampleAlloc(gpmSample: *mut nvmlGpmSample_t);

#[lacking]
fn nvmlGpmSampleGet(device: nvmlDevice_t, gpmSample: nvmlGpmSample_t);

#[lacking]
fn nvmlGpmMigSampleGet(device: nvmlDevice_t, gpuInstanceId: c_uint, gpmSample: nvmlGpmSample_t);

#[lacking]
fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, gpmSupport: *mut nvmlGpmSupport_t);

#[lacking]
fn nvmlGpmQueryIfStreamingEnabled(device: nvmlDevice_t, state: *mut c_uint);

#[lacking]
fn nvmlGpmSetStreamingEnabled(device: nvmlDevice_t, state: c_uint);
