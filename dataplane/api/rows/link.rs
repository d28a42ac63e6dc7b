//! The linker.

#[by_hand(0x0205)]
#[since(6050)]
#[creates(stateOut)]
fn cuLinkCreate_v2(
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
    stateOut: *mut CUlinkState,
);

#[by_hand(0x0206)]
#[since(6050)]
fn cuLinkAddData_v2(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
);

/// Reads the file here.
#[client]
#[since(6050)]
fn cuLinkAddFile_v2(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const c_char,
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
);

#[by_hand(0x0207)]
#[since(5050)]
fn cuLinkComplete(state: CUlinkState, cubinOut: *mut *mut c_void, sizeOut: *mut usize);

#[by_hand(0x0208)]
#[since(5050)]
#[destroys(state)]
fn cuLinkDestroy(state: CUlinkState);

#[alias(cuLinkCreate_v2)]
#[since(5050)]
fn cuLinkCreate(
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
    stateOut: *mut CUlinkState,
);

#[alias(cuLinkAddData_v2)]
#[since(5050)]
fn cuLinkAddData(
    state: CUlinkState,
    type_: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
);

#[alias(cuLinkAddFile_v2)]
#[since(5050)]
fn cuLinkAddFile(
    state: CUlinkState,
    type_: CUjitInputType,
    path: *const c_char,
    numOptions: u32,
    options: *mut CUjit_option,
    optionValues: *mut *mut c_void,
);
