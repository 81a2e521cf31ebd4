//! Scale pyramids in the tree: which levels a group of N5 has, and what lies above it that its dialects take into account.
//!
//! Only a group with a level `s0`, or with a list of levels, is looked at further, and that when one of its documents is first looked
//! at. What cannot be understood leaves the group without a pyramid, with a warning: its arrays are shown all the same. What the store
//! fails to tell is an error of that document and not remembered.

use super::{Below, DERIVED, Directory, Tree};
use crate::array::scales::Multiscale;
use crate::array::{Array, Attributes, Format, Group, Node};
use crate::error::{Error, Kind, Result};
use crate::format::{self, json, scales};
use crate::limits;
use crate::store::{Key, Range};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Most levels that are looked at: each halves the one before, and no axis has 2^62 elements.
const LEVELS: usize = 64;

/// Most groups above one that are asked for what it leaves out.
const ABOVE: usize = 16;

/// A group as its arrays know it: one that may be a scale pyramid, or that has OME-Zarr metadata.
#[derive(Debug)]
pub(super) struct Pyramid {
    key: Key,
    own: Attributes,
    // Found when first asked for.
    found: OnceLock<Option<Multiscale>>,
    /// Held by who looks; the store's failure, for those who wait meanwhile.
    looking: Mutex<Option<(Instant, Error)>>,
}

impl Pyramid {
    /// The names of the axes of one of its arrays by its OME-Zarr metadata.
    fn ome_names(&self, array: &Key) -> Option<Vec<String>> {
        scales::ome_axes(&self.own, last(array)?)
    }
}

impl Tree {
    /// What a group tells its arrays of the pyramid that they make.
    pub(super) fn pyramid(&self, key: &Key, node: &Result<Node>) -> Option<Arc<Pyramid>> {
        let Ok(Node::Group(Group { format, attributes: Ok(own), .. })) = node else { return None };
        let may_be = *format == Format::N5 || scales::is_ome(own);
        may_be
            .then(|| Arc::new(Pyramid { key: key.clone(), own: own.clone(), found: OnceLock::new(), looking: Mutex::default() }))
    }

    /// Gives an array the names of its axes that OME-Zarr metadata above it has: version 0.5 wants them in both places.
    pub(super) fn name_axes(&self, key: &Key, array: &mut Array, above: &Below) {
        if array.dimension_names.is_none()
            && let Some(names) = above.pyramid.as_ref().and_then(|pyramid| pyramid.ome_names(key))
            && names.len() == array.shape.len()
        {
            array.dimension_names = Some(names.into_iter().map(Some).collect());
        }
    }

    /// Whether a document of the node depends on a scale pyramid of N5. A group without attributes is looked at for its first level,
    /// because a pyramid makes it show a document more; all else is asked later.
    pub(super) fn depends_on_levels(&self, key: &Key, node: &Node, above: &Below) -> bool {
        match node {
            Node::Group(Group { format: Format::N5, attributes: Ok(attributes), .. }) if attributes.is_empty() => {
                let first = key.join("s0").and_then(|key| self.head(&key));
                !first.is_err_and(|e| e.kind() == Kind::NotFound)
            }
            Node::Group(group) => group.format == Format::N5,
            Node::Array(array) => array.format == Format::N5 && array.dimension_names.is_none() && above.pyramid.is_some(),
            Node::Directory => false,
        }
    }

    /// A node with what the scale pyramid tells that it belongs to, where it belongs to one of N5.
    pub(super) fn leveled<'a>(&self, directory: &'a Directory) -> Result<Cow<'a, Node>> {
        let node = directory.node.as_ref().map_err(Clone::clone)?;
        match node {
            Node::Group(group) if group.format == Format::N5 => {
                let pyramid = directory.below.pyramid.as_ref().filter(|pyramid| !scales::is_ome(&pyramid.own));
                let multiscale = pyramid.map_or(Ok(None), |pyramid| self.found(pyramid))?.cloned();
                Ok(Cow::Owned(Node::Group(Group { multiscale, ..group.clone() })))
            }
            Node::Array(array) if array.format == Format::N5 && array.dimension_names.is_none() => {
                let found = directory.above.as_ref().map_or(Ok(None), |pyramid| self.found(pyramid))?;
                let is_this = |path: &str| {
                    let path = path.strip_suffix(DERIVED).and_then(|path| path.strip_suffix('/')).unwrap_or(path);
                    last(&directory.key) == Some(path)
                };
                let Some(found) = found.filter(|found| found.levels.iter().any(|level| is_this(&level.path))) else {
                    return Ok(Cow::Borrowed(node));
                };
                let mut array = array.clone();
                array.dimension_names = Some(found.axes.iter().map(|axis| Some(axis.name.clone())).collect());
                Ok(Cow::Owned(Node::Array(array)))
            }
            _ => Ok(Cow::Borrowed(node)),
        }
    }

    /// # Errors
    /// The store's failure to tell.
    fn found<'a>(&self, pyramid: &'a Pyramid) -> Result<Option<&'a Multiscale>> {
        let asked = Instant::now();
        if let Some(found) = pyramid.found.get() {
            return Ok(found.as_ref());
        }
        let mut looking = pyramid.looking.lock();
        if let Some(found) = pyramid.found.get() {
            return Ok(found.as_ref());
        }
        if let Some((_, e)) = looking.as_ref().filter(|(when, _)| *when > asked) {
            return Err(e.clone());
        }
        let found = match self.survey(&pyramid.key, &pyramid.own) {
            Err(e) if e.is_failure() => {
                *looking = Some((Instant::now(), e.clone()));
                return Err(e);
            }
            Err(e) => {
                log::warn!("{}: shown without multiscales: {}", pyramid.key, e.reason());
                None
            }
            Ok(found) => found,
        };
        Ok(pyramid.found.get_or_init(|| found).as_ref())
    }

    fn survey(&self, key: &Key, own: &Attributes) -> Result<Option<Multiscale>> {
        let Some(levels) = self.levels(key, own)? else { return Ok(None) };
        let name = key.to_string();
        scales::multiscale(&scales::Pyramid {
            name: (!key.is_root()).then_some(&name),
            own,
            above: &self.above(key)?,
            levels: &levels,
            source_axes: self.options.source_axes,
        })
    }

    /// The levels of a group; `None` where it has none.
    fn levels(&self, key: &Key, own: &Attributes) -> Result<Option<Vec<(String, Array)>>> {
        let listed: Option<Vec<_>> = scales::listed(own).map(|paths| paths.into_iter().map(str::to_owned).collect());
        let must_be_there = listed.is_some();
        let inside = Below { format: Some(Format::N5), ..Below::default() };
        let mut levels = Vec::new();
        for path in listed.unwrap_or_else(|| (0..LEVELS).map(|i| format!("s{i}")).collect()).into_iter().take(LEVELS) {
            let below = path.split('/').try_fold(key.clone(), |key, part| key.join(part))?;
            match self.open(&below, &inside) {
                Err(e) if e.kind() == Kind::NotFound && !must_be_there => break,
                Err(e) => return Err(Error::new(e.kind(), format!("{path}: {}", e.reason()))),
                Ok(directory) => match directory.node {
                    Ok(Node::Array(array)) => match format::n5::most_frequent_labels(&array) {
                        Some(labels) => levels.push((format!("{path}/{DERIVED}"), labels)),
                        None if array.kept.is_empty() => levels.push((path, *array)),
                        // Nothing that a viewer could show.
                        None => return Ok(None),
                    },
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
    ///
    /// # Errors
    /// The store's failure to tell.
    fn above(&self, key: &Key) -> Result<Vec<Attributes>> {
        let mut found: Vec<Attributes> = Vec::new();
        let mut parts: Vec<&[u8]> = key.as_bytes().split(|&b| b == b'/').filter(|part| !part.is_empty()).collect();
        while found.len() < ABOVE && parts.pop().is_some() {
            let above = parts.iter().try_fold(Key::root(), |key, part| key.join(part));
            let attributes = above.and_then(|key| key.join(format::n5::DOCUMENT)).and_then(|key| {
                let mut bytes = Vec::new();
                self.store.get(&key, Range::All, None, limits::DOCUMENT, &mut bytes)?;
                json::parse_object(&bytes)
            });
            let attributes = match attributes {
                Err(e) if e.is_failure() => return Err(e),
                // None, or none that can be read.
                attributes => attributes.unwrap_or_default(),
            };
            let is_root = attributes.contains_key("n5");
            found.push(attributes);
            if is_root {
                break;
            }
        }
        Ok(found)
    }
}

/// The last name of a key.
fn last(key: &Key) -> Option<&str> {
    std::str::from_utf8(key.as_bytes().rsplit(|&b| b == b'/').next()?).ok()
}
