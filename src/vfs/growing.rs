//! Names of a very large directory, given out while the store still lists them.

use super::{Dir, Vfs};
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Listing, ObjectKind, Store, may_lead_on};
use crate::tree::Near;
use crate::view::names;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

/// Names that are handed over at a time.
const BATCH: usize = 4096;

/// Names that become more, in the order of the store.
#[derive(Default)]
pub struct Growing {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    listing: Listing,
    /// How it ended.
    end: Option<Result<()>>,
}

impl Growing {
    /// Those of at most `count` names from the `i`th on that are known. With `wait` none means the end of the listing; without, perhaps
    /// only that none of them has come yet. No lock is held after.
    ///
    /// # Errors
    /// The store's, once all names before have been given: a listing that breaks off is never short.
    pub fn some(&self, i: usize, count: usize, wait: bool) -> Result<Listing> {
        let mut state = self.state.lock();
        loop {
            let known = state.listing.part(i, count)?;
            match &state.end {
                Some(Err(e)) if known.is_empty() => return Err(e.clone()),
                None if known.is_empty() && wait => self.more.wait(&mut state),
                _ => return Ok(known),
            }
        }
    }

    /// Takes the names if there are at most `most`, as soon as that is known; `None` where there are more.
    ///
    /// # Errors
    /// The store's, where it fails before there are more.
    pub fn within(&self, most: usize) -> Result<Option<Listing>> {
        let mut state = self.state.lock();
        while state.listing.len() <= most && state.end.is_none() {
            self.more.wait(&mut state);
        }
        match &state.end {
            _ if state.listing.len() > most => Ok(None),
            Some(Err(e)) => Err(e.clone()),
            _ => Ok(Some(std::mem::take(&mut state.listing))),
        }
    }

    fn append(&self, names: &mut Listing) -> Result<()> {
        let mut state = self.state.lock();
        names.iter().try_for_each(|(name, kind)| state.listing.push(name, kind))?;
        drop(state);
        self.more.notify_all();
        *names = Listing::default();
        Ok(())
    }

    /// Adds the directories that are told and not among the names so far, which are all that the store lists.
    fn add(&self, near: &Near, key: &Key) -> Result<()> {
        let stored = self.state.lock().listing.clone();
        let mut others = Listing::default();
        near.others(key, &stored)?.iter().try_for_each(|name| others.push(name.as_bytes(), ObjectKind::Directory))?;
        self.append(&mut others)
    }

    fn end(&self, result: Result<()>) {
        self.state.lock().end = Some(result);
        self.more.notify_all();
    }
}

/// Ends a listing also when it panics, so that nobody waits for ever.
struct Ending(Arc<Growing>);

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.state.lock().end.is_none() {
            self.0.end(Err(Error::new(Kind::Bug, "a listing panicked")));
        }
    }
}

impl Vfs {
    /// Begins to list what a group holds, or the chunks of an array and what else lies beside them, in a thread that ends with the
    /// listing, or when nobody wants more of it; lists all of it at once where no thread can be started. What `near` tells besides comes last.
    pub(super) fn grow(dir: Arc<Dir>, store: Arc<dyn Store>, near: Option<Arc<Near>>) -> Arc<Growing> {
        let begin = || {
            let growing = Arc::new(Growing::default());
            let job = (Ending(growing.clone()), dir.clone(), store.clone(), near.clone());
            (growing, move || fill(&job.0.0, &job.1, &*job.2, job.3.as_deref()))
        };
        let (growing, job) = begin();
        match std::thread::Builder::new().name("listing".into()).spawn(job) {
            Ok(_) => growing,
            Err(e) => {
                log::debug!("no thread for a listing: {e}");
                let (growing, job) = begin();
                job();
                growing
            }
        }
    }
}

/// Lists all of a directory for [`Vfs::grow`].
fn fill(growing: &Arc<Growing>, dir: &Dir, store: &dyn Store, near: Option<&Near>) {
    let key = &dir.directory.key;
    let mut batch = Listing::default();
    let listed = std::thread::scope(|scope| {
        // Consolidated metadata of so many takes about as long to read as they take to list. Without a thread it is read after.
        let mut aside = near.map(|near| || near.prepare(key));
        let mut see = |name: &[u8], kind| {
            let Some(kind) = shown(dir, store, name, kind) else { return Ok(()) };
            batch.push(name, kind)?;
            if batch.len() < BATCH {
                return Ok(());
            }
            drop(aside.take().map(|aside| std::thread::Builder::new().spawn_scoped(scope, aside)));
            growing.append(&mut batch)?;
            if Arc::strong_count(growing) == 1 { Err(Error::usage("nobody wants more")) } else { Ok(()) }
        };
        store.list_each(key, &mut see)
    });
    let result = listed.and_then(|()| growing.append(&mut batch)).and_then(|()| match near {
        Some(near) => growing.add(near, key),
        None => Ok(()),
    });
    growing.end(result);
}

/// What a name of the source's directory is shown as; `None` where it is not, or stands for what is shown under another name.
fn shown(dir: &Dir, store: &dyn Store, name: &[u8], kind: ObjectKind) -> Option<ObjectKind> {
    let Some(chunks) = &dir.chunks else { return (!Vfs::is_covered(dir, name)).then_some(kind) };
    let array = &chunks.array;
    match names::parse_first(array, name) {
        Some(names::Path::Chunk(_)) => Some(ObjectKind::File),
        // A file in the place of a directory leads to no chunks.
        Some(names::Path::Prefix(_)) => may_lead_on(store, chunks.key.join(name), kind).then_some(ObjectKind::Directory),
        None => (!names::is_stored_chunk(array, name) && !Vfs::is_covered(dir, name)).then_some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_as_they_come_and_a_failure_is_told_after_them() {
        let growing = Growing::default();
        let name = |i| growing.some(i, 1, true).map(|known| known.get(0).map(|(name, _)| name.to_vec()));
        assert!(growing.some(0, 1, false).unwrap().is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..100 {
                    let mut batch = Listing::default();
                    batch.push(format!("{n}").as_bytes(), ObjectKind::File).unwrap();
                    growing.append(&mut batch).unwrap();
                }
                growing.end(Err(Error::new(Kind::Unavailable, "the disk")));
            });
            for n in 0..100 {
                assert_eq!(name(n).unwrap().as_deref(), Some(format!("{n}").as_bytes()));
            }
            // Never an end, which would be a short listing.
            assert_eq!(name(100).unwrap_err().kind(), Kind::Unavailable);
        });
        assert_eq!(growing.some(98, 10, true).unwrap().iter().map(|(name, _)| name).collect::<Vec<_>>(), [b"98", b"99"]);
        assert!(growing.within(99).unwrap().is_none());
        assert_eq!(growing.within(100).unwrap_err().kind(), Kind::Unavailable);
        let ended = Growing::default();
        let mut batch = Listing::default();
        batch.push(b"0", ObjectKind::File).unwrap();
        ended.append(&mut batch).unwrap();
        ended.end(Ok(()));
        assert_eq!(ended.within(1).unwrap().unwrap().len(), 1);
        assert!(ended.some(0, 1, true).unwrap().is_empty());
        let panicked = Arc::new(Growing::default());
        drop(Ending(panicked.clone()));
        assert_eq!(panicked.some(0, 1, true).err().map(|e| e.kind()), Some(Kind::Bug));
    }
}
