//! A whole store, walked as the kernel would: every directory is listed, every document read, every chunk decoded.

use super::input::Input;
use super::metadata::check_document;
use chunkmount::array::{Format, Formats};
use chunkmount::error::Kind;
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, ObjectKind, Store};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Attr, ROOT, Vfs};
use chunkmount::view::Flavour;
use std::sync::Arc;

/// Most files of a store.
const FILES: usize = 48;
/// Most names that are looked at, in one directory and altogether.
const NAMES: usize = 64;
const WALK: usize = 256;
/// Largest file that is opened, in bytes.
const FILE: u64 = 1 << 20;

/// Two bytes are the options, then come files, each a section with its path.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let (bits, more) = (input.byte(), input.byte());
    let wanted = [Formats::All, Formats::Only(Format::Zarr2), Formats::Only(Format::N5), Formats::Only(Format::Zarr3)]
        [usize::from(bits & 3)];
    let options = tree::Options {
        wanted: if more & 4 == 0 { wanted } else { Formats::Only(Format::Wkw) },
        source_axes: bits & 4 != 0,
        flavour: [None, Some(Flavour::Zarr2), Some(Flavour::Zarr3), None][usize::from(bits >> 3 & 3)],
        nczarr: bits & 32 != 0,
        noxarray: more & 2 != 0,
        refresh: None,
    };
    let store = MemStore::new();
    for (path, bytes) in input.sections().into_iter().take(FILES) {
        // What lies in a directory has no file in its way, and a file no directory.
        if let Ok(key) = Key::root().join(path) {
            let above = (1..path.len()).filter(|&i| path[i] == b'/').filter_map(|i| Key::root().join(&path[..i]).ok());
            above.for_each(|key| _ = store.delete(&key));
            if store.head(&key).is_err() {
                store.put(key, bytes);
            }
        }
    }
    let fill_missing = more & 1 == 1;
    let options_vfs =
        vfs::Options { fill_missing, refresh: None, retry: vfs::RETRY, cache_size: 4 << 20, name: "fuzz".to_owned() };
    let Ok(vfs) = Vfs::new(Tree::new(Arc::new(store), options), options_vfs) else { return };
    let mut directories = vec![ROOT];
    let mut left = WALK;
    while let Some(directory) = directories.pop() {
        for (name, kind) in list(&vfs, directory) {
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
            let attr = match vfs.lookup(directory, &name) {
                Ok(attr) => attr,
                Err(e) => {
                    let shown = String::from_utf8_lossy(&name);
                    assert!(!matches!(e.kind(), Kind::NotFound | Kind::Bug), "{shown:?} is listed, but: {e}");
                    continue;
                }
            };
            assert_eq!(attr.kind, kind, "{:?}", String::from_utf8_lossy(&name));
            match kind {
                ObjectKind::Directory => directories.push(attr.inode),
                ObjectKind::File => read(&vfs, &name, attr),
            }
            if let Err(e) = vfs.xattrs(attr.inode) {
                assert_ne!(e.kind(), Kind::Bug, "{e}");
            }
        }
    }
}

/// The names of a directory: each is one, and is there once.
fn list(vfs: &Vfs, inode: u64) -> Vec<(Vec<u8>, ObjectKind)> {
    let mut found = Vec::new();
    let handle = match vfs.opendir(inode) {
        Ok(handle) => handle,
        Err(e) => {
            assert!(!matches!(e.kind(), Kind::NotFound | Kind::Bug), "{e}");
            return found;
        }
    };
    let listed = vfs.readdir(handle, 2, &mut |entry| {
        found.push((entry.name.to_vec(), entry.kind));
        found.len() == NAMES
    });
    assert!(listed.is_ok(), "{listed:?}");
    vfs.releasedir(handle);
    let mut names: Vec<&[u8]> = found.iter().map(|(name, _)| name.as_slice()).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name twice");
    assert!(
        !names.iter().any(|name| name.is_empty() || name.contains(&b'/') || name.contains(&0) || matches!(*name, b"." | b".."))
    );
    found
}

/// A file that opens has just the bytes that were told.
fn read(vfs: &Vfs, name: &[u8], attr: Attr) {
    if attr.size > FILE {
        return;
    }
    let shown = String::from_utf8_lossy(name);
    let opened = match vfs.open(attr.inode) {
        Ok(opened) => opened,
        Err(e) => return assert!(!matches!(e.kind(), Kind::NotFound | Kind::Bug | Kind::Changed), "{shown:?}: {e}"),
    };
    let content = vfs.read(opened.handle, 0, u32::MAX, <[u8]>::to_vec);
    let content = content.unwrap_or_else(|e| panic!("{shown:?} opens, but: {e}"));
    assert!(attr.volatile || content.len() as u64 == attr.size, "{shown:?}: {} bytes of {}", content.len(), attr.size);
    if matches!(&*shown, ".zarray" | ".zgroup" | ".zattrs" | ".zmetadata" | "zarr.json") {
        check_document(&shown, &content);
    }
    let offset = attr.size / 2;
    let part = vfs.read(opened.handle, offset, 7, <[u8]>::to_vec).unwrap_or_default();
    assert!(attr.volatile || content.get(offset as usize..).is_some_and(|rest| rest.starts_with(&part)), "{shown:?}");
    vfs.release(opened.handle);
}
