//! Turns for large blocks, so that many readers of few that fit do not take them from each other.
//!
//! A large file is read in pieces. Were its block dropped between two of them it would be decoded again for the next, and with more
//! readers than blocks in memory hardly anybody would come to an end. So a large block is made only when there is room beside
//! those that are being read: until their last byte is read, their file is closed, or nobody has asked for some time: as long as it
//! would take to make the block again, as the last ones tell. So a busy machine, where readers come late and decoding is slow, does
//! not make them lose their places. Who comes first is served first.

use super::BlockId;
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A block is large when fewer than this many fit.
const FEW: u64 = 64;

/// Longest time that a block of which nobody reads on keeps its place.
const IDLE: Duration = Duration::from_millis(250);

/// The same where blocks take longer to make.
const LONGEST: Duration = Duration::from_secs(2);

/// The time for each byte of the one that waits, in nanoseconds, if that is shorter: about what it takes to make it, where no machine is
/// faster. Who reads here and there in more blocks than fit waits no longer for each than that.
const PER_BYTE: u64 = 10;

/// How far from the end of the last piece the next one may be, in bytes: the kernel asks for several at a time.
const NEAR: u64 = 1 << 20;

/// Longest wait in which nobody gets a place. After it the block is made all the same: slow is better than never.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most readers that are remembered who lost their place.
const LOST: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

struct Reading {
    bytes: u64,
    asked: Instant,
    /// Where the last piece ended.
    next: u64,
    /// How often it is held for the kernel, which does not tell when it reads.
    holds: usize,
}

/// Who reads, and who waits.
struct State {
    reading: HashMap<BlockId, Reading>,
    /// Numbers of those who wait, in the order they came in.
    waiting: VecDeque<u64>,
    next: u64,
    /// How far those had come who lost their place: they go on from there when their block is made again.
    lost: LruCache<BlockId, u64>,
    /// When somebody last got a place because there was room.
    moved: Instant,
}

/// See the module.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    capacity: u64,
    /// Nanoseconds that the last blocks took for each byte.
    pace: AtomicU64,
}

impl Turns {
    /// Turns for a cache of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let (reading, waiting) = (HashMap::new(), VecDeque::new());
        let state = State { reading, waiting, next: 0, lost: LruCache::new(LOST), moved: Instant::now() };
        Self { state: Mutex::new(state), changed: Condvar::new(), capacity, pace: AtomicU64::new(0) }
    }

    /// Whether blocks of so many bytes take turns.
    pub fn is_large(&self, bytes: u64) -> bool {
        bytes >= (self.capacity / FEW).max(1)
    }

    /// Waits until there is room for a block of `bytes`, and takes it. Who has a place already does not queue.
    pub fn enter(&self, id: BlockId, bytes: u64) {
        let begun = Instant::now();
        let mut state = self.state.lock();
        let number = state.next;
        state.next = state.next.wrapping_add(1);
        state.waiting.push_back(number);
        while state.moved.max(begun).elapsed() < PATIENCE {
            let has_room = self.has_room(&mut state, id, bytes);
            if has_room && (state.waiting.front() == Some(&number) || state.reading.contains_key(&id)) {
                state.moved = Instant::now();
                break;
            }
            self.changed.wait_for(&mut state, self.patience(bytes) / 4);
        }
        state.waiting.retain(|other| *other != number);
        let lost = state.lost.pop(&id).unwrap_or(0);
        let place = state.reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), next: 0, holds: 0 });
        (place.bytes, place.asked) = (bytes, Instant::now());
        place.next = place.next.max(lost);
        drop(state);
        self.changed.notify_all();
    }

    /// Whether somebody is in the middle of a block.
    pub fn is_read(&self, id: BlockId) -> bool {
        let state = self.state.lock();
        state.reading.get(&id).is_some_and(|place| place.asked.elapsed() < self.patience(place.bytes).max(IDLE))
    }

    /// A block of `bytes` took so long to make.
    pub fn made(&self, id: BlockId, bytes: u64, time: Duration) {
        let pace = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).checked_div(bytes).unwrap_or(0);
        let mean = |old: u64| Some(old.saturating_mul(3).saturating_add(pace) / 4);
        let _ = self.pace.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean);
        // Its readers could not read on before.
        if let Some(place) = self.state.lock().reading.get_mut(&id) {
            place.asked = Instant::now();
        }
    }

    /// Whether a block of `bytes` would have to wait.
    pub fn is_crowded(&self, id: BlockId, bytes: u64) -> bool {
        if !self.is_large(bytes) {
            return false;
        }
        let mut state = self.state.lock();
        let is_queue = !state.waiting.is_empty() && !state.reading.contains_key(&id);
        is_queue || !self.has_room(&mut state, id, bytes)
    }

    fn has_room(&self, state: &mut State, id: BlockId, bytes: u64) -> bool {
        let State { reading, lost, .. } = state;
        reading.retain(|id, place| {
            let stays = place.holds > 0 || place.asked.elapsed() < self.patience(place.bytes).max(IDLE);
            if !stays && place.next > 0 {
                lost.put(*id, place.next);
            }
            stays
        });
        let idle = self.patience(bytes);
        let is_read = |place: &Reading| place.holds > 0 || place.asked.elapsed() < idle;
        let others = reading.iter().filter(|(other, place)| **other != id && is_read(place));
        // What is held may be so for ever.
        let (moving, sum) = others
            .fold((false, bytes), |(moving, sum), (_, place)| (moving || place.holds == 0, sum.saturating_add(place.bytes)));
        sum <= self.capacity || !moving
    }

    /// How long who waits with a block of `bytes` waits for one of which nobody reads on.
    fn patience(&self, bytes: u64) -> Duration {
        let least = Duration::from_nanos(bytes.saturating_mul(PER_BYTE)).clamp(Duration::from_millis(1), IDLE);
        least.max(Duration::from_nanos(bytes.saturating_mul(self.pace.load(Ordering::Relaxed))).min(LONGEST))
    }

    /// Somebody has read a piece of a large block of `bytes`. Who goes through it keeps its place until the end; who reads here and there
    /// has none.
    pub fn progress(&self, id: BlockId, piece: (u64, u64), bytes: u64) {
        let mut state = self.state.lock();
        let Some(place) = state.reading.get_mut(&id) else { return };
        if piece.1 < bytes && place.next.abs_diff(piece.0) <= NEAR {
            (place.asked, place.next) = (Instant::now(), place.next.max(piece.1));
            return;
        }
        drop(state);
        self.leave(id);
    }

    /// A block is dropped. Its reader may come back for the rest.
    pub fn lose(&self, id: BlockId) {
        let mut state = self.state.lock();
        if let Some(next) = state.reading.get(&id).map(|place| place.next).filter(|next| *next > 0) {
            state.lost.put(id, next);
        }
        drop(state);
        self.leave(id);
    }

    /// A block was read to its end, or could not be made.
    pub fn leave(&self, id: BlockId) {
        let mut state = self.state.lock();
        if state.reading.get(&id).is_some_and(|place| place.holds == 0) {
            state.reading.remove(&id);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// A block is held.
    pub fn hold(&self, id: BlockId, bytes: u64) {
        let mut state = self.state.lock();
        let place = state.reading.entry(id).or_insert(Reading { bytes, asked: Instant::now(), next: 0, holds: 0 });
        place.holds = place.holds.saturating_add(1);
    }

    /// A block is held once less.
    pub fn release(&self, id: BlockId) {
        let mut state = self.state.lock();
        if let Some(place) = state.reading.get_mut(&id) {
            place.holds = place.holds.saturating_sub(1);
        }
        drop(state);
        self.leave(id);
    }
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
                    turns.enter(id.into(), 100 << 20);
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    turns.leave(id.into());
                });
            }
        });
        assert!(most.into_inner() <= 3);
        assert!(turns.state.lock().reading.is_empty());
    }

    #[test]
    fn what_nobody_asks_for_and_what_is_held_keeps_nobody_waiting() {
        let turns = Turns::new(200 << 20);
        turns.enter(1.into(), 150 << 20);
        assert!(
            turns.is_crowded(2.into(), 100 << 20) && !turns.is_crowded(1.into(), 150 << 20) && !turns.is_crowded(2.into(), 2)
        );
        turns.enter(2.into(), 100 << 20);
        turns.hold(2.into(), 100 << 20);
        turns.enter(3.into(), 150 << 20);
        turns.leave(3.into());
        turns.leave(2.into());
        assert_eq!(turns.state.lock().reading.len(), 1);
        turns.release(2.into());
        assert!(turns.state.lock().reading.is_empty());
    }

    #[test]
    fn who_reads_on_keeps_its_place_and_who_reads_here_and_there_does_not() {
        let turns = Turns::new(100 << 20);
        let large = 60 << 20;
        turns.enter(1.into(), large);
        for at in 0..8 {
            // The kernel asks for pieces ahead, and not in order.
            turns.progress(1.into(), ((at ^ 1) << 17, ((at ^ 1) + 1) << 17), large);
            assert!(turns.is_crowded(2.into(), large));
        }
        turns.progress(1.into(), (30 << 20, 31 << 20), large);
        assert!(!turns.is_crowded(2.into(), large));
        turns.enter(1.into(), large);
        turns.progress(1.into(), (0, large), large);
        assert!(!turns.is_crowded(2.into(), large));
    }

    #[test]
    fn who_comes_first_is_served_first_and_slow_blocks_keep_their_places_longer() {
        let turns = Turns::new(100);
        turns.enter(0.into(), 60);
        assert!(turns.patience(60) < Duration::from_millis(2));
        // Slow ones, as on a busy machine.
        (0..40).for_each(|_| turns.made(0.into(), 60, Duration::from_secs(1)));
        assert!(turns.patience(60) > Duration::from_millis(900) && turns.patience(1000) <= LONGEST);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for id in 1..6 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    turns.enter(id.into(), 60);
                    order.lock().push(id);
                    turns.leave(id.into());
                });
                while turns.state.lock().waiting.len() < usize::try_from(id).unwrap() {
                    std::thread::yield_now();
                }
            }
            assert!(turns.is_crowded(9.into(), 30), "it would overtake");
            turns.leave(0.into());
        });
        assert_eq!(order.into_inner(), [1, 2, 3, 4, 5]);
        assert!(turns.state.lock().waiting.is_empty());
    }

    /// Else its block would be made again for each piece of the rest.
    #[test]
    fn who_lost_its_place_goes_on_where_it_was() {
        let (turns, large) = (Turns::new(100 << 20), 60 << 20);
        let piece = |at: u64| (at << 20, (at + 1) << 20);
        turns.enter(1.into(), large);
        (0..30).for_each(|at| turns.progress(1.into(), piece(at), large));
        turns.lose(1.into());
        assert!(!turns.is_crowded(2.into(), large));
        turns.enter(1.into(), large);
        turns.progress(1.into(), piece(30), large);
        assert!(turns.is_crowded(2.into(), large));
        turns.progress(1.into(), piece(59), large);
        assert!(!turns.is_crowded(2.into(), large));
    }

    #[test]
    fn nobody_waits_longer_than_it_takes_to_make_the_block() {
        let turns = Turns::new(1000);
        turns.enter(1.into(), 900);
        let start = Instant::now();
        turns.enter(2.into(), 900);
        assert!(start.elapsed() < Duration::from_millis(200));
    }
}
