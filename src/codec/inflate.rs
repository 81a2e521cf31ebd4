//! DEFLATE ([RFC 1951](https://www.rfc-editor.org/rfc/rfc1951)), two streams at a time in one thread.
//!
//! In a stream each code begins where the one before it ended, so a decoder looks a code up, finds its length, and can only then look up
//! the next: it waits for its own table most of the time, however many instructions the processor could do meanwhile. Two streams know
//! nothing of each other. Their steps, done in turns, take hardly longer than those of one of them: two decode one and a half times as fast
//! as one after the other by libdeflate.
//!
//! What is decoded here is only what there is no doubt of. Whatever else (damage, codes that are none, another length) is told as `None`,
//! and the caller has a library decode that stream by itself and say what is wrong with it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod codes;
mod cursor;
mod lane;

use cursor::{Buffers, Step};
use lane::Lane;
use std::cell::RefCell;

thread_local! {
    /// Those of the two streams, for all that a thread decodes: a third of a MiB, which only threads have that decode in pairs.
    static BUFFERS: RefCell<Option<Box<[Buffers; 2]>>> = const { RefCell::new(None) };
}

/// A stream and the length of its result.
#[derive(Clone, Copy)]
pub(super) struct Stream<'a> {
    pub encoded: &'a [u8],
    pub length: usize,
}

/// The result of a stream, and what follows it.
pub(super) type Inflated<'a> = (Vec<u8>, &'a [u8]);

/// Decodes two streams; `None` for one that is not just what it should be.
pub(super) fn two<'a>(first: Stream<'a>, second: Stream<'a>) -> (Option<Inflated<'a>>, Option<Inflated<'a>>) {
    BUFFERS.with_borrow_mut(|buffers| {
        let [a, b] = &mut **buffers.get_or_insert_with(Box::default);
        let (mut a, mut b) = (Lane::new(first, a), Lane::new(second, b));
        let (mut after_a, mut after_b) = (a.begin(), b.begin());
        while after_a == Step::Go && after_b == Step::Go {
            (after_a, after_b) = cursor::run_two(a.hot(), b.hot());
            if after_a == Step::Stop {
                after_a = a.go_on();
            }
            if after_b == Step::Stop {
                after_b = b.go_on();
            }
        }
        // Where one has come to its end, the other goes on alone.
        (a.finish(after_a), b.finish(after_b))
    })
}

#[cfg(test)]
mod tests;
