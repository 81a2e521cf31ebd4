//! The documents that a directory shows: rendered with it, or made when they are first looked at, where they tell of more than the node.
//!
//! What the store fails to tell meanwhile is an error of the document and not remembered: a document without it would be wrong for the
//! life of the mount.

use super::{Directory, SURVEY, Tree};
use crate::array::{Format, Group, Node};
use crate::error::{Error, Kind, Result};
use crate::format;
use crate::store::Key;
use crate::view::{self, Flavour, nczarr};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A document as the mount shows it.
#[derive(Debug)]
pub struct Document {
    /// Its name.
    pub name: &'static str,
    /// Its content, or why there is none; made when first looked at.
    pub(super) content: OnceLock<Result<Arc<Vec<u8>>>>,
    /// Held by who makes it; the store's failure to let it be made, for those who wait meanwhile.
    making: Mutex<Option<(Instant, Error)>>,
}

impl Document {
    fn new(name: &'static str, content: Option<Result<Arc<Vec<u8>>>>) -> Self {
        Self { name, content: content.map(OnceLock::from).unwrap_or_default(), making: Mutex::default() }
    }

    /// What is wrong with it, as far as that is known.
    pub(super) fn fault(&self) -> Option<&Error> {
        self.content.get()?.as_ref().err().filter(|e| e.kind() != Kind::NotFound)
    }
}

impl Tree {
    /// The content of the document `name` of `directory`; `None` when it shows no such document.
    pub fn document(&self, directory: &Directory, name: &[u8]) -> Option<(&'static str, Result<Arc<Vec<u8>>>)> {
        let document = directory.documents.iter().find(|d| d.name.as_bytes() == name)?;
        let asked = Instant::now();
        let known = || document.content.get().map(|content| (document.name, content.clone()));
        if let Some(known) = known() {
            return Some(known);
        }
        let mut making = document.making.lock();
        if let Some(known) = known() {
            return Some(known);
        }
        if let Some((_, e)) = making.as_ref().filter(|(when, _)| *when > asked) {
            return Some((document.name, Err(e.clone())));
        }
        let consolidated = matches!(&directory.node, Ok(Node::Group(group)) if group.consolidated);
        let content = match document.name {
            view::CONSOLIDATED => self.consolidated(directory),
            view::ZARR3 if consolidated => self.consolidated(directory),
            name => self.late(directory, name),
        };
        let content = content.map(Arc::new).map_err(|e| e.about(named(&directory.key, document.name)));
        match &content {
            // Readers look at each node then, and meet what is wrong where it is.
            Err(e) if e.kind() == Kind::NotFound && document.name == view::CONSOLIDATED => {
                self.warn(e.to_string());
                drop(document.content.set(content.clone()));
            }
            // It is made again for the next one who asks.
            Err(e) if self.may_pass(e) => *making = Some((Instant::now(), e.clone())),
            content => drop(document.content.set(content.clone())),
        }
        Some((document.name, content))
    }

    /// Whether `directory` shows the document `name` after all: in Zarr v2 there is no consolidated metadata of a group of Zarr v3 that
    /// holds what has no words there.
    pub fn is_shown(&self, directory: &Directory, name: &str) -> bool {
        let anew = matches!(&directory.node, Ok(Node::Group(group)) if group.format == Format::Zarr3);
        let absent = |(_, content): (_, Result<_>)| content.is_err_and(|e| e.kind() == Kind::NotFound);
        !(anew && name == view::CONSOLIDATED && self.document(directory, name.as_bytes()).is_some_and(absent))
    }

    /// Consolidated metadata, made again from what the mount shows for each node that the source's lists.
    fn consolidated(&self, root: &Directory) -> Result<Vec<u8>> {
        let is_zarr3 = root.below.format == Some(Format::Zarr3);
        let name = if is_zarr3 { view::ZARR3 } else { view::CONSOLIDATED };
        let source = root.key.join(name)?;
        let bytes = self.document_of(&root.key, name)?;
        let mut listed = format::json::parse(&bytes)?;
        let paths = if is_zarr3 {
            listed = listed.get_mut("consolidated_metadata").map(serde_json::Value::take).unwrap_or_default();
            view::consolidated_paths_zarr3(&listed)?
        } else {
            view::consolidated_paths(&listed)?
        };
        let mut nodes = Vec::new();
        let mut opened = HashMap::new();
        for path in paths {
            // A name that leads outside is no node, whatever the store would say of it. One that only JSON can spell may be one.
            if !path.is_empty()
                && let Err(e) = root.key.join(&path)
            {
                if e.kind() == Kind::Corrupt {
                    return Err(e);
                }
                self.warn(format!("{source}: lists {path:?}: {}", e.reason()));
                continue;
            }
            match self.open_path(root, &path, &mut opened) {
                Ok(directory) => {
                    // The source's own words describe encoded bytes: they stand only for what cannot be read at all. What can be read
                    // a little later would be decoded twice by their reader.
                    if let Some(e) = directory.faults().find(|e| self.may_pass(e)) {
                        return Err(e.clone());
                    }
                    let node = match &directory.node {
                        Ok(_) => Ok(self.marked(&directory)?.into_owned()),
                        Err(e) => Err(e.clone()),
                    };
                    nodes.push((path, node));
                }
                // Listed but not there: the tree itself is the truth.
                Err(e) if e.kind() == Kind::NotFound => self.warn(format!("{source}: lists {path:?}: {}", e.reason())),
                Err(e) if self.may_pass(&e) => return Err(e),
                // Refused is not absent.
                Err(e) => nodes.push((path, Err(e))),
            }
        }
        match root.flavour {
            Flavour::Zarr2 if is_zarr3 => view::consolidated_zarr2_anew(&nodes),
            Flavour::Zarr2 => Ok(view::consolidated_zarr2(&listed, &nodes)),
            Flavour::Zarr3 => view::consolidated_zarr3(&*self.marked(root)?, &nodes),
        }
    }

    /// A document that is made when it is first looked at.
    fn late(&self, directory: &Directory, name: &str) -> Result<Vec<u8>> {
        let node = self.marked(directory)?;
        // A list of more than that many names is hostile: nothing below it is looked at.
        let left = std::cell::Cell::new(SURVEY);
        let inventory = match (&*node, self.options.nczarr && name == ".zgroup") {
            (Node::Group(_), true) => self.inventory(&directory.key)?,
            _ => None,
        };
        // What the store failed to tell of a child.
        let failed = std::cell::RefCell::new(None);
        let readable = |name: &str| {
            if let Some(inventory) = &inventory {
                return inventory.readable(name);
            }
            left.set(left.get().saturating_sub(1));
            if left.get() == 0 {
                return false;
            }
            let child = match self.child(directory, name) {
                Ok(child) => child,
                Err(e) => {
                    *failed.borrow_mut() = Some(e);
                    None
                }
            };
            child.is_some_and(|child| match &child.node {
                Ok(Node::Array(array)) => nczarr::is_readable(array),
                Ok(Node::Group(group)) => group.attributes.as_ref().is_ok_and(nczarr::are_readable),
                _ => false,
            })
        };
        // Only the root of a dataset tells of them.
        let is_root = matches!(&*node, Node::Group(Group { attributes: Ok(a), .. }) if a.contains_key("_nczarr_superblock"));
        let has_scalars = match &inventory {
            _ if !is_root || name != ".zgroup" => false,
            Some(inventory) => self.invents_scalars(&directory.key, inventory, &mut { SURVEY })?,
            None => self.has_scalars(directory, &mut { SURVEY })?,
        };
        let documents = view::documents(&node, directory.flavour, nczarr::Survey { readable: &readable, has_scalars });
        if let Some(e) = failed.into_inner() {
            return Err(e);
        }
        let found = documents.into_iter().find(|(shown, _)| *shown == name);
        // What has nothing to say all the same is there, for it was listed before that was known.
        found.map_or_else(|| Ok(b"{}\n".to_vec()), |(_, content)| content)
    }

    /// What is called `name` in a group, as far as it can be understood.
    ///
    /// # Errors
    /// The store's failure to tell.
    fn child(&self, group: &Directory, name: &str) -> Result<Option<Directory>> {
        let child = group.key.join(name).and_then(|key| self.open(&key, &group.below));
        match child.as_ref().map_or_else(Some, |child| child.faults().next()) {
            Some(e) if e.kind() != Kind::NotFound && self.may_pass(e) => Err(e.clone()),
            _ => Ok(child.ok()),
        }
    }

    /// Whether a group's mark, or that of a group below it, lists a scalar; true when it lists more nodes than `budget`.
    fn has_scalars(&self, group: &Directory, budget: &mut u32) -> Result<bool> {
        let Ok(Node::Group(Group { attributes: Ok(attributes), .. })) = &group.node else { return Ok(false) };
        for name in nczarr::listed(attributes, "arrays") {
            *budget = budget.saturating_sub(1);
            if *budget == 0 || self.child(group, name)?.is_some_and(|child| child.array().is_some_and(nczarr::is_scalar)) {
                return Ok(true);
            }
        }
        for name in nczarr::listed(attributes, "groups") {
            *budget = budget.saturating_sub(1);
            if *budget == 0 {
                return Ok(true);
            }
            if let Some(child) = self.child(group, name)?
                && self.has_scalars(&child, budget)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What the document `name` in the directory `key` is called in errors.
fn named(key: &Key, name: &str) -> String {
    key.join(name).map_or_else(|_| format!("{key}/{name}"), |key| key.to_string())
}

/// The documents of a node; those that need more than the node are made when they are first looked at.
pub(super) fn shown(key: &Key, node: &Node, flavour: Flavour, levels: bool, invented: bool) -> Vec<Document> {
    let late = view::late_documents(node, flavour, levels, invented);
    let mut documents: Vec<_> = late.iter().map(|&name| Document::new(name, None)).collect();
    for (name, content) in
        view::documents(node, flavour, nczarr::Survey::ALL).into_iter().filter(|(name, _)| !late.contains(name))
    {
        let content = content.map(Arc::new).map_err(|e| e.about(named(key, name)));
        documents.push(Document::new(name, Some(content)));
    }
    documents
}

/// The documents of a directory that could not be understood: all fail with the reason.
pub(super) fn broken(flavour: Flavour, e: &Error) -> Vec<Document> {
    view::broken_documents(flavour).iter().map(|&name| Document::new(name, Some(Err(e.clone())))).collect()
}
