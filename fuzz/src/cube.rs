//! WKW files: header, jump table and blocks.

use super::input::{self, Input};
use chunkmount::array::{Cube, Placement, Style};
use chunkmount::cache::Budget;
use chunkmount::chunk::{self, Cost};
use chunkmount::codec::{Chain, from_n5};
use chunkmount::error::Kind;
use chunkmount::placement::{Indexes, cube_index, morton};
use chunkmount::store::Key;
use chunkmount::store::mem::MemStore;
use serde_json::json;

/// One byte chooses the array, the rest is the file.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let bits = input.byte();
    let bytes = input.0;
    let side = 1u64 << (bits & 3);
    let compressed = bits & 4 != 0;
    let block = if compressed { 8 * 2 } else { 8 };
    // The geometry is part of the array; a fuzzer should not have to guess it.
    let header: [u8; 8] = bytes.first_chunk().copied().unwrap_or(*b"WKW\x01\x11\x01\x01\x01");
    let cube = Cube { side, compressed, block, header };
    let blocks = side.pow(3);
    if let Ok(table) = cube_index(&cube, bytes) {
        assert_eq!(table.len() as u64 >= blocks, compressed || blocks == 0);
    }
    let edge = side * 2;
    let mut array = input::array(&[edge, edge, edge], &[2, 2, 2], if compressed { "<u2" } else { "|u1" }, '.');
    array.stored.placement = Placement::Cube(cube);
    array.stored.keys.style = Style::Cube;
    array.stored.keys.separator = b'/';
    array.stored.keys.suffix = ".wkw".to_owned();
    if compressed {
        let lz4 = [("compression".to_owned(), json!({"type": "lz4"}))].into_iter().collect();
        array.stored.chain = from_n5(&lz4).and_then(Chain::new).unwrap_or_else(|e| panic!("{e}"));
    }
    let store = MemStore::new();
    store.put(Key::root().join("z0/y0/x0.wkw").unwrap_or_else(|e| panic!("{e}")), bytes);
    let (indexes, budget) = (Indexes::new(1 << 20, None), Budget::new(1 << 20));
    let mut seen = vec![false; blocks as usize];
    for n in 0..blocks {
        let index = [n / side / side, n / side % side, n % side];
        let slot = morton([index[2], index[1], index[0]]);
        assert!(!std::mem::replace(&mut seen[slot as usize], true), "two blocks in one place");
        let part = match indexes.locate(&store, &Key::root(), &array, &index) {
            Ok(part) => part,
            Err(e) => {
                assert_ne!(e.kind(), Kind::Bug, "{e}");
                continue;
            }
        };
        let (start, end) = part.range.within(bytes.len() as u64);
        let number = |i: u64| bytes.get(16 + i as usize * 8..).and_then(|b| b.first_chunk()).map(|n| u64::from_le_bytes(*n));
        let data = 16 + if compressed { blocks * 8 } else { 0 };
        let expected = match compressed {
            true => slot.checked_sub(1).map_or(Some(data), number).zip(number(slot)),
            false => Some((data + slot * block, data + (slot + 1) * block)),
        };
        assert_eq!(Some((start, end)), expected);
        match chunk::read(&store, &part, &array, None, &budget, &mut Cost::default()) {
            Ok(read) => assert_eq!(read.bytes.len() as u64, block),
            Err(e) => assert!(!matches!(e.kind(), Kind::Bug | Kind::Changed | Kind::NotFound), "{e}"),
        }
    }
}
