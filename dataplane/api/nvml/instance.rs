//! Parts of a device: GPU and compute instances.

fn nvmlGpuInstanceGetCreatableVgpus(gpuInstance: nvmlGpuInstance_t, pVgpus: *mut nvmlVgpuTypeIdInfo_t);

fn nvmlGpuInstanceGetActiveVgpus(gpuInstance: nvmlGpuInstance_t, pVgpuInstanceInfo: *mut nvmlActiveVgpuInstanceInfo_t);

fn nvmlGpuInstanceSetVgpuSchedulerState(gpuInstance: nvmlGpuInstance_t, pScheduler: *mut nvmlVgpuSchedulerState_t);

fn nvmlGpuInstanceGetVgpuSchedulerState(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_t,
);

fn nvmlGpuInstanceGetVgpuSchedulerLog(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_t,
);

fn nvmlGpuInstanceGetVgpuTypeCreatablePlacements(
    gpuInstance: nvmlGpuInstance_t,
    pCreatablePlacementInfo: *mut nvmlVgpuCreatablePlacementInfo_t,
);

fn nvmlGpuInstanceGetVgpuHeterogeneousMode(
    gpuInstance: nvmlGpuInstance_t,
    pHeterogeneousMode: *mut nvmlVgpuHeterogeneousMode_t,
);

fn nvmlGpuInstanceSetVgpuHeterogeneousMode(
    gpuInstance: nvmlGpuInstance_t,
    pHeterogeneousMode: *const nvmlVgpuHeterogeneousMode_t,
);

fn nvmlGpuInstanceGetVgpuSchedulerState_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerStateInfo: *mut nvmlVgpuSchedulerStateInfo_v2_t,
);

fn nvmlGpuInstanceGetVgpuSchedulerLog_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerLogInfo: *mut nvmlVgpuSchedulerLogInfo_v2_t,
);

fn nvmlGpuInstanceSetVgpuSchedulerState_v2(
    gpuInstance: nvmlGpuInstance_t,
    pSchedulerState: *mut nvmlVgpuSchedulerState_v2_t,
);

fn nvmlGpuInstanceDestroy(gpuInstance: nvmlGpuInstance_t);

fn nvmlGpuInstanceGetInfo(gpuInstance: nvmlGpuInstance_t, info: *mut nvmlGpuInstanceInfo_t);

fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    gpuInstance: nvmlGpuInstance_t,
    profile: c_uint,
    engProfile: c_uint,
    info: *mut nvmlComputeInstanceProfileInfo_t,
);

fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    gpuInstance: nvmlGpuInstance_t,
    profile: c_uint,
    engProfile: c_uint,
    info: *mut nvmlComputeInstanceProfileInfo_v2_t,
);

fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    count: *mut c_uint,
);

fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    placements: *mut nvmlComputeInstancePlacement_t,
    count: *mut c_uint,
);

fn nvmlGpuInstanceCreateComputeInstance(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    computeInstance: *mut nvmlComputeInstance_t,
);

fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    placement: *const nvmlComputeInstancePlacement_t,
    computeInstance: *mut nvmlComputeInstance_t,
);

fn nvmlComputeInstanceDestroy(computeInstance: nvmlComputeInstance_t);

fn nvmlGpuInstanceGetComputeInstances(
    gpuInstance: nvmlGpuInstance_t,
    profileId: c_uint,
    computeInstances: *mut nvmlComputeInstance_t,
    count: *mut c_uint,
);

fn nvmlGpuInstanceGetComputeInstanceById(
    gpuInstance: nvmlGpuInstance_t,
    id: c_uint,
    computeInstance: *mut nvmlComputeInstance_t,
);

fn nvmlComputeInstanceGetInfo_v2(computeInstance: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t);

fn nvmlComputeInstanceGetInfo(computeInstance: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t);
