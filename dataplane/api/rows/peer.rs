//! Access of devices to each other.

#[call(0x018e)]
#[since(4000)]
fn cuCtxEnablePeerAccess(peerContext: CUcontext, Flags: u32);

#[call(0x018f)]
#[since(4000)]
fn cuCtxDisablePeerAccess(peerContext: CUcontext);

#[local]
#[since(4000)]
fn cuDeviceCanAccessPeer(canAccessPeer: *mut i32, dev: CUdevice, peerDev: CUdevice);

#[local]
#[since(8000)]
fn cuDeviceGetP2PAttribute(value: *mut i32, attrib: CUdevice_P2PAttribute, srcDevice: CUdevice, dstDevice: CUdevice);

#[call(0x0101)]
#[since(13000)]
#[no_context]
#[limit(64)]
fn cuDeviceGetP2PAtomicCapabilities(
    capabilities: Out<[u32; count]>,
    operations: In<[CUatomicOperation; count]>,
    count: u32,
    srcDevice: CUdevice,
    dstDevice: CUdevice,
);
