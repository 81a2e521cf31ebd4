//! Streams of the library's and of its own making, against what the library makes of them.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "small known numbers"
)]

use super::*;
use crate::codec::tests::{contents, numbers};
use ::bzip2::{Compression, read::BzEncoder};
use std::io::Read;

fn encoded(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoded = Vec::new();
    BzEncoder::new(bytes, Compression::new(level)).read_to_end(&mut encoded).unwrap();
    encoded
}

#[test]
fn what_the_library_encodes_is_decoded() {
    for bytes in contents() {
        for level in [1, 9] {
            let encoded = encoded(&bytes, level);
            assert!(decode(&encoded, Length::Exact(bytes.len())).unwrap() == bytes, "{} at {level}", bytes.len());
            assert!(decode(&encoded, Length::AtMost(bytes.len() + 9)).unwrap() == bytes);
            if !bytes.is_empty() {
                assert!(decode(&encoded, Length::Exact(bytes.len() - 1)).is_err());
            }
            assert!(decode(&encoded, Length::Exact(bytes.len() + 1)).is_err());
        }
    }
}

/// Whatever is wrong with a stream, the library and this decoder find the same in it, or nothing.
#[test]
fn damaged_streams_are_what_the_library_takes_them_for() {
    let mut next = numbers(11);
    let large = contents().into_iter().filter(|bytes| bytes.len() == 250_003).take(2);
    for bytes in contents().into_iter().filter(|bytes| bytes.len() < 3000).chain(large) {
        let whole = encoded(&bytes, 1);
        for _ in 0..if bytes.len() < 3000 { 200 } else { 20 } {
            let mut damaged = whole.clone();
            match next(3) {
                0 => damaged.truncate(next(whole.len() as u64) as usize),
                _ => (0..=next(3)).for_each(|_| {
                    let at = next(damaged.len() as u64) as usize;
                    damaged[at] ^= 1 << next(8);
                }),
            }
            for length in [Length::Exact(bytes.len()), Length::AtMost(bytes.len() + 2000)] {
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                let own = stream(&damaged, &mut ours, length).map(<[u8]>::len);
                let library = by_library(&damaged, &mut theirs, length).map(<[u8]>::len);
                match (own, library) {
                    (Ok(own), Ok(library)) => assert!(own == library && ours == theirs),
                    (Err(own), Err(library)) => assert_eq!(own.kind(), library.kind()),
                    (own, library) => panic!("{own:?}, and by the library {library:?}"),
                }
            }
        }
    }
}

/// The lengths of a code are 3, 1, 2 and 2 bits, in which the last symbol has none left.
#[test]
fn codes_that_are_too_short_are_what_they_are_to_the_first_decoder() {
    let hex = "425a6831314159265359e993fdcd00000001003000200021bd037a2b177245385090e993fdcd";
    let stream: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let mut library = Vec::new();
    by_library(&stream, &mut library, Length::Exact(2)).unwrap();
    assert_eq!((decode(&stream, Length::Exact(2)).unwrap(), &library[..]), (b"ab".to_vec(), &b"ab"[..]));
}

/// Such streams are made by no writer any more: the mark is set in one of another content, and the checksums are made to fit.
#[test]
fn randomised_blocks_are_decoded_too() {
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i * i / 7 % 251) as u8).collect();
    let mut marked = encoded(&bytes, 1);
    marked[14] |= 0x80;
    let mut made = Vec::with_capacity(6000);
    assert!(Decompress::new(false).decompress_vec(&marked, &mut made).is_err());
    assert!(made.len() == bytes.len() && made != bytes);
    let sum = checksum(&made).to_be_bytes();
    marked[10..14].copy_from_slice(&sum);
    // The checksum of the stream begins at any bit.
    let bits: Vec<u8> = marked.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let old = checksum(&bytes);
    let old: Vec<u8> = (0..32).rev().map(|bit| (old >> bit & 1) as u8).collect();
    let at = (100..bits.len() - 31).rev().find(|at| bits[*at..at + 32] == old[..]).unwrap();
    for (i, bit) in (at..at + 32).enumerate() {
        let to = sum[i / 8] >> (7 - i % 8) & 1;
        marked[bit / 8] = marked[bit / 8] & !(0x80 >> (bit % 8)) | to << (7 - bit % 8);
    }
    assert!(decode(&marked, Length::Exact(made.len())).unwrap() == made);
}

#[test]
fn checksums_are_those_of_the_format() {
    // Of its catalogue: CRC-32/BZIP2.
    assert_eq!(checksum(b"123456789"), 0xfc89_1918);
    assert_eq!(checksum(&[]), 0);
}
