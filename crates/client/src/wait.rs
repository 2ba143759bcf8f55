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

/// Looks until `look` answers `Ok`, and returns that; `Err` says what is there instead, and is told to `progress`
/// whenever it changes.
///
/// # Errors
/// The deadline passed.
pub async fn wait_until<T, E: fmt::Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    deadline: Duration,
    mut progress: impl FnMut(&str),
    mut look: impl FnMut() -> F,
) -> Result<T, TimedOut> {
    let start = tokio::time::Instant::now();
    let mut last = String::new();
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(seen) => {
                let seen = seen.to_string();
                if seen != last {
                    progress(&seen);
                    last = seen;
                }
            }
        }
        if start.elapsed() >= deadline {
            return Err(TimedOut { what: what.to_owned(), waited: deadline, last });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_there_instead_is_told_once() {
        let (mut looks, mut told) = (0, Vec::new());
        let look = || {
            looks += 1;
            let seen = if looks < 4 { Err(format!("{} of 2 nodes", looks / 2)) } else { Ok(looks) };
            std::future::ready(seen)
        };
        let tell = |seen: &str| told.push(seen.to_owned());
        let seen = wait_until("nodes", Duration::from_secs(60), tell, look).await.unwrap();
        assert_eq!((seen, told), (4, vec!["0 of 2 nodes".to_owned(), "1 of 2 nodes".to_owned()]));
    }

    #[tokio::test]
    async fn a_deadline_says_what_was_seen_last() {
        let look = || std::future::ready(Err::<(), _>("nothing"));
        let error =
            wait_until("nodes", Duration::ZERO, |_| {}, look).await.unwrap_err().to_string();
        assert!(error.contains("for nodes") && error.ends_with("nothing"), "{error}");
    }
}
