//! Kernels that print and kernels that fail. What fails stays failed, in this process and no other.
//!
//! UNSAFETY: prints through the C library, as the driver does.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{as_void, read, string_at};

facts! { fault:
    Context [
        printf_reaches_standard_output.prints("hello 7 orion 2.50 12345678901\n"),
        printf_comes_out_at_the_end.prints("hello 8 orion 2.50 12345678901\n"),
        printf_comes_out_before_a_blocking_copy_returns.prints("hello 9 orion 2.50 12345678901\nthe copy is back\n"),
        printf_comes_out_before_a_wait_for_a_number_ends.prints("hello 1 orion 2.50 12345678901\nthe wait is over\n"),
        printf_by_many_blocks.prints("hello 3 orion 2.50 12345678901\nhello 3 orion 2.50 12345678901\n"),
        printf_comes_before_what_its_waiter_prints.prints("hello 9 orion 2.50 12345678901\nand then this\n"),
        an_illegal_address_is_reported.alone().not_in_a_crowd("it breaks the context of all"),
        an_illegal_address_stays.alone().not_in_a_crowd("it breaks the context of all"),
        an_illegal_address_fails_the_copy_after_it.alone().not_in_a_crowd("it breaks the context of all"),
        an_illegal_address_leaves_names_and_contexts.alone().not_in_a_crowd("it breaks the context of all"),
        a_misaligned_address_is_reported.alone().not_in_a_crowd("it breaks the context of all"),
        a_trap_is_reported.alone().not_in_a_crowd("it breaks the context of all"),
        a_failed_assertion_is_reported.complains("Assertion `x < 10` failed"),
        a_launch_after_a_fault_is_refused.alone().not_in_a_crowd("it breaks the context of all"),
        copies_after_a_fault_fail_at_once.alone().not_in_a_crowd("it breaks the context of all"),
    ]
}

fn printf_reaches_standard_output(cu: &'static Cuda) -> Verdict {
    let greet = cu.printing_kernel("greet")?;
    let mut number = 7u32;
    ok!(cu.launch(greet, 1, 1, null_mut(), &mut [as_void(&mut number)]));
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

/// Destroying the context brings out what nobody synchronized for.
fn printf_comes_out_at_the_end(cu: &'static Cuda) -> Verdict {
    let greet = cu.printing_kernel("greet")?;
    let (stream, mut number) = (cu.stream()?, 8u32);
    ok!(cu.launch(greet, 1, 1, stream, &mut [as_void(&mut number)]));
    ok!(cu.cuStreamSynchronize(stream));
    Ok(())
}

fn printf_comes_out_before_a_blocking_copy_returns(cu: &'static Cuda) -> Verdict {
    let (greet, address) = (cu.printing_kernel("greet")?, cu.words(&[4])?);
    let mut number = 9u32;
    ok!(cu.launch(greet, 1, 1, null_mut(), &mut [as_void(&mut number)]));
    same!(cu.word(address)?, 4);
    println!("the copy is back");
    Ok(())
}

fn printf_comes_out_before_a_wait_for_a_number_ends(cu: &'static Cuda) -> Verdict {
    let (greet, address, pinned) = (cu.printing_kernel("greet")?, cu.words(&[4])?, cu.pinned(4)?);
    let mut number = 1u32;
    ok!(cu.launch(greet, 1, 1, null_mut(), &mut [as_void(&mut number)]));
    ok!(cu.cuMemcpyDtoHAsync_v2(pinned, address, 4, null_mut()));
    ok!(cu.cuStreamSynchronize(null_mut()));
    same!(read::<u32>(pinned), 4);
    println!("the wait is over");
    Ok(())
}

fn printf_by_many_blocks(cu: &'static Cuda) -> Verdict {
    let greet = cu.printing_kernel("greet")?;
    let mut number = 3u32;
    ok!(cu.launch(greet, 5, 2, null_mut(), &mut [as_void(&mut number)]));
    ok!(cu.cuCtxSynchronize());
    Ok(())
}

/// Also where the waiter holds the lock of standard output meanwhile.
fn printf_comes_before_what_its_waiter_prints(cu: &'static Cuda) -> Verdict {
    let greet = cu.printing_kernel("greet")?;
    let mut number = 9u32;
    // SAFETY: the C library's own stream, unlocked by the thread that locked it.
    unsafe { flockfile(stdout) };
    ok!(cu.launch(greet, 1, 1, null_mut(), &mut [as_void(&mut number)]));
    ok!(cu.cuCtxSynchronize());
    // SAFETY: as above.
    unsafe {
        libc::puts(c"and then this".as_ptr());
        funlockfile(stdout);
    }
    Ok(())
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    fn flockfile(stream: *mut libc::FILE);
    fn funlockfile(stream: *mut libc::FILE);
}

fn fault(cu: &Cuda, name: &str) -> Verdict {
    let (_, function) = cu.kernel(name)?;
    ok!(cu.launch(function, 1, 1, null_mut(), &mut []));
    Ok(())
}

fn an_illegal_address_is_reported(cu: &'static Cuda) -> Verdict {
    fault(cu, "stray")?;
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    Ok(())
}

fn an_illegal_address_stays(cu: &'static Cuda) -> Verdict {
    let kept = cu.words(&[1])?;
    fault(cu, "stray")?;
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamSynchronize(null_mut()));
    let (mut address, mut stream, mut word) = (0, null_mut(), 0u32);
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemAlloc_v2(&mut address, 64));
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuStreamCreate(&mut stream, 0));
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(as_void(&mut word), kept, 4));
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    Ok(())
}

fn an_illegal_address_fails_the_copy_after_it(cu: &'static Cuda) -> Verdict {
    let (kept, mut word) = (cu.words(&[1])?, 0u32);
    fault(cu, "stray")?;
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyDtoH_v2(as_void(&mut word), kept, 4));
    Ok(())
}

fn an_illegal_address_leaves_names_and_contexts(cu: &'static Cuda) -> Verdict {
    let context = cu.context()?;
    fault(cu, "stray")?;
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    let mut name = std::ptr::null();
    ok!(cu.cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &mut name));
    same!(string_at(name), "CUDA_ERROR_ILLEGAL_ADDRESS");
    same!(cu.context()?, context);
    let mut count = 0;
    ok!(cu.cuDeviceGetCount(&mut count));
    holds!(count > 0, "no devices after a fault");
    Ok(())
}

fn a_misaligned_address_is_reported(cu: &'static Cuda) -> Verdict {
    let (_, misaligned) = cu.kernel("misaligned")?;
    let address = cu.words(&[0, 0])?;
    ok!(cu.launch_on(misaligned, address, null_mut()));
    answers!(CUDA_ERROR_MISALIGNED_ADDRESS, cu.cuCtxSynchronize());
    Ok(())
}

fn a_trap_is_reported(cu: &'static Cuda) -> Verdict {
    fault(cu, "stop")?;
    answers!(CUDA_ERROR_LAUNCH_FAILED, cu.cuCtxSynchronize());
    Ok(())
}

fn a_failed_assertion_is_reported(cu: &'static Cuda) -> Verdict {
    let doubt = cu.printing_kernel("doubt")?;
    ok!(cu.launch(doubt, 1, 1, null_mut(), &mut []));
    answers!(CUDA_ERROR_ASSERT, cu.cuCtxSynchronize());
    Ok(())
}

fn a_launch_after_a_fault_is_refused(cu: &'static Cuda) -> Verdict {
    let (_, noop) = cu.kernel("noop")?;
    fault(cu, "stray")?;
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.launch(noop, 1, 1, null_mut(), &mut []));
    Ok(())
}

/// As many as would use up whatever room copies need on their way, were it not given back.
fn copies_after_a_fault_fail_at_once(cu: &'static Cuda) -> Verdict {
    const BYTES: usize = 2 << 20;
    let (data, pinned, stream) = (cu.alloc(BYTES)?, cu.pinned(BYTES)?, cu.stream()?);
    let mut pageable = vec![1u8; BYTES];
    let memory = pageable.as_mut_ptr().cast();
    fault(cu, "stray")?;
    // The first ones may find the fault.
    for _ in 0..100 {
        for host in [memory, pinned] {
            for code in [
                cu.cuMemcpyHtoD_v2(data, host, BYTES),
                cu.cuMemcpyDtoH_v2(host, data, BYTES),
                cu.cuMemcpyHtoDAsync_v2(data, host, BYTES, stream),
                cu.cuMemcpyDtoHAsync_v2(host, data, BYTES, stream),
            ] {
                holds!([CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS].contains(&code), "a copy answered {code}");
            }
        }
    }
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuMemcpyHtoD_v2(data, memory, BYTES));
    answers!(CUDA_ERROR_ILLEGAL_ADDRESS, cu.cuCtxSynchronize());
    Ok(())
}
