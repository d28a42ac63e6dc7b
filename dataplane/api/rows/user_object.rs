//! Objects of the application's that graphs keep.

/// The destructor runs in the application's process.
#[by_hand(0x0746)]
#[since(11030)]
#[creates(object_out)]
fn cuUserObjectCreate(
    object_out: *mut CUuserObject,
    ptr: *mut c_void,
    destroy: CUhostFn,
    initialRefcount: u32,
    flags: u32,
);

/// The destructor runs in the application's process.
#[by_hand(0x0747)]
#[since(11030)]
#[creates(object)]
fn cuUserObjectRetain(object: CUuserObject, count: u32);

/// The destructor runs in the application's process.
#[by_hand(0x0748)]
#[since(11030)]
#[destroys(object)]
fn cuUserObjectRelease(object: CUuserObject, count: u32);

/// The destructor runs in the application's process.
#[by_hand(0x0749)]
#[since(11030)]
#[creates(object)]
fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: u32, flags: u32);

/// The destructor runs in the application's process.
#[by_hand(0x074a)]
#[since(11030)]
#[destroys(object)]
fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: u32);
