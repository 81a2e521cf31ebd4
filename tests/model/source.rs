//! The source of a case: what it holds at first, how it changes, and when its store fails.

use super::random::Random;
use super::writers::{Array, Kind as Format};
use super::{Object, Target, World, damage, key};
use chunkmount::error::Kind;
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Vfs};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

impl World {
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random::new(seed);
        // By itself, so that older seeds without shards within shards are the cases that they were.
        let mut nesting = Random::new(seed.rotate_left(7));
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
                let mut array = Array::random(&mut random, &format!("g{group}/a{n}"), format);
                array.nest(&mut nesting);
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
                let fixed = matches!(array.kind, Format::Wkw { .. }) && n == last;
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
        let vfs = Vfs::new(
            tree,
            vfs::Options { fill_missing: fill, refresh: age, retry: Duration::ZERO, cache_size, name: "model".into() },
        )
        .unwrap();
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
            refused: false,
            ills: damage::Ills::default(),
            trace,
        }
    }

    pub fn change(&mut self) {
        let Target(array, object, _) = self.any();
        let (array, objects) = &mut self.arrays[array];
        let object = &mut objects[object];
        let there = object.states.last().unwrap().is_some();
        Self::clear(&self.store, &object.layout);
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

    pub fn disturb(&mut self) {
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
        self.refused |= kind == Kind::Denied;
    }
}
