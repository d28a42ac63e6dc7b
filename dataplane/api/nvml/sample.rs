//! Metrics sampled on the device.

fn nvmlGpmMetricsGet(metricsGet: *mut nvmlGpmMetricsGet_t);

fn nvmlGpmSampleFree(gpmSample: nvmlGpmSample_t);

fn nvmlGpmSampleAlloc(gpmSample: *mut nvmlGpmSample_t);

fn nvmlGpmSampleGet(device: nvmlDevice_t, gpmSample: nvmlGpmSample_t);

fn nvmlGpmMigSampleGet(device: nvmlDevice_t, gpuInstanceId: c_uint, gpmSample: nvmlGpmSample_t);

fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, gpmSupport: *mut nvmlGpmSupport_t);

fn nvmlGpmQueryIfStreamingEnabled(device: nvmlDevice_t, state: *mut c_uint);

fn nvmlGpmSetStreamingEnabled(device: nvmlDevice_t, state: c_uint);
