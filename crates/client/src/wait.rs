//! Waiting for a condition, with a deadline.

use std::{fmt, future::Future, time::Duration};

/// The condition did not come to hold in time.
#[derive(Debug, thiserror::Error)]
#[error("waited {waited:?} for {what}; last seen: {last}")]
pub struct TimedOut {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub waited: Duration,
    /// What was there instead.
    pub last: String,
}

/// How often a condition is looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// Looks until `look` answers `Ok`, and returns that; `Err` says what is there instead.
///
/// # Errors
/// The deadline passed.
pub async fn wait_until<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    deadline: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T, TimedOut> {
    let start = tokio::time::Instant::now();
    loop {
        let last = match look().await {
            Ok(value) => return Ok(value),
            Err(last) => last,
        };
        if start.elapsed() >= deadline {
            return Err(TimedOut {
                what: what.to_owned(),
                waited: deadline,
                last: last.to_string(),
            });
        }
        tokio::time::sleep(PERIOD).await;
    }
}
