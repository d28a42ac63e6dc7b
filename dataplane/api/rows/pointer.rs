//! Attributes of pointers.

/// From the map of addresses that the shim keeps.
#[local]
#[since(4000)]
fn cuPointerGetAttribute(data: *mut c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);

/// From the map of addresses that the shim keeps.
#[local]
#[since(7000)]
fn cuPointerGetAttributes(
    numAttributes: u32,
    attributes: *mut CUpointer_attribute,
    data: *mut *mut c_void,
    ptr: CUdeviceptr,
);

/// From the map of addresses that the shim keeps.
#[local]
#[since(6000)]
fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, ptr: CUdeviceptr);
