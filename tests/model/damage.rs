//! Damage of what is stored: objects that are cut, lengthened, have a bit flipped or a directory in their place, and documents that are
//! nonsense. Also what is written again as it was.
//!
//! What a damaged object must be is said here by how its format is checked. What it is exactly, of all that is allowed, is told by a
//! mount of that object alone: the mount under test must agree with it whatever happened before.

use crate::random::Random;
use crate::writers::{Array, Chunks, Kind, Layout};
use crate::{World, key};
use chunkmount::error;
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Range, Store};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Vfs};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// What an object holds: the chunks that can be read, and those that are there and cannot.
#[derive(Debug, Clone, Default)]
pub struct Held {
    chunks: Chunks,
    broken: BTreeSet<Vec<u64>>,
    harmed: bool,
}

impl From<Chunks> for Held {
    fn from(chunks: Chunks) -> Self {
        Self { chunks, ..Self::default() }
    }
}

impl Held {
    /// Whether a chunk is there.
    pub fn has(&self, index: &[u64]) -> bool {
        self.chunks.contains_key(index) || self.broken.contains(index)
    }
}

/// The bytes of a chunk, or the size of one that cannot be read.
pub type Content = Result<Vec<u8>, u64>;

/// What a chunk is when its object is in a state; `None` where it is absent.
pub fn content(array: &Array, state: Option<&Held>, index: &[u64], fill: bool) -> Option<Content> {
    let filled = fill && !matches!(array.kind, Kind::Foreign);
    match state {
        Some(held) if held.broken.contains(index) => Some(Err(array.bytes() as u64)),
        Some(Held { chunks, .. }) if chunks.contains_key(index) => Some(Ok(chunks[index].clone())),
        _ => filled.then(|| Ok(array.fill())),
    }
}

/// The size of a chunk's file.
pub fn length(content: &Content) -> u64 {
    content.as_ref().map_or_else(|size| *size, |bytes| bytes.len() as u64)
}

/// How right the bytes of a damaged chunk must be, if they are given at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    All,
    ButOneBit,
    /// Nothing would tell.
    Length,
}

/// What happens to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Cut,
    Lengthened,
    Flipped,
    Directory,
}

impl Way {
    /// The damaged bytes; none for a directory.
    fn harm(self, random: &mut Random, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match self {
            // An empty file of WKW says of a single block that it was taken back.
            Self::Cut => bytes.truncate(random.below(bytes.len() - 1) + 1),
            Self::Lengthened => bytes.extend((0..1 + random.below(20)).map(|_| random.byte())),
            Self::Flipped => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            Self::Directory => {}
        }
        bytes
    }

    fn allows(self, kind: &Kind) -> Right {
        let flipped = self == Self::Flipped;
        match kind {
            Kind::Foreign => Right::Length,
            Kind::Wkw { lz4: true, .. } if flipped => Right::Length,
            Kind::Zarr2 { compressor: "null", .. } | Kind::Zarr3 { gzip: false, checksum: false, .. } if flipped => {
                Right::ButOneBit
            }
            Kind::Shards { gzip: false, .. } | Kind::N5 { gzip: false, .. } | Kind::Wkw { .. } if flipped => Right::ButOneBit,
            _ => Right::All,
        }
    }
}

/// The whole object at `path`.
fn stored(store: &MemStore, path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.get(&key(path), Range::All, None, u64::MAX, &mut bytes).unwrap();
    bytes
}

/// Opens a chunk of a mount that nobody else uses: absent, broken, or its bytes.
fn ask(vfs: &Vfs, path: &str) -> error::Result<Vec<u8>> {
    let mut inode = vfs::ROOT;
    for name in path.split('/') {
        inode = vfs.lookup(inode, name.as_bytes())?.inode;
    }
    let handle = vfs.open(inode)?.handle;
    vfs.read(handle, 0, u32::MAX, <[u8]>::to_vec)
}

/// What an array has of one object in a mount of its own, and that this is allowed.
fn judge(array: &Array, layout: &Layout, before: &Held, way: Way, bytes: &[u8]) -> Held {
    let store = Arc::new(MemStore::new());
    array.documents().into_iter().for_each(|(name, bytes)| store.put(key(&name), bytes));
    store.put(key(&place(layout, way)), bytes.to_vec());
    let tree = Tree::new(store, tree::Options::default());
    let options =
        vfs::Options { fill_missing: false, refresh: None, retry: Duration::ZERO, cache_size: 1 << 20, name: "judge".into() };
    let vfs = Vfs::new(tree, options).unwrap();
    let mut held = Held { harmed: true, ..Held::default() };
    for index in &layout.parts {
        let told = format!("{array:?} {index:?} {way:?} {bytes:?}");
        match (ask(&vfs, &array.shown(index)), before.chunks.get(index)) {
            (Ok(got), Some(right)) => {
                let bits: u32 = right.iter().zip(&got).map(|(a, b)| (a ^ b).count_ones()).sum();
                let enough = match way.allows(&array.kind) {
                    Right::All => bits == 0,
                    Right::ButOneBit => bits <= 1,
                    Right::Length => true,
                };
                let same = right.len() == got.len() || matches!(array.kind, Kind::Foreign);
                assert!(same && enough, "{told} gives {got:?} in the place of {right:?}");
                held.chunks.insert(index.clone(), got);
            }
            (Ok(got), None) => panic!("{told} gives {got:?} in the place of nothing"),
            (Err(e), Some(_)) if e.kind() == error::Kind::NotFound => panic!("{told} is absent"),
            (Err(e), None) if e.kind() == error::Kind::NotFound => {}
            (Err(_), _) => drop(held.broken.insert(index.clone())),
        }
    }
    held
}

fn place(layout: &Layout, way: Way) -> String {
    format!("{}{}", layout.key, if way == Way::Directory { "/inside" } else { "" })
}

/// Damages the bytes of an object at random: what is stored then and what it holds. `None` for one that is damaged already.
pub fn harmed(random: &mut Random, array: &Array, layout: &Layout, held: &Held, bytes: &[u8]) -> Option<(Vec<u8>, Held)> {
    let way = random.one(&[Way::Cut, Way::Lengthened, Way::Flipped, Way::Flipped]);
    let bytes = (!held.harmed && bytes.len() > 1).then(|| way.harm(random, bytes))?;
    let held = judge(array, layout, held, way, &bytes);
    Some((bytes, held))
}

/// Which arrays have documents that are nonsense.
#[derive(Debug, Clone, Default)]
pub struct Ills {
    now: BTreeSet<usize>,
    ever: HashSet<usize>,
    /// Objects were damaged.
    harmed: bool,
    /// Bytes of objects as they were in a state.
    kept: HashMap<(usize, usize), (usize, Vec<u8>)>,
}

impl Ills {
    /// What a new mount knows.
    pub fn now(&self) -> Self {
        Self { now: self.now.clone(), ever: self.now.iter().copied().collect(), harmed: self.harmed, kept: HashMap::new() }
    }

    /// Whether any document was nonsense.
    pub fn any(&self) -> bool {
        !self.ever.is_empty()
    }

    /// Whether an error may be that of an object that is damaged.
    pub fn allow(&self, e: &error::Error) -> bool {
        self.harmed && e.kind() == error::Kind::Corrupt
    }
}

impl World {
    /// Whether an array may not be understood. What is understood once is not looked at again, but with `--refresh`.
    pub fn is_ill(&self, array: usize) -> bool {
        if self.refresh { self.ills.now.contains(&array) } else { self.ills.ever.contains(&array) }
    }

    /// Damages something.
    pub fn harm(&mut self) {
        match self.random.below(6) {
            0 => self.harm_document(),
            1 | 2 => self.write_again(),
            _ => self.harm_object(),
        }
    }

    fn harm_document(&mut self) {
        let which = 1 + self.random.below(self.arrays.len() - 1);
        let (array, _) = &self.arrays[which];
        let (name, mut bytes) = array.documents().remove(0);
        if self.ills.now.remove(&which) {
            self.told(|| format!("{name} is healed"));
            return self.store.put(key(&name), bytes);
        }
        match self.random.below(4) {
            0 => bytes = (0..1 + self.random.below(40)).map(|_| self.random.byte() | 0x80).collect(),
            1 => bytes.truncate(self.random.below(bytes.len() - 1)),
            // For N5 that would be someone else's file.
            2 if !matches!(array.kind, Kind::N5 { .. }) => bytes = b"[1, 2]".to_vec(),
            _ => {
                let text = String::from_utf8_lossy(&bytes);
                bytes = text
                    .replace("\"shape\":[", "\"shape\":[\"x\",")
                    .replace("\"dimensions\":[", "\"dimensions\":[{},")
                    .into_bytes();
                if matches!(array.kind, Kind::Wkw { .. }) {
                    bytes = vec![0; 16];
                }
            }
        }
        self.told(|| format!("{name} becomes {:?}", String::from_utf8_lossy(&bytes)));
        self.store.put(key(&name), bytes);
        self.ills.now.insert(which);
        self.ills.ever.insert(which);
    }

    /// Writes an object as it is, or as it was: another version with the same bytes.
    fn write_again(&mut self) {
        let target = self.any();
        let (which, object) = (target.0, target.1);
        let path = self.arrays[which].1[object].layout.key.clone();
        let states = &mut self.arrays[which].1[object].states;
        let now = states.len() - 1;
        if let Some((state, bytes)) = self.ills.kept.remove(&(which, object)) {
            let held = states[state].clone();
            states.push(held);
            self.store.delete(&key(&format!("{path}/inside")));
            self.store.put(key(&path), bytes);
            self.told(|| format!("{path} is written as in state {state}"));
        } else if states[now].as_ref().is_some_and(|held| !held.harmed) {
            self.ills.kept.insert((which, object), (now, stored(&self.store, &path)));
        }
    }

    fn harm_object(&mut self) {
        let target = self.any();
        let (array, objects) = &mut self.arrays[target.0];
        let object = &mut objects[target.1];
        let Some(Some(held)) = object.states.last() else { return };
        if held.harmed || object.fixed {
            return;
        }
        let path = object.layout.key.clone();
        let bytes = stored(&self.store, &path);
        let changed = if self.random.below(8) == 0 && !matches!(array.kind, Kind::Foreign) {
            let held = judge(array, &object.layout, held, Way::Directory, &[]);
            self.store.delete(&key(&path));
            self.store.put(key(&place(&object.layout, Way::Directory)), Vec::new());
            held
        } else {
            let Some((bytes, held)) = harmed(&mut self.random, array, &object.layout, held, &bytes) else { return };
            self.store.put(key(&path), bytes);
            held
        };
        if self.trace {
            eprintln!("{path} is damaged: {changed:?}");
        }
        object.states.push(Some(changed));
        self.ills.harmed = true;
    }

    /// Takes the directory away that is in an object's place.
    pub fn clear(store: &MemStore, layout: &Layout) {
        store.delete(&key(&place(layout, Way::Directory)));
    }
}
