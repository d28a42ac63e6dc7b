//! Events.

#[here]
fn nvmlEventSetCreate(set: *mut nvmlEventSet_t);

#[here]
fn nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint);

#[lacking]
fn nvmlEventSetRegisterGpuOperationalEvents_v1(
    eventSet: nvmlEventSet_t,
    config: *const nvmlGpuOperationalEventConfig_v1_t,
);

#[lacking]
fn nvmlEventSetWait_v3(set: nvmlEventSet_t, params: *mut nvmlEventSetWait_v3_t);

#[lacking]
fn nvmlEventSetGetContextCount_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextCount_v1_t);

#[lacking]
fn nvmlEventSetGetContextInfo_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextInfo_v1_t);

#[lacking]
fn nvmlEventSetGetContextData_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextData_v1_t);

#[lacking]
fn nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(
    set: nvmlEventSet_t,
    params: *mut nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t,
);

#[here]
fn nvmlEventSetFree(set: nvmlEventSet_t);

#[here]
fn nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint);
