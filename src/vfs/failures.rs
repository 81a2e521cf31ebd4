//! Reads of files that are shown as they are, and that failed a moment ago.
//!
//! When reading ahead fails, the kernel asks once more for the page that is wanted. What has just waited for its deadline in vain
//! must not wait for another one: so the failure answers for its range for [`ERROR_TIME`], as it does for decoded blocks.

use crate::cache::ERROR_TIME;
use crate::error::{Error, Kind};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Instant;

/// Most failures that are remembered at once.
const MOST: usize = 256;

/// The failures, the oldest first.
#[derive(Default)]
pub struct Failures(Mutex<VecDeque<Failure>>);

struct Failure {
    when: Instant,
    inode: u64,
    /// The bytes that were asked for: where they begin, and where they end.
    range: (u64, u64),
    error: Error,
}

impl Failures {
    /// What a read of `range`, or of more, has failed with.
    pub fn find(&self, inode: u64, range: (u64, u64)) -> Option<Error> {
        let mut failures = self.0.lock();
        while failures.front().is_some_and(|failure| failure.when.elapsed() >= ERROR_TIME) {
            failures.pop_front();
        }
        let covers = |of: (u64, u64)| of.0 <= range.0 && range.1 <= of.1;
        failures.iter().rfind(|failure| failure.inode == inode && covers(failure.range)).map(|failure| failure.error.clone())
    }

    /// Takes note of a failure, where it may have taken long to get.
    pub fn note(&self, inode: u64, range: (u64, u64), error: &Error) {
        if !matches!(error.kind(), Kind::Unavailable | Kind::TimedOut) {
            return;
        }
        let mut failures = self.0.lock();
        if failures.len() >= MOST {
            failures.pop_front();
        }
        failures.push_back(Failure { when: Instant::now(), inode, range, error: error.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_answers_for_its_range_alone_and_not_for_long() {
        let failures = Failures::default();
        failures.note(1, (100, 200), &Error::new(Kind::TimedOut, "late"));
        failures.note(1, (300, 400), &Error::new(Kind::Changed, "not worth it"));
        let kind = |inode, range| failures.find(inode, range).map(|e| e.kind());
        assert_eq!(kind(1, (100, 200)), Some(Kind::TimedOut));
        assert_eq!(kind(1, (150, 160)), Some(Kind::TimedOut));
        for (inode, range) in [(2, (100, 200)), (1, (99, 200)), (1, (100, 201)), (1, (300, 400))] {
            assert_eq!(kind(inode, range), None, "{inode} {range:?}");
        }
        (0..MOST as u64 * 2).for_each(|i| failures.note(i, (0, 1), &Error::new(Kind::Unavailable, "gone")));
        assert_eq!(failures.0.lock().len(), MOST);
        std::thread::sleep(ERROR_TIME);
        assert_eq!(failures.find(MOST as u64 * 2 - 1, (0, 1)).map(|e| e.kind()), None);
        assert!(failures.0.lock().is_empty());
    }
}
