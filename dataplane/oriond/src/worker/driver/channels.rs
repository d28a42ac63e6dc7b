//! The channels by which NVIDIA's driver gives this process's kernels to a GPU, and how they are taken off it.
//!
//! libcuda makes them in its kernel module by `ioctl` on `/dev/nvidiactl`, and tells nobody of them. So the worker's
//! executable exports an `ioctl` of its own, which the dynamic linker finds before the C library's: it makes the
//! system call, and notes which objects came of it. What is asked and how is in NVIDIA's open kernel modules:
//! `NVOS21`, `NVOS54` and `NVOS00_PARAMETERS` in `nvos.h`, the classes in `class/`, and
//! `NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`, which takes channels that compute off the GPU in the middle of a kernel
//! and needs no rights. It is no documented interface, so nothing is built on it before it was seen to work
//! ([`crate::worker::driver::preemption`]).
//!
//! Measured on an H200 with driver 580.159: off after 0.46 ms, on again after 0.28 ms, and meanwhile another process
//! has the GPU as if it were alone (19,520 kernels of 50 us in a second; beside an enabled group 9,070).

// UNSAFETY: exports a C function that others call, reads what they pass on as the kernel's interface has it, and makes
// system calls.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The type of NVIDIA's ioctls, and the numbers of those that make and free objects and control them.
const NVIDIA: c_ulong = b'F' as c_ulong;
const RM_FREE: c_ulong = 0x29;
const RM_CONTROL: c_ulong = 0x2a;
const RM_ALLOC: c_ulong = 0x2b;
/// `_IOWR('F', RM_CONTROL, NVOS54_PARAMETERS)`.
const CONTROL: c_ulong = 3 << 30 | (size_of::<Control>() as c_ulong) << 16 | NVIDIA << 8 | RM_CONTROL;
const CHANNEL_GROUP: u32 = 0xa06c;
const SUBDEVICE: u32 = 0x2080;
/// Every generation's class of channels ends so: `0xc36f`, `0xc56f`, `0xc86f`.
const CHANNEL_ENDS: u32 = 0x6f;
/// `NV2080_ENGINE_TYPE_GR0` to `GR7`: what computes. The others copy, encode and so on.
const COMPUTES: std::ops::RangeInclusive<u32> = 1..=8;
const DISABLE_CHANNELS: u32 = 0x2080_110b;
/// `NV2080_CTRL_CMD_GPU_GET_GID_INFO`, and its flags for sixteen bytes.
const GET_GID_INFO: u32 = 0x2080_014a;
const GID_IS_BINARY: u32 = 2;
/// `NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES`.
const CHANNELS_A_CALL: usize = 64;
/// A context has eight channels. Beyond that it is not known any more which there are.
const OBJECTS_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Subdevice,
    Group,
    Channel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Object {
    kind: Kind,
    fd: c_int,
    client: u32,
    parent: u32,
    handle: u32,
}

/// What there is.
#[derive(Debug, Default)]
struct Objects {
    all: Vec<Object>,
    /// More were made than are noted.
    are_too_many: bool,
}

static OBJECTS: Mutex<Objects> = Mutex::new(Objects { all: Vec::new(), are_too_many: false });

fn objects() -> MutexGuard<'static, Objects> {
    // Nothing panics under it.
    OBJECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `NVOS54_PARAMETERS`.
#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: u64,
    bytes: u32,
    status: u32,
}

/// `NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS`.
#[repr(C)]
struct DisableChannels {
    disable: u8,
    count: u32,
    only_scheduling: u8,
    rewind: u8,
    event: u64,
    clients: [u32; CHANNELS_A_CALL],
    channels: [u32; CHANNELS_A_CALL],
}

/// `NV2080_CTRL_GPU_GET_GID_INFO_PARAMS`.
#[repr(C)]
struct GetGidInfo {
    index: u32,
    flags: u32,
    bytes: u32,
    data: [u8; 256],
}

/// The driver's, and everybody's in this process: the system call, and what came of it is noted.
///
/// # Safety
///
/// As of `ioctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // An object that is freed is named in what the kernel writes into, so it is read before.
    // SAFETY: the caller's promise, which is the kernel's interface for this request.
    let freed = unsafe { freed(request, argument) };
    // SAFETY: the caller's call.
    let answer = unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) };
    if answer == 0 {
        if let Some((client, handle)) = freed {
            objects().forget(client, handle);
        }
        // SAFETY: as above, and the kernel has answered.
        if let Some((engine, object)) = unsafe { made(fd, request, argument) } {
            objects().note(engine, object);
        }
    }
    answer as c_int
}

/// So that the linker keeps it although nothing of ours calls it.
#[used]
static KEPT: unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int = ioctl;

fn is_nvidia(request: c_ulong, number: c_ulong) -> bool {
    request >> 8 & 0xff == NVIDIA && request & 0xff == number
}

/// Bytes that a request's argument has.
fn bytes(request: c_ulong) -> usize {
    (request >> 16 & 0x3fff) as usize
}

/// # Safety
///
/// The argument is what this request takes.
unsafe fn words<const N: usize>(argument: *const c_void) -> [u32; N] {
    // SAFETY: the caller's promise that there are so many; they may lie anywhere.
    unsafe { argument.cast::<[u32; N]>().read_unaligned() }
}

/// # Safety
///
/// As of [`words`].
unsafe fn freed(request: c_ulong, argument: *const c_void) -> Option<(u32, u32)> {
    if !is_nvidia(request, RM_FREE) || bytes(request) < 16 {
        return None;
    }
    // SAFETY: the caller's promise; `hRoot`, `hObjectParent`, `hObjectOld`, `status`.
    let [client, _, handle, _] = unsafe { words(argument) };
    Some((client, handle))
}

/// What was made, and its engine if it is a group of channels.
///
/// # Safety
///
/// As of [`words`], after the kernel has answered.
unsafe fn made(fd: c_int, request: c_ulong, argument: *const c_void) -> Option<(u32, Object)> {
    if !is_nvidia(request, RM_ALLOC) {
        return None;
    }
    // `hRoot`, `hObjectParent`, `hObjectNew`, `hClass`, `pAllocParms`, of `NVOS21` then size and status, of `NVOS64`
    // rights, size, flags and status.
    // SAFETY: the caller's promise.
    let (head, status): ([u32; 6], u32) = unsafe {
        match bytes(request) {
            32 => (words(argument), words::<8>(argument)[7]),
            48 => (words(argument), words::<12>(argument)[10]),
            _ => return None,
        }
    };
    let [client, parent, handle, class, low, high] = head;
    if status != 0 {
        return None;
    }
    let kind = match class {
        CHANNEL_GROUP => Kind::Group,
        SUBDEVICE => Kind::Subdevice,
        _ if class & 0xff == CHANNEL_ENDS => Kind::Channel,
        _ => return None,
    };
    let parameters = (u64::from(high) << 32 | u64::from(low)) as *const c_void;
    // SAFETY: `NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS`, whose fourth word is the engine's.
    let engine = (kind == Kind::Group && !parameters.is_null()).then(|| unsafe { words::<4>(parameters)[3] });
    Some((engine.unwrap_or(0), Object { kind, fd, client, parent, handle }))
}

impl Objects {
    fn note(&mut self, engine: u32, object: Object) {
        let is_of_a_group = || self.all.iter().any(|group| group.kind == Kind::Group && group.has(&object));
        let counts = match object.kind {
            Kind::Group => COMPUTES.contains(&engine),
            Kind::Channel => is_of_a_group(),
            Kind::Subdevice => true,
        };
        if !counts {
            return;
        }
        match self.all.len() < OBJECTS_MAX {
            true => self.all.push(object),
            false => self.are_too_many = true,
        }
    }

    /// An object is gone, and what lies in it.
    fn forget(&mut self, client: u32, handle: u32) {
        let mut gone = vec![handle];
        while let Some(handle) = gone.pop() {
            self.all.retain(|object| {
                let is_gone = object.client == client && (object.handle == handle || client == handle);
                let lies_in_it = object.client == client && object.parent == handle && !is_gone;
                if lies_in_it && object.handle != handle {
                    gone.push(object.handle);
                }
                !is_gone
            });
        }
    }

    /// The channels that compute, of each GPU: the subdevice that they are asked of, and their handles.
    fn computing(&self) -> Result<Vec<(Object, Vec<u32>)>, String> {
        if self.are_too_many {
            return Err(format!("the driver has made more than {OBJECTS_MAX} channels"));
        }
        let mut by_gpu: Vec<(Object, Vec<u32>)> = Vec::new();
        for group in self.all.iter().filter(|object| object.kind == Kind::Group) {
            let is_its = |object: &&Object| object.client == group.client && object.parent == group.parent;
            let subdevice = self.all.iter().filter(|object| object.kind == Kind::Subdevice).find(is_its);
            let subdevice = *subdevice.ok_or("the driver has made channels of a GPU that it has not named")?;
            let channels = self.all.iter().filter(|object| object.kind == Kind::Channel && group.has(object));
            let handles = channels.map(|channel| channel.handle);
            match by_gpu.iter_mut().find(|(known, _)| *known == subdevice) {
                Some((_, known)) => known.extend(handles),
                None => by_gpu.push((subdevice, handles.collect())),
            }
        }
        Ok(by_gpu)
    }
}

impl Object {
    fn has(&self, object: &Object) -> bool {
        (object.client, object.parent) == (self.client, self.handle)
    }
}

/// Takes all channels of this process that compute off the GPU with this UUID, or lets them on again; without one, off
/// the only GPU, whose UUID need not be the device's (it is not for a part of a GPU, MIG). Who makes channels meanwhile
/// waits.
///
/// # Errors
///
/// There are none, or the driver refuses: it says by which status.
pub fn enable(gpu: Option<[u8; 16]>, enabled: bool) -> Result<(), String> {
    let objects = objects();
    let (mut others, mut is_found) = (0, false);
    for (subdevice, channels) in objects.computing()?.into_iter().filter(|(_, channels)| !channels.is_empty()) {
        if let Some(gpu) = gpu
            && uuid(subdevice)? != gpu
        {
            others += 1;
            continue;
        }
        is_found = true;
        channels.chunks(CHANNELS_A_CALL).try_for_each(|channels| disable(subdevice, channels, !enabled))?;
    }
    match (is_found, others) {
        (true, _) => Ok(()),
        (false, 0) => Err("the driver has made no channels that compute, or not by ioctl".to_owned()),
        (false, _) => Err("the driver has made channels that compute on other GPUs only".to_owned()),
    }
}

/// Of the GPU that a subdevice is, as `cuDeviceGetUuid` has it.
fn uuid(subdevice: Object) -> Result<[u8; 16], String> {
    let mut parameters = GetGidInfo { index: 0, flags: GID_IS_BINARY, bytes: 0, data: [0; 256] };
    // SAFETY: what this command takes.
    unsafe { ask(subdevice, GET_GID_INFO, "NV2080_CTRL_CMD_GPU_GET_GID_INFO", &mut parameters) }?;
    match (parameters.bytes, parameters.data.first_chunk()) {
        (16, Some(uuid)) => Ok(*uuid),
        (bytes, _) => Err(format!("NV2080_CTRL_CMD_GPU_GET_GID_INFO answered {bytes} bytes of a GPU's UUID, not 16")),
    }
}

fn disable(subdevice: Object, handles: &[u32], disable: bool) -> Result<(), String> {
    let (mut clients, mut channels) = ([0; CHANNELS_A_CALL], [0; CHANNELS_A_CALL]);
    clients[..handles.len()].fill(subdevice.client);
    channels[..handles.len()].copy_from_slice(handles);
    let count = handles.len() as u32;
    let mut parameters =
        DisableChannels { disable: disable.into(), count, only_scheduling: 0, rewind: 0, event: 0, clients, channels };
    // SAFETY: what this command takes.
    unsafe { ask(subdevice, DISABLE_CHANNELS, "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS", &mut parameters) }
}

/// Has the kernel module carry out a command.
///
/// # Safety
///
/// The parameters are this command's.
unsafe fn ask<T>(subdevice: Object, command: u32, name: &str, parameters: &mut T) -> Result<(), String> {
    let mut control = Control {
        client: subdevice.client,
        object: subdevice.handle,
        command,
        flags: 0,
        parameters: &raw mut *parameters as u64,
        bytes: size_of::<T>() as u32,
        status: 0,
    };
    // SAFETY: a descriptor that the driver has made objects on, and the caller's promise for the parameters.
    let answer = unsafe { libc::syscall(libc::SYS_ioctl, subdevice.fd, CONTROL, &raw mut control) };
    match (answer, control.status) {
        (0, 0) => Ok(()),
        (0, status) => Err(format!("{name} answered with status {status:#x}")),
        _ => Err(format!("{name} failed: {}", std::io::Error::last_os_error())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{FromRawFd, OwnedFd};

    use super::*;

    fn object(kind: Kind, parent: u32, handle: u32) -> Object {
        Object { kind, fd: 3, client: 1, parent, handle }
    }

    fn some() -> Objects {
        let mut objects = Objects::default();
        objects.note(0, object(Kind::Subdevice, 10, 11));
        objects.note(1, object(Kind::Group, 10, 20));
        objects.note(11, object(Kind::Group, 10, 30));
        for channel in [21, 22] {
            objects.note(0, object(Kind::Channel, 20, channel));
        }
        objects.note(0, object(Kind::Channel, 30, 31));
        objects
    }

    #[test]
    fn channels_that_compute_are_told_from_those_that_copy_and_go_with_their_group() {
        let mut objects = some();
        let of =
            |objects: &Objects| objects.computing().map(|all| all.into_iter().map(|one| one.1).collect::<Vec<_>>());
        assert_eq!(of(&objects), Ok(vec![vec![21, 22]]));
        objects.forget(2, 20);
        objects.forget(1, 22);
        assert_eq!(of(&objects), Ok(vec![vec![21]]));
        objects.forget(1, 20);
        assert_eq!(of(&objects), Ok(vec![]));
        // A client takes everything along, and a device what lies in it.
        let mut objects = some();
        objects.forget(1, 10);
        assert!(objects.all.is_empty(), "{objects:?}");
        let mut objects = some();
        objects.forget(1, 1);
        assert!(objects.all.is_empty(), "{objects:?}");
    }

    #[test]
    fn what_the_driver_makes_is_read_as_its_kernel_module_has_it() {
        // NVOS64, of a group for the second engine that copies; and refused.
        let parameters = [0u32, 0, 5, 12];
        let at = parameters.as_ptr() as u64;
        let request = |bytes: c_ulong| 3 << 30 | bytes << 16 | NVIDIA << 8 | RM_ALLOC;
        let mut words = [1, 10, 20, CHANNEL_GROUP, at as u32, (at >> 32) as u32, 0, 0, 24, 0, 0, 0];
        let made = |words: &[u32; 12], bytes| unsafe { made(7, request(bytes), words.as_ptr().cast()) };
        let group = Object { kind: Kind::Group, fd: 7, client: 1, parent: 10, handle: 20 };
        assert_eq!(made(&words, 48), Some((12, group)));
        // NVOS21, whose status is the eighth word.
        assert_eq!(made(&words, 32), Some((12, group)));
        words[7] = 0x1f;
        assert_eq!((made(&words, 32), made(&words, 40)), (None, None));
        assert_eq!((size_of::<Control>(), size_of::<DisableChannels>(), CONTROL), (32, 536, 0xc020_462a));
        assert_eq!(size_of::<GetGidInfo>(), 268);
    }

    #[test]
    fn our_ioctl_is_the_system_s() {
        let (mut ends, mut waiting) = ([0; 2], 0i32);
        // SAFETY: valid out pointers, and descriptors that were just made.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::write(ends[1], b"three".as_ptr().cast(), 5), 5);
            assert_eq!(ioctl(ends[0], libc::FIONREAD, (&raw mut waiting).cast()), 0);
            assert_eq!((waiting, ioctl(-1, libc::FIONREAD, (&raw mut waiting).cast())), (5, -1));
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBADF));
            ends.into_iter().for_each(|end| drop(OwnedFd::from_raw_fd(end)));
        }
    }
}
