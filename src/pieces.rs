//! How much a single read gives: all that was asked for, but less where the tests want it.
//!
//! A read may always give less than was asked for, and hardly ever does before somebody's network or disk is in the way. So each
//! loop over reads of what comes from outside asks here how long the next one may be. In a build with debug assertions, as tests
//! have it, `CHUNKMOUNT_SHORT_READS=one` makes that one byte, and `random` any number of them; without the variable, and in every
//! release build, it is all.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

/// How many bytes a read of up to `length` bytes asks for; none only of none.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn piece(length: usize) -> usize {
    length
}

/// The pieces in which a body comes.
#[cfg(not(debug_assertions))]
#[inline]
pub fn body<S>(stream: S) -> S {
    stream
}

#[cfg(debug_assertions)]
pub use short::{body, piece};

#[cfg(debug_assertions)]
mod short {
    use bytes::Bytes;
    use futures_util::{Stream, StreamExt, stream};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Mode {
        All,
        One,
        Random,
    }

    /// Which reads are cut, as the environment said at first.
    pub(super) fn mode() -> Mode {
        static MODE: OnceLock<Mode> = OnceLock::new();
        *MODE.get_or_init(|| match std::env::var("CHUNKMOUNT_SHORT_READS").as_deref() {
            Ok("one") => Mode::One,
            Ok("random") => Mode::Random,
            _ => Mode::All,
        })
    }

    /// How many bytes a read of up to `length` bytes asks for; none only of none.
    pub fn piece(length: usize) -> usize {
        match mode() {
            Mode::All => length,
            Mode::One => length.min(1),
            Mode::Random => random(length),
        }
    }

    /// Any number from 1 to `length`: SplitMix64, the same at each run as far as threads are.
    fn random(length: usize) -> usize {
        static STATE: AtomicU64 = AtomicU64::new(0);
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = usize::try_from((z ^ (z >> 31)) >> 1).unwrap_or(0);
        z.checked_rem(length).map_or(0, |less| less.saturating_add(1))
    }

    /// The pieces in which a body comes.
    pub fn body<S, E>(stream: S) -> impl Stream<Item = Result<Bytes, E>>
    where
        S: Stream<Item = Result<Bytes, E>>,
    {
        stream.flat_map(|came| {
            let mut rest = came.map(Some);
            stream::iter(std::iter::from_fn(move || match std::mem::replace(&mut rest, Ok(None)) {
                Ok(None) => None,
                Ok(Some(mut bytes)) => {
                    let piece = bytes.split_to(piece(bytes.len()).min(bytes.len()));
                    rest = Ok(Some(bytes).filter(|bytes| !bytes.is_empty()));
                    Some(Ok(piece))
                }
                Err(e) => Some(Err(e)),
            }))
        })
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::short::{Mode, mode};
    use super::*;
    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt, stream};

    #[test]
    fn reads_are_as_short_as_the_variable_says() {
        let pieces: Vec<usize> = (0..100).map(|_| piece(1000)).collect();
        match (std::env::var("CHUNKMOUNT_SHORT_READS").as_deref(), mode()) {
            (Err(_), Mode::All) => assert_eq!(pieces, [1000; 100]),
            (Ok("one"), Mode::One) => assert_eq!(pieces, [1; 100]),
            (Ok("random"), Mode::Random) => {
                assert!(pieces.iter().all(|n| (1..=1000).contains(n)) && pieces.iter().any(|n| *n < 500));
                assert!((0..100).any(|_| piece(2) == 2) && (0..100).any(|_| piece(2) == 1));
            }
            (said, _) => panic!("CHUNKMOUNT_SHORT_READS is {said:?}: `one` or `random`"),
        }
        assert_eq!((piece(0), piece(1)), (0, 1));
    }

    #[test]
    fn a_body_stays_what_it_was() {
        let came = [Ok(Bytes::from_static(b"some bytes")), Ok(Bytes::new()), Ok(Bytes::from_static(b", more")), Err("cut")];
        let all: Vec<_> = body(stream::iter(came)).collect::<Vec<_>>().now_or_never().unwrap();
        let bytes: Vec<u8> = all.iter().flatten().flatten().copied().collect();
        assert_eq!((bytes.as_slice(), all.last()), (&b"some bytes, more"[..], Some(&Err("cut"))));
        assert!(all.iter().all(|piece| piece.as_ref().map_or(true, |piece| piece.len() <= 10)));
    }
}
