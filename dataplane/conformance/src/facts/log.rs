//! The error log: what failing calls leave in it, and how it is read.
//!
//! UNSAFETY: a callback reads the message it is given and reaches its data through a raw pointer.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use orion_cuda::sys::*;

use crate::driver::Cuda;
use crate::fact::{Verdict, answers, facts, holds, ok, same};
use crate::lab::{Get, text};

facts! { logs:
    Init [
        a_refused_dump_is_logged,
        nothing_new_is_an_empty_dump.not_in_a_crowd("the log is that of all"),
        a_dump_moves_the_iterator.not_in_a_crowd("the log is that of all"),
        a_dump_of_all_needs_no_iterator,
        a_buffer_without_room_is_invalid_value,
        a_file_gets_the_same_text.not_in_a_crowd("the log is that of all"),
        null_places_are_invalid_value,
        a_callback_is_told.not_in_a_crowd("the log is that of all"),
        an_unregistered_callback_is_not_told.not_in_a_crowd("the log is that of all"),
    ]
}

/// The driver's documented buffer, with room for the final NUL.
const BUFFER_BYTES: usize = 25600 + 1;

/// What the driver's documentation shows as the message of a dump without a buffer.
const COMPLAINT: &str = "buffer cannot be NULL";

fn here(cu: &Cuda) -> Get<CUlogIterator> {
    let mut at = 0;
    ok!(cu.cuLogsCurrent(&mut at, 0));
    Ok(at)
}

/// Makes a call that fails and is logged.
fn fail(cu: &Cuda) -> Verdict {
    let mut size = 100;
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLogsDumpToMemory(null_mut(), null_mut(), &mut size, 0));
    Ok(())
}

fn dump(cu: &Cuda, from: *mut CUlogIterator, room: usize) -> Get<String> {
    let (mut buffer, mut size) = (vec![0x55u8; room], room);
    ok!(cu.cuLogsDumpToMemory(from, buffer.as_mut_ptr().cast(), &mut size, 0));
    holds!(size < room, "{size} bytes and a NUL in a buffer of {room}");
    // Where there is nothing to say, nothing is written.
    holds!(size == 0 || buffer[size] == 0, "the log ends in {}", buffer[size]);
    buffer.truncate(size);
    String::from_utf8(buffer).map_err(|_| "the log is not text".to_owned())
}

fn a_refused_dump_is_logged(cu: &'static Cuda) -> Verdict {
    let mut at = here(cu)?;
    fail(cu)?;
    let log = dump(cu, &mut at, BUFFER_BYTES)?;
    let line = log.lines().find(|l| l.contains(COMPLAINT)).ok_or(format!("the log is {log:?}"))?;
    holds!(line.starts_with('[') && line.contains("[CUDA][E]"), "the line is {line:?}");
    holds!(log.ends_with('\n'), "the log ends without a newline");
    Ok(())
}

fn nothing_new_is_an_empty_dump(cu: &'static Cuda) -> Verdict {
    let mut at = here(cu)?;
    same!(dump(cu, &mut at, BUFFER_BYTES)?, "");
    Ok(())
}

fn a_dump_moves_the_iterator(cu: &'static Cuda) -> Verdict {
    let mut at = here(cu)?;
    fail(cu)?;
    holds!(!dump(cu, &mut at, BUFFER_BYTES)?.is_empty(), "the failure was not logged");
    same!(at, here(cu)?);
    same!(dump(cu, &mut at, BUFFER_BYTES)?, "");
    Ok(())
}

fn a_dump_of_all_needs_no_iterator(cu: &'static Cuda) -> Verdict {
    fail(cu)?;
    let all = dump(cu, null_mut(), BUFFER_BYTES)?;
    holds!(all.contains(COMPLAINT), "the log is {all:?}");
    Ok(())
}

fn a_buffer_without_room_is_invalid_value(cu: &'static Cuda) -> Verdict {
    let mut at = here(cu)?;
    fail(cu)?;
    let (mut buffer, mut size) = ([0u8; 8], 8);
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLogsDumpToMemory(&mut at, buffer.as_mut_ptr().cast(), &mut size, 0));
    same!(size, 0);
    Ok(())
}

fn a_file_gets_the_same_text(cu: &'static Cuda) -> Verdict {
    let path = std::env::temp_dir().join(format!("orion-facts-logs-{}", std::process::id()));
    let name = text(path.to_str().unwrap_or("/tmp/orion-facts-logs"));
    let mut at = here(cu)?;
    let mut same_place = at;
    fail(cu)?;
    ok!(cu.cuLogsDumpToFile(&mut at, name.as_ptr(), 0));
    let file = std::fs::read_to_string(&path).map_err(|e| format!("reading {} failed: {e}", path.display()))?;
    let _ = std::fs::remove_file(&path);
    holds!(file.contains(COMPLAINT), "the file is {file:?}");
    same!(file, dump(cu, &mut same_place, BUFFER_BYTES)?);
    same!(at, same_place);
    Ok(())
}

fn null_places_are_invalid_value(cu: &'static Cuda) -> Verdict {
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLogsCurrent(null_mut(), 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLogsDumpToFile(null_mut(), std::ptr::null(), 0));
    answers!(CUDA_ERROR_INVALID_VALUE, cu.cuLogsRegisterCallback(None, null_mut(), null_mut()));
    Ok(())
}

type Heard = Mutex<Vec<(CUlogLevel, String, std::thread::ThreadId)>>;

extern "C" fn hear(data: *mut c_void, level: CUlogLevel, message: *mut c_char, length: usize) {
    // SAFETY: the fact gave a list that is never freed; the message has that many bytes.
    let (heard, bytes) = unsafe { (&*data.cast::<Heard>(), std::slice::from_raw_parts(message.cast::<u8>(), length)) };
    let entry = (level, String::from_utf8_lossy(bytes).into_owned(), std::thread::current().id());
    heard.lock().expect("no holder of the list panics").push(entry);
}

fn listen(cu: &Cuda) -> Get<(&'static Heard, CUlogsCallbackHandle)> {
    let heard: &'static Heard = Box::leak(Box::default());
    let mut handle = null_mut();
    ok!(cu.cuLogsRegisterCallback(Some(hear), std::ptr::from_ref(heard).cast_mut().cast(), &mut handle));
    holds!(!handle.is_null(), "the callback's handle is null");
    Ok((heard, handle))
}

fn a_callback_is_told(cu: &'static Cuda) -> Verdict {
    let (heard, handle) = listen(cu)?;
    fail(cu)?;
    ok!(cu.cuLogsUnregisterCallback(handle));
    let heard = heard.lock().expect("no holder of the list panics");
    let hit = heard.iter().find(|(_, m, _)| m.contains(COMPLAINT)).ok_or(format!("heard {heard:?}"))?;
    same!(hit.0, CU_LOG_LEVEL_ERROR);
    same!(hit.2, std::thread::current().id());
    Ok(())
}

fn an_unregistered_callback_is_not_told(cu: &'static Cuda) -> Verdict {
    let (heard, handle) = listen(cu)?;
    ok!(cu.cuLogsUnregisterCallback(handle));
    fail(cu)?;
    same!(heard.lock().expect("no holder of the list panics").len(), 0);
    Ok(())
}
