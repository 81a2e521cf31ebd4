//! In which order readers go through the chunks of an array, as far as what they open tells, and which chunks they will open next.

use std::collections::VecDeque;

/// Readers of one array that are told apart.
const STREAMS: usize = 16;

/// How far out of order those may come who go through the chunks together, each taking the next one.
const ABREAST: usize = 16;

/// How much is read ahead of a reader.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    /// Most chunks, once the order has held for some time.
    pub depth: usize,
    /// How many times as many there are each time that it holds.
    pub growth: usize,
    /// Chunks that are read at once: as many are asked for at a time, or a multiple of it.
    pub at_once: usize,
}

/// In which order a reader goes through the chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    /// Along the last axis, then the one before it, by number.
    Grid,
    /// The same, by the decimal text of the numbers: a shell's `*`, and listings of object stores.
    Text,
    /// The same difference of indices each time: along any axis.
    Step(Vec<i64>),
}

/// One reader, or several who share the chunks among them: those come nearly in order.
#[derive(Debug, Default)]
struct Stream {
    /// The furthest chunk that was opened.
    last: Vec<u64>,
    /// How many steps of the order that is.
    at: u64,
    /// Chunks at most [`ABREAST`] before it that were not opened yet, with their steps.
    skipped: VecDeque<(u64, Vec<u64>)>,
    /// How many in a row never were.
    missed: usize,
    /// The difference of indices that led to `last`.
    moved: Option<Vec<i64>>,
    /// The same of the last one that was the very next, from which an order is guessed.
    step: Option<Vec<i64>>,
    order: Option<Order>,
    /// How often the order told the next chunk.
    run: u32,
    /// The last chunk asked for ahead, and how many chunks that is after `last`.
    frontier: Option<(Vec<u64>, usize)>,
}

/// The readers of one array, the latest first.
#[derive(Debug, Default)]
pub struct Streams {
    streams: VecDeque<Stream>,
}

impl Streams {
    /// Takes note that `index` was opened, and tells the chunks to read ahead.
    pub fn opened(&mut self, grid: &[u64], index: &[u64], reach: Reach) -> Vec<Vec<u64>> {
        if let Some(mut stream) = self.take(|stream| stream.has_met(index).then_some(())).map(|(stream, ())| stream) {
            stream.skipped.retain(|(_, skipped)| skipped != index);
            stream.missed = 0;
            self.streams.push_front(stream);
            return Vec::new();
        }
        let reached = self.take(|stream| stream.follows(grid, index)).or_else(|| self.take(|stream| stream.passes(grid, index)));
        let Some((mut stream, (order, skipped))) = reached else {
            let step = self.streams.front().and_then(|before| difference(&before.last, index));
            self.streams.push_front(Stream { last: index.to_vec(), step, ..Stream::default() });
            self.streams.truncate(STREAMS);
            return Vec::new();
        };
        let wanted = stream.go_on(grid, index, reach, order, skipped);
        self.streams.push_front(stream);
        wanted
    }

    /// Takes out the latest reader of whom `tell` tells something.
    fn take<T>(&mut self, tell: impl Fn(&Stream) -> Option<T>) -> Option<(Stream, T)> {
        let (at, told) = self.streams.iter().enumerate().find_map(|(at, stream)| Some((at, tell(stream)?)))?;
        Some((self.streams.remove(at)?, told))
    }
}

impl Stream {
    /// Whether `index` was the last, or was passed by.
    fn has_met(&self, index: &[u64]) -> bool {
        self.last == index || self.skipped.iter().any(|(_, skipped)| skipped == index)
    }

    /// The order in which `index` comes next; the known one first. None are skipped.
    fn follows(&self, grid: &[u64], index: &[u64]) -> Option<(Order, Vec<Vec<u64>>)> {
        let step = self.step.clone().map(Order::Step);
        let mut orders = self.order.iter().cloned().chain([Order::Grid, Order::Text]).chain(step);
        let order = orders.find(|order| order.next(grid, &self.last).as_deref() == Some(index))?;
        Some((order, Vec::new()))
    }

    /// The known order, if `index` comes soon by it, and the chunks before that. It must have held twice: who reads at random often comes
    /// near to where somebody else was, and wants nothing of what is between.
    fn passes(&self, grid: &[u64], index: &[u64]) -> Option<(Order, Vec<Vec<u64>>)> {
        let order = self.order.as_ref().filter(|_| self.run >= 2)?;
        let mut skipped = Vec::new();
        let mut at = self.last.clone();
        for _ in 0..ABREAST {
            at = order.next(grid, &at)?;
            if at == index {
                return Some((order.clone(), skipped));
            }
            skipped.push(at.clone());
        }
        None
    }

    /// Goes on to `index`, and tells the chunks to read ahead.
    fn go_on(&mut self, grid: &[u64], index: &[u64], reach: Reach, order: Order, skipped: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
        if self.order.as_ref() != Some(&order) {
            (self.run, self.frontier) = (0, None);
        }
        let moved = difference(&self.last, index);
        let is_even = moved == self.moved;
        self.moved.clone_from(&moved);
        self.run = self.run.saturating_add(1);
        self.last = index.to_vec();
        let steps = skipped.len() + 1;
        self.skipped.extend((self.at + 1..).zip(skipped.iter().cloned()));
        self.at += steps as u64;
        while self.skipped.front().is_some_and(|(at, _)| at + (ABREAST as u64) < self.at) {
            self.skipped.pop_front();
            self.missed = self.missed.saturating_add(1);
        }
        if steps == 1 {
            self.step = moved;
        } else if is_even && self.missed > ABREAST / 2 {
            // One reader, who leaves out the same each time by now: that is another order.
            *self = Self { last: std::mem::take(&mut self.last), step: moved, ..Self::default() };
            return Vec::new();
        }
        let depth = reach.depth.min(reach.growth.saturating_pow(self.run.min(16)));
        let asked = self.frontier.as_ref().map_or(0, |(_, count)| *count);
        let (mut at, mut count) = match self.frontier.take() {
            Some((at, count)) if count > steps => (at, count - steps),
            _ => (index.to_vec(), 0),
        };
        // What was passed by, beyond what has been asked for, will be opened soon.
        let mut wanted: Vec<Vec<u64>> = skipped.into_iter().skip(asked).take(depth).collect();
        let at_once = reach.at_once.clamp(1, depth.max(1));
        let end = count + depth.saturating_sub(count) / at_once * at_once;
        while count < end
            && wanted.len() < depth
            && let Some(next) = order.next(grid, &at)
        {
            wanted.push(next.clone());
            (at, count) = (next, count + 1);
        }
        (self.frontier, self.order) = (Some((at, count)), Some(order));
        wanted
    }
}

impl Order {
    /// The chunk after `index`; `None` after the last.
    fn next(&self, grid: &[u64], index: &[u64]) -> Option<Vec<u64>> {
        let mut next = index.to_vec();
        let after = match self {
            Self::Step(step) => {
                for ((i, d), n) in next.iter_mut().zip(step).zip(grid) {
                    *i = i.checked_add_signed(*d).filter(|i| i < n)?;
                }
                return Some(next);
            }
            Self::Grid => |i: u64, n: u64| i.checked_add(1).filter(|i| *i < n),
            Self::Text => next_text,
        };
        for (i, n) in next.iter_mut().zip(grid).rev() {
            match after(*i, *n) {
                Some(following) => {
                    *i = following;
                    return Some(next);
                }
                None => *i = 0,
            }
        }
        None
    }
}

/// The number below `n` whose decimal text comes next after that of `i`.
fn next_text(i: u64, n: u64) -> Option<u64> {
    if i == 0 {
        return (n > 1).then_some(1);
    }
    if let Some(longer) = i.checked_mul(10).filter(|longer| *longer < n) {
        return Some(longer);
    }
    let mut i = i;
    while i > 0 {
        if i % 10 != 9 && i + 1 < n {
            return Some(i + 1);
        }
        i /= 10;
    }
    None
}

fn difference(from: &[u64], to: &[u64]) -> Option<Vec<i64>> {
    let step: Option<Vec<i64>> =
        from.iter().zip(to).map(|(a, b)| Some(i64::try_from(*b).ok()? - i64::try_from(*a).ok()?)).collect();
    step.filter(|step| step.iter().any(|d| *d != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(depth: usize) -> Reach {
        Reach { depth, growth: 2, at_once: 1 }
    }

    fn walk(grid: &[u64], indices: &[&[u64]]) -> Vec<Vec<u64>> {
        let mut streams = Streams::default();
        let mut wanted = Vec::new();
        for index in indices {
            wanted.extend(streams.opened(grid, index, reach(4)));
        }
        wanted
    }

    #[test]
    fn orders_of_numbers() {
        // sorted(map(str, range(23)))
        let text = [0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2, 20, 21, 22, 3, 4, 5, 6, 7, 8, 9];
        let mut all = vec![0];
        while let Some(next) = next_text(*all.last().unwrap(), 23) {
            all.push(next);
        }
        assert_eq!(all, text);
        assert_eq!((next_text(0, 1), next_text(9, 10), next_text(1, 2)), (None, None, None));
        assert_eq!(Order::Grid.next(&[2, 3], &[0, 2]), Some(vec![1, 0]));
        assert_eq!(Order::Grid.next(&[2, 3], &[1, 2]), None);
        assert_eq!(Order::Step(vec![1, -1]).next(&[2, 3], &[0, 0]), None);
    }

    #[test]
    fn a_reader_of_chunk_after_chunk_is_recognised() {
        assert_eq!(walk(&[1, 9], &[&[0, 3], &[0, 4]]), [[0, 5], [0, 6]]);
        // Each chunk is asked for once, further ahead the longer the order holds.
        assert_eq!(walk(&[1, 9], &[&[0, 0], &[0, 1], &[0, 2], &[0, 3]]), [[0, 2], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7]]);
        // By text, and along the first axis.
        assert_eq!(walk(&[1, 30], &[&[0, 1], &[0, 10], &[0, 11]])[..2], [[0, 11], [0, 12]]);
        assert_eq!(walk(&[9, 9], &[&[0, 5], &[1, 5], &[2, 5]]), [[3, 5], [4, 5]]);
    }

    #[test]
    fn chunks_are_asked_for_two_at_a_time_where_two_are_read_at_once() {
        let mut streams = Streams::default();
        let mut asked = |n| streams.opened(&[14], &[n], Reach { depth: 4, growth: 2, at_once: 2 }).concat();
        let wanted: Vec<Vec<u64>> = (0..14).map(&mut asked).collect();
        let pairs = [vec![], vec![2, 3], vec![4, 5], vec![6, 7], vec![], vec![8, 9], vec![], vec![10, 11], vec![], vec![12, 13]];
        assert_eq!(wanted[..10], pairs);
        assert!(wanted[10..].concat().is_empty());
    }

    #[test]
    fn those_who_share_the_chunks_are_one_reader() {
        // Each takes the next chunk, but they do not come in just that order.
        let indices = [0u64, 1, 2, 4, 3, 6, 5, 9, 8, 7, 10, 11].map(|n| [n]);
        let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
        let wanted: Vec<u64> = walk(&[50], &indices).concat();
        assert_eq!(wanted, (2..=15).collect::<Vec<_>>());
        // Who comes early leaves nothing out, nor do chunks that are not there.
        let all_but = |early: u64, absent: fn(u64) -> bool| {
            let order = (0..early / 2).chain([early]).chain(early / 2..early).chain(early + 1..200);
            let indices: Vec<[u64; 1]> = order.filter(|n| !absent(*n)).map(|n| [n]).collect();
            let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
            let wanted = walk(&[200], &indices).concat();
            (2..200).all(|n| n == early || absent(n) || wanted.contains(&n)) && wanted.len() < 220
        };
        assert!(all_but(14, |_| false) && all_but(14, |n| n % 5 == 3));
        // No more at a time than are wanted at most.
        let mut streams = Streams::default();
        (0..4).for_each(|n| drop(streams.opened(&[50], &[n], reach(2))));
        assert_eq!(streams.opened(&[50], &[16], reach(2)), [[6], [7]]);
        // Too far on is another one, and who leaves out every second is soon recognised.
        assert!(walk(&[100], &[&[0], &[1], &[2], &[60]]).concat().iter().all(|n| *n < 7));
        let indices: Vec<[u64; 1]> = (0..4).chain((5..61).step_by(2)).map(|n| [n]).collect();
        let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
        let wanted = walk(&[100], &indices).concat();
        assert!(wanted.iter().filter(|n| **n > 45).all(|n| n % 2 == 1) && wanted.contains(&67), "{wanted:?}");
    }

    #[test]
    fn readers_are_told_apart_and_others_cause_nothing() {
        assert_eq!(walk(&[50], &[&[0], &[30], &[1], &[31]]), [[2], [3], [32], [33]]);
        assert!(walk(&[100], &[&[0], &[57], &[3], &[88], &[20]]).is_empty());
        // One of them came next by chance.
        assert_eq!(walk(&[100], &[&[0], &[57], &[58], &[3], &[62], &[60], &[70]]), [[59], [60]]);
        assert!(walk(&[100], &[&[5], &[5], &[5]]).is_empty());
        assert_eq!(walk(&[4], &[&[1], &[2]]), [[3]]);
    }
}
