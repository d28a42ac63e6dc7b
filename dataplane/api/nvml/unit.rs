//! S-class units.

#[here]
fn nvmlUnitGetCount(unitCount: *mut c_uint);

fn nvmlUnitGetHandleByIndex(index: c_uint, unit: *mut nvmlUnit_t);

fn nvmlUnitGetUnitInfo(unit: nvmlUnit_t, info: *mut nvmlUnitInfo_t);

fn nvmlUnitGetLedState(unit: nvmlUnit_t, state: *mut nvmlLedState_t);

fn nvmlUnitGetPsuInfo(unit: nvmlUnit_t, psu: *mut nvmlPSUInfo_t);

fn nvmlUnitGetTemperature(unit: nvmlUnit_t, r#type: c_uint, temp: *mut c_uint);

fn nvmlUnitGetFanSpeedInfo(unit: nvmlUnit_t, fanSpeeds: *mut nvmlUnitFanSpeeds_t);

fn nvmlUnitGetDevices(unit: nvmlUnit_t, deviceCount: *mut c_uint, devices: *mut nvmlDevice_t);

fn nvmlUnitSetLedState(unit: nvmlUnit_t, color: nvmlLedColor_t);
