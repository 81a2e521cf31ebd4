//! Indexes of shards and jump tables of cubes, sound and damaged, in memory.

#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "small known numbers")]

use super::*;
use crate::array::{Keys, Style};
use crate::store::faulty::{Call, Effect, Faulty};
use crate::store::mem::MemStore;

fn level(parts: &[u64], chunks: &[u64], axes: &[usize]) -> Shard {
    Shard {
        parts: parts.to_vec(),
        chunks: chunks.to_vec(),
        axes: axes.to_vec(),
        at_start: false,
        big_endian: false,
        index: Chain::default(),
        envelope: Chain::default(),
    }
}

fn array(shape: &[u64], chunks: &[u64], placement: Placement) -> Array {
    let mut array = names::tests::array(shape, chunks, b'/', false);
    array.stored.placement = placement;
    array
}

fn index_of(entries: &[(u64, u64)]) -> Vec<u8> {
    entries.iter().flat_map(|(offset, length)| [offset.to_le_bytes(), length.to_le_bytes()].concat()).collect()
}

#[test]
fn blocks_of_a_cube_are_in_morton_order() {
    // The Z-order curve as the specification of WKW draws it: x, then y, then z.
    for (index, number) in
        [([0, 0, 0], 0), ([1, 0, 0], 1), ([0, 1, 0], 2), ([0, 0, 1], 4), ([3, 1, 2], 0b101_011), ([31; 3], 32767)]
    {
        assert_eq!(morton(index), number, "{index:?}");
    }
}

#[test]
fn a_part_is_found_by_the_index_and_a_damaged_entry_fails_alone() {
    let array = array(&[4, 4], &[2, 2], Placement::Shards(vec![level(&[2, 2], &[1, 1], &[0, 1])]));
    let mut shard = b"abcdefgh".to_vec();
    shard.extend(index_of(&[(0, 3), (3, 5), (u64::MAX, u64::MAX), (4, 60)]));
    let store = MemStore::default();
    store.put(Key::root().join("0/0").unwrap(), shard.clone());
    let indexes = Indexes::new(1 << 20, None);
    let locate = |index: &[u64]| indexes.locate(&store, &Key::root(), &array, index);
    let before = store.requests();
    assert_eq!(locate(&[0, 0]).unwrap().range, Range::Part { offset: 0, length: 3 });
    assert_eq!(locate(&[0, 1]).unwrap().range, Range::Part { offset: 3, length: 5 });
    assert_eq!(locate(&[1, 0]).unwrap_err().kind(), Kind::NotFound);
    let e = locate(&[1, 1]).unwrap_err();
    assert_eq!(e.kind(), Kind::Corrupt, "it would overlap the index");
    assert!(e.to_string().contains("0/0"), "{e}");
    let after = store.requests();
    assert_eq!((after.get - before.get, after.head - before.head), (1, 0), "the index is read once");
}

/// The format says that entries may overlap or be the same: each is what it says, whatever others say. An entry that cannot be, by
/// its length, its place or their sum, fails before anything is read for it.
#[test]
fn parts_may_overlap_and_lie_in_the_shard() {
    const END: u64 = u64::MAX;
    for at_start in [false, true] {
        let shard = Shard { at_start, ..level(&[4, 4], &[1, 1], &[0, 1]) };
        let array = array(&[8, 8], &[2, 2], Placement::Shards(vec![shard]));
        // With the index in front, data begins behind its 16 entries.
        let (data, end) = if at_start { (256, 264) } else { (0, 8) };
        let sound = [(data, 8), (data, 8), (data + 2, 4), (data + 3, 5), (end, 0), (data, 0)];
        let broken = [
            (end, 1),
            (data, 9),
            (data + 1, 8),
            (data, 1 << 62),
            (1 << 62, 1),
            (END, 0),
            (END, 1),
            (END - 1, 2),
            (END - 3, 8),
            (8, END - 7),
        ];
        let index = index_of(&[sound.as_slice(), broken.as_slice()].concat());
        let store = MemStore::default();
        let parts = if at_start { [index.as_slice(), b"abcdefgh"] } else { [b"abcdefgh", index.as_slice()] };
        store.put(Key::root().join("0/0").unwrap(), parts.concat());
        let indexes = Indexes::new(1 << 20, None);
        let locate = |n: usize| indexes.locate(&store, &Key::root(), &array, &[n as u64 / 4, n as u64 % 4]);
        for (n, (offset, length)) in sound.into_iter().enumerate() {
            assert_eq!(locate(n).unwrap().range, Range::Part { offset, length }, "{at_start} {offset}");
        }
        let read = store.requests().bytes;
        for (n, (offset, length)) in (sound.len()..).zip(broken) {
            let e = locate(n).expect_err("an entry that cannot be");
            assert_eq!(e.kind(), Kind::Corrupt, "{at_start} {offset} {length}: {e}");
            assert!(e.to_string().contains("0/0") && e.reason().contains(&offset.to_string()), "{e}");
        }
        assert_eq!(store.requests().bytes, read, "nothing is read for what cannot be");
    }
}

#[test]
fn shards_within_shards_and_other_orders_of_axes() {
    // Outer parts of 2 x 4 chunks, the index of the inner level in the order of the second axis first.
    let outer = level(&[1, 2], &[2, 4], &[0, 1]);
    let inner = level(&[2, 4], &[1, 1], &[1, 0]);
    let array = array(&[2, 8], &[1, 1], Placement::Shards(vec![outer, inner]));
    let mut entries = vec![(u64::MAX, u64::MAX); 8];
    entries[3 * 2 + 1] = (1, 2);
    let mut part = b"xyz".to_vec();
    part.extend(index_of(&entries));
    let mut shard = b"--".to_vec();
    shard.extend(&part);
    let length = part.len() as u64;
    shard.extend(index_of(&[(u64::MAX, u64::MAX), (2, length)]));
    let store = MemStore::default();
    store.put(Key::root().join("0/0").unwrap(), shard.clone());
    let indexes = Indexes::new(1 << 20, None);
    let found = indexes.locate(&store, &Key::root(), &array, &[1, 7]).unwrap();
    assert_eq!(found.range, Range::Part { offset: 3, length: 2 });
    assert_eq!(indexes.locate(&store, &Key::root(), &array, &[0, 0]).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(indexes.locate(&store, &Key::root(), &array, &[0, 7]).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn what_lies_in_a_shard_that_changed_is_found_by_its_new_index() {
    let array =
        array(&[1, 4], &[1, 1], Placement::Shards(vec![level(&[1, 2], &[1, 2], &[0, 1]), level(&[1, 2], &[1, 1], &[0, 1])]));
    let store = MemStore::default();
    let write = |gap: u64| {
        let part = [b"ab".to_vec(), index_of(&[(0, 1), (1, 1)])].concat();
        let length = part.len() as u64;
        let index = index_of(&[(gap, length), (gap + length, length)]);
        store.put(Key::root().join("0/0").unwrap(), [vec![b'-'; gap as usize], part.clone(), part, index].concat());
        gap + length
    };
    let indexes = Indexes::new(1 << 20, None);
    let locate = |x: u64| indexes.locate(&store, &Key::root(), &array, &[0, x]);
    write(0);
    let old = locate(0).unwrap();
    let second = write(5);
    // The index of the second part was never read: the outer one that is in memory tells where it lay.
    let new = locate(2).unwrap();
    assert_eq!(new.range, Range::Part { offset: second, length: 1 });
    assert_ne!(new.meta.version, old.meta.version);
    assert_eq!(locate(1).unwrap().range, Range::Part { offset: 6, length: 1 });
}

#[test]
fn an_index_within_an_index_that_was_looked_at_again_is_read_again() {
    let array =
        array(&[1, 2], &[1, 1], Placement::Shards(vec![level(&[1, 1], &[1, 2], &[0, 1]), level(&[1, 2], &[1, 1], &[0, 1])]));
    let store = MemStore::default();
    let write = |entries: &[(u64, u64)]| {
        let part = [b"abc".to_vec(), index_of(entries)].concat();
        let index = index_of(&[(0, part.len() as u64)]);
        store.put(Key::root().join("0/0").unwrap(), [part, index].concat());
    };
    let indexes = Indexes::new(1 << 20, Some(Duration::ZERO));
    let range = || indexes.locate(&store, &Key::root(), &array, &[0, 0]).unwrap().range;
    write(&[(0, 1), (1, 2)]);
    assert_eq!(range(), Range::Part { offset: 0, length: 1 });
    write(&[(1, 2), (0, 1)]);
    assert_eq!(range(), Range::Part { offset: 1, length: 2 });
}

#[test]
fn a_cube_must_be_that_of_its_array() {
    let cube = Cube { side: 2, compressed: true, block: 8, header: *b"WKW\x01\x11\x02\x01\x01" };
    let mut array = array(&[4, 4, 4], &[2, 2, 2], Placement::Cube(cube));
    array.stored.keys = Keys { style: Style::Cube, separator: b'/', suffix: ".wkw".into() };
    let data = 16 + 8 * 8u64;
    let file = |header: &[u8; 8], offset: u64, ends: &[u64]| {
        let mut file = header.to_vec();
        file.extend(offset.to_le_bytes());
        file.extend(ends.iter().flat_map(|n| n.to_le_bytes()));
        file.extend([7; 20]);
        file
    };
    let ends = [5, 5, 9, 12, 13, 14, 15, 1 << 63].map(|n: u64| n.saturating_add(data));
    let locate = |bytes: &[u8], index: &[u64]| {
        let store = MemStore::default();
        store.put(Key::root().join("z0/y0/x0.wkw").unwrap(), bytes.to_vec());
        Indexes::new(1 << 20, None).locate(&store, &Key::root(), &array, index)
    };
    let good = file(&cube.header, data, &ends);
    assert_eq!(locate(&good, &[0, 0, 0]).unwrap().range, Range::Part { offset: data, length: 5 });
    assert_eq!(locate(&good, &[0, 1, 0]).unwrap().range, Range::Part { offset: data + 5, length: 4 });
    // Without a byte, which is no block of LZ4.
    assert_eq!(locate(&good, &[0, 0, 1]).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(locate(&good, &[1, 1, 1]).unwrap_err().kind(), Kind::Corrupt);
    // Where the jump table lies, as the end of one block and the beginning of the next.
    let early = file(&cube.header, data, &[&[data - 8], &ends[1..]].concat());
    assert_eq!(locate(&early, &[0, 0, 0]).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(locate(&early, &[0, 0, 1]).unwrap_err().kind(), Kind::Corrupt);
    for bad in [
        file(b"XKW\x01\x11\x02\x01\x01", data, &ends),
        file(&cube.header, 17, &ends),
        good[..15].to_vec(),
        good[..50].to_vec(),
        Vec::new(),
    ] {
        assert_eq!(locate(&bad, &[0, 0, 0]).unwrap_err().kind(), Kind::Corrupt);
    }
}

/// What the store answered is as old as the question, however long it took.
#[test]
fn an_index_that_was_long_on_its_way_is_looked_at_again_as_soon() {
    const AGE: Duration = Duration::from_millis(50);
    let array = array(&[2, 2], &[1, 1], Placement::Shards(vec![level(&[2, 2], &[1, 1], &[0, 1])]));
    let key = Key::root().join("0/0").unwrap();
    let shard = |part: (u64, u64)| [b"abcdefgh".to_vec(), index_of(&[part; 4])].concat();
    for call in [Call::Get, Call::Head] {
        let memory = Arc::new(MemStore::default());
        let store = Faulty::new(memory.clone());
        let indexes = Indexes::new(1 << 20, Some(AGE));
        let range = || indexes.locate(&store, &Key::root(), &array, &[0, 0]).map(|part| part.range);
        memory.put(key.clone(), shard((0, 3)));
        if call == Call::Head {
            range().unwrap();
            std::thread::sleep(AGE);
        }
        store.always(call, key.clone(), Effect::Delay(AGE));
        assert_eq!(range().unwrap(), Range::Part { offset: 0, length: 3 });
        memory.put(key.clone(), shard((3, 5)));
        assert_eq!(range().unwrap(), Range::Part { offset: 3, length: 5 }, "{call:?}");
        memory.delete(&key);
        std::thread::sleep(AGE);
        assert_eq!(range().unwrap_err().kind(), Kind::NotFound);
    }
}
