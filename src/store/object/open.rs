//! Opening: what is at an address, and in which region its bucket is.
//!
//! A listing of one page tells a directory, and an object is looked for where there is none, or first where the name is that of
//! an archive. Where nothing can be listed, documents that open by their names tell a directory.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::client::Client;
use super::disk::Disk;
use super::{Address, Found, Options, Remote};
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Store};
use std::sync::Arc;
use std::time::Instant;

/// Opens what is at `address`. `object_first` where it is more likely an object than a directory.
///
/// # Errors
/// [`Kind::NotFound`] where there is nothing; others by their meaning, naming the endpoint.
pub fn open(address: Address, options: &Options, object_first: bool) -> Result<Found> {
    let disk = options.disk.as_ref().map(|(folder, limit)| Disk::open(folder, *limit)).transpose()?;
    let client = Client::new(&address, options, None)?;
    let remote = Remote::new(client, Arc::new(address), options, disk.clone());
    let told = |e: Error, remote: &Remote| match e.kind() {
        Kind::NotFound => Error::new(e.kind(), "nothing is there"),
        _ => Error::new(e.kind(), format!("{}: {}", remote.client.endpoint, e.reason())),
    };
    let e = match remote.first(object_first) {
        Ok(object) => return remote.found(object),
        Err(e) => e,
    };
    // A bucket of another region is refused by most, and they say where it is.
    let region = remote.client.counters.region.lock().clone();
    let other = region.filter(|region| remote.client.guessed && remote.client.region.as_ref() != Some(region));
    let Some(region) = other else { return Err(told(e, &remote)) };
    log::info!("{}: the bucket is in {region}", remote.client.endpoint);
    let client = Client::new(&remote.address, options, Some(region))?;
    let remote = Remote::new(client, Arc::clone(&remote.address), options, disk);
    match remote.first(object_first) {
        Ok(object) => remote.found(object),
        Err(e) => Err(told(e, &remote)),
    }
}

impl Remote {
    /// Whether there is an object at the address; else there are names below it.
    fn first(&self, object_first: bool) -> Result<bool> {
        let path = self.path(&self.address.key)?;
        let object = || match self.client.head(&path) {
            Ok(object) => {
                // Under the name that it has in the directory which holds it.
                let name = self.address.key.rsplit('/').next().unwrap_or_default();
                self.learn(&Key::root().join(name)?, Instant::now(), Some(super::meta(&object)));
                Ok(true)
            }
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        let object_first = object_first && !self.address.key.is_empty();
        if object_first && object()? {
            return Ok(true);
        }
        let unlisted = match self.shelf(&Key::root()) {
            // An empty bucket is an empty directory.
            Ok(shelf) if !shelf.is_empty() || shelf.marked || self.prefix.is_empty() => return Ok(false),
            Ok(_) if object_first || !object()? => return Err(Error::not_found()),
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == Kind::Denied || e.kind() == Kind::Unsupported => e,
            Err(e) => return Err(e),
        };
        // Not to be listed: what opens by name will do.
        let document = self.has_document(&Key::root());
        if matches!(document, Ok(true)) {
            log::warn!("{}: {}", self.name(), unlisted.reason());
            return Ok(false);
        }
        if !self.address.key.is_empty() && !object_first && matches!(object(), Ok(true)) {
            return Ok(true);
        }
        match document {
            Err(e) if unlisted.kind() == Kind::Unsupported => Err(e),
            _ if unlisted.kind() == Kind::Unsupported => Err(Error::not_found()),
            _ => Err(unlisted),
        }
    }

    fn found(mut self, object: bool) -> Result<Found> {
        if !object {
            return Ok(Found::Directory(self));
        }
        let (folder, name) = self.address.key.rsplit_once('/').unwrap_or(("", &self.address.key));
        let key = Key::root().join(name)?;
        self.prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        // What was listed was below the object's own name.
        self.shelves.lock().clear();
        Ok(Found::Object(self, key))
    }
}
