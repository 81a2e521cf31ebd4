//! WKW files: header, jump table and blocks.

use super::input::Input;
use super::metadata::check_array;
use chunkmount::array::Placement;
use chunkmount::cache::Budget;
use chunkmount::chunk::{self, Cost};
use chunkmount::error::Kind;
use chunkmount::format::{Context, wkw};
use chunkmount::placement::{Indexes, cube_index, morton};
use chunkmount::store::Key;
use chunkmount::store::mem::MemStore;

/// Most blocks along a side of a file, and bytes of a block, that are read.
const SIDE: u64 = 8;
const BLOCK: u64 = 64 << 10;

/// One byte chooses the order of axes, the rest is the file. The array has just one file, and that is its `header.wkw`.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let source_axes = input.byte() & 1 != 0;
    let bytes = input.0;
    let Ok(mut array) = wkw::array(bytes, &Context { source_axes, ..Context::default() }) else { return };
    check_array(&array);
    let Placement::Cube(cube) = array.stored.placement else { panic!("{array:?}") };
    let (side, block, compressed) = (cube.side, cube.block, cube.compressed);
    assert_eq!(bytes.first_chunk(), Some(&cube.header));
    if wkw::cover(&mut array, [1; 3], true).is_err() {
        return;
    }
    check_array(&array);
    if side > SIDE || block > BLOCK {
        return;
    }
    let blocks = side.pow(3);
    if let Ok(table) = cube_index(&cube, bytes) {
        assert_eq!(table.len() as u64 >= blocks, compressed);
    }
    let store = MemStore::new();
    store.put(Key::root().join("z0/y0/x0.wkw").unwrap_or_else(|e| panic!("{e}")), bytes);
    let (indexes, budget) = (Indexes::new(1 << 20, None), Budget::new(1 << 20));
    let mut seen = vec![false; blocks as usize];
    for n in 0..blocks {
        let [z, y, x] = [n / side / side, n / side % side, n % side];
        let slot = morton([x, y, z]);
        let mut index = vec![z, y, x];
        // The channels, which are all in one chunk.
        index.resize(array.shape.len(), 0);
        if source_axes {
            index.reverse();
        }
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
        match chunk::read(&store, &part, &array, None, &budget, &mut Cost::default(), |block| block) {
            Ok(read) => assert_eq!(read.length(), block),
            Err(e) => assert!(!matches!(e.kind(), Kind::Bug | Kind::Changed | Kind::NotFound), "{e}"),
        }
    }
}
