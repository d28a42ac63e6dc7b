//! Names and texts of error codes.

use std::ptr::null;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::string_at;

facts! { error_name:
    Init [
        names_are_those_of_the_header,
        texts_are_nvidias,
        an_unknown_code_has_no_name,
        an_unknown_code_has_no_text,
        names_stay_where_they_are,
    ]
}

fn names_are_those_of_the_header(cu: &'static Cuda) -> Verdict {
    for (code, expected) in [
        (CUDA_SUCCESS, "CUDA_SUCCESS"),
        (CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
        (CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
        (CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"),
        (CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
        (CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"),
        (CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"),
        (CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"),
        (CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"),
        (CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"),
        (CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"),
        (CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"),
        (CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"),
        (CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"),
        (CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
        (CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"),
        (CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"),
    ] {
        let mut name = null();
        ok!(cu.cuGetErrorName(code, &mut name));
        same!(string_at(name), expected);
    }
    Ok(())
}

fn texts_are_nvidias(cu: &'static Cuda) -> Verdict {
    for (code, expected) in [
        (CUDA_SUCCESS, "no error"),
        (CUDA_ERROR_INVALID_VALUE, "invalid argument"),
        (CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
        (CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
        (CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
        (CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
        (CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
        (CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
        (CUDA_ERROR_NOT_FOUND, "named symbol not found"),
        (CUDA_ERROR_NOT_READY, "device not ready"),
        (CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
        (CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
        (CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ] {
        let mut words = null();
        ok!(cu.cuGetErrorString(code, &mut words));
        same!(string_at(words), expected);
    }
    Ok(())
}

fn an_unknown_code_has_no_name(cu: &'static Cuda) -> Verdict {
    let mut name = c"before".as_ptr();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGetErrorName(123_456, &mut name));
    holds!(name.is_null(), "the name of an unknown code was left alone");
    Ok(())
}

fn an_unknown_code_has_no_text(cu: &'static Cuda) -> Verdict {
    let mut words = c"before".as_ptr();
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuGetErrorString(123_456, &mut words));
    holds!(words.is_null(), "the text of an unknown code was left alone");
    Ok(())
}

/// Callers keep the pointer, so it must never be a temporary.
fn names_stay_where_they_are(cu: &'static Cuda) -> Verdict {
    let (mut first, mut second) = (null(), null());
    ok!(cu.cuGetErrorName(CUDA_ERROR_NOT_READY, &mut first));
    ok!(cu.cuGetErrorName(CUDA_ERROR_NOT_READY, &mut second));
    same!(first, second);
    Ok(())
}
