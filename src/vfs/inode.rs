//! Inode numbers: most are arithmetic, the rest are in a table.
//!
//! A chunk, and a directory on the way to chunks, is packed into one number: a mark, the array's slot, and its place in the
//! grid. So a million chunks cost no memory here. What has no such number (documents, foreign files, directories, chunks of
//! grids beyond 2^40) is in a table, by parent and name, until the kernel forgets it.

use crate::array::{Array, Style};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;

/// The inode number of the root.
pub const ROOT: u64 = 1;

/// Marks a packed number. The top bit stays clear, so that signed 64-bit inode numbers hold it.
const PACKED: u64 = 1 << 62;
/// Bits of the place in the grid.
const PLACE_BITS: u32 = 40;
/// Bits of the array's slot.
const SLOT_BITS: u32 = 22;

/// Places in the chunk tree of one array, numbered: all prefixes of one index, then of two, and last the chunks.
#[derive(Debug)]
pub struct Places {
    grid: Vec<u64>,
    /// First place of each depth that has directories or files of its own; `None` where the array has too many.
    starts: Option<Vec<u64>>,
}

impl Places {
    /// The places of `array`.
    pub fn new(array: &Array) -> Self {
        let grid = array.grid();
        let mut starts = Vec::new();
        let mut next = 0u64;
        let mut fits = true;
        for depth in 0..=grid.len() {
            starts.push(next);
            // With a flat separator only whole indices have names; without any index only the `c` before them has.
            let nested = array.keys.nested() && (depth > 0 || array.keys.style == Style::C);
            if nested || depth == grid.len() {
                let count = grid.iter().take(depth).try_fold(1u64, |n, &g| n.checked_mul(g));
                match count.and_then(|c| next.checked_add(c)).filter(|n| *n <= 1 << PLACE_BITS) {
                    Some(n) => next = n,
                    None => fits = false,
                }
            }
        }
        Self { grid, starts: fits.then_some(starts) }
    }

    /// The number of a chunk or prefix of the array in `slot`; `None` where it cannot be packed.
    pub fn pack(&self, slot: usize, path: &[u64]) -> Option<u64> {
        let slot = u64::try_from(slot).ok().filter(|s| *s < 1 << SLOT_BITS)?;
        let start = self.starts.as_ref()?.get(path.len())?;
        let place = path.iter().zip(&self.grid).fold(0, |n, (i, g)| n * g + i);
        Some(PACKED | slot << PLACE_BITS | (start + place))
    }

    /// The chunk or prefix at `place`.
    fn path(&self, place: u64) -> Option<Vec<u64>> {
        let starts = self.starts.as_ref()?;
        let depth = starts.partition_point(|s| *s <= place).checked_sub(1)?;
        let mut rest = place.checked_sub(*starts.get(depth)?)?;
        let mut path = vec![0; depth];
        for (slot, g) in path.iter_mut().zip(&self.grid).rev() {
            *slot = rest.checked_rem(*g)?;
            rest /= g;
        }
        (rest == 0).then_some(path)
    }
}

/// Takes a packed number apart into slot and place.
pub fn unpack(inode: u64) -> Option<(usize, u64)> {
    if inode & PACKED == 0 {
        return None;
    }
    let rest = inode & (PACKED - 1);
    Some((usize::try_from(rest >> PLACE_BITS).ok()?, rest & ((1 << PLACE_BITS) - 1)))
}

/// The chunk or prefix at a place of an array.
pub fn path(places: &Places, place: u64) -> Option<Vec<u64>> {
    places.path(place)
}

/// What is in the table, by number and by what names it.
pub struct Table<K, V> {
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    next: u64,
    by_key: HashMap<K, u64>,
    entries: HashMap<u64, Entry<K, V>>,
}

struct Entry<K, V> {
    key: K,
    value: V,
    lookups: u64,
    keep: bool,
}

impl<K: Hash + Eq + Clone, V: Clone> Table<K, V> {
    /// An empty table; numbers start after the root's.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { next: ROOT + 1, by_key: HashMap::new(), entries: HashMap::new() }) }
    }

    /// What `key` names, with its number; counts a lookup, as the kernel does with each answer.
    pub fn find(&self, key: &K) -> Option<(u64, V)> {
        let mut state = self.state.lock();
        let inode = *state.by_key.get(key)?;
        let entry = state.entries.get_mut(&inode)?;
        entry.lookups += 1;
        Some((inode, entry.value.clone()))
    }

    /// Puts `value` under `key` if there is none yet, counts a lookup, and returns what is there. `keep` entries stay for ever.
    pub fn insert(&self, key: K, value: V, keep: bool) -> (u64, V) {
        let mut state = self.state.lock();
        if let Some(&inode) = state.by_key.get(&key)
            && let Some(entry) = state.entries.get_mut(&inode)
        {
            entry.lookups += 1;
            return (inode, entry.value.clone());
        }
        let inode = state.next;
        state.next += 1;
        state.by_key.insert(key.clone(), inode);
        state.entries.insert(inode, Entry { key, value: value.clone(), lookups: 1, keep });
        (inode, value)
    }

    /// What has the number `inode`.
    pub fn get(&self, inode: u64) -> Option<V> {
        self.state.lock().entries.get(&inode).map(|e| e.value.clone())
    }

    /// Puts `value` in the place of what has the number `inode`.
    pub fn replace(&self, inode: u64, value: V) {
        if let Some(entry) = self.state.lock().entries.get_mut(&inode) {
            entry.value = value;
        }
    }

    /// The kernel gives back `count` lookups of `inode`.
    pub fn forget(&self, inode: u64, count: u64) {
        let mut state = self.state.lock();
        let Some(entry) = state.entries.get_mut(&inode) else { return };
        entry.lookups = entry.lookups.saturating_sub(count);
        if entry.lookups == 0
            && !entry.keep
            && let Some(entry) = state.entries.remove(&inode)
        {
            state.by_key.remove(&entry.key);
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(grid: &[u64], nested: bool) -> Places {
        let mut array = crate::view::names::tests::array(grid, &vec![1; grid.len()], if nested { b'/' } else { b'.' }, false);
        array.shape = grid.to_vec();
        Places::new(&array)
    }

    #[test]
    fn every_chunk_and_prefix_has_a_number_of_its_own() {
        for nested in [false, true] {
            let places = places(&[3, 1, 4], nested);
            let mut seen = std::collections::HashSet::new();
            let mut paths = vec![];
            for a in 0..3 {
                paths.extend(nested.then(|| vec![a]));
                paths.extend(nested.then(|| vec![a, 0]));
                paths.extend((0..4).map(|c| vec![a, 0, c]));
            }
            for path in paths {
                let inode = places.pack(5, &path).unwrap();
                assert!(seen.insert(inode));
                let (slot, place) = unpack(inode).unwrap();
                assert_eq!((slot, places.path(place)), (5, Some(path)));
            }
        }
    }

    #[test]
    fn a_grid_that_does_not_fit_has_no_numbers() {
        assert!(places(&[1 << 27, 1 << 27, 1 << 27], true).pack(0, &[1, 2, 3]).is_none());
        assert!(places(&[], false).pack(0, &[]).is_some());
        assert!(unpack(ROOT).is_none() && unpack(u64::from(u32::MAX)).is_none());
    }

    #[test]
    fn the_table_forgets_when_the_kernel_does() {
        let table = Table::new();
        let (inode, _) = table.insert("a", 1, false);
        assert_eq!(table.find(&"a"), Some((inode, 1)));
        table.forget(inode, 1);
        assert_eq!(table.get(inode), Some(1));
        table.forget(inode, 1);
        assert_eq!((table.get(inode), table.find(&"a"), table.len()), (None, None, 0));
    }
}
