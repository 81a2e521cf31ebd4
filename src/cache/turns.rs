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

/// Longest time that a block of which nobody reads on keeps its place.
const IDLE: Duration = Duration::from_millis(250);

/// The time for each byte of the one that waits, if that is shorter: about what it takes to make it. Who reads here and there in
/// more blocks than fit waits no longer for each than that.
const PER_BYTE: u64 = 10;

/// How far from the end of the last piece the next one may be, in bytes: the kernel asks for several at a time.
const NEAR: u64 = 1 << 20;

/// Longest wait for a place. After it the block is made all the same: slow is better than never.
const PATIENCE: Duration = Duration::from_secs(20);

struct Reading {
    bytes: u64,
    asked: Instant,
    /// Where the last piece ended.
    next: u64,
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
            self.changed.wait_for(&mut reading, patience(bytes) / 4);
        }
        let place = reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), next: 0, holds: 0 });
        (place.bytes, place.asked, place.next) = (bytes, Instant::now(), 0);
    }

    /// Whether a block of `bytes` would have to wait.
    pub fn is_crowded(&self, id: BlockId, bytes: u64) -> bool {
        self.is_large(bytes) && !self.has_room(&mut self.reading.lock(), id, bytes)
    }

    fn has_room(&self, reading: &mut HashMap<BlockId, Reading>, id: BlockId, bytes: u64) -> bool {
        reading.retain(|_, place| place.holds > 0 || place.asked.elapsed() < IDLE);
        let idle = patience(bytes);
        let is_read = |place: &Reading| place.holds > 0 || place.asked.elapsed() < idle;
        let others = reading.iter().filter(|(other, place)| **other != id && is_read(place));
        // What is held may be so for ever.
        let (moving, sum) = others
            .fold((false, bytes), |(moving, sum), (_, place)| (moving || place.holds == 0, sum.saturating_add(place.bytes)));
        sum <= self.capacity || !moving
    }

    /// Somebody has read a piece of a large block of `bytes`. Who goes through it keeps its place until the end; who reads here and there
    /// has none.
    pub fn progress(&self, id: BlockId, piece: (u64, u64), bytes: u64) {
        let mut reading = self.reading.lock();
        let Some(place) = reading.get_mut(&id) else { return };
        if piece.1 < bytes && place.next.abs_diff(piece.0) <= NEAR {
            (place.asked, place.next) = (Instant::now(), place.next.max(piece.1));
            return;
        }
        drop(reading);
        self.leave(id);
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
        let place = reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), next: 0, holds: 0 });
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

/// How long who waits with a block of `bytes` waits for one of which nobody reads on.
fn patience(bytes: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(PER_BYTE)).clamp(Duration::from_millis(1), IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn only_as_many_as_fit_are_read_at_a_time_and_all_come_to_an_end() {
        let turns = Turns::new(300 << 20);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for id in 0..12 {
                let (turns, inside, most) = (&turns, &inside, &most);
                scope.spawn(move || {
                    turns.enter(id, 100 << 20);
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
        let turns = Turns::new(200 << 20);
        turns.enter(1, 150 << 20);
        assert!(turns.is_crowded(2, 100 << 20) && !turns.is_crowded(1, 150 << 20) && !turns.is_crowded(2, 2));
        turns.enter(2, 100 << 20);
        turns.hold(2, 100 << 20);
        turns.enter(3, 150 << 20);
        turns.leave(3);
        turns.leave(2);
        assert_eq!(turns.reading.lock().len(), 1);
        turns.release(2);
        assert!(turns.reading.lock().is_empty());
    }

    #[test]
    fn who_reads_on_keeps_its_place_and_who_reads_here_and_there_does_not() {
        let turns = Turns::new(100 << 20);
        let large = 60 << 20;
        turns.enter(1, large);
        for at in 0..8 {
            // The kernel asks for pieces ahead, and not in order.
            turns.progress(1, ((at ^ 1) << 17, ((at ^ 1) + 1) << 17), large);
            assert!(turns.is_crowded(2, large));
        }
        turns.progress(1, (30 << 20, 31 << 20), large);
        assert!(!turns.is_crowded(2, large));
        turns.enter(1, large);
        turns.progress(1, (0, large), large);
        assert!(!turns.is_crowded(2, large));
    }

    #[test]
    fn nobody_waits_longer_than_it_takes_to_make_the_block() {
        let turns = Turns::new(1000);
        turns.enter(1, 900);
        let start = Instant::now();
        turns.enter(2, 900);
        assert!(start.elapsed() < Duration::from_millis(200));
    }
}
