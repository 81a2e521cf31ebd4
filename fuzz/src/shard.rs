//! Shards and their indexes, down to the bytes of a chunk.

use super::input::{self, Input};
use chunkmount::array::{Array, Placement, Shard};
use chunkmount::cache::Budget;
use chunkmount::chunk::{self, Cost};
use chunkmount::codec::{Chain, from_numcodecs};
use chunkmount::error::Kind;
use chunkmount::placement::{Indexes, is_index_chain, shard_index};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Store};
use serde_json::json;

/// Bytes of a decoded chunk.
const CHUNK: u64 = 6;

/// Two bytes choose the array, the rest is the shard.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let (array, levels) = choose(&mut input);
    let bytes = input.0;
    for level in &levels {
        let count = level.count().unwrap_or_else(|| panic!("a small shard")) as usize;
        if let Ok(numbers) = shard_index(level, bytes, count * 16) {
            assert_eq!(numbers.len(), count * 2);
        }
    }
    let store = MemStore::new();
    let key = Key::root().join("0.0").unwrap_or_else(|e| panic!("{e}"));
    store.put(key, bytes);
    let indexes = Indexes::new(1 << 20, None);
    let budget = Budget::new(1 << 20);
    let whole = levels.iter().all(|level| level.envelope.is_empty());
    for index in 0..16u64 {
        let index = [index / 4, index % 4];
        let part = match indexes.locate(&store, &Key::root(), &array, &index) {
            Ok(part) => part,
            Err(e) => {
                assert_ne!(e.kind(), Kind::Bug, "{e}");
                continue;
            }
        };
        let held = part.body.as_ref().map_or(bytes.len(), |body| body.len()) as u64;
        assert!(part.length() <= held);
        let (start, end) = part.range.within(held);
        match chunk::read(&store, &part, &array, None, &budget, &mut Cost::default(), |block| block) {
            Ok(block) => {
                assert_eq!(block.length(), CHUNK);
                if whole && array.stored.chain.is_empty() {
                    block.part(0, CHUNK, |read| assert_eq!(read, &bytes[start as usize..end as usize])).unwrap();
                }
            }
            Err(e) => assert!(!matches!(e.kind(), Kind::Bug | Kind::Changed | Kind::NotFound), "{e}"),
        }
        if let ([level], true) = (levels.as_slice(), whole) {
            assert_eq!(Some((start, end)), entry(level, bytes, index), "{index:?}");
        }
    }
    assert!(store.requests().get < 64);
}

/// The place that the index of a shard by itself tells, read with as little code as can be.
fn entry(level: &Shard, bytes: &[u8], index: [u64; 2]) -> Option<(u64, u64)> {
    let count = level.count()? as usize;
    let sum = if level.index.is_empty() { 0 } else { 4 };
    let start = if level.at_start { 0 } else { bytes.len().checked_sub(count * 16 + sum)? };
    let place = |axis: usize| (index[axis] / level.chunks[axis] % level.parts[axis]) as usize;
    let slot = place(level.axes[0]) * level.parts[level.axes[1]] as usize + place(level.axes[1]);
    let number = |i: usize| {
        let at = start + slot * 16 + i * 8;
        let n: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(if level.big_endian { u64::from_be_bytes(n) } else { u64::from_le_bytes(n) })
    };
    let offset = number(0)?;
    Some((offset, offset.checked_add(number(1)?)?))
}

fn choose(input: &mut Input<'_>) -> (Array, Vec<Shard>) {
    let mut array = input::array(&[4, 12], &[1, 3], "<u2", '.');
    let (bits, more) = (input.byte(), input.byte());
    let chain = |on: bool, id: &str| {
        let codec = from_numcodecs(&json!({"id": id}), None).ok().flatten();
        let codecs = codec.filter(|_| on).into_iter().collect();
        Chain::new(codecs).unwrap_or_else(|e| panic!("{e}"))
    };
    let level = |parts: u64, chunks: u64, bits: u8| Shard {
        parts: vec![parts; 2],
        chunks: vec![chunks; 2],
        axes: if bits & 1 == 0 { vec![0, 1] } else { vec![1, 0] },
        at_start: bits & 2 != 0,
        big_endian: bits & 4 != 0,
        index: chain(bits & 8 != 0, "crc32c"),
        envelope: chain(bits & 16 != 0, "gzip"),
    };
    let levels = match bits >> 5 & 1 {
        0 => vec![level(4, 1, bits)],
        _ => vec![level(2, 2, bits), level(2, 1, more)],
    };
    array.stored.chain = chain(bits & 64 != 0, "zlib");
    array.stored.placement = Placement::Shards(levels.clone());
    assert_eq!(array.chunk_bytes(), Some(CHUNK));
    assert!(levels.iter().all(|level| is_index_chain(&level.index)));
    (array, levels)
}
