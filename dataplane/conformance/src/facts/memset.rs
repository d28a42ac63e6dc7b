//! Filling memory.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Duration;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, ok, same};
use crate::lab::read;

facts! { memset:
    Context [
        bytes_halves_and_words,
        asynchronous_forms,
        of_nothing_succeeds,
        misaligned_is_invalid_value,
        an_unknown_address_is_invalid_value,
        past_the_end_is_invalid_value,
        two_dimensional_keeps_the_padding,
        two_dimensional_asynchronous,
        of_the_hosts_memory_is_done_on_return,
        of_registered_memory_is_done_on_return,
    ]
}

fn bytes_halves_and_words(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(16)?;
    ok!(cu.cuMemsetD32_v2(address, 0x0403_0201, 4));
    ok!(cu.cuMemsetD16_v2(address + 2, 0x0b0a, 2));
    ok!(cu.cuMemsetD8_v2(address + 7, 0xff, 3));
    same!(cu.download::<u8>(address, 16)?, [1, 2, 10, 11, 10, 11, 3, 255, 255, 255, 3, 4, 1, 2, 3, 4]);
    cu.free(address)
}

fn asynchronous_forms(cu: &'static Cuda) -> Verdict {
    let (stream, address) = (cu.stream()?, cu.alloc(12)?);
    ok!(cu.cuMemsetD32Async(address, 5, 3, stream));
    ok!(cu.cuMemsetD16Async(address + 4, 6, 1, stream));
    ok!(cu.cuMemsetD8Async(address + 8, 7, 1, stream));
    ok!(cu.cuStreamSynchronize(stream));
    same!(cu.download::<u32>(address, 3)?, [5, 6, 7]);
    ok!(cu.cuStreamDestroy_v2(stream));
    cu.free(address)
}

fn of_nothing_succeeds(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[3])?;
    ok!(cu.cuMemsetD8_v2(address, 0, 0));
    same!(cu.word(address)?, 3);
    cu.free(address)
}

fn misaligned_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(16)?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD32_v2(address + 2, 0, 1));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD16_v2(address + 1, 0, 1));
    cu.free(address)
}

fn an_unknown_address_is_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(0x1000, 0, 1));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(0, 0, 1));
    Ok(())
}

fn past_the_end_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let address = cu.alloc(4 << 20)?;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuMemsetD8_v2(address, 0, 8 << 20));
    cu.free(address)
}

fn two_dimensional_keeps_the_padding(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[0; 8])?;
    ok!(cu.cuMemsetD2D32_v2(address, 16, 9, 3, 2));
    same!(cu.download::<u32>(address, 8)?, [9, 9, 9, 0, 9, 9, 9, 0]);
    ok!(cu.cuMemsetD2D8_v2(address, 16, 1, 1, 2));
    same!(cu.download::<u32>(address, 8)?, [1, 9, 9, 0, 1, 9, 9, 0]);
    cu.free(address)
}

fn two_dimensional_asynchronous(cu: &'static Cuda) -> Verdict {
    let address = cu.words(&[0; 4])?;
    ok!(cu.cuMemsetD2D16Async(address, 8, 3, 2, 2, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    same!(cu.download::<u16>(address, 8)?, [3, 3, 0, 0, 3, 3, 0, 0]);
    cu.free(address)
}

/// A fill of eight bytes, and what is there then.
type Fill<'a> = (&'a str, &'a dyn Fn() -> CUresult, [u8; 8]);

extern "C" fn nap(_: *mut c_void) {
    std::thread::sleep(Duration::from_millis(10));
}

/// Asynchronous to the host "except when the target is pinned host memory", as CUDA's "API synchronization behavior"
/// has it. What is before it in the stream takes its time here.
fn is_done_on_return(cu: &'static Cuda, memory: *mut c_void) -> Verdict {
    let at = memory.addr() as u64;
    let fills: [Fill; 6] = [
        ("D8", &|| cu.cuMemsetD8_v2(at, 1, 8), [1; 8]),
        ("D16", &|| cu.cuMemsetD16_v2(at, 0x0202, 4), [2; 8]),
        ("D32", &|| cu.cuMemsetD32_v2(at, 0x0303_0303, 2), [3; 8]),
        ("D2D8", &|| cu.cuMemsetD2D8_v2(at, 4, 4, 2, 2), [4, 4, 3, 3, 4, 4, 3, 3]),
        ("D2D16", &|| cu.cuMemsetD2D16_v2(at, 4, 0x0505, 1, 2), [5, 5, 3, 3, 5, 5, 3, 3]),
        ("D2D32", &|| cu.cuMemsetD2D32_v2(at, 4, 0x0606_0606, 1, 2), [6; 8]),
    ];
    for (name, fill, expected) in fills {
        ok!(cu.cuLaunchHostFunc(null_mut(), Some(nap), null_mut()));
        let code = fill();
        let found: [u8; 8] = read(memory);
        same!((name, code, found), (name, CUDA_SUCCESS, expected));
    }
    Ok(())
}

fn of_the_hosts_memory_is_done_on_return(cu: &'static Cuda) -> Verdict {
    let memory = cu.pinned(64)?;
    is_done_on_return(cu, memory)?;
    ok!(cu.cuMemFreeHost(memory));
    Ok(())
}

fn of_registered_memory_is_done_on_return(cu: &'static Cuda) -> Verdict {
    let mut memory = vec![0u64; 512];
    let address = memory.as_mut_ptr().cast();
    ok!(cu.cuMemHostRegister_v2(address, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
    is_done_on_return(cu, address)?;
    ok!(cu.cuMemHostUnregister(address));
    Ok(())
}
