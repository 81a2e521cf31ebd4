//! Listings of the mount, compared with the reference, and names that must be absent.

use super::writers::indices;
use super::{Target, World, writers};
use chunkmount::error::Kind;
use chunkmount::store::ObjectKind;
use std::collections::BTreeSet;

impl World {
    /// The entries of an open directory from `offset` on, in pages of random lengths.
    pub fn page(&mut self, handle: u64, mut offset: u64) -> Vec<(String, ObjectKind)> {
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
    pub fn list(&mut self, path: &str) -> Option<Vec<(String, ObjectKind)>> {
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
    pub fn chunks(&mut self, path: &str) -> Option<BTreeSet<String>> {
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

    pub fn check_listing(&mut self) {
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
            // An array that was refused shows its files as they are, and none of them opens. What the store failed to tell is asked again.
            assert!((self.refused || self.cut) && !self.refresh, "{path}: {e}");
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
    pub fn check_snapshot(&mut self) {
        if let Some(which) = self.random.below(self.directories.len() + 1).checked_sub(1) {
            let (handle, entries) = self.directories.swap_remove(which);
            let offset = self.random.below(entries.len() + 3);
            assert_eq!(self.page(handle, offset as u64), entries.get(offset..).unwrap_or_default());
            self.vfs.releasedir(handle);
        }
    }

    pub fn check_absent(&mut self) {
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
}
