//! The fuzz targets without a fuzzer: the kept corpora are replayed, then changed at random for a while.
//!
//! `CHUNKMOUNT_FUZZ_SECONDS` is the time for each target (2 unless given), `CHUNKMOUNT_FUZZ_SEED` the first random number. An
//! input that fails is written down; `cargo +nightly fuzz run TARGET FILE` and `CHUNKMOUNT_FUZZ_INPUT` run it again.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// One input takes microseconds; a debug build on a busy machine is slow, an endless loop is slower.
const SLOW: Duration = Duration::from_secs(20);

/// Longest input that is made.
const LONGEST: usize = 8 << 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Replays the corpus of a target and changes it.
fn fuzz(name: &str) {
    let target = targets::TARGETS.iter().find(|(n, _)| *n == name).unwrap().1;
    if let Some(input) = std::env::var_os("CHUNKMOUNT_FUZZ_INPUT") {
        return target(&std::fs::read(input).unwrap());
    }
    let mut corpus: Vec<PathBuf> =
        std::fs::read_dir(root().join("corpus").join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
    corpus.sort_unstable();
    assert!(!corpus.is_empty());
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|path| std::fs::read(path).unwrap()).collect();
    corpus.iter().for_each(|input| run(name, target, input));
    let seed = number("CHUNKMOUNT_FUZZ_SEED").unwrap_or(20_261_121);
    let time = Duration::from_secs(number("CHUNKMOUNT_FUZZ_SECONDS").unwrap_or(2));
    let mut random = Random(seed);
    let (start, mut runs) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        let input = random.changed(&corpus);
        run(name, target, &input);
        runs += 1;
    }
    println!("{name}: {} kept inputs, {runs} changed ones from seed {seed}", corpus.len());
}

fn run(name: &str, target: targets::Target, input: &[u8]) {
    let start = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    if outcome.is_ok() && start.elapsed() < SLOW {
        return;
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
    std::fs::write(&path, input).unwrap();
    panic!("{name}: {:?} for the input that is now in {}", start.elapsed(), path.display());
}

/// A small generator of numbers (xorshift64*), the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.max(1);
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n.max(1)
    }

    /// One of the corpus with one to four changes.
    fn changed(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut input, corpus);
        }
        input.truncate(LONGEST);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        let bits = self.below(7);
        let end = (at + 1 + self.below(1 << bits)).min(input.len());
        match self.below(9) {
            0 if at < end => input[at] ^= 1 << self.below(8),
            1 if at < end => input[at] = self.byte(),
            2 if at < end => drop(input.drain(at..end)),
            3 => input.truncate(at),
            4 => {
                let piece: Vec<u8> = input[at.min(end)..end].to_vec();
                let to = self.below(input.len() + 1);
                input.splice(to..to, piece);
            }
            5 => {
                // A part of another one, in place or between.
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                let piece = other[from..(from + self.below(64)).min(other.len())].to_vec();
                let end = if self.below(2) == 0 { at } else { (at + piece.len()).min(input.len()) };
                input.splice(at..end, piece);
            }
            6 => {
                // A number at a bound, in either byte order.
                let bits = 8 << self.below(4);
                let near = [0, 1, 1 << (bits / 2), 1 << (bits - 1), u128::MAX][self.below(5)];
                let number = near.wrapping_add(self.below(5) as u128).wrapping_sub(2);
                let mut bytes = number.to_le_bytes()[..bits / 8].to_vec();
                if self.below(2) == 0 {
                    bytes.reverse();
                }
                let end = (at + bytes.len()).min(input.len());
                input.splice(at..end, bytes);
            }
            7 => {
                const WORDS: &[&str] =
                    &["0", "-1", "1e999", "null", "[]", "{}", "\"", "9223372036854775808", "NaN", "@", "\n", "/", "."];
                let word = WORDS[self.below(WORDS.len())];
                input.splice(at..at, word.bytes());
            }
            _ => {
                let byte = self.byte();
                input.insert(at, byte);
            }
        }
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }
}

macro_rules! fuzzed {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            fuzz(stringify!($name));
        })*

        /// Every target has a test, a binary and a corpus of small files.
        #[test]
        fn all_targets_are_here() {
            let names = [$(stringify!($name)),*];
            assert!(targets::TARGETS.iter().map(|(name, _)| *name).eq(names));
            let mut size = 0;
            for name in names {
                assert!(root().join("fuzz_targets").join(name).with_extension("rs").is_file(), "{name}");
                for entry in std::fs::read_dir(root().join("corpus").join(name)).unwrap() {
                    size += entry.unwrap().metadata().unwrap().len();
                }
            }
            assert!(size < 600_000, "the corpora have {size} bytes");
        }
    };
}

fuzzed!(block chain cli codec cube dtype json metadata names options shard source store zip);
