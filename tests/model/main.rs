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
mod listings;
mod random;
mod source;
mod writers;

use chunkmount::error::{Error, Kind, Result};
use chunkmount::store::faulty::Faulty;
use chunkmount::store::{Key, ObjectKind, mem::MemStore};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Attr, Vfs, Whole};
use damage::{Content, Held};
use random::Random;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use writers::{Array, Layout};

/// Cases that failed once: the test, the seed, and what it was.
const REGRESSIONS: &str = include_str!("regressions.txt");

/// How long new cases are tried where no number is asked for; each test has a number that are tried in any case.
const TIME: Duration = Duration::from_secs(40);

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
    /// It was open before.
    closed: bool,
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
    /// Faults were injected; answers cut short, and refusals, as well.
    failed: bool,
    cut: bool,
    refused: bool,
    ills: damage::Ills,
    trace: bool,
}

fn key(path: &str) -> Key {
    Key::root().join(path).unwrap()
}

/// What the kernel is given of a chunk that is opened, before the open is answered.
fn handed(vfs: &Vfs, inode: u64, whole: Option<Whole>) -> Option<Vec<u8>> {
    let (whole, mut got) = (whole?, None);
    let take = |bytes: &[u8]| {
        got = Some(bytes.to_vec());
        Ok(())
    };
    assert_eq!(vfs.hand_over(inode, &whole, take).unwrap(), got.is_some());
    got
}

impl World {
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
                        closed: false,
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
        let result = self.vfs.open(attr.inode).map(|opened| (opened.handle, opened.whole));
        self.told(|| format!("open {attr:?}: {:?}", result.as_ref().map(|(handle, _)| handle)));
        match result {
            Ok((handle, whole)) => {
                let states = if anything { self.present(&target) } else { vec![current] };
                let pin = self.pins.entry(attr.inode).or_insert(Pin { target: target.clone(), states, opens: 0, closed: false });
                pin.opens += 1;
                let states = pin.states.clone();
                let sound = self.sound(&target, states.clone());
                assert!(!sound.is_empty(), "{target:?} is opened and damaged, as {states:?}");
                self.pins.get_mut(&attr.inode).unwrap().states = sound;
                self.handles.push((handle, attr.inode));
                if let Some(bytes) = handed(&self.vfs, attr.inode, whole) {
                    self.handed(attr.inode, &bytes);
                }
                if self.random.flip() {
                    self.read(self.handles.len() - 1, 0, u32::MAX);
                }
            }
            Err(e) if e.kind() == Kind::Changed => {
                // What nobody has a byte of binds nobody.
                let pin = self.pins.get(&attr.inode);
                assert!(pin.is_some_and(|pin| pin.states != [current]), "{target:?} has not changed: {e}");
                self.vague.insert(attr.inode);
            }
            // The index in memory was of the version before, or a fault cut it, and it is read again.
            Err(e) if e.kind() == Kind::NotFound => {
                assert!(!self.is_exact(&target) && !self.pins.contains_key(&attr.inode), "{target:?}: {e}");
                let cut = self.cut && self.present(&target).len() < self.states(&target);
                assert!(cut || self.content(&target, current).is_none(), "{target:?}: {e}");
            }
            Err(e) => {
                assert!(self.is_allowed(&e) || self.is_damaged(&target, Some(attr.inode), &e), "{target:?}: {e}");
                self.vague.insert(attr.inode);
            }
        }
    }

    /// The kernel got all of a chunk when its file was opened: the first time, and nobody else may have it open.
    fn handed(&mut self, inode: u64, bytes: &[u8]) {
        let pin = &self.pins[&inode];
        assert!(pin.opens == 1 && !pin.closed, "{:?} is handed over while others may have pages of it", pin.target);
        let agree = |state: &usize| matches!(self.content(&pin.target, *state), Some(Ok(content)) if content == bytes);
        let states: Vec<usize> = pin.states.iter().copied().filter(agree).collect();
        assert!(!states.is_empty(), "{:?}: {bytes:?} are of none of the versions {:?}", pin.target, pin.states);
        self.pins.get_mut(&inode).unwrap().states = states;
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
            let pin = self.pins.get_mut(&inode).unwrap();
            (pin.opens, pin.closed) = (pin.opens - 1, true);
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
    let options = vfs::Options {
        fill_missing: world.fill,
        refresh: None,
        retry: Duration::ZERO,
        cache_size: 1 << 20,
        name: "model".into(),
    };
    let mut fresh = World {
        vfs: Vfs::new(tree, options).unwrap(),
        pins: HashMap::new(),
        lookups: HashMap::new(),
        handles: Vec::new(),
        vague: HashSet::new(),
        directories: Vec::new(),
        failed: false,
        cut: false,
        refused: false,
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
fn run(test: &str, least: u64, one: impl Fn(u64, bool)) {
    let first = number("CHUNKMOUNT_MODEL_SEED");
    let cases = number("CHUNKMOUNT_MODEL_CASES").or(first.map(|_| 1));
    let first = first.unwrap_or(20_261_121);
    let words = |line: &'static str| line.split_once(' ').filter(|(name, _)| *name == test);
    let seed = |(_, rest): (_, &str)| rest.split(' ').next().unwrap().parse().unwrap();
    let kept: Vec<u64> = REGRESSIONS.lines().filter_map(words).map(seed).filter(|_| cases != Some(1)).collect();
    let (start, mut done) = (Instant::now(), 0);
    for seed in kept.into_iter().chain(first..) {
        let more = cases.map_or_else(|| start.elapsed() < TIME || done < least, |cases| done < cases);
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
    run("a_mount_is_what_its_reference_is", 600, |seed, trace| case(seed, false, trace));
}

#[test]
fn what_is_damaged_fails_alone() {
    run("what_is_damaged_fails_alone", 1_100, |seed, trace| case(seed, true, trace));
}

#[test]
fn many_threads_get_one_version_or_another() {
    run("many_threads_get_one_version_or_another", 300, concurrent::case);
}
