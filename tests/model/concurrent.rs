//! Several threads ask one mount at once while another changes, damages and deletes what it shows, chunks are read ahead, and the
//! store takes its time now and then.
//!
//! Nobody knows in which order things happen, so each answer must be right for a state that its object had between the question and
//! the answer, or that the inode was pinned to before. What is read through one inode, by whomever, must be of one state.

use crate::damage::{self, Content, Held};
use crate::random::Random;
use crate::writers::{Array, Kind as Format, Layout};
use crate::{Target, World, handed, key};
use chunkmount::error::{Error, Kind};
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::{ObjectKind, Range, Store, mem::MemStore};
use chunkmount::vfs::{self, Attr, Vfs};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Threads that ask.
const READERS: u64 = 3;

struct Object {
    layout: Layout,
    fixed: bool,
    /// A change puts the object and its state while it has the lock.
    states: RwLock<Vec<Option<Held>>>,
}

/// What is known of an inode since the kernel knows it.
struct Inode {
    target: Target,
    /// The states it may stand for; nothing until it is pinned.
    states: Option<BTreeSet<usize>>,
    lookups: u64,
    opens: usize,
    /// Opens that have not been answered.
    opening: usize,
}

struct Mount {
    vfs: Arc<Vfs>,
    store: Arc<MemStore>,
    faulty: Arc<Faulty>,
    arrays: Vec<(Array, Vec<Object>)>,
    refresh: bool,
    fill: bool,
    /// The kernel forgets an inode when nobody is about to use it.
    kernel: RwLock<()>,
    inodes: Mutex<HashMap<u64, Inode>>,
    /// The state of an object when a chunk of it was first asked for since the kernel forgot it.
    since: Mutex<HashMap<Target, usize>>,
    failed: AtomicBool,
    trace: bool,
}

impl Mount {
    fn object(&self, target: &Target) -> &Object {
        &self.arrays[target.0].1[target.1]
    }

    /// The state that an object is in.
    fn now(&self, target: &Target) -> usize {
        self.object(target).states.read().len() - 1
    }

    fn content(&self, target: &Target, state: usize) -> Option<Content> {
        damage::content(&self.arrays[target.0].0, self.object(target).states.read()[state].as_ref(), &target.2, self.fill)
    }

    fn is_stored(&self, target: &Target, state: usize) -> bool {
        self.object(target).states.read()[state].as_ref().is_some_and(|held| held.has(&target.2))
    }

    fn is_foreign(&self, target: &Target) -> bool {
        matches!(self.arrays[target.0].0.kind, Format::Foreign)
    }

    /// An answer about a chunk between these states may be about any of those returned.
    fn about(&self, target: &Target, between: &RangeInclusive<usize>) -> RangeInclusive<usize> {
        let kept = self.arrays[target.0].0.has_parts();
        let first = match self.refresh {
            true => *between.start(),
            false if kept => 0,
            false if self.is_foreign(target) => self.since.lock().get(target).copied().unwrap_or(0),
            false => *between.start(),
        };
        first..=*between.end()
    }

    fn is_allowed(&self, e: &Error) -> bool {
        self.failed.load(Ordering::Relaxed) && e.kind() != Kind::NotFound && e.to_string().contains("by the script")
    }

    fn any(&self, random: &mut Random) -> Target {
        let array = random.below(self.arrays.len());
        let object = random.below(self.arrays[array].1.len());
        let parts = &self.arrays[array].1[object].layout.parts;
        Target(array, object, parts[random.below(parts.len())].clone())
    }

    fn told(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:?} {}", std::thread::current().id(), what());
        }
    }

    fn walk(&self, path: &str) -> Result<Attr, Error> {
        let mut attr = self.vfs.attr(vfs::ROOT)?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.vfs.lookup(attr.inode, name.as_bytes())?;
        }
        Ok(attr)
    }

    /// Whether the chunk may be damaged, or absent, in one of these states.
    fn may_be(&self, target: &Target, mut states: impl Iterator<Item = usize>, what: impl Fn(Option<Content>) -> bool) -> bool {
        states.any(|state| what(self.content(target, state)))
    }

    fn lookup(&self, target: &Target) -> Option<Attr> {
        let path = self.arrays[target.0].0.shown(&target.2);
        let before = self.now(target);
        self.since.lock().entry(target.clone()).or_insert(before);
        let result = self.walk(&path);
        let between = before..=self.now(target);
        let about = self.about(target, &between);
        self.told(|| format!("lookup {path} {between:?}: {result:?}"));
        match result {
            Ok(attr) => {
                assert_eq!(attr.kind, ObjectKind::File, "{path}");
                let present = |state: &usize| self.content(target, *state).is_some();
                let mut states: BTreeSet<usize> = about.clone().filter(present).collect();
                assert!(!states.is_empty(), "{path} is found and absent in all of {about:?}");
                let mut inodes = self.inodes.lock();
                let inode = inodes.entry(attr.inode).or_insert(Inode {
                    target: target.clone(),
                    states: None,
                    lookups: 0,
                    opens: 0,
                    opening: 0,
                });
                inode.lookups += 1;
                assert_eq!(inode.target, *target, "{path} has another's inode");
                if self.refresh || self.is_foreign(target) {
                    if let Some(known) = &inode.states {
                        // A chunk that is absent and shown all the same has one version only.
                        let absent = states.iter().any(|state| !self.is_stored(target, *state));
                        let same = |state: &&usize| states.contains(*state) || absent && !self.is_stored(target, **state);
                        let both: BTreeSet<usize> = known.iter().filter(same).copied().collect();
                        assert!(!both.is_empty(), "{path} has the inode of {known:?} and is of {states:?}");
                        states = both;
                    }
                    states.retain(|state| self.content(target, *state).is_some_and(|c| damage::length(&c) == attr.size));
                    inode.states = Some(states.clone());
                }
                let sized = |state: &usize| self.content(target, *state).is_some_and(|c| damage::length(&c) == attr.size);
                assert!(states.iter().any(sized), "{path} has {} bytes in none of {states:?}", attr.size);
                Some(attr)
            }
            Err(e) if e.kind() == Kind::NotFound => {
                assert!(self.may_be(target, about.clone(), |c| c.is_none()), "{path} is there in all of {about:?}: {e}");
                None
            }
            Err(e) => {
                let changed = e.kind() == Kind::Changed && between.start() < between.end();
                let damaged = e.kind() != Kind::Changed && self.may_be(target, about, |c| matches!(c, Some(Err(_))));
                assert!(changed || damaged || self.is_allowed(&e), "{path} {between:?}: {e}");
                None
            }
        }
    }

    /// Opens a chunk, reads of it, and closes it or adds it to the open ones.
    fn open(&self, target: &Target, random: &mut Random, open: &mut Vec<(u64, u64)>) {
        let Some(attr) = self.lookup(target) else { return };
        let before = self.now(target);
        // Nobody else has pinned the inode, and nobody is opening it so far.
        let alone = {
            let mut inodes = self.inodes.lock();
            let inode = inodes.get_mut(&attr.inode).unwrap();
            inode.opening += 1;
            inode.states.is_none() && inode.opening == 1
        };
        let result = self.vfs.open(attr.inode).map(|opened| (opened.handle, handed(&self.vfs, attr.inode, opened.whole)));
        let between = before..=self.now(target);
        self.told(|| format!("open {target:?} {} {between:?}: {result:?}", attr.inode));
        let mut inodes = self.inodes.lock();
        let inode = inodes.get_mut(&attr.inode).unwrap();
        inode.opening -= 1;
        // Who began later may have pinned the version before, out of the cache, into which it was read ahead, and which then dropped it.
        let alone = alone && inode.states.is_none() && inode.opening == 0;
        // Pinned by the first who asked since the kernel knows it.
        let since = if self.arrays[target.0].0.has_parts() { 0 } else { self.since.lock()[target] };
        let states = inode.states.clone().unwrap_or_else(|| (since..=*between.end()).collect());
        match result {
            Ok((handle, handed)) => {
                let agrees = |content: &Vec<u8>| handed.as_ref().is_none_or(|bytes| bytes == content);
                let sound =
                    |state: &usize| state <= between.end() && matches!(self.content(target, *state), Some(Ok(c)) if agrees(&c));
                let sound: BTreeSet<usize> = states.iter().copied().filter(sound).collect();
                assert!(!sound.is_empty(), "{target:?} {between:?} is opened and sound in none of {states:?}");
                inode.states = Some(sound);
                inode.opens += 1;
                drop(inodes);
                open.push((handle, attr.inode));
                if random.flip() {
                    self.read(handle, attr.inode, random);
                }
            }
            Err(e) if e.kind() == Kind::Changed => {
                let still = between.start() == between.end() && (alone || states.iter().all(|state| state == between.end()));
                assert!(!still, "{target:?} {between:?} has not changed from {states:?}: {e}");
            }
            Err(e) if e.kind() == Kind::NotFound => {
                let about = self.about(target, &between);
                let pinned = self.refresh || self.is_foreign(target);
                assert!(!pinned && self.may_be(target, about, |c| c.is_none()), "{target:?} {between:?} {states:?}: {e}");
            }
            Err(e) => {
                let either = states.iter().copied().chain(between.clone());
                let damaged = self.may_be(target, either, |c| matches!(c, Some(Err(_))));
                assert!(damaged || self.is_allowed(&e), "{target:?} {between:?} {states:?}: {e}");
            }
        }
    }

    fn read(&self, handle: u64, inode: u64, random: &mut Random) {
        let near = random.below(300) as u64;
        let offset = random.one(&[0, 0, near % 16, near]);
        let length = random.one(&[1, 7, 64, u32::MAX, u32::MAX]);
        let target = self.inodes.lock()[&inode].target.clone();
        let before = self.now(&target);
        let result = self.vfs.read(handle, offset, length, <[u8]>::to_vec);
        let between = before..=self.now(&target);
        let mut inodes = self.inodes.lock();
        let states = inodes.get_mut(&inode).unwrap().states.as_mut().unwrap();
        self.told(|| format!("read {target:?} {inode} {offset}+{length} {between:?} {states:?}: {result:?}"));
        match result {
            Ok(bytes) => {
                let part = |content: &[u8]| {
                    let start = usize::try_from(offset).unwrap().min(content.len());
                    content[start..content.len().min(start.saturating_add(length as usize))].to_vec()
                };
                let told = states.clone();
                states.retain(|state| matches!(self.content(&target, *state), Some(Ok(c)) if part(&c) == bytes));
                assert!(!states.is_empty(), "{target:?} at {offset}: {bytes:?} are of none of the versions {told:?}");
            }
            Err(e) if e.kind() == Kind::Changed => {
                let still = between.start() == between.end() && states.iter().all(|state| state == between.end());
                assert!(!still, "{target:?} {between:?} has not changed from {states:?}: {e}");
            }
            // Of a newer version that is damaged it cannot be told that it is newer.
            Err(e) => {
                let damaged = self.may_be(&target, between.clone(), |c| matches!(c, Some(Err(_))));
                assert!(damaged || self.is_allowed(&e), "{target:?} {between:?} {states:?}: {e}");
            }
        }
    }

    fn release(&self, (handle, inode): (u64, u64)) {
        self.vfs.release(handle);
        self.inodes.lock().get_mut(&inode).unwrap().opens -= 1;
    }

    /// The kernel forgets a file that nobody has open.
    fn forget(&self, random: &mut Random) {
        let _alone = self.kernel.write();
        let mut inodes = self.inodes.lock();
        let mut idle: Vec<u64> = inodes.iter().filter(|(_, inode)| inode.opens == 0).map(|(number, _)| *number).collect();
        idle.sort_unstable();
        if idle.is_empty() {
            return;
        }
        let number = random.one(&idle);
        let Inode { target, lookups, .. } = inodes.remove(&number).unwrap();
        self.told(|| format!("forget {number} {lookups}"));
        self.vfs.forget(number, lookups);
        self.since.lock().remove(&target);
    }

    fn entries(&self, path: &str) -> Option<Vec<(String, ObjectKind)>> {
        let handle = match self.walk(path).and_then(|attr| self.vfs.opendir(attr.inode)) {
            Ok(handle) => handle,
            Err(e) if e.kind() == Kind::NotFound => return Some(Vec::new()),
            Err(e) => {
                assert!(self.is_allowed(&e) || e.kind() == Kind::Changed, "{path}: {e}");
                return None;
            }
        };
        let mut entries = Vec::new();
        let all = self.vfs.readdir(handle, 2, &mut |entry| {
            entries.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.kind));
            false
        });
        all.unwrap();
        self.vfs.releasedir(handle);
        let names: BTreeSet<_> = entries.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), entries.len(), "{path} has names twice: {entries:?}");
        Some(entries)
    }

    fn files(&self, path: &str) -> Option<BTreeSet<String>> {
        let mut found = BTreeSet::new();
        for (name, kind) in self.entries(path)? {
            let path = format!("{path}/{name}");
            match kind {
                ObjectKind::Directory => found.extend(self.files(&path)?),
                ObjectKind::File if name.starts_with('.') || name == "zarr.json" => {}
                ObjectKind::File => drop(found.insert(path)),
            }
        }
        Some(found)
    }

    fn list(&self, random: &mut Random) {
        let which = 1 + random.below(self.arrays.len() - 1);
        let (array, objects) = &self.arrays[which];
        let before: Vec<usize> = objects.iter().map(|object| object.states.read().len() - 1).collect();
        let Some(mut found) = self.files(&array.path) else { return };
        let exact = self.refresh || matches!(array.kind, Format::Zarr2 { .. } | Format::Zarr3 { .. });
        for (number, (object, before)) in objects.iter().zip(before).enumerate() {
            let last = object.states.read().len() - 1;
            for index in &object.layout.parts {
                let target = Target(which, number, index.clone());
                let name = array.shown(index);
                let states = if exact { before..=last } else { 0..=last };
                // What cannot be told while it changes is listed.
                let doubt = array.has_parts() && (before < last || self.failed.load(Ordering::Relaxed));
                let right = match found.remove(&name) {
                    true => doubt || self.may_be(&target, states.clone(), |c| c.is_some()),
                    false => self.may_be(&target, states.clone(), |c| c.is_none()) || self.fill,
                };
                assert!(right, "{name} is listed wrongly, in {states:?}");
            }
        }
        assert!(found.is_empty(), "{found:?} are listed and were never there");
    }

    fn reader(&self, mut random: Random) {
        let mut open: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20 + random.below(30) {
            let kernel = self.kernel.read();
            match random.below(12) {
                0..=4 => {
                    let target = self.any(&mut random);
                    self.open(&target, &mut random, &mut open);
                }
                5 => drop(self.lookup(&self.any(&mut random))),
                6 | 7 if !open.is_empty() => {
                    let (handle, inode) = random.one(&open);
                    self.read(handle, inode, &mut random);
                }
                8 if !open.is_empty() => {
                    let which = random.below(open.len());
                    self.release(open.swap_remove(which));
                }
                9 => self.list(&mut random),
                10 => {
                    // One after the other, so that chunks are read ahead.
                    let which = random.below(self.arrays.len());
                    for (number, object) in self.arrays[which].1.iter().enumerate().take(6) {
                        for index in object.layout.parts.iter().take(4) {
                            self.open(&Target(which, number, index.clone()), &mut random, &mut open);
                        }
                    }
                    open.drain(..).for_each(|file| self.release(file));
                }
                11 => {
                    drop(kernel);
                    self.forget(&mut random);
                }
                _ => std::thread::yield_now(),
            }
        }
        let _kernel = self.kernel.read();
        open.into_iter().for_each(|file| self.release(file));
    }

    fn writer(&self, mut random: Random) {
        for _ in 0..10 + random.below(30) {
            match random.below(10) {
                0 => {
                    let time = Duration::from_micros(random.below(300) as u64);
                    self.disturb(&mut random, Effect::Delay(time));
                }
                1 if random.below(4) == 0 => {
                    self.failed.store(true, Ordering::Relaxed);
                    let kind = random.one(&[Kind::Unavailable, Kind::TimedOut, Kind::Denied]);
                    self.disturb(&mut random, Effect::Fail(kind, "by the script".into()));
                }
                1 => self.faulty.heal(),
                _ => self.change(&mut random),
            }
            if random.flip() {
                std::thread::sleep(Duration::from_micros(random.below(200) as u64));
            }
        }
        self.faulty.heal();
    }

    fn disturb(&self, random: &mut Random, effect: Effect) {
        let target = self.any(random);
        let object = key(&self.object(&target).layout.key);
        let call = random.one(&[None, Some(Call::Get), Some(Call::Head)]);
        self.faulty.add(Fault {
            call,
            key: Some(object),
            after: random.below(3) as u64,
            times: 1 + random.below(3) as u64,
            effect,
        });
    }

    fn change(&self, random: &mut Random) {
        let target = self.any(random);
        let (array, object) = (&self.arrays[target.0].0, self.object(&target));
        let path = key(&object.layout.key);
        let current = object.states.read().last().unwrap().clone();
        let (held, bytes) = match random.below(8) {
            0 | 1 if current.is_some() && !object.fixed => (None, None),
            2 | 3 if current.is_some() && !object.fixed => {
                let (held, mut bytes) = (current.unwrap(), Vec::new());
                self.store.get(&path, Range::All, None, u64::MAX, &mut bytes).unwrap();
                // Or the same once more.
                let harmed = damage::harmed(random, array, &object.layout, &held, &bytes);
                let (bytes, held) = harmed.filter(|_| random.flip()).unwrap_or((bytes, held));
                (Some(held), Some(bytes))
            }
            _ => {
                let (chunks, bytes) = array.write(random, &object.layout);
                (Some(chunks.into()), Some(bytes))
            }
        };
        let mut states = object.states.write();
        self.told(|| format!("change {path} to state {}: {held:?}", states.len()));
        match bytes {
            Some(bytes) => self.store.put(path, bytes),
            None => drop(self.store.delete(&path)),
        }
        states.push(held);
    }
}

/// One mount, its readers and its writer. The order of their steps is the machine's, so that a case may have to run often.
pub fn case(seed: u64, trace: bool) {
    let World { mut random, store, faulty, vfs, arrays, refresh, fill, .. } = World::new(seed, trace);
    let object =
        |object: crate::Object| Object { layout: object.layout, fixed: object.fixed, states: RwLock::new(object.states) };
    let mount = Mount {
        vfs: Arc::new(vfs),
        store,
        faulty,
        arrays: arrays.into_iter().map(|(array, objects)| (array, objects.into_iter().map(object).collect())).collect(),
        refresh,
        fill,
        kernel: RwLock::new(()),
        inodes: Mutex::default(),
        since: Mutex::default(),
        failed: AtomicBool::new(false),
        trace,
    };
    mount.vfs.read_ahead(random.below(3));
    std::thread::scope(|scope| {
        let mount = &mount;
        let reader = |number: u64| scope.spawn(move || mount.reader(Random::new(seed ^ number << 48)));
        let mut threads: Vec<_> = (1..=READERS).map(reader).collect();
        threads.push(scope.spawn(move || mount.writer(Random::new(seed ^ 0xff << 48))));
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).last();
        mount.vfs.end_reading_ahead();
        if let Some(failed) = failed {
            std::panic::resume_unwind(failed);
        }
    });
    mount.settled();
}

impl Mount {
    /// When all is quiet, a listing and a reader of everything find what is there.
    fn settled(&self) {
        for (number, inode) in self.inodes.lock().drain() {
            assert_eq!(inode.opens, 0);
            self.vfs.forget(number, inode.lookups);
        }
        self.since.lock().clear();
        let mut random = Random::new(0);
        self.list(&mut random);
        for which in 0..self.arrays.len() {
            for (number, object) in self.arrays[which].1.iter().enumerate() {
                for index in &object.layout.parts {
                    let mut open = Vec::new();
                    self.open(&Target(which, number, index.clone()), &mut random, &mut open);
                    open.into_iter().for_each(|file| self.release(file));
                }
            }
        }
    }
}
