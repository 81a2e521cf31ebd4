//! Runs a reader over all chunks in threads, and says what it took.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Runs `read` on each of `count` chunks, spread over `readers` threads, each with a state of its own; prints seconds, bytes and
/// the digest. `read` gives length and CRC-32 of a chunk; the digest is the CRC-32 of all of these in the order of the chunks.
pub fn timed<S: Default>(
    count: usize,
    readers: usize,
    read: impl Fn(usize, &mut S) -> Outcome<(usize, u32)> + Sync,
) -> Outcome<()> {
    let (next, bytes, sums) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(vec![0u32; count]));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> Outcome<()> {
            let mut state = S::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                let (length, sum) = read(index, &mut state)?;
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                if sum != 0 {
                    sums.lock().map_err(|_| "a reader panicked")?[index] = sum;
                }
            }
        };
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a reader panicked")?)
    })?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{seconds} {} {}", bytes.into_inner(), digest(&sums.into_inner()?));
    Ok(())
}

/// One number for the CRC-32 of many chunks; 0 if none was made.
pub fn digest(sums: &[u32]) -> u32 {
    if sums.iter().all(|&sum| sum == 0) {
        return 0;
    }
    let all: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    crc32fast::hash(&all)
}

/// The place of a chunk in its grid, of which the last axis is the fastest.
pub fn place(index: usize, grid: &[u64]) -> Vec<u64> {
    let mut rest = index as u64;
    let mut place = vec![0; grid.len()];
    for (axis, length) in grid.iter().enumerate().rev() {
        place[axis] = rest % length;
        rest /= length;
    }
    place
}

/// An order of `count` things in which no neighbours follow each other, so that nothing read ahead helps.
pub fn scattered(count: usize) -> impl Iterator<Item = usize> {
    let step = (count * 618 / 1000..count).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).map(move |number| number * step % count)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The median in microseconds.
pub fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times.get(times.len() / 2).map_or(f64::NAN, |middle| middle.as_secs_f64() * 1e6)
}
