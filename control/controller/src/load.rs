//! What bodies take of this process's memory that have not come whole, or have not been taken: nobody has more of it
//! than is left for the others, and none for long.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;

use crate::claims::SESSION;
use crate::room::Source;

/// Of everybody together.
const BYTES_MAX: usize = 256 << 20;
/// What each body may have, also of a source that has its part: most are smaller.
const SMALL_BYTES: usize = 16 << 10;
/// How long a body may come, or be taken.
const BODY_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Load(Mutex<Held>);

#[derive(Default)]
struct Held {
    all: usize,
    of_source: HashMap<Source, usize>,
}

impl Load {
    /// Whether so much more fits, of which a body has some already. It has it then.
    fn takes(&self, source: Source, has: usize, more: usize) -> bool {
        let mut held = self.held();
        let of_source = held.of_source.get(&source).copied().unwrap_or(0);
        let left = BYTES_MAX.saturating_sub(held.all);
        let is_fair = has + more <= SMALL_BYTES || of_source + more <= left.saturating_sub(more);
        if more > left || !is_fair {
            return false;
        }
        held.all += more;
        *held.of_source.entry(source).or_default() += more;
        true
    }

    fn gives_back(&self, source: Source, bytes: usize) {
        let mut held = self.held();
        held.all -= bytes;
        if let Some(of_source) = held.of_source.get_mut(&source) {
            *of_source -= bytes;
            if *of_source == 0 {
                held.of_source.remove(&source);
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

/// Of an answer whose body does not say how long it is.
#[derive(Clone, Copy)]
pub struct Weight(pub usize);

/// The bodies of one connection.
pub struct Bodies {
    load: Arc<Load>,
    source: Source,
    /// Those that are under way, by a number, and since when.
    since: Mutex<(u64, BTreeMap<u64, Instant>)>,
}

impl Bodies {
    pub fn of(load: &Arc<Load>, source: Source) -> Arc<Bodies> {
        Arc::new(Bodies { load: Arc::clone(load), source, since: Mutex::default() })
    }

    /// Whether one has been under way for longer than any has to.
    pub fn are_late(&self, now: Instant) -> bool {
        let since = self.since.lock().expect("nothing panics under this lock");
        since.1.values().next().is_some_and(|began| now >= *began + BODY_MAX)
    }

    /// What is asked for.
    pub fn coming<B>(self: &Arc<Bodies>, request: Request<B>) -> Request<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        // One that says by its end that something else has happened may take its time: it is not kept.
        let is_awaited = request.uri().path().ends_with(SESSION);
        request.map(|body| Body::new(Coming { body: Body::new(body), part: Part::of(self, !is_awaited) }))
    }

    /// What is answered, if there is memory for it until it is taken.
    pub fn going(self: &Arc<Bodies>, response: Response) -> Response {
        // A stream has no length, and no more of it waits than its connection takes.
        let length = response.body().size_hint().exact().map(|bytes| bytes as usize);
        let bytes = response.extensions().get::<Weight>().map(|Weight(bytes)| *bytes).or(length).unwrap_or(0);
        if bytes <= SMALL_BYTES {
            return response;
        }
        let mut part = Part::of(self, true);
        match part.takes(bytes) {
            true => response.map(|body| Body::new(Going { body, piece: Bytes::new(), _part: part })),
            false => refuse(&response, &too_much("answers that nobody has read")),
        }
    }
}

fn too_much(what: &str) -> Status {
    Status::resource_exhausted(format!(
        "this controller holds as many bytes of {what} as it can, and most of them for where this comes from; ask again"
    ))
}

/// What one body has of the memory.
struct Part {
    of: Arc<Bodies>,
    /// Nothing of one that may be under way for ever.
    number: Option<u64>,
    bytes: usize,
}

impl Part {
    fn of(bodies: &Arc<Bodies>, is_hurried: bool) -> Part {
        let mut since = bodies.since.lock().expect("nothing panics under this lock");
        since.0 += 1;
        let number = since.0;
        if is_hurried {
            since.1.insert(number, Instant::now());
        }
        Part { of: Arc::clone(bodies), number: is_hurried.then_some(number), bytes: 0 }
    }

    fn takes(&mut self, more: usize) -> bool {
        let fits = self.of.load.takes(self.of.source, self.bytes, more);
        self.bytes += if fits { more } else { 0 };
        fits
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.of.load.gives_back(self.of.source, self.bytes);
        if let Some(number) = self.number {
            self.of.since.lock().expect("nothing panics under this lock").1.remove(&number);
        }
    }
}

struct Coming {
    body: Body,
    part: Part,
}

impl HttpBody for Coming {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(e)) => return Poll::Ready(Some(Err(e.into()))),
            None => return Poll::Ready(None),
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match self.part.takes(bytes) {
            true => Poll::Ready(Some(Ok(frame))),
            false => Poll::Ready(Some(Err(too_much("requests that have not come whole").into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// In pieces: what a connection has been given it keeps until it is taken.
struct Going {
    body: Body,
    piece: Bytes,
    _part: Part,
}

impl HttpBody for Going {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.piece.is_empty() {
            let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
            match next.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.piece = data,
                Some(Ok(Err(frame))) => return Poll::Ready(Some(Ok(frame))),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.piece.len().min(SMALL_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.piece.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + self.piece.len() as u64),
            None => SizeHint::default(),
        }
    }
}

/// In place of this answer.
fn refuse(response: &Response, status: &tonic::Status) -> Response {
    let content = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match content.is_some_and(|content| content.starts_with("application/grpc")) {
        true => status.clone().into_http(),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", status.message())).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_no_more_than_is_left_for_others_and_each_body_a_little() {
        let load = Load::default();
        let of = |number: u8| Source::of([10, 0, 0, number].into());
        let piece = 1 << 20;
        let takes_all = |source| (0..).take_while(|_| load.takes(source, piece, piece)).count();
        assert_eq!([takes_all(of(1)), takes_all(of(2)), takes_all(of(3))], [128, 64, 32]);
        assert!(load.takes(of(1), 0, SMALL_BYTES) && !load.takes(of(1), 1, SMALL_BYTES));
        assert!(load.takes(of(4), 0, 4 << 20));
        load.gives_back(of(1), (128 << 20) + SMALL_BYTES);
        assert!(load.takes(of(1), piece, piece));
        assert!(!load.takes(of(5), 0, BYTES_MAX));
    }
}
