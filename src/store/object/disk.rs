//! A folder on disk that keeps what was read of objects, so that a second mount of the same data begins warm.
//!
//! An entry is named by endpoint, key, version and range, so it is never out of date; only versions by a strong entity tag are
//! kept. Its content ends with that name, and has a SHA-256 in the index: what a crash, a full disk or somebody's editor left is
//! found out when it is read, removed, and asked of the store again. Files come to be by renaming and index lines by appending,
//! so that several mounts may share a folder. The library keeps entries and leaves their number to us: what was used longest ago
//! goes first. The bound is one for files with what they need beside their content, and may be passed by a sixteenth.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::shelf;
use crate::error::{Error, Result};
use crate::store::{Kept, Meta, ObjectKind, Range, Version, len64};
use cacache::{Metadata, RemoveOpts, WriteOpts};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Shorter ranges are not kept: they ask whether an object is still there.
const SHORT: u64 = 16;

/// What an entry takes beside its content, in bytes: a file of the index, and its share of directories.
const BESIDE: u64 = 8192;

/// How old the time of an entry that is used may be; then it is written anew, for other mounts to see.
const TOUCH: Duration = Duration::from_secs(86_400);

/// Unfinished files that are older were left by a crash.
const UNFINISHED: Duration = Duration::from_secs(3600);

/// See the module.
pub struct Disk {
    folder: PathBuf,
    limit: u64,
    /// When entries were used by this mount, by a hash of their names; milliseconds since the epoch.
    used: Mutex<HashMap<u64, u128>>,
    held: AtomicU64,
    since: AtomicU64,
    tidying: AtomicBool,
    failed: AtomicBool,
    hits: AtomicU64,
    bytes: AtomicU64,
    written: AtomicU64,
}

impl Disk {
    /// The cache in `folder`, made if it is absent, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`crate::error::Kind::Usage`] where nothing can be written there.
    pub fn open(folder: &Path, limit: u64) -> Result<Arc<Self>> {
        let refused = |e: std::io::Error| Error::usage(format!("nothing can be kept there: {e}")).about(folder.display());
        // Others have no business in it: their permissions are not asked when it answers.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(refused)?;
        let folder = folder.canonicalize().map_err(refused)?;
        drop(tempfile(&folder).map_err(refused)?);
        let disk = Arc::new(Self {
            folder,
            limit,
            used: Mutex::default(),
            held: AtomicU64::new(0),
            since: AtomicU64::new(0),
            tidying: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            written: AtomicU64::new(0),
        });
        disk.tidy_soon();
        Ok(disk)
    }

    /// Reads an entry into `into`; `None` where it is not there, or not whole.
    pub fn get(&self, endpoint: &str, key: &str, version: &Version, range: Range, into: &mut Vec<u8>) -> Option<Meta> {
        let name = name(endpoint, key, version, range)?;
        let found = cacache::metadata_sync(&self.folder, &name).ok()??;
        let content = cacache::read_hash_sync(&self.folder, &found.integrity);
        let (content, size, modified) = match content.ok().and_then(|content| open(content, &found)) {
            Some(opened) => opened,
            None => {
                log::debug!("{}: an entry was damaged or removed", self.folder.display());
                remove(&self.folder, &name);
                return None;
            }
        };
        *into = content;
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len64(into.len()), Ordering::Relaxed);
        let now = now();
        self.used.lock().insert(digest(&name), now);
        if now.saturating_sub(found.time) > TOUCH.as_millis() {
            let entry = WriteOpts::new().size(found.size).time(now).metadata(found.metadata).integrity(found.integrity);
            self.complain(cacache::index::insert(&self.folder, &name, entry).map(drop));
        }
        let modified = shelf::time(modified);
        Some(Meta { kind: ObjectKind::File, size, modified, version: version.clone(), seekable: true })
    }

    /// Keeps what was read. A failure is told once, and nothing more comes of it.
    pub fn put(self: &Arc<Self>, endpoint: &str, key: &str, meta: &Meta, range: Range, bytes: &[u8]) {
        let Some(name) = name(endpoint, key, &meta.version, range) else { return };
        let weight = weight(len64(bytes.len()).saturating_add(len64(name.len())));
        if weight > self.limit.checked_div(4).unwrap_or(0) {
            return;
        }
        let modified = meta.modified.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(0));
        let write = || {
            let options = WriteOpts::new().metadata(json!({ "size": meta.size, "modified": modified }));
            let mut writer = options.size(bytes.len().saturating_add(name.len())).open_sync(&self.folder, &name)?;
            let written = writer.write_all(bytes).and_then(|()| writer.write_all(name.as_bytes()));
            written.map_err(|e| cacache::Error::IoError(e, "writing".into()))?;
            writer.commit().map(drop)
        };
        if !self.complain(write()) {
            return;
        }
        self.written.fetch_add(1, Ordering::Relaxed);
        self.used.lock().insert(digest(&name), now());
        let held = self.held.fetch_add(weight, Ordering::Relaxed).saturating_add(weight);
        let since = self.since.fetch_add(weight, Ordering::Relaxed).saturating_add(weight);
        if held > self.limit || since > self.limit.checked_div(16).unwrap_or(0) {
            self.tidy_soon();
        }
    }

    /// Counters.
    pub fn kept(&self) -> Kept {
        Kept {
            hits: self.hits.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            held: self.held.load(Ordering::Relaxed),
        }
    }

    fn complain(&self, result: cacache::Result<()>) -> bool {
        if let Err(e) = &result
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            log::warn!("{}: cannot keep what was read: {}", self.folder.display(), super::wire::cause(e));
        }
        result.is_ok()
    }

    fn tidy_soon(self: &Arc<Self>) {
        if self.tidying.swap(true, Ordering::Relaxed) {
            return;
        }
        let disk = Arc::clone(self);
        let started = std::thread::Builder::new().name("disk-cache".into()).spawn(move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disk.tidy()));
            disk.tidying.store(false, Ordering::Relaxed);
        });
        if started.is_err() {
            self.tidying.store(false, Ordering::Relaxed);
        }
    }

    /// Counts what all mounts keep here, and removes what was used longest ago while that is too much.
    fn tidy(&self) {
        // One mount at a time: two would remove twice as much as there is too much.
        let Ok(lock) = std::fs::File::create(self.folder.join("lock")) else { return };
        if rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        self.since.store(0, Ordering::Relaxed);
        self.sweep();
        let mut entries = Vec::new();
        let mut held = 0_u64;
        {
            let used = self.used.lock();
            for entry in cacache::list_sync(&self.folder).flatten() {
                let time = used.get(&digest(&entry.key)).map_or(entry.time, |used| entry.time.max(*used));
                let weight = weight(len64(entry.size));
                held = held.saturating_add(weight);
                entries.push((time, weight, entry.key));
            }
        }
        if held > self.limit {
            entries.sort_unstable();
            // Some more than must be, so that it is not done for every entry.
            let goal = self.limit.saturating_sub(self.limit.checked_div(8).unwrap_or(0));
            for (_, weight, name) in &entries {
                if held <= goal {
                    break;
                }
                remove(&self.folder, name);
                self.used.lock().remove(&digest(name));
                held = held.saturating_sub(*weight);
            }
        }
        self.held.store(held, Ordering::Relaxed);
    }

    /// Removes files that were never finished.
    fn sweep(&self) {
        let Ok(files) = std::fs::read_dir(self.folder.join("tmp")) else { return };
        for file in files.flatten() {
            let age = file.metadata().and_then(|m| m.modified()).ok().and_then(|m| SystemTime::now().duration_since(m).ok());
            if age.is_some_and(|age| age > UNFINISHED) {
                // Somebody else may have removed it.
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// What an entry is called; `None` for what is not kept.
fn name(endpoint: &str, key: &str, version: &Version, range: Range) -> Option<String> {
    let Version::Tag(tag) = version else { return None };
    if !tag.starts_with('"') {
        return None;
    }
    let range = match range {
        Range::All => "all".to_owned(),
        Range::Part { length, .. } | Range::Suffix(length) if length < SHORT => return None,
        Range::Part { offset, length } => format!("{offset}+{length}"),
        Range::Suffix(length) => format!("-{length}"),
    };
    Some(json!([endpoint, key, tag.as_ref(), range]).to_string())
}

/// The bytes of an entry, and size and time of the object; `None` where it is another's.
fn open(mut content: Vec<u8>, found: &Metadata) -> Option<(Vec<u8>, u64, i64)> {
    let length = content.len().checked_sub(found.key.len())?;
    if content.len() != found.size || content.get(length..)? != found.key.as_bytes() {
        return None;
    }
    content.truncate(length);
    Some((content, found.metadata.get("size")?.as_u64()?, found.metadata.get("modified")?.as_i64()?))
}

/// Removes an entry. One without its content is left to be written anew: the library removes both or none.
fn remove(folder: &Path, name: &str) {
    if RemoveOpts::new().remove_fully(true).remove_sync(folder, name).is_err() {
        // A failure to remove is seen when it is read again.
        let _ = cacache::remove_sync(folder, name);
    }
}

fn weight(content: u64) -> u64 {
    content.checked_next_multiple_of(4096).unwrap_or(content).saturating_add(BESIDE)
}

/// A file in `folder`, to see whether one can be made.
fn tempfile(folder: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).open(folder.join("lock"))
}

fn digest(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis())
}

#[cfg(test)]
mod tests;
