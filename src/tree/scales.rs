//! Scale pyramids in the tree: which levels a group of N5 has, and what lies above it that its dialects take into account.
//!
//! Only a group with a level `s0`, or with a list of levels, is looked at further, and that when one of its documents is first looked
//! at. What cannot be understood leaves the group without a pyramid, with a warning: its arrays are shown all the same.

use super::{Directory, Tree};
use crate::array::scales::Multiscale;
use crate::array::{Array, Attributes, Format, Group, Node};
use crate::error::{Error, Kind, Result};
use crate::format::{self, json, scales};
use crate::limits;
use crate::store::{Key, Range};
use crate::view::{self, nczarr::Survey};

/// Most levels that are looked at: each halves the one before, and no axis has 2^62 elements.
const LEVELS: usize = 64;

/// Most groups above one that are asked for what it leaves out.
const ABOVE: usize = 16;

impl Tree {
    /// Whether a group of N5 at `key` may be a scale pyramid, or it is cheaper to ask later: one without attributes is looked at
    /// for its first level, because a pyramid makes it show a document more.
    pub(super) fn may_have_levels(&self, key: &Key, node: &Result<Node>) -> bool {
        match node {
            Ok(Node::Group(Group { format: Format::N5, attributes: Ok(attributes), .. })) if attributes.is_empty() => {
                let first = key.join("s0").and_then(|key| self.store.head(&key));
                !first.is_err_and(|e| e.kind() == Kind::NotFound)
            }
            Ok(Node::Group(group)) => group.format == Format::N5,
            _ => false,
        }
    }

    /// The document of a group of N5 that tells of its scale pyramid.
    pub(super) fn multiscale_document(&self, group: &Directory, name: &str) -> Result<Vec<u8>> {
        let node = self.with_multiscale(group)?;
        let found = view::documents(&node, group.flavour, Survey::ALL).into_iter().find(|(n, _)| *n == name);
        // What was announced is there.
        found.map_or_else(|| Ok(b"{}\n".to_vec()), |(_, content)| content)
    }

    /// The group with its scale pyramid, where it has one.
    fn with_multiscale(&self, group: &Directory) -> Result<Node> {
        let mut node = group.node.clone()?;
        if let Node::Group(Group { format: Format::N5, attributes: Ok(own), multiscale, .. }) = &mut node
            && !scales::is_ome(own)
        {
            *multiscale = self.multiscale(group, own).unwrap_or_else(|e| {
                log::warn!("{}: shown without multiscales: {}", group.key, e.reason());
                None
            });
        }
        Ok(node)
    }

    fn multiscale(&self, group: &Directory, own: &Attributes) -> Result<Option<Multiscale>> {
        let key = &group.key;
        let Some(levels) = self.levels(group, own)? else { return Ok(None) };
        let name = key.to_string();
        scales::multiscale(&scales::Pyramid {
            name: (!key.is_root()).then_some(&name),
            own,
            above: &self.above(key),
            levels: &levels,
            source_axes: self.options.source_axes,
        })
    }

    /// The levels of a group; `None` where it has none.
    fn levels(&self, group: &Directory, own: &Attributes) -> Result<Option<Vec<(String, Array)>>> {
        let listed: Option<Vec<_>> = scales::listed(own).map(|paths| paths.into_iter().map(str::to_owned).collect());
        let must_be_there = listed.is_some();
        let mut levels = Vec::new();
        for path in listed.unwrap_or_else(|| (0..LEVELS).map(|i| format!("s{i}")).collect()).into_iter().take(LEVELS) {
            let below = path.split('/').try_fold(group.key.clone(), |key, part| key.join(part))?;
            match self.open(&below, &group.below) {
                Err(e) if e.kind() == Kind::NotFound && !must_be_there => break,
                Err(e) => return Err(Error::new(e.kind(), format!("{path}: {}", e.reason()))),
                Ok(directory) => match directory.node {
                    Ok(Node::Array(array)) => levels.push((path, *array)),
                    Err(e) => return Err(Error::new(e.kind(), format!("{path}: {}", e.reason()))),
                    // A group that is called so, as a sample might be.
                    Ok(_) if levels.is_empty() => return Ok(None),
                    Ok(_) => return Err(Error::corrupt(format!("{path} is no array, but the level before is"))),
                },
            }
        }
        Ok((!levels.is_empty()).then_some(levels))
    }

    /// Attributes of the groups above, nearest first, up to the container's root.
    fn above(&self, key: &Key) -> Vec<Attributes> {
        let mut found: Vec<Attributes> = Vec::new();
        let mut parts: Vec<&[u8]> = key.as_bytes().split(|&b| b == b'/').filter(|part| !part.is_empty()).collect();
        while found.len() < ABOVE && parts.pop().is_some() {
            let above = parts.iter().try_fold(Key::root(), |key, part| key.join(part));
            let attributes = above.and_then(|key| key.join(format::n5::DOCUMENT)).and_then(|key| {
                let mut bytes = Vec::new();
                self.store.get(&key, Range::All, None, limits::DOCUMENT, &mut bytes)?;
                json::parse_object(&bytes)
            });
            let is_root = attributes.as_ref().is_ok_and(|a| a.contains_key("n5"));
            found.push(attributes.unwrap_or_default());
            if is_root {
                break;
            }
        }
        found
    }
}
