//! Neighbouring ranges of one object, asked for at the same time, as one request: chunks of a shard, entries of an archive.
//!
//! The first range that is asked for goes out at once. Those that come while it is under way wait a moment for each other, and what
//! lies side by side then goes out together. Nobody is made to fail by a neighbour: where a common request fails at once, or brings too
//! little, each asks for itself. One that failed late has failed for all: nobody waits for the store twice.

use crate::error::{Error, Kind, Result};
use crate::store::{Key, Meta, Version};
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest range that is merged with others, in bytes; a longer one is worth a request of its own.
pub const PIECE: u64 = 1 << 20;

/// Most bytes of a common request. More of them at a time are faster than longer ones.
const RUN: u64 = 2 << 20;

/// Most bytes between two ranges that are read in vain.
const GAP: u64 = 64 << 10;

/// How long ranges wait for each other: little beside the way to a server.
const WINDOW: Duration = Duration::from_millis(2);

/// What a common request brought, and where its bytes begin.
type Fetched = (Meta, Arc<Vec<u8>>, u64);

/// A common request that takes longer than this to fail is not tried again by each: its readers have waited.
const PATIENCE: Duration = Duration::from_secs(1);

/// Reads a range by a request of its own.
type Ask<'a> = &'a dyn Fn((u64, u64), &mut Vec<u8>) -> Result<Meta>;

/// The requests for parts of objects that are under way.
#[derive(Default)]
pub struct Merge(Mutex<HashMap<Key, Line>>);

/// Those for one object.
#[derive(Default)]
struct Line {
    busy: usize,
    waiting: Option<Arc<Batch>>,
}

/// Ranges that go out together.
struct Batch {
    version: Version,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ranges: Vec<(u64, u64)>,
    /// Which run each range is in, once no more are taken.
    run_of: Option<Vec<usize>>,
    runs: Vec<Run>,
}

/// What a common request brought, or why it failed.
enum Answer {
    Bytes(Meta, Arc<Vec<u8>>),
    /// At once: each asks for itself.
    Early,
    /// By the deadline, or after [`PATIENCE`]: for all.
    Late(Error),
}

/// What goes out as one request: sent by the range `owner`.
struct Run {
    range: (u64, u64),
    owner: usize,
    members: usize,
    answer: Option<Answer>,
}

/// Counts a request as under way.
struct Busy<'a>(&'a Merge, &'a Key);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut lines = self.0.0.lock();
        if let Some(line) = lines.get_mut(self.1) {
            line.busy = line.busy.saturating_sub(1);
            if line.busy == 0 && line.waiting.is_none() {
                lines.remove(self.1);
            }
        }
    }
}

/// Ends a common request also when it panics, so that nobody waits for ever.
struct Landing<'a> {
    batch: &'a Batch,
    run: usize,
    answer: Option<Answer>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let answer = self.answer.take().unwrap_or(Answer::Early);
        if let Some(run) = self.batch.state.lock().runs.get_mut(self.run) {
            run.answer = Some(answer);
        }
        self.batch.changed.notify_all();
    }
}

impl Merge {
    /// Reads the bytes from `range.0` to `range.1` of the object `key` at `version` into `into`, with `ask`, which reads any such range;
    /// perhaps together with what others ask for now.
    ///
    /// # Errors
    /// What `ask` fails with.
    pub fn read(&self, key: &Key, version: &Version, range: (u64, u64), into: &mut Vec<u8>, ask: Ask<'_>) -> Result<Meta> {
        let (batch, index) = {
            let mut lines = self.0.lock();
            let line = lines.entry(key.clone()).or_default();
            line.busy = line.busy.saturating_add(1);
            if line.busy == 1 {
                (None, 0)
            } else {
                let batch = line.waiting.get_or_insert_with(|| Arc::new(Batch::new(version.clone()))).clone();
                if batch.version == *version {
                    let mut state = batch.state.lock();
                    state.ranges.push(range);
                    let index = state.ranges.len().saturating_sub(1);
                    drop(state);
                    (Some(batch), index)
                } else {
                    (None, 0)
                }
            }
        };
        let _busy = Busy(self, key);
        let Some(batch) = batch else { return ask(range, into) };
        if index == 0 {
            std::thread::sleep(WINDOW);
            if let Some(line) = self.0.lock().get_mut(key)
                && line.waiting.as_ref().is_some_and(|waiting| Arc::ptr_eq(waiting, &batch))
            {
                line.waiting = None;
            }
            batch.seal();
        }
        match batch.fetch(index, ask)? {
            Some((meta, bytes, start)) => {
                into.clear();
                into.extend_from_slice(part(&bytes, start, range).unwrap_or_default());
                Ok(meta)
            }
            None => ask(range, into),
        }
    }
}

/// The bytes of `range` among `bytes`, which begin at `start`.
fn part(bytes: &[u8], start: u64, range: (u64, u64)) -> Option<&[u8]> {
    let from = usize::try_from(range.0.checked_sub(start)?).ok()?;
    let to = usize::try_from(range.1.checked_sub(start)?).ok()?;
    bytes.get(from..to)
}

impl Batch {
    fn new(version: Version) -> Self {
        Self { version, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Takes no more ranges, and says which go out together.
    fn seal(&self) {
        let mut state = self.state.lock();
        let (run_of, runs) = runs(&state.ranges);
        (state.run_of, state.runs) = (Some(run_of), runs);
        drop(state);
        self.changed.notify_all();
    }

    /// What the common request of the range `index` brought, and where that begins; `None` where there is none, or not enough came.
    ///
    /// # Errors
    /// What the common request failed with, where nobody should ask again.
    fn fetch(&self, index: usize, ask: Ask<'_>) -> Result<Option<Fetched>> {
        let mut state = self.state.lock();
        while state.run_of.is_none() {
            self.changed.wait(&mut state);
        }
        let number = state.run_of.as_ref().and_then(|run_of| run_of.get(index).copied());
        let Some((number, range)) = number.zip(state.ranges.get(index).copied()) else { return Ok(None) };
        let Some(run) = state.runs.get(number).filter(|run| run.members > 1) else { return Ok(None) };
        let (all, owner) = (run.range, run.owner);
        if owner == index {
            drop(state);
            let mut landing = Landing { batch: self, run: number, answer: None };
            let mut bytes = Vec::new();
            let begun = Instant::now();
            landing.answer = Some(match ask(all, &mut bytes) {
                Ok(meta) => Answer::Bytes(meta, Arc::new(bytes)),
                Err(e) if e.kind() == Kind::TimedOut || begun.elapsed() > PATIENCE => Answer::Late(e),
                Err(_) => Answer::Early,
            });
            drop(landing);
            state = self.state.lock();
        }
        loop {
            match state.runs.get(number).map(|run| &run.answer) {
                Some(Some(Answer::Bytes(meta, bytes))) if part(bytes, all.0, range).is_some() => {
                    return Ok(Some((meta.clone(), bytes.clone(), all.0)));
                }
                Some(Some(Answer::Late(e))) => return Err(e.clone()),
                Some(None) => self.changed.wait(&mut state),
                _ => return Ok(None),
            }
        }
    }
}

/// Which run each of `ranges` is in, and the runs.
fn runs(ranges: &[(u64, u64)]) -> (Vec<usize>, Vec<Run>) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|&i| ranges.get(i));
    let mut runs: Vec<Run> = Vec::new();
    let mut run_of = vec![0; ranges.len()];
    for i in order {
        let Some(&(start, end)) = ranges.get(i) else { continue };
        match runs.last_mut() {
            Some(run) if start <= run.range.1.saturating_add(GAP) && end.max(run.range.1).saturating_sub(run.range.0) <= RUN => {
                run.range.1 = run.range.1.max(end);
                run.members = run.members.saturating_add(1);
            }
            _ => runs.push(Run { range: (start, end), owner: i, members: 1, answer: None }),
        }
        if let Some(slot) = run_of.get_mut(i) {
            *slot = runs.len().saturating_sub(1);
        }
    }
    (run_of, runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ObjectKind;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::SystemTime;

    const SIZE: u64 = 4 << 20;

    fn byte(at: u64) -> u8 {
        u8::try_from(at % 251).unwrap()
    }

    /// 64 readers at once; how many requests that took, and the answers.
    fn all(ranges: &[(u64, u64)], fail: impl Fn((u64, u64)) -> Option<Error> + Sync) -> (usize, Vec<Result<Vec<u8>>>) {
        let (merge, asked) = (Merge::default(), AtomicUsize::new(0));
        let version = Version::Tag("v".into());
        let key = Key::root().join("a").unwrap();
        let ask = |(start, end): (u64, u64), into: &mut Vec<u8>| {
            asked.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            if let Some(e) = fail((start, end)) {
                return Err(e);
            }
            *into = (start..end.min(SIZE)).map(byte).collect();
            let version = Version::Tag("v".into());
            Ok(Meta { kind: ObjectKind::File, size: SIZE, modified: SystemTime::UNIX_EPOCH, version, seekable: true })
        };
        let answers = std::thread::scope(|scope| {
            let readers: Vec<_> = ranges
                .iter()
                .map(|range| {
                    let (merge, key, version, ask) = (&merge, &key, &version, &ask);
                    scope.spawn(move || {
                        let mut bytes = Vec::new();
                        merge.read(key, version, *range, &mut bytes, ask).map(|_| bytes)
                    })
                })
                .collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert!(merge.0.lock().is_empty());
        (asked.into_inner(), answers)
    }

    #[test]
    fn neighbours_are_read_together_and_each_gets_its_own() {
        let ranges: Vec<_> = (0..64u64).map(|i| (i * 5000, i * 5000 + 4000)).collect();
        let (asked, answers) = all(&ranges, |_| None);
        assert!(asked < 32, "{asked} requests");
        for (range, answer) in ranges.iter().zip(answers) {
            assert_eq!(answer.unwrap(), (range.0..range.1).map(byte).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_neighbour_that_fails_fails_alone() {
        let ranges: Vec<_> = (0..16u64).map(|i| (i * 100, i * 100 + 100)).collect();
        let bad = |(start, end): (u64, u64)| (start <= 700 && end > 700).then(|| Error::corrupt("x"));
        let (_, answers) = all(&ranges, bad);
        for (range, answer) in ranges.iter().zip(answers) {
            assert_eq!(answer.is_err(), range.0 == 700, "{range:?}");
        }
    }

    #[test]
    fn who_waited_for_a_common_request_in_vain_does_not_wait_again() {
        let ranges: Vec<_> = (0..16u64).map(|i| (i * 100, i * 100 + 100)).collect();
        let is_common = |(start, end): (u64, u64)| end - start > 100;
        for (kind, pause) in [(Kind::TimedOut, Duration::ZERO), (Kind::Unavailable, PATIENCE + Duration::from_millis(50))] {
            let alone = AtomicUsize::new(0);
            let (_, answers) = all(&ranges, |range| {
                if is_common(range) {
                    std::thread::sleep(pause);
                    return Some(Error::new(kind, "no answer"));
                }
                alone.fetch_add(1, Ordering::SeqCst);
                None
            });
            let failed = answers.iter().filter(|answer| answer.as_ref().is_err_and(|e| e.kind() == kind)).count();
            assert!(failed > 1, "{kind:?}: {failed} were in a common request");
            // Those that went out alone from the start have their bytes, and nobody else asked.
            assert_eq!(alone.into_inner() + failed, ranges.len(), "{kind:?}");
            for (range, answer) in ranges.iter().zip(answers) {
                assert!(answer.is_err() || answer.unwrap() == (range.0..range.1).map(byte).collect::<Vec<_>>());
            }
        }
        // One that fails at once: each asks for itself.
        let (_, answers) = all(&ranges, |range| is_common(range).then(|| Error::new(Kind::Unavailable, "refused")));
        assert!(answers.iter().all(Result::is_ok));
    }

    #[test]
    fn what_ends_early_is_asked_for_alone() {
        let ranges: Vec<_> = (0..8u64).map(|i| (SIZE - 400 + i * 100, SIZE - 300 + i * 100)).collect();
        let (_, answers) = all(&ranges, |_| None);
        for (range, answer) in ranges.iter().zip(answers) {
            assert_eq!(answer.unwrap(), (range.0.min(SIZE)..range.1.min(SIZE)).map(byte).collect::<Vec<_>>());
        }
    }

    #[test]
    fn runs_have_bounds() {
        let (of, found) = runs(&[(0, 10), (10 + GAP, 20 + GAP), (21 + 2 * GAP, 22 + 2 * GAP), (5, 7)]);
        assert_eq!(of, [0, 0, 1, 0]);
        assert_eq!((found[0].range, found[0].members, found[1].members), ((0, 20 + GAP), 3, 1));
        let long: Vec<_> = (0..8).map(|i| (i * PIECE, (i + 1) * PIECE)).collect();
        assert_eq!(runs(&long).1.iter().map(|run| run.members).collect::<Vec<_>>(), [2, 2, 2, 2]);
    }
}
