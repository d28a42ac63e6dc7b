//! What modules and libraries have in common: loading an image, and what a function of it looks like.

// UNSAFETY: hands images to the driver; a hostile image can at worst break this worker's own session.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;
use orion_wire::handle::Kind;
use orion_wire::message::field::{Halves, List, Text};
use orion_wire::message::image::{JitOptions, Layout, PARAMETERS_MAX, Payload};
use orion_wire::message::library::LibraryLoadDataReply;
use orion_wire::message::module::ModuleLoadDataReply;
use orion_wire::record::Header;

use crate::worker::calls::payload::payload;
use crate::worker::driver::globals;
use crate::worker::driver::image::Image;
use crate::worker::driver::{jit, log as driver_log};
use crate::worker::outcome::Handled;
use crate::worker::session::Session;
use crate::worker::state::ledger::What;

/// What a load leaves behind for its reply, when it has run on a helper thread.
struct Load {
    handle: usize,
    image: Image,
    /// The options' values, as the driver left them.
    values: Vec<AtomicPtr<std::ffi::c_void>>,
}

/// Loads on a helper thread: the driver may wait for the device in there, and the device for another thread of
/// the client. XLA loads modules while a kernel spins on memory that its own host code will write.
pub fn load(
    s: &mut Session,
    header: &Header,
    kind: Kind,
    word: u64,
    image: &Payload<'_>,
    told: &JitOptions<'_>,
    owner: Text<'_>,
) -> Handled {
    let image = Image::new(payload(s, image)?)?;
    // A fault ends the session here, ahead of the work.
    let options = Arc::new(jit::Decoded::of(told)?);
    let theirs = options.clone();
    let loaded = Arc::new(Mutex::new(Load { handle: 0, image, values: Vec::new() }));
    let mine = loaded.clone();
    let owner = String::from_utf8_lossy(owner.get()).into_owned();
    let (vgpu, context) = s.place();
    // A library is in every context, and ends when it is unloaded.
    let ends_with = if kind == Kind::Module { context } else { 0 };
    let rounding = s.accounts.as_ref().map(|accounts| accounts.shared().1);
    let charged = s.lasting_reserves(vgpu).zip(rounding);
    let capabilities = s.prints.capabilities().to_vec();
    let job = move |driver: &'static Driver| {
        let mut load = loaded.lock().expect("no panic happens under this lock");
        if let Some(why) = load.image.objection() {
            driver_log::refuse(&format!("the image {why}; it is not loaded"));
            return CUDA_ERROR_INVALID_IMAGE;
        }
        // Variables are memory of the session's, and nothing is loaded whose variables do not fit.
        if let Some((reserves, rounding)) = &charged {
            let bytes = globals::bytes_in(&load.image, &capabilities);
            let rounded = if bytes == 0 { 0 } else { rounding.of(bytes) };
            if !reserves.charge(driver, What::Loading(word), rounded, ends_with) {
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
        }
        let (mut keys, mut values) = theirs.arrays();
        let mut handle: *mut std::ffi::c_void = ptr::null_mut();
        let (count, keys, of) = (keys.len() as u32, keys.as_mut_ptr(), values.as_mut_ptr());
        // SAFETY: the image is a copy that is kept while the object lives; the option arrays have as many elements as
        // they say.
        let code = orion_soft::image::of_file(&owner, || unsafe {
            if kind == Kind::Module {
                driver.cuModuleLoadDataEx(ptr::from_mut(&mut handle).cast(), load.image.as_ptr(), count, keys, of)
            } else {
                let out = ptr::from_mut(&mut handle).cast();
                let (none, no_values) = (ptr::null_mut(), ptr::null_mut());
                driver.cuLibraryLoadData(out, load.image.as_ptr(), keys, of, count, none, no_values, 0)
            }
        });
        load.handle = handle as usize;
        if let Some((reserves, _)) = &charged {
            let loaded = (code == CUDA_SUCCESS).then_some(What::Globals(load.handle));
            reserves.settle(What::Loading(word), loaded);
        }
        load.values = values.into_iter().map(AtomicPtr::new).collect();
        code
    };
    s.park_blocking(header, job, move |s, code, reply| {
        let mut load = mine.lock().expect("no panic happens under this lock");
        let values: Vec<_> = load.values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
        let results = options.results(&values);
        match kind {
            Kind::Module => ModuleLoadDataReply { results }.encode(reply),
            _ => LibraryLoadDataReply { results }.encode(reply),
        }
        if code == CUDA_SUCCESS {
            if s.bind(kind, word, load.handle as *mut _).is_err() {
                return CUDA_ERROR_INVALID_HANDLE;
            }
            let image = Arc::new(std::mem::take(&mut load.image));
            s.prints.look(&image);
            s.images.insert(word, image);
        }
        code
    })
}

/// Parameter layout of a function or kernel: offset and size of each, until the driver knows no more.
pub fn layout(s: &Session, f: *mut std::ffi::c_void, is_kernel: bool) -> Result<Layout, CUresult> {
    let mut found = Vec::new();
    loop {
        let (mut offset, mut size) = (0usize, 0usize);
        // SAFETY: a function of the kind the call takes; valid out pointers.
        let code = unsafe {
            if is_kernel {
                s.driver.cuKernelGetParamInfo(f.cast(), found.len(), &mut offset, &mut size)
            } else {
                s.driver.cuFuncGetParamInfo(f.cast(), found.len(), &mut offset, &mut size)
            }
        };
        match code {
            CUDA_SUCCESS if found.len() < PARAMETERS_MAX => found.push(Halves(size as u32, offset as u32)),
            CUDA_SUCCESS | CUDA_ERROR_INVALID_VALUE => {
                return Ok(List::of(found).expect("no more than there is room for"));
            }
            code => return Err(code),
        }
    }
}
