//! Random hierarchies under random operations and changes, compared with a reference after each step.
//!
//! A case is made from its seed alone: arrays of all formats by the writers of this folder in a store in memory, then lookups, opens,
//! reads, listings by pages, forgets, faults of the store, and objects that are replaced, deleted and added. What must hold is
//! docs/semantics.md: bytes of one version or "changed", absence only where something is absent, listings that miss nothing stable.
//! `damage` harms what is stored as well, and `concurrent` has several threads ask at once.
//!
//! As many cases run as some seconds allow; `CHUNKMOUNT_MODEL_CASES` is how many otherwise, `CHUNKMOUNT_MODEL_SEED` the first of them. The
//! message of one that fails names it; by itself it tells its steps. Those that failed once are in `regressions.txt`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod concurrent;
mod damage;
mod writers;

use chunkmount::error::{Error, Kind, Result};
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::{Key, ObjectKind, mem::MemStore};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Attr, Vfs};
use damage::{Content, Held};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use writers::{Array, Layout, indices};

/// Cases that failed once: the test, the seed, and what it was.
const REGRESSIONS: &str = include_str!("regressions.txt");

/// How long new cases are tried where no number is asked for, and how many are at least.
const TIME: Duration = Duration::from_secs(6);
const LEAST: u64 = 50;

/// A small generator of numbers (xorshift64*), the same on every machine.
pub struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        // Seeds that follow each other must not begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n.max(1)
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// An object through time: what it held after each change. A change is a version.
struct Object {
    layout: Layout,
    states: Vec<Option<Held>>,
    /// It stays: the extent of its array depends on it.
    fixed: bool,
}

/// A chunk: array, object, and index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Target(usize, usize, Vec<u64>);

/// What an inode may stand for: the states of its object that agree with all that was read.
struct Pin {
    target: Target,
    states: Vec<usize>,
    opens: usize,
}

struct World {
    random: Random,
    store: Arc<MemStore>,
    faulty: Arc<Faulty>,
    vfs: Vfs,
    arrays: Vec<(Array, Vec<Object>)>,
    refresh: bool,
    fill: bool,
    pins: HashMap<u64, Pin>,
    /// Lookups that the kernel has to give back.
    lookups: HashMap<u64, u64>,
    /// Inodes whose first open failed by a fault: they may be pinned or not.
    vague: HashSet<u64>,
    handles: Vec<(u64, u64)>,
    directories: Vec<(u64, Vec<(String, ObjectKind)>)>,
    /// Faults were injected; answers cut short as well.
    failed: bool,
    cut: bool,
    ills: damage::Ills,
    trace: bool,
}

fn key(path: &str) -> Key {
    Key::root().join(path).unwrap()
}

impl World {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let store = Arc::new(MemStore::new());
        let mut arrays = vec![(Array::foreign("notes"), Vec::new())];
        for group in 0..1 + random.below(2) {
            let format = random.below(5);
            let (name, document) =
                [(".zgroup", r#"{"zarr_format": 2}"#), ("zarr.json", r#"{"zarr_format": 3, "node_type": "group"}"#)]
                    [usize::from(matches!(format, 1 | 2))];
            if format < 3 && random.flip() {
                store.put(key(&format!("g{group}/{name}")), document.as_bytes().to_vec());
            }
            for n in 0..1 + random.below(2) {
                let array = Array::random(&mut random, &format!("g{group}/a{n}"), format);
                arrays.push((array, Vec::new()));
            }
        }
        let mut largest = 0;
        for (array, objects) in &mut arrays {
            largest = largest.max(array.bytes());
            array.documents().into_iter().for_each(|(name, bytes)| store.put(key(&name), bytes));
            let layouts = array.objects();
            let last = layouts.len() - 1;
            for (n, layout) in layouts.into_iter().enumerate() {
                let fixed = matches!(array.kind, writers::Kind::Wkw { .. }) && n == last;
                let mut state = None;
                if fixed || random.below(3) > 0 {
                    let (chunks, bytes) = array.write(&mut random, &layout);
                    store.put(key(&layout.key), bytes);
                    state = Some(chunks.into());
                }
                objects.push(Object { layout, states: vec![state], fixed });
            }
        }
        let (refresh, fill) = (random.flip(), random.below(4) == 0);
        let age = refresh.then_some(Duration::ZERO);
        // Blocks come and go in the cache; none is so large that its readers take turns.
        let cache_size = 64 * (largest as u64 + 1) * random.one(&[1, 1, 8]);
        let faulty = Arc::new(Faulty::new(store.clone()));
        let tree = Tree::new(faulty.clone(), tree::Options { refresh: age, ..tree::Options::default() });
        let vfs = Vfs::new(tree, vfs::Options { fill_missing: fill, refresh: age, cache_size, name: "model".into() }).unwrap();
        if trace {
            eprintln!("refresh {refresh}, fill {fill}, cache {cache_size}");
            arrays.iter().for_each(|(array, _)| eprintln!("{array:?}"));
        }
        Self {
            random,
            store,
            faulty,
            vfs,
            arrays,
            refresh,
            fill,
            pins: HashMap::new(),
            lookups: HashMap::new(),
            vague: HashSet::new(),
            handles: Vec::new(),
            directories: Vec::new(),
            failed: false,
            cut: false,
            ills: damage::Ills::default(),
            trace,
        }
    }

    fn told(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", what());
        }
    }

    fn is_stored(&self, Target(array, object, index): &Target, state: usize) -> bool {
        self.arrays[*array].1[*object].states[state].as_ref().is_some_and(|held| held.has(index))
    }

    /// What a chunk holds when its object is in a state; `None` where it is absent.
    fn content(&self, Target(array, object, index): &Target, state: usize) -> Option<Content> {
        let (array, objects) = &self.arrays[*array];
        damage::content(array, objects[*object].states[state].as_ref(), index, self.fill)
    }

    fn states(&self, target: &Target) -> usize {
        self.arrays[target.0].1[target.1].states.len()
    }

    fn current(&self, target: &Target) -> usize {
        self.states(target) - 1
    }

    /// States in which the chunk is there.
    fn present(&self, target: &Target) -> Vec<usize> {
        (0..self.states(target)).filter(|s| self.content(target, *s).is_some()).collect()
    }

    /// Whether the answer to a lookup is about now: all but what an index that is kept says.
    fn is_exact(&self, target: &Target) -> bool {
        self.refresh || !self.arrays[target.0].0.has_parts()
    }

    /// Whether an inode is one version from the first lookup on, and not from the first open on.
    fn is_versioned(&self, target: &Target) -> bool {
        self.refresh || matches!(self.arrays[target.0].0.kind, writers::Kind::Foreign)
    }

    /// The states among these in which the chunk can be read.
    fn sound(&self, target: &Target, mut states: Vec<usize>) -> Vec<usize> {
        states.retain(|s| self.content(target, *s).is_some_and(|content| content.is_ok()));
        states
    }

    /// Whether the chunk cannot be read in one of the states that its inode may stand for, and the error is one of damage.
    fn is_damaged(&self, target: &Target, inode: Option<u64>, e: &Error) -> bool {
        let mut states = match inode.and_then(|inode| self.pins.get(&inode)) {
            Some(pin) => pin.states.clone(),
            None if self.is_exact(target) => Vec::new(),
            None => self.present(target),
        };
        // A directory in the place of what was there is no newer version of it.
        states.extend(self.content(target, self.current(target)).map(|_| self.current(target)));
        !matches!(e.kind(), Kind::NotFound | Kind::Changed) && self.sound(target, states.clone()) != states
    }

    /// Errors that come from the script, at once or remembered. Absence never does.
    fn is_allowed(&self, e: &Error) -> bool {
        self.failed && e.kind() != Kind::NotFound && (self.cut || e.to_string().contains("by the script"))
    }

    fn any(&mut self) -> Target {
        let array = self.random.below(self.arrays.len());
        let object = self.random.below(self.arrays[array].1.len());
        let parts = self.arrays[array].1[object].layout.parts.clone();
        Target(array, object, parts[self.random.below(parts.len())].clone())
    }

    fn walk(&mut self, path: &str) -> Result<Attr> {
        let mut attr = self.vfs.attr(vfs::ROOT)?;
        let mut above: Vec<Attr> = Vec::new();
        let mut result = Ok(());
        for name in path.split('/').filter(|name| !name.is_empty()) {
            match self.vfs.lookup(attr.inode, name.as_bytes()) {
                Ok(found) => {
                    above.push(found);
                    attr = found;
                }
                Err(e) => {
                    result = Err(e);
                    break;
                }
            }
        }
        // The kernel forgets directories at once here, and files when it is told to.
        for Attr { inode, kind, .. } in above {
            match kind {
                ObjectKind::Directory => self.vfs.forget(inode, 1),
                ObjectKind::File => *self.lookups.entry(inode).or_default() += 1,
            }
        }
        result.map(|()| attr)
    }

    fn lookup(&mut self, target: &Target) -> Option<Attr> {
        let path = self.arrays[target.0].0.shown(&target.2);
        let result = self.walk(&path);
        self.told(|| format!("lookup {path}: {result:?}"));
        let now = self.content(target, self.current(target)).is_some();
        match result {
            Ok(attr) => {
                if self.is_ill(target.0) && attr.kind == ObjectKind::Directory {
                    return None;
                }
                assert_eq!(attr.kind, ObjectKind::File, "{path}");
                let doubtful = self.failed || self.is_ill(target.0);
                if doubtful && target.0 > 0 && self.vfs.xattrs(attr.inode).is_ok_and(|xattrs| xattrs.len() == 1) {
                    // The array could not be understood: its files are there and cannot be opened.
                    let e = self.vfs.open(attr.inode).err().unwrap();
                    assert!(self.is_allowed(&e) || self.is_ill(target.0) && e.kind() != Kind::NotFound, "{path}: {e}");
                    return None;
                }
                let known = self.pins.contains_key(&attr.inode) || self.lookups[&attr.inode] > 1;
                if self.is_exact(target) {
                    assert!(now || known && !self.refresh, "{path} is found and is absent");
                }
                assert!(!self.present(target).is_empty(), "{path} is found and never was");
                if self.is_versioned(target) {
                    let (state, all) = (self.current(target), self.present(target));
                    // A chunk that is absent and shown all the same has one version only.
                    let absent: Vec<usize> = (0..=state).filter(|s| !self.is_stored(target, *s)).collect();
                    let same = |s: usize| s == state || absent.contains(&s) && absent.contains(&state);
                    let pin = self.pins.entry(attr.inode).or_insert_with(|| Pin {
                        target: target.clone(),
                        states: if known && !self.refresh { all } else { vec![state] },
                        opens: 0,
                    });
                    assert!(
                        pin.target == *target && (!self.refresh || pin.states.iter().all(|s| same(*s))),
                        "{path} has another's inode"
                    );
                }
                let states = self.pins.get(&attr.inode).map_or_else(|| self.present(target), |pin| pin.states.clone());
                let sizes: Vec<_> = states.iter().filter_map(|s| self.content(target, *s)).map(|c| damage::length(&c)).collect();
                assert!(sizes.contains(&attr.size), "{path} has {} bytes and not {sizes:?}", attr.size);
                Some(attr)
            }
            Err(e) if e.kind() == Kind::NotFound => {
                let ever = self.present(target).len() < self.states(target);
                assert!(if self.is_exact(target) { !now } else { ever }, "{path} is there: {e}");
                None
            }
            Err(e) => {
                assert!(self.is_allowed(&e) || self.is_ill(target.0) || self.is_damaged(target, None, &e), "{path}: {e}");
                None
            }
        }
    }

    fn open(&mut self) {
        let target = self.any();
        let Some(attr) = self.lookup(&target) else { return };
        let current = self.current(&target);
        let vague = self.vague.contains(&attr.inode);
        let anything = (vague || !self.is_exact(&target)) && !self.is_versioned(&target);
        let result = self.vfs.open(attr.inode).map(|opened| opened.handle);
        self.told(|| format!("open {attr:?}: {result:?}"));
        match result {
            Ok(handle) => {
                let states = if anything { self.present(&target) } else { vec![current] };
                let pin = self.pins.entry(attr.inode).or_insert(Pin { target: target.clone(), states, opens: 0 });
                pin.opens += 1;
                let states = pin.states.clone();
                let sound = self.sound(&target, states.clone());
                assert!(!sound.is_empty(), "{target:?} is opened and damaged, as {states:?}");
                self.pins.get_mut(&attr.inode).unwrap().states = sound;
                self.handles.push((handle, attr.inode));
                if self.random.flip() {
                    self.read(self.handles.len() - 1, 0, u32::MAX);
                }
            }
            Err(e) if e.kind() == Kind::Changed => {
                let changed = match self.pins.get(&attr.inode) {
                    Some(pin) => pin.states != [current],
                    None => anything && self.states(&target) > 1,
                };
                assert!(changed, "{target:?} has not changed: {e}");
                self.vague.insert(attr.inode);
            }
            // An index that a fault cut is read again: what was doubtful is absent.
            Err(e) if e.kind() == Kind::NotFound => {
                assert!(self.cut && !self.is_exact(&target) && !self.pins.contains_key(&attr.inode), "{target:?}: {e}");
                assert!(self.present(&target).len() < self.states(&target), "{target:?}: {e}");
            }
            Err(e) => {
                assert!(self.is_allowed(&e) || self.is_damaged(&target, Some(attr.inode), &e), "{target:?}: {e}");
                self.vague.insert(attr.inode);
            }
        }
    }

    fn read(&mut self, which: usize, offset: u64, length: u32) {
        let Some(&(handle, inode)) = self.handles.get(which) else { return };
        let result = self.vfs.read(handle, offset, length, <[u8]>::to_vec);
        let pin = &self.pins[&inode];
        let (target, current) = (pin.target.clone(), self.current(&pin.target));
        self.told(|| format!("read {target:?} {offset}+{length}: {:?}, may be {:?}", result.as_ref().map(Vec::len), pin.states));
        match result {
            Ok(bytes) => {
                let part = |content: Vec<u8>| {
                    let start = offset.min(content.len() as u64) as usize;
                    content[start..content.len().min(start.saturating_add(length as usize))].to_vec()
                };
                let agree = |s: &usize| self.content(&target, *s).and_then(|c| c.ok()).map(part).as_ref() == Some(&bytes);
                let states: Vec<usize> = pin.states.iter().copied().filter(agree).collect();
                assert!(!states.is_empty(), "{target:?} at {offset}: {bytes:?} are of none of the versions {:?}", pin.states);
                self.pins.get_mut(&inode).unwrap().states = states;
            }
            Err(e) if e.kind() == Kind::Changed => assert!(pin.states != [current], "{target:?} has not changed: {e}"),
            Err(e) => assert!(self.is_allowed(&e) || self.is_damaged(&target, None, &e), "{target:?}: {e}"),
        }
    }

    fn release(&mut self, which: usize) {
        if which < self.handles.len() {
            let (handle, inode) = self.handles.swap_remove(which);
            self.vfs.release(handle);
            self.pins.get_mut(&inode).unwrap().opens -= 1;
        }
    }

    /// The kernel forgets only what nobody has open.
    fn forget(&mut self) {
        let mut inodes: Vec<u64> = self.lookups.keys().copied().collect();
        inodes.retain(|inode| self.pins.get(inode).is_none_or(|pin| pin.opens == 0));
        inodes.sort_unstable();
        if !inodes.is_empty() {
            let inode = self.random.one(&inodes);
            let count = self.lookups.remove(&inode).unwrap();
            self.told(|| format!("forget {inode} {count}"));
            self.vfs.forget(inode, count);
            self.pins.remove(&inode);
            self.vague.remove(&inode);
        }
    }

    fn change(&mut self) {
        let Target(array, object, _) = self.any();
        let (array, objects) = &mut self.arrays[array];
        let object = &mut objects[object];
        let there = object.states.last().unwrap().is_some();
        World::clear(&self.store, &object.layout);
        if there && !object.fixed && self.random.below(3) == 0 {
            self.store.delete(&key(&object.layout.key));
            object.states.push(None);
        } else {
            let (chunks, bytes) = array.write(&mut self.random, &object.layout);
            self.store.put(key(&object.layout.key), bytes);
            object.states.push(Some(chunks.into()));
        }
        if self.trace {
            eprintln!("change {}: {:?}", object.layout.key, object.states.last().unwrap());
        }
    }

    fn disturb(&mut self) {
        let kind = self.random.one(&[Kind::Unavailable, Kind::TimedOut, Kind::Denied]);
        let cut = self.random.below(4) == 0;
        let effect = if cut { Effect::Short(self.random.below(20)) } else { Effect::Fail(kind, "by the script".into()) };
        let target = self.any();
        let of = &self.arrays[target.0].1[target.1].layout.key;
        let key = self.random.flip().then(|| key(of));
        let call = self.random.one(&[None, Some(Call::Get), Some(Call::Head), Some(Call::List)]);
        let (after, times) = (self.random.below(4) as u64, 1 + self.random.below(3) as u64);
        self.told(|| format!("fault {call:?} {key:?} {after} {times} {effect:?}"));
        self.faulty.add(Fault { call, key, after, times, effect });
        self.failed = true;
        self.cut |= cut;
    }

    /// The entries of an open directory from `offset` on, in pages of random lengths.
    fn page(&mut self, handle: u64, mut offset: u64) -> Vec<(String, ObjectKind)> {
        let mut entries = Vec::new();
        loop {
            let (mut room, before) = (1 + self.random.below(5), offset);
            let page = self.vfs.readdir(handle, before, &mut |entry| {
                if room == 0 {
                    return true;
                }
                room -= 1;
                offset = entry.next;
                entries.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.kind));
                false
            });
            page.unwrap();
            if offset == before {
                return entries;
            }
        }
    }

    /// All entries of a directory; `None` where that failed by a fault, or it is gone.
    fn list(&mut self, path: &str) -> Option<Vec<(String, ObjectKind)>> {
        let handle = self.walk(path).and_then(|attr| self.vfs.opendir(attr.inode));
        let handle = match handle {
            Ok(handle) => handle,
            Err(e) => {
                let ill = self.ills.any();
                assert!(e.kind() == Kind::NotFound || self.is_allowed(&e) || ill, "{path}: {e}");
                return (e.kind() == Kind::NotFound).then(Vec::new);
            }
        };
        let entries = self.page(handle, 0);
        let names: BTreeSet<_> = entries.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), entries.len(), "{path} has names twice: {entries:?}");
        assert!(entries[0].0 == "." && entries[1].0 == "..");
        self.directories.push((handle, entries.clone()));
        Some(entries.into_iter().skip(2).collect())
    }

    /// Files below an array that can be chunks, by path.
    fn chunks(&mut self, path: &str) -> Option<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for (name, kind) in self.list(path)? {
            let path = format!("{path}/{name}");
            match kind {
                ObjectKind::Directory => found.extend(self.chunks(&path)?),
                ObjectKind::File if name.starts_with('.') || name == "zarr.json" => {}
                ObjectKind::File => drop(found.insert(path)),
            }
        }
        Some(found)
    }

    fn check_listing(&mut self) {
        let which = self.random.below(self.arrays.len());
        let path = self.arrays[which].0.path.clone();
        if which == 0 {
            let Some(entries) = self.list("") else { return };
            let target = Target(0, 0, Vec::new());
            let there = self.content(&target, self.current(&target)).is_some();
            assert_eq!(entries.iter().any(|(name, _)| *name == path), there);
            return;
        }
        self.faulty.heal();
        if self.is_ill(which) {
            // It shows its files as they are; all that is asked for is an answer.
            let _ = self.list(&path);
            return;
        }
        let document = if matches!(self.arrays[which].0.kind, writers::Kind::Zarr3 { .. } | writers::Kind::Shards { .. }) {
            "zarr.json"
        } else {
            ".zarray"
        };
        if let Err(e) = self.walk(&format!("{path}/{document}")).and_then(|attr| self.vfs.open(attr.inode)) {
            // An array that a fault kept from being understood shows its files as they are, and none of them opens.
            assert!(self.failed && !self.refresh, "{path}: {e}");
            return;
        }
        let Some(mut found) = self.chunks(&path) else { return };
        self.told(|| format!("list {path}: {found:?}"));
        // Where the axes are reversed or chunks lie in parts, a walk over the store is kept.
        let (array, objects) = &self.arrays[which];
        let exact = self.refresh || matches!(array.kind, writers::Kind::Zarr2 { .. } | writers::Kind::Zarr3 { .. });
        for (number, object) in objects.iter().enumerate() {
            for index in &object.layout.parts {
                let target = Target(which, number, index.clone());
                let present = self.present(&target);
                let listed = found.remove(&array.shown(index));
                let (now, always) = (present.contains(&self.current(&target)), present.len() == self.states(&target));
                let right = if exact { listed == now } else { listed && !present.is_empty() || !listed && !always };
                assert!(right, "{} is {} listed", array.shown(index), if listed { "wrongly" } else { "not" });
            }
        }
        assert!(found.is_empty(), "{found:?} are listed and were never there");
    }

    /// A directory that is open stays as it was, whatever page of it is asked for.
    fn check_snapshot(&mut self) {
        if let Some(which) = self.random.below(self.directories.len() + 1).checked_sub(1) {
            let (handle, entries) = self.directories.swap_remove(which);
            let offset = self.random.below(entries.len() + 3);
            assert_eq!(self.page(handle, offset as u64), entries.get(offset..).unwrap_or_default());
            self.vfs.releasedir(handle);
        }
    }

    fn check_absent(&mut self) {
        let which = self.random.below(self.arrays.len());
        let (array, _) = &self.arrays[which];
        let mut index = indices(&array.grid()).pop().unwrap();
        let path = array.shown(&index);
        let odd = match index.last_mut() {
            Some(last) if self.random.flip() => {
                *last += 1;
                array.shown(&index)
            }
            _ => format!("{path}{}", self.random.one(&["x", "/0", ".0", ".", "/.zarray"])),
        };
        let result = self.walk(&odd);
        self.told(|| format!("absent {odd}: {result:?}"));
        let Err(e) = result else { panic!("{odd} is found") };
        let damaged = self.is_ill(which) || self.ills.allow(&e);
        assert!(e.kind() == Kind::NotFound || self.is_allowed(&e) || damaged, "{odd}: {e}");
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=4 => self.open(),
            5..=9 => {
                let which = self.random.below(self.handles.len());
                let near = self.random.below(3100) as u64;
                let offset = self.random.one(&[0, 1, near % 16, near % 128, near, u64::MAX - near]);
                let length = self.random.one(&[0, 1, 7, 64, 4096, u32::MAX]);
                self.read(which, offset, length);
            }
            10 | 11 => {
                let which = self.random.below(self.handles.len());
                self.release(which);
            }
            12 => self.forget(),
            13 => {
                let target = self.any();
                self.lookup(&target);
            }
            14 => self.check_listing(),
            15 => self.check_snapshot(),
            16 => self.check_absent(),
            17 if self.random.below(4) == 0 => self.disturb(),
            17 => self.faulty.heal(),
            _ => self.change(),
        }
    }
}

/// A case with `harm` has what is stored damaged, too.
fn case(seed: u64, harm: bool, trace: bool) {
    let mut world = World::new(seed, trace);
    for _ in 0..40 + world.random.below(80) {
        if harm && world.random.below(6) == 0 { world.harm() } else { world.step() }
    }
    // What the store holds now is read by a new mount.
    let tree = Tree::new(world.store.clone(), tree::Options::default());
    let options = vfs::Options { fill_missing: world.fill, refresh: None, cache_size: 1 << 20, name: "model".into() };
    let mut fresh = World {
        vfs: Vfs::new(tree, options).unwrap(),
        pins: HashMap::new(),
        lookups: HashMap::new(),
        handles: Vec::new(),
        vague: HashSet::new(),
        directories: Vec::new(),
        failed: false,
        cut: false,
        refresh: true,
        ills: world.ills.now(),
        ..world
    };
    for (_, objects) in &mut fresh.arrays {
        objects.iter_mut().for_each(|object| drop(object.states.drain(..object.states.len() - 1)));
    }
    fresh.check_listing();
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Runs cases of one test until there are enough, those that failed once first.
fn run(test: &str, time: Duration, one: impl Fn(u64, bool)) {
    let first = number("CHUNKMOUNT_MODEL_SEED");
    let cases = number("CHUNKMOUNT_MODEL_CASES").or(first.map(|_| 1));
    let first = first.unwrap_or(20_261_121);
    let words = |line: &'static str| line.split_once(' ').filter(|(name, _)| *name == test);
    let seed = |(_, rest): (_, &str)| rest.split(' ').next().unwrap().parse().unwrap();
    let kept: Vec<u64> = REGRESSIONS.lines().filter_map(words).map(seed).filter(|_| cases != Some(1)).collect();
    let (start, mut done) = (Instant::now(), 0);
    for seed in kept.into_iter().chain(first..) {
        let more = cases.map_or_else(|| start.elapsed() < time || done < LEAST, |cases| done < cases);
        if !more {
            break;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| one(seed, cases == Some(1))));
        assert!(outcome.is_ok(), "run this case again by CHUNKMOUNT_MODEL_SEED={seed} cargo test --test model {test}");
        done += 1;
    }
    println!("{test}: {done} cases in {:?}", start.elapsed());
}

#[test]
fn a_mount_is_what_its_reference_is() {
    run("a_mount_is_what_its_reference_is", TIME, |seed, trace| case(seed, false, trace));
}

#[test]
fn what_is_damaged_fails_alone() {
    run("what_is_damaged_fails_alone", TIME, |seed, trace| case(seed, true, trace));
}

#[test]
fn many_threads_get_one_version_or_another() {
    run("many_threads_get_one_version_or_another", TIME, concurrent::case);
}
