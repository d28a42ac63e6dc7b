//! Filling memory.

use std::ptr::null_mut;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, ok, same};

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
