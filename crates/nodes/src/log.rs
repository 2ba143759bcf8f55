//! What a container printed, as its runtime keeps it: pieces with their time, up to a whole line each.

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// More than this of one container is dropped from its beginning, as log rotation does.
const LIMIT: usize = 100_000;

/// A piece of output: a line with its end, or the beginning of one.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) time: Timestamp,
    pub(crate) text: String,
}

/// The log of one run of a container.
#[derive(Debug)]
pub(crate) struct Log {
    pieces: Mutex<Pieces>,
    /// Counts changes; wakes those who follow.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// How many were dropped.
    first: usize,
    kept: Vec<Piece>,
    ended: bool,
}

/// Which part of a log is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Excerpt {
    /// Only the last lines.
    pub(crate) tail: Option<usize>,
    /// Only what came later.
    pub(crate) since: Option<Timestamp>,
}

impl Default for Log {
    fn default() -> Self {
        Self { pieces: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Log {
    /// Appends output.
    pub(crate) fn append(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        let time = Timestamp::now();
        let mut pieces = self.pieces.lock();
        let new = text.split_inclusive('\n').map(|line| Piece { time, text: line.to_owned() });
        pieces.kept.extend(new);
        // Half is dropped at a time, so that a long log does not move with every line.
        if pieces.kept.len() > LIMIT {
            pieces.kept.drain(..LIMIT / 2);
            pieces.first += LIMIT / 2;
        }
        drop(pieces);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.pieces.lock().ended = true;
        self.changed.send_modify(|count| *count += 1);
    }

    /// Wakes at every change from now on.
    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Where an excerpt begins.
    pub(crate) fn start(&self, excerpt: Excerpt) -> usize {
        let pieces = self.pieces.lock();
        let late = excerpt
            .since
            .map_or(0, |since| pieces.kept.iter().take_while(|piece| piece.time < since).count());
        let tail = excerpt.tail.map_or(0, |lines| pieces.kept.len().saturating_sub(lines));
        pieces.first + late.max(tail)
    }

    /// What came from `position` on, the position after it, and whether that is the end.
    pub(crate) fn read(&self, position: usize) -> (Vec<Piece>, usize, bool) {
        let pieces = self.pieces.lock();
        let from = position.saturating_sub(pieces.first).min(pieces.kept.len());
        let new = pieces.kept.get(from..).unwrap_or_default().to_vec();
        (new, pieces.first + pieces.kept.len(), pieces.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(log: &Log, excerpt: Excerpt) -> Vec<String> {
        log.read(log.start(excerpt)).0.into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn lines_are_kept_apart_and_the_tail_counts_them() {
        let log = Log::default();
        log.append("a\nb\nc");
        assert_eq!(texts(&log, Excerpt::default()), ["a\n", "b\n", "c"]);
        assert_eq!(texts(&log, Excerpt { tail: Some(2), ..Excerpt::default() }), ["b\n", "c"]);
        assert!(texts(&log, Excerpt { tail: Some(0), ..Excerpt::default() }).is_empty());
        let later = Timestamp::now() + jiff::SignedDuration::from_secs(60);
        assert!(texts(&log, Excerpt { since: Some(later), ..Excerpt::default() }).is_empty());
    }

    #[test]
    fn a_reader_goes_on_where_it_was_though_the_beginning_is_dropped() {
        let log = Log::default();
        log.append("first\n");
        let (_, position, ended) = log.read(0);
        assert!(!ended);
        log.append(&"x\n".repeat(LIMIT));
        log.append("last\n");
        log.end();
        let (pieces, end, ended) = log.read(position);
        assert!(ended && pieces.len() < LIMIT);
        assert_eq!(pieces.last().map(|piece| piece.text.as_str()), Some("last\n"));
        assert_eq!(end, LIMIT + 2);
    }
}
