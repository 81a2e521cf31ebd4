//! A range of an object: from the folder of `--disk-cache`, together with the ranges beside it, or by a request of its own.
//!
//! Reads are pinned to a version. Bytes of an object of which no version is told are read as a whole or not at all.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Known, Remote, changed, is_untold, merge, meta, version};
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Meta, Range, Version};
use object_store::path::Path;
use object_store::{GetRange, ObjectMeta};
use std::cell::Cell;
use std::time::Instant;

/// What is read: an object of which `file` is known, at the version `pin` where one is given, and of which at most `limit` bytes are taken.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    key: &'a Key,
    path: &'a Path,
    file: &'a Option<Known>,
    pin: Option<&'a Version>,
    limit: u64,
}

impl Remote {
    /// As [`crate::store::Store::get`].
    pub(super) fn read(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        if key.is_root() {
            return Err(Error::corrupt("a directory, where a file was expected"));
        }
        let (file, directory) = self.remembered(key);
        match (&file, directory) {
            (Some(None), Some(true)) => return Err(Error::corrupt("a directory, where a file was expected")),
            (Some(None), _) => return Err(Error::not_found()),
            _ => {}
        }
        let full = self.full(key)?;
        let path = self.path(&full)?;
        if let Some(disk) = &self.disk
            && let Some(version) = pin.or(file.as_ref().and_then(|known| Some(&known.as_ref()?.version)))
            && let Some(kept) = disk.get(&self.client.identity, &self.address.name(&full), version, range, into)
        {
            let length = crate::store::len64(into.len());
            if length > limit {
                return Err(Error::too_big(format!("{length} bytes; at most {limit} are read")));
            }
            return Ok(kept);
        }
        let wanted = Wanted { key, path: &path, file: &file, pin, limit };
        let answer = match (range, pin) {
            (Range::Part { offset, length }, Some(pin))
                if (1..=merge::PIECE.min(limit)).contains(&length) && !is_untold(pin) && offset.checked_add(length).is_some() =>
            {
                self.merge.read(key, pin, (offset, offset.saturating_add(length)), into, &|(start, end), into| {
                    let length = end.saturating_sub(start);
                    self.request(Wanted { limit: length, ..wanted }, Range::Part { offset: start, length }, into)
                })
            }
            _ => self.request(wanted, range, into),
        };
        if let (Ok(meta), Some(disk), false) = (&answer, &self.disk, into.is_empty()) {
            disk.put(&self.client.identity, &self.address.name(&full), meta, range, into);
        }
        answer
    }

    // Reads a range by a request of its own.
    fn request(&self, wanted: Wanted<'_>, range: Range, into: &mut Vec<u8>) -> Result<Meta> {
        let Wanted { key, path, file, pin, limit } = wanted;
        // Two parts of such an object could be of different ones, and nobody would know.
        if pin.is_some_and(is_untold) && range != Range::All {
            let size = self.present(key)?.size;
            let (start, end) = range.within(size);
            if start < end && (start, end) != (0, size) {
                let reason = "the server tells neither an entity tag nor a time of modification, without which no parts are read";
                return Err(Error::unsupported(reason));
            }
        }
        let asked = range;
        let range = match range {
            Range::All => None,
            Range::Part { length: 0, .. } | Range::Suffix(0) => return self.nothing(key, pin, into),
            Range::Suffix(n) if self.client.has_suffixes() => Some(GetRange::Suffix(n)),
            Range::Suffix(n) => {
                let (start, end) = Range::Suffix(n).within(self.present(key)?.size);
                if start == end {
                    return self.nothing(key, pin, into);
                }
                Some(GetRange::Bounded(start..end))
            }
            Range::Part { offset, length } => match offset.checked_add(length) {
                Some(end) => Some(GetRange::Bounded(offset..end)),
                None => Some(GetRange::Offset(offset)),
            },
        };
        let is_suffix = matches!(range, Some(GetRange::Suffix(_)));
        // Only strong tags can be demanded; all are compared.
        let tag = match pin {
            Some(Version::Tag(tag)) if tag.starts_with('"') => Some(tag.as_ref()),
            _ => None,
        };
        let other_length = Cell::new(false);
        let accept = |object: &ObjectMeta, length: u64| {
            let version = version(object);
            let known = pin.or(file.as_ref().and_then(|known| Some(&known.as_ref()?.version)));
            if is_untold(&version) && known.is_some_and(|known| !is_untold(known)) {
                let reason = "an answer without the entity tag or time that the object has, as if from something on the way";
                return Err(Error::new(Kind::Unavailable, reason));
            }
            if pin.is_some_and(|pin| *pin != version) {
                return Err(changed());
            }
            // What is undone on the way, or cut, keeps its tag.
            if file.as_ref().and_then(Option::as_ref).is_some_and(|known| known.version == version && known.size != object.size) {
                other_length.set(true);
                return Err(Error::new(Kind::Unavailable, "the server tells another length for the same version"));
            }
            if length > limit {
                return Err(Error::too_big(format!("{length} bytes; at most {limit} are read")));
            }
            Ok(())
        };
        let when = Instant::now();
        let begin = match range {
            Some(GetRange::Bounded(ref range)) => range.start,
            Some(GetRange::Offset(start)) => start,
            // The last bytes begin after the end of nothing only.
            Some(GetRange::Suffix(_)) | None => 0,
        };
        match self.client.read(path, range, tag, into, &accept) {
            Ok(Some(object)) => {
                let meta = meta(&object);
                if file.is_none() {
                    self.learn(key, when, Some(meta.clone()));
                }
                Ok(meta)
            }
            // Nothing begins after the end of the last bytes.
            Ok(None) if is_suffix && self.present(key)?.size > 0 => self.by_length(wanted, asked, into),
            // The object ends before the range. If it did not when it was looked at, it is another one now.
            Ok(None) if self.present(key)?.size > begin => {
                self.forget(key);
                Err(changed())
            }
            Ok(None) => self.nothing(key, pin, into),
            // Whoever asks again does so anew; where there are no listings, it was HEAD that told the other one.
            Err(e) if other_length.get() => {
                self.forget(key);
                if !self.client.lists() {
                    self.client.forget_head();
                }
                Err(e)
            }
            // There is another way.
            Err(e) if is_suffix && self.client.doubts_suffixes() && matches!(e.kind(), Kind::Unavailable | Kind::Denied) => {
                self.by_length(wanted, asked, into).map_err(|new| if new.kind() == Kind::Changed { new } else { e })
            }
            Err(e) => {
                if e.kind() == Kind::NotFound && file.is_none() {
                    self.learn(key, when, None);
                }
                Err(e)
            }
        }
    }

    // The last bytes by their place, where they could not be asked for otherwise.
    fn by_length(&self, wanted: Wanted<'_>, range: Range, into: &mut Vec<u8>) -> Result<Meta> {
        let (offset, end) = range.within(self.present(wanted.key)?.size);
        let part = Range::Part { offset, length: end.saturating_sub(offset) };
        let read = self.request(wanted, part, into)?;
        self.client.forget_suffixes();
        Ok(read)
    }

    // A range that holds no byte.
    fn nothing(&self, key: &Key, pin: Option<&Version>, into: &mut Vec<u8>) -> Result<Meta> {
        let meta = self.present(key)?;
        if pin.is_some_and(|pin| *pin != meta.version) {
            return Err(changed());
        }
        into.clear();
        Ok(meta)
    }
}
