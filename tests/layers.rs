//! The arrows between modules point one way. This is the list; `docs/architecture.md` draws it.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ARROWS: &[(&str, &[&str])] = &[
    ("main", &["cli", "command"]),
    ("command", &["cli", "logs", "mount", "vfs", "view", "store", "array"]),
    ("mount", &["cli", "logs", "fuse", "vfs", "tree", "source", "store"]),
    ("cli", &["array", "view"]),
    ("logs", &["cli"]),
    ("source", &["store", "format", "array"]),
    ("fuse", &["vfs", "store"]),
    ("vfs", &["tree", "view", "format", "chunk", "placement", "cache", "store", "array"]),
    ("tree", &["view", "format", "chunk", "store", "array"]),
    ("chunk", &["placement", "view", "format", "codec", "block", "cache", "store", "array"]),
    ("placement", &["view", "codec", "store", "array"]),
    ("view", &["format", "codec", "array"]),
    ("format", &["array", "codec"]),
    ("block", &["array"]),
    ("codec", &["array"]),
    ("array", &["codec"]),
    ("cache", &["store"]),
    ("store", &[]),
    ("error", &[]),
    ("limits", &[]),
    ("memory", &[]),
    ("pieces", &[]),
    ("lib", &[]),
];

#[test]
fn modules_use_only_what_lies_below_them() {
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut wrong = Vec::new();
    for file in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let relative = file.strip_prefix(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap().with_extension("");
        let room = relative.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        // Tests may use anything.
        if relative.ends_with("tests") {
            continue;
        }
        let allowed = arrows.get(room.as_str()).unwrap_or_else(|| panic!("{room} is in no list of arrows"));
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for line in text.lines().filter(|l| !l.trim_start().starts_with("//")) {
            for prefix in ["crate::", "chunkmount::"] {
                for (at, _) in line.match_indices(prefix) {
                    let rest = &line[at + prefix.len()..];
                    let names: Vec<&str> = match rest.strip_prefix('{') {
                        Some(list) => {
                            list.split('}').next().unwrap().split(',').map(|n| n.trim().split(':').next().unwrap()).collect()
                        }
                        None => vec![rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()],
                    };
                    for name in names {
                        let known = arrows.contains_key(name) && name != room;
                        if known && !["error", "limits", "memory", "pieces"].contains(&name) && !allowed.contains(&name) {
                            wrong.push(format!("{}: {room} -> {name}", file.display()));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_stay_readable() {
    for file in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{}: begins with no sentence of what it is", file.display());
        assert!(text.lines().count() <= 520, "{}: too long", file.display());
    }
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => {}
        }
    }
    found
}

/// `docs/architecture.md` names every file, or the folder that it lies in as `folder/…`, and the places where threads are started.
#[test]
fn the_map_is_complete() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let page = include_str!("../docs/architecture.md");
    let map = page.split("```").nth(1).unwrap();
    let mut named: Vec<&str> = map.split([' ', ',', '\n']).filter(|word| word.ends_with(".rs") || word.ends_with("/…")).collect();
    let starts = page.split("**Threads are started in").nth(1).unwrap().split("What they share").next().unwrap();
    for file in sources(root) {
        let relative = file.strip_prefix(root).unwrap().to_str().unwrap();
        if relative.ends_with("tests.rs") {
            continue;
        }
        named.retain(|name| *name != relative);
        let in_folder = |name: &&str| name.strip_suffix('…').is_some_and(|folder| relative.starts_with(folder));
        assert!(map.contains(&format!(" {relative}")) || named.iter().any(in_folder), "{relative} is not in the map");
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        if ["thread::spawn(", "thread::scope(", "thread::Builder", "new_multi_thread("].iter().any(|word| text.contains(word)) {
            let room = relative.split(['/', '.']).next().unwrap();
            assert!([relative, room].iter().any(|name| starts.contains(&format!("`{name}`"))), "{relative} starts threads");
        }
    }
    named.retain(|name| !name.ends_with('…'));
    assert!(named.is_empty(), "in the map, but not there: {named:?}");
}
