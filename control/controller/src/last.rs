//! The metrics as they were last made, for whoever asks again soon.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;

/// What was last made of the metrics, when, and how long that took.
#[derive(Clone, Default)]
pub struct LastMetrics(Arc<Mutex<Option<(Instant, Duration, Bytes)>>>);

impl LastMetrics {
    /// It is made by the desk, and nobody has to show a key for it. So it is made again after nine times as long as it
    /// takes: whoever asks without end takes a tenth of the desk's time.
    pub fn or_made(&self, make: impl FnOnce() -> Result<String, fmt::Error>) -> Result<Bytes, fmt::Error> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, took, text)) = &*last
            && at.elapsed() < *took * 9
        {
            return Ok(text.clone());
        }
        let began = Instant::now();
        let text = Bytes::from(make()?);
        *last = Some((Instant::now(), began.elapsed(), text.clone()));
        Ok(text)
    }
}
