//! NCZarr's marks for a dataset that has none (`--nczarr`): what lies in each of its groups is looked at, once.
//!
//! A dataset begins at the topmost of the groups that lie in each other. One that has marks of its own keeps them. What netCDF
//! cannot hold, and what cannot be understood, is left out, with a line in the log; what the store refuses is an error of the
//! documents that would have to tell of it, for it is not known to be nothing.

use super::peek::PEEKS;
use super::{Below, Directory, SURVEY, Tree};
use crate::array::{Format, Group, Node};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Context, nczarr};
use crate::store::{Key, ObjectKind};
use crate::view;
use crate::view::invented::Inventory;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// Most inventories that are remembered.
pub(super) const REMEMBERED: std::num::NonZeroUsize = std::num::NonZeroUsize::new(64).unwrap();

/// What was found in a group: nothing, where the group needs no marks.
pub(super) type Found = Option<Arc<Inventory>>;

impl Tree {
    /// A node as it is shown: with invented marks where it has none and they are asked for.
    pub(super) fn marked<'a>(&self, directory: &'a Directory) -> Result<Cow<'a, Node>> {
        let node = self.leveled(directory)?;
        if !self.options.nczarr {
            return Ok(node);
        }
        match &*node {
            Node::Group(group) => {
                let Some(inventory) = self.inventory(&directory.key)? else { return Ok(node) };
                let shown = view::ome::shown(group, directory.flavour);
                let attributes = shown.map(|shown| inventory.group_attributes(&shown, directory.flavour));
                Ok(Cow::Owned(Node::Group(Group { attributes, multiscale: None, ..group.clone() })))
            }
            Node::Array(array) => {
                let Some((above, name)) = directory.key.split_last() else { return Ok(node) };
                let (Some(inventory), Ok(name)) = (self.inventory(&above)?, std::str::from_utf8(name)) else { return Ok(node) };
                let attributes = array.attributes.as_ref().ok();
                match attributes.and_then(|a| inventory.array_attributes(name, array, a, directory.flavour)) {
                    Some(attributes) => {
                        let mut array = array.clone();
                        array.attributes = Ok(attributes);
                        Ok(Cow::Owned(Node::Array(array)))
                    }
                    None => Ok(node),
                }
            }
            Node::Directory => Ok(node),
        }
    }

    /// Whether a directory without documents holds arrays of Zarr: tensorstore writes no groups, but netCDF needs one.
    pub(super) fn holds_zarr_arrays(&self, key: &Key) -> Result<bool> {
        let names = match self.store.sample(key) {
            Ok(names) => names,
            Err(e) if matches!(e.kind(), Kind::Denied | Kind::NotFound) => return Ok(false),
            Err(e) => return Err(e),
        };
        let directories = names.iter().filter(|(_, kind)| *kind == ObjectKind::Directory).take(PEEKS as usize);
        for (name, _) in directories {
            let Some(documents) = self.glance(&key.join(name)?)? else { continue };
            let context = Context { wanted: self.options.wanted, ..Context::default() };
            if matches!(format::detect(&documents, &context), Ok(Node::Array(array)) if array.format != Format::N5) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What lies in the group `key`, `None` where it has marks of its own or is no group.
    pub(super) fn inventory(&self, key: &Key) -> Result<Found> {
        if let Some((made, found)) = self.inventories.lock().get(key)
            && self.options.refresh.is_none_or(|age| made.elapsed() < age)
        {
            return Ok(found.clone());
        }
        let made = Instant::now();
        let found = self.take_inventory(key)?.map(Arc::new);
        self.inventories.lock().put(key.clone(), (made, found.clone()));
        Ok(found)
    }

    fn take_inventory(&self, key: &Key) -> Result<Option<Inventory>> {
        let Some((group, path)) = self.group_in_dataset(key)? else { return Ok(None) };
        let mut inventory = Inventory::new(path, !self.options.noxarray);
        let mut left = SURVEY;
        let mut listing = self.list(key)?;
        if let Some(near) = &self.near {
            let others = near.others(key, &listing)?;
            others.iter().try_for_each(|name| listing.push(name.as_bytes(), ObjectKind::Directory))?;
        }
        for (name, kind) in listing.iter() {
            if kind != ObjectKind::Directory {
                continue;
            }
            left = left.checked_sub(1).ok_or_else(|| {
                Error::too_big(format!("more than {SURVEY} directories in a group; NCZarr's marks would name them all"))
                    .about(key)
            })?;
            let child = self.open(&key.join(name)?, &group.below)?;
            let node = self.leveled(&child);
            let added = match (std::str::from_utf8(name), node.as_deref()) {
                (_, Ok(Node::Directory)) => Ok(()),
                (Ok(name), Ok(Node::Array(array))) => inventory.add_array(name, array),
                (_, Ok(Node::Group(group))) if is_marked(group) => Err("it has marks of NCZarr already"),
                (_, Ok(Node::Group(Group { attributes: Err(_), .. }))) => Err("its attributes cannot be read"),
                (Ok(name), Ok(Node::Group(Group { attributes: Ok(attributes), .. }))) => inventory.add_group(name, attributes),
                (Err(_), Ok(_)) => Err("netCDF does not allow the name"),
                (_, Err(e)) if e.is_damage() => Err("it cannot be understood"),
                (_, Err(e)) => return Err(e.clone()),
            };
            if let Err(reason) = added {
                self.warn(format!("{}: not listed for netCDF: {reason}", child.key));
            }
        }
        Ok(Some(inventory))
    }

    /// The group `key`, with its name within its dataset; `None` where the dataset has marks of its own or there is no group.
    fn group_in_dataset(&self, key: &Key) -> Result<Option<(Directory, String)>> {
        let mut directory = self.open(&Key::root(), &Below::default())?;
        let mut path = top(&directory);
        for name in key.names() {
            let below = self.open(&directory.key.join(name)?, &directory.below)?;
            path = match (&below.node, path) {
                (Ok(Node::Group(group)), Some(path)) if !is_marked(group) => {
                    Some(format!("{path}/{}", String::from_utf8_lossy(name)))
                }
                _ => top(&below),
            };
            directory = below;
        }
        Ok(path.map(|path| (directory, path)))
    }

    /// Whether there is an array without axes in a group or below it; true when it holds more groups than `budget`.
    pub(super) fn invents_scalars(&self, key: &Key, inventory: &Inventory, budget: &mut u32) -> Result<bool> {
        if inventory.has_scalars() {
            return Ok(true);
        }
        for name in inventory.groups() {
            *budget = budget.saturating_sub(1);
            if *budget == 0 {
                return Ok(true);
            }
            let below = key.join(name)?;
            if let Some(inventory) = self.inventory(&below)?
                && self.invents_scalars(&below, &inventory, budget)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The name of a directory that is the root of a dataset without marks: empty.
fn top(directory: &Directory) -> Option<String> {
    matches!(&directory.node, Ok(Node::Group(group)) if !is_marked(group)).then(String::new)
}

fn is_marked(group: &Group) -> bool {
    let marks = [nczarr::SUPERBLOCK, nczarr::GROUP];
    group.attributes.as_ref().is_ok_and(|attributes| marks.iter().any(|mark| attributes.contains_key(*mark)))
}
