//! Parts of a device: GPU and compute instances.

#[lacking]
fn nvmlGpuInstanceGetCreatableVgpus(gpuInstance: nvmlGpuInstance_t, pVgpus: *mut nvmlVgpuTypeIdInfo_t);

#[lacking]
fn nvmlGpuInstanceGetActiveVgpus(gpuInstance: nvmlGpuInstance_t, pVgpuInstanceInfo: *mut nvmlActiveVgpuInstanceInfo_t);

#[lacking]
fn nvmlGpuInstanceSetVgpuSchedulerState(gpuInstance: nvmlGpuInstance_t, pScheduler: *mut nvmlVgpuSchedulerState_t);

#[lacking]
fn nvmlGpuInstanceGetVgpuSchedulerState(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_t,
);

#[lacking]
fn nvmlGpuInstanceGetVgpuSchedulerLog(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_t,
);

#[lacking]
fn nvmlGpuInstanceGetVgpuTypeCreatablePlacements(
    gpuInstance: nvmlGpuInstance_t,
    pCreatablePlacementInfo: *mut nvmlVgpuCreatablePlacementInfo_t,
);

#[lacking]
fn nvmlGpuInstanceGetVgpuHeterogeneousMode(
    gpuInstance: nvmlGpuInstance_t,
    pHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t,
);

#[lacking]
fn nvmlGpuInstanceSetVgpuHeterogeneousMode(
    gpuInstance: nvmlGpuInstance_t,
    pHeterogeneousMode: *const nvmlVgpuHeterogeneousMode_t,
);

#[lacking]
fn nvmlGpuInstanceGetVgpuSchedulerState_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_v2_t,
);

#[lacking]
fn nvmlGpuInstanceGetVgpuSchedulerLog_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_v2_t,
);

#[lacking]
fn nvmlGpuInstanceSetVgpuSchedulerState_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerState: *mut nvmlVgpuSchedulerState_v2_t,
);

#[lacking]
fn nvmlGpuInstanceDestroy(gpuInstance: nvmlGpuInstance_t);

#[lacking]
fn nvmlGpuInstanceGetInfo(gpuInstance: nvmlGpuInstance_t, info: *mut nvmlGpuInstanceInfo_t);

#[lacking]
fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    gpuInstance: nvmlGpuInstance_t,
    profile: c_uint,
    engProfile: c_uint,
    info: *mut nvmlComputeInstanceProfileInfo_t,
);

#[lacking]
fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    gpuInstance: nvmlGpuInstance_t,
    profile: c_uint,
    engProfile: c_uint,
    info: *mut nvmlComputeInstanceProfileInfo_v2_t,
);

#[lacking]
fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    count: *mut c_uint,
);

#[lacking]
fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    placements: *mut nvmlComputeInstancePlacement_t,
    count: *mut c_uint,
);

#[lacking]
fn nvmlGpuInstanceCreateComputeInstance(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    computeInstance: *mut nvmlComputeInstance_t,
);

#[lacking]
fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    placement: *const nvmlComputeInstancePlacement_t,
    computeInstance: *mut nvmlComputeInstance_t,
);

#[lacking]
fn nvmlComputeInstanceDestroy(computeInstance: nvmlComputeInstance_t);

#[lacking]
fn nvmlGpuInstanceGetComputeInstances(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    computeInstances: *mut nvmlComputeInstance_t,
    count: *mut c_uint,
);

#[lacking]
fn nvmlGpuInstanceGetComputeInstanceById(
    gpuInstance: nvmlGpuInstance_t,
    id: c_uint,
    computeInstance: *mut nvmlComputeInstance_t,
);

#[lacking]
fn nvmlComputeInstanceGetInfo_v2(computeInstance: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t);

#[lacking]
fn nvmlComputeInstanceGetInfo(computeInstance: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t);
