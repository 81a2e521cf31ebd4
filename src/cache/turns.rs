//! Turns for large blocks, so that many readers of few that fit do not take them from each other.
//!
//! A large file is read in pieces. Were its block dropped between two of them it would be decoded again for the next, and with more
//! readers than blocks in memory hardly anybody would come to an end. So a large block is made only when there is room beside
//! those that are being read: until their last byte is read, their file is closed, or nobody has asked for some time.

use super::BlockId;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A block is large when fewer than this many fit.
const FEW: u64 = 64;

/// How long a block that nobody asks for keeps its place.
const IDLE: Duration = Duration::from_millis(250);

/// Longest wait for a place. After it the block is made all the same: slow is better than never.
const PATIENCE: Duration = Duration::from_secs(20);

struct Reading {
    bytes: u64,
    asked: Instant,
    /// How often it is held for the kernel, which does not tell when it reads.
    holds: usize,
}

/// See the module.
pub struct Turns {
    reading: Mutex<HashMap<BlockId, Reading>>,
    changed: Condvar,
    capacity: u64,
}

impl Turns {
    /// Turns for a cache of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { reading: Mutex::default(), changed: Condvar::new(), capacity }
    }

    /// Whether blocks of so many bytes take turns.
    pub fn is_large(&self, bytes: u64) -> bool {
        bytes >= (self.capacity / FEW).max(1)
    }

    /// Waits until there is room for a block of `bytes`, and takes it.
    pub fn enter(&self, id: BlockId, bytes: u64) {
        let end = Instant::now() + PATIENCE;
        let mut reading = self.reading.lock();
        while !self.has_room(&mut reading, id, bytes) && Instant::now() < end {
            self.changed.wait_for(&mut reading, IDLE / 5);
        }
        let place = reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), holds: 0 });
        (place.bytes, place.asked) = (bytes, Instant::now());
    }

    /// Whether a block of `bytes` would have to wait.
    pub fn is_crowded(&self, id: BlockId, bytes: u64) -> bool {
        self.is_large(bytes) && !self.has_room(&mut self.reading.lock(), id, bytes)
    }

    fn has_room(&self, reading: &mut HashMap<BlockId, Reading>, id: BlockId, bytes: u64) -> bool {
        reading.retain(|_, place| place.holds > 0 || place.asked.elapsed() < IDLE);
        let others = reading.iter().filter(|(other, _)| **other != id);
        // What is held may be so for ever.
        let (moving, sum) = others
            .fold((false, bytes), |(moving, sum), (_, place)| (moving || place.holds == 0, sum.saturating_add(place.bytes)));
        sum <= self.capacity || !moving
    }

    /// Somebody reads a large block.
    pub fn touch(&self, id: BlockId) {
        if let Some(place) = self.reading.lock().get_mut(&id) {
            place.asked = Instant::now();
        }
    }

    /// A block was read to its end, could not be made, or is dropped.
    pub fn leave(&self, id: BlockId) {
        let mut reading = self.reading.lock();
        if reading.get(&id).is_some_and(|place| place.holds == 0) {
            reading.remove(&id);
            drop(reading);
            self.changed.notify_all();
        }
    }

    /// A block is held.
    pub fn hold(&self, id: BlockId, bytes: u64) {
        let mut reading = self.reading.lock();
        let place = reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), holds: 0 });
        place.holds = place.holds.saturating_add(1);
    }

    /// A block is held once less.
    pub fn release(&self, id: BlockId) {
        let mut reading = self.reading.lock();
        if let Some(place) = reading.get_mut(&id) {
            place.holds = place.holds.saturating_sub(1);
        }
        drop(reading);
        self.leave(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn only_as_many_as_fit_are_read_at_a_time_and_all_come_to_an_end() {
        let turns = Turns::new(300);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for id in 0..12 {
                let (turns, inside, most) = (&turns, &inside, &most);
                scope.spawn(move || {
                    turns.enter(id, 100);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    turns.leave(id);
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert!(turns.reading.lock().is_empty());
    }

    #[test]
    fn what_nobody_asks_for_and_what_is_held_keeps_nobody_waiting() {
        let turns = Turns::new(200);
        turns.enter(1, 150);
        assert!(turns.is_crowded(2, 100) && !turns.is_crowded(1, 150) && !turns.is_crowded(2, 2));
        turns.enter(2, 100);
        turns.hold(2, 100);
        turns.enter(3, 150);
        turns.leave(3);
        turns.leave(2);
        assert_eq!(turns.reading.lock().len(), 1);
        turns.release(2);
        assert!(turns.reading.lock().is_empty());
    }
}
