//! Work on its way to a stream, or into the graph that the stream is recorded into.

use std::sync::Arc;

use orion_cuda::sys::*;

use crate::api::R;
use crate::capture::Capture;
use crate::context::{Class, Context, Point, Stream};
use crate::graph::Work;
use crate::{capture, cupti};

/// Runs work on a stream, or records it when the stream is being captured.
pub fn enqueue(s: &Arc<Stream>, work: Work) -> R<Option<Point>> {
    if let Some(c) = s.capture() {
        capture::record(&c, s, work)?;
        return Ok(None);
    }
    if s.class == Class::Legacy {
        forbid_legacy(&s.context)?;
    }
    s.context.check()?;
    let origin = cupti::call(s.id);
    s.submit(Vec::new(), Box::new(move |c| work.run(c, origin))).map(Some)
}

/// Runs work on a stream and waits for it.
pub fn run_now(s: &Arc<Stream>, work: Work) -> R {
    if s.capture().is_some() {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if let Some(p) = enqueue(s, work)? {
        p.stream.wait(p.number);
    }
    s.context.check()
}

/// The legacy stream encompasses the context's blocking streams: work on it would have to wait for one that is only
/// being captured, and asking about it asks about that one.
pub fn forbid_legacy(c: &Arc<Context>) -> R {
    match encompassed(c) {
        Some(capture) => {
            capture.invalidate();
            Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
        }
        None => Ok(()),
    }
}

/// A capture that a blocking stream of the context is in.
pub fn encompassed(c: &Arc<Context>) -> Option<Arc<Capture>> {
    let is_blocking = |s: &&Arc<Stream>| matches!(s.class, Class::Blocking | Class::PerThread);
    c.every_stream().iter().filter(is_blocking).find_map(|s| s.capture())
}

/// Calls that wait for the whole context are not allowed while one of its streams is captured.
pub fn forbid_capture(c: &Arc<Context>) -> R {
    for s in c.streams_of_all() {
        if let Some(capture) = s.capture() {
            capture.invalidate();
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    Ok(())
}
