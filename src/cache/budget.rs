//! The memory that decoding takes, shared by all who decode.

use parking_lot::{Condvar, Mutex};

/// A number of bytes that those who decode at the same time share. Taken before anything is allocated.
///
/// Who wants more than there is waits until nobody else holds any, and then has it all: a large chunk is slow, never refused.
/// Shares are given in the order of asking, so that small ones cannot keep a large one waiting for ever.
pub struct Budget {
    used: Mutex<Used>,
    freed: Condvar,
    limit: u64,
}

#[derive(Default)]
struct Used {
    bytes: u64,
    asked: u64,
    given: u64,
}

/// A part of a [`Budget`], given back when dropped.
pub struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { used: Mutex::default(), freed: Condvar::new(), limit }
    }

    /// All that can be taken.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Waits for `bytes` and takes them.
    pub fn take(&self, bytes: u64) -> Share<'_> {
        let mut used = self.used.lock();
        let turn = used.asked;
        used.asked = turn.wrapping_add(1);
        while used.given != turn || (used.bytes > 0 && used.bytes.saturating_add(bytes) > self.limit) {
            self.freed.wait(&mut used);
        }
        used.bytes = used.bytes.saturating_add(bytes);
        used.given = turn.wrapping_add(1);
        drop(used);
        self.freed.notify_all();
        Share { budget: self, bytes }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut used = self.budget.used.lock();
        used.bytes = used.bytes.saturating_sub(self.bytes);
        drop(used);
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn small_shares_do_not_keep_a_large_one_waiting() {
        let budget = Budget::new(10);
        let (turns, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            // Two that always overlap, so that the budget is never free.
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut held = budget.take(1);
                    while done.load(Ordering::SeqCst) == 0 && turns.fetch_add(1, Ordering::SeqCst) < 500 {
                        std::thread::sleep(Duration::from_millis(2));
                        drop(held);
                        held = budget.take(1);
                    }
                });
            }
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                drop(budget.take(100));
                done.store(1, Ordering::SeqCst);
            });
        });
        assert!(turns.load(Ordering::SeqCst) < 500, "the large share waited until the small ones ended");
    }

    #[test]
    fn a_budget_lets_one_large_share_through_alone() {
        let budget = Budget::new(10);
        drop(budget.take(100));
        let a = budget.take(6);
        let passed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _b = budget.take(6);
                passed.store(1, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(passed.load(Ordering::SeqCst), 0, "waits while the first share is held");
            drop(a);
        });
        assert_eq!(passed.load(Ordering::SeqCst), 1);
    }
}
