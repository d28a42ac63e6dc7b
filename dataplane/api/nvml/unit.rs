//! S-class units.

#[here]
fn nvmlUnitGetCount(unitCount: *mut c_uint);

#[lacking]
fn nvmlUnitGetHandleByIndex(index: c_uint, unit: *mut nvmlUnit_t);

#[lacking]
fn nvmlUnitGetUnitInfo(unit: nvmlUnit_t, info: *mut nvmlUnitInfo_t);

#[lacking]
fn nvmlUnitGetLedState(unit: nvmlUnit_t, state: *mut nvmlLedState_t);

#[lacking]
fn nvmlUnitGetPsuInfo(unit: nvmlUnit_t, psu: *mut nvmlPSUInfo_t);

#[lacking]
fn nvmlUnitGetTemperature(unit: nvmlUnit_t, r#type: c_uint, temp: *mut c_uint);

#[lacking]
fn nvmlUnitGetFanSpeedInfo(unit: nvmlUnit_t, fanSpeeds: *mut nvmlUnitFanSpeeds_t);

#[lacking]
fn nvmlUnitGetDevices(unit: nvmlUnit_t, deviceCount: *mut c_uint, devices: *mut nvmlDevice_t);

#[lacking]
fn nvmlUnitSetLedState(unit: nvmlUnit_t, color: nvmlLedColor_t);
