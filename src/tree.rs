//! The hierarchy: directories of a store, understood one at a time and remembered.
//!
//! A directory is opened by fetching the documents that formats put there, and by rendering the documents that the mount shows
//! instead. What cannot be understood is *broken*: its documents are there and fail with the reason; it never looks empty.

mod cubes;
mod documents;
mod marks;
mod peek;
mod scales;
mod told;

use crate::array::{Array, Attributes, Format, Formats, Group, Node};
use crate::chunk;
use crate::error::{Error, Kind, Result};
use crate::format::{self, Context, Documents, wkw};
use crate::limits;
use crate::store::{Key, ObjectKind, Range, Store, Version, may_lead_on};
use crate::view::{Flavour, names};
use documents::{Document, broken, shown};
use parking_lot::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use told::{Found, Told};

pub use told::Near;

/// What the user chose for the whole mount.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Only these formats are looked for.
    pub wanted: Formats,
    /// Keep the order of axes of N5 and WKW.
    pub source_axes: bool,
    /// Which documents are shown; each node's own where nothing is chosen.
    pub flavour: Option<Flavour>,
    /// Invent NCZarr's marks where there are none.
    pub nczarr: bool,
    /// Do not take names of dimensions from `_ARRAY_DIMENSIONS` of Zarr for these marks.
    pub noxarray: bool,
    /// Look again at what is older; `None` for data that does not change.
    pub refresh: Option<Duration>,
}

impl Options {
    /// Which documents a node of `format` shows.
    fn flavour(&self, format: Option<Format>) -> Flavour {
        // netcdf-c reads Zarr v2 only.
        self.flavour.unwrap_or(if format == Some(Format::Zarr3) && !self.nczarr { Flavour::Zarr3 } else { Flavour::Zarr2 })
    }
}

/// What a directory tells those below it.
#[derive(Debug, Clone, Default)]
pub struct Below {
    /// They belong to this format when they have no document of their own.
    pub format: Option<Format>,
    /// What they are levels of, if their group may be a scale pyramid.
    pyramid: Option<Arc<scales::Pyramid>>,
    /// Which directory of a WEBKNOSSOS dataset this is.
    place: Option<wkw::Place>,
}

impl Below {
    /// Which directory of a WEBKNOSSOS dataset `key` is, directly below this one.
    fn enter(&self, key: &Key) -> Option<wkw::Place> {
        let name = key.as_bytes().rsplit(|b| *b == b'/').next().unwrap_or_default();
        self.place.as_ref().map(|place| place.enter(&String::from_utf8_lossy(name)))
    }
}

/// A directory, understood.
#[derive(Debug)]
pub struct Directory {
    /// Its key.
    pub key: Key,
    /// What it is, or what is wrong with it.
    pub node: Result<Node>,
    /// What it tells the directories below it.
    pub below: Below,
    /// What it is a level of, perhaps.
    above: Option<Arc<scales::Pyramid>>,
    /// Which documents it shows.
    flavour: Flavour,
    /// Documents shown.
    documents: Vec<Document>,
    /// Time of the last modification of what the documents were made from.
    pub modified: SystemTime,
    /// What a person should know of how the directory was understood.
    pub notices: Vec<String>,
    /// Whether the source has no such directory: another view of the array at `key`, see [`Tree::derived`].
    pub is_derived: bool,
    /// The documents of the source that lie in the directory itself, in the state that it was understood from.
    pub versions: Arc<[(Key, Version)]>,
}

impl Directory {
    /// The array, if it is one.
    pub fn array(&self) -> Option<&Array> {
        match &self.node {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }

    /// Names of the documents shown.
    pub fn documents(&self) -> impl Iterator<Item = &'static str> {
        self.documents.iter().map(|d| d.name)
    }

    /// What is wrong: the directory as a whole, or else some of its documents. That one is not there is nothing wrong.
    pub fn faults(&self) -> impl Iterator<Item = &Error> {
        let documents = self.documents.iter().filter_map(Document::fault);
        self.node.as_ref().err().into_iter().chain(documents.filter(|_| self.node.is_ok()))
    }

    /// What is wrong with the document `name`, as far as that is known.
    pub fn fault_of(&self, name: &[u8]) -> Option<&Error> {
        self.documents.iter().find(|d| d.name.as_bytes() == name)?.fault()
    }

    /// All that it was understood as, or what is wrong with it: two of another description may decode the same bytes otherwise, even
    /// where they show the same documents (a codec, the stored byte order or order of axes is in none).
    pub fn description(&self) -> String {
        self.node.as_ref().map_or_else(|e| format!("error: {e}"), |node| format!("{node:?}"))
    }

    /// Whether `self` and `other` would show the same, made from the same bytes in the same way.
    pub fn same(&self, other: &Self) -> bool {
        let text = |d: &Self| d.documents.iter().map(|d| (d.name, d.content.get().cloned())).collect::<Vec<_>>();
        self.below.format == other.below.format && text(self) == text(other) && self.description() == other.description()
    }
}

/// See the module.
pub struct Tree {
    store: Arc<dyn Store>,
    options: Options,
    told: Told,
    near: Option<Arc<Near>>,
    inventories: Mutex<lru::LruCache<Key, (Instant, marks::Found)>>,
    said: Mutex<lru::LruCache<u64, ()>>,
}

/// Name of the array that is shown below a dataset of label multisets.
pub const DERIVED: &str = "most_frequent_label";

/// Said of an array that does not tell how its chunks are named.
const NESTED: &str = ".zarray has no dimension_separator, but the chunks lie in directories; shown as with \"/\"";

/// Said of a node of both versions.
const BOTH: &str = "has documents of Zarr v2 beside zarr.json, which is the one that counts; --format zarr2 looks at the others";

/// Most arrays and groups that are looked at for the sake of one document.
const SURVEY: u32 = 10_000;

/// Most things said that are remembered.
const SAID: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();

impl Tree {
    /// The tree of `store`.
    pub fn new(store: Arc<dyn Store>, options: Options) -> Self {
        let inventories = Mutex::new(lru::LruCache::new(marks::REMEMBERED));
        let near = Near::new(&store, options.wanted, options.refresh);
        Self { store, options, told: Told::default(), near, inventories, said: Mutex::new(lru::LruCache::new(SAID)) }
    }

    /// Says something, once.
    fn warn(&self, text: String) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        if self.said.lock().put(hasher.finish(), ()).is_none() {
            log::warn!("{text}");
        }
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The same, for a thread of its own.
    pub fn shared_store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// What consolidated metadata tells besides what the store lists; `None` where it is no more than that.
    pub fn near(&self) -> Option<Arc<Near>> {
        self.near.clone()
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Opens the directory `key`, whose parent tells it `above`.
    ///
    /// # Errors
    /// Only when the store cannot tell whether the directory is there; what is wrong inside it is kept in the result.
    pub fn open(&self, key: &Key, above: &Below) -> Result<Directory> {
        let Found { documents, modified, unread, versions } = self.find(key)?;
        let parent = if key.is_root() { self.options.wanted.of_root() } else { above.format };
        let mut notices = Vec::new();
        let place = match wkw::properties(&documents) {
            Some(Ok(properties)) => {
                notices.clone_from(&properties.notices);
                Some(wkw::Place::root(properties))
            }
            Some(Err(_)) => None,
            None => above.enter(key),
        };
        let context =
            Context { wanted: self.options.wanted, parent, source_axes: self.options.source_axes, place: place.as_ref() };
        let mut node = unread.map_or_else(|| format::detect(&documents, &context), Err).map_err(|e| e.about(key));
        if matches!(node, Ok(Node::Directory)) {
            node = self.by_content(key, &context, &mut notices).map_err(|e| e.about(key));
        }
        if let Ok(Node::Array(array)) = &mut node
            && array.format == Format::Wkw
        {
            notices.extend(context.place.and_then(wkw::Place::shared));
            match self.measure(key, array, &context) {
                Ok(notice) => notices.extend(notice.map(str::to_owned)),
                Err(e) => node = Err(e.about(key)),
            }
        }
        if let Ok(Node::Group(group)) = &mut node
            && group.format == Format::Wkw
        {
            match self.layer_scales(key, &context) {
                Ok(multiscale) => group.multiscale = multiscale,
                Err(e) => node = Err(e.about(key)),
            }
        }
        if matches!(node, Ok(Node::Directory)) && self.options.nczarr {
            match self.holds_zarr_arrays(key) {
                Ok(false) => {}
                Ok(true) => node = Ok(Node::Group(Group::of(Format::Zarr2, Ok(Attributes::new())))),
                Err(e) => node = Err(e),
            }
        }
        notices.extend(node.as_ref().ok().and_then(|node| format::notice(&documents, node)));
        match self.has_nested_chunks(key, &node, &documents) {
            Ok(false) => {}
            Ok(true) => {
                if let Ok(Node::Array(array)) = &mut node {
                    array.nest();
                }
                notices.push(NESTED.to_owned());
            }
            Err(e) => node = Err(e),
        }
        if let Ok(Node::Array(array)) = &mut node
            && array.stored.narrow_text
        {
            match chunk::is_narrow(&*self.store, key, array) {
                Ok(true) => array.narrow(),
                Ok(false) => {}
                Err(e) => node = Err(e),
            }
        }
        if let Ok(Node::Array(array)) = &mut node {
            match chunk::is_varlength(&*self.store, key, array) {
                Ok(true) => format::n5::make_varlength(array),
                Ok(false) => {}
                Err(e) => node = Err(e),
            }
        }
        let format = match &node {
            Ok(Node::Directory) => None,
            Ok(Node::Group(group)) => Some(group.format),
            Ok(Node::Array(array)) => Some(array.format),
            Err(_) => format::suspected(&documents, &context),
        };
        if format == Some(Format::Zarr3) && documents.keys().any(|name| matches!(*name, ".zarray" | ".zgroup")) {
            notices.push(BOTH.to_owned());
        }
        let flavour = self.options.flavour(format);
        if let Ok(node) = &mut node
            && flavour == Flavour::Zarr2
        {
            format::zarr3::translate_marks(node);
            if let Node::Array(array) = node {
                array.name_as_zarr2();
            }
        }
        if let Ok(Node::Array(array)) = &mut node {
            self.name_axes(key, array, above);
        }
        let documents = match &node {
            Ok(node) => shown(key, node, flavour, self.depends_on_levels(key, node, above), self.options.nczarr),
            Err(e) => broken(flavour, e),
        };
        let below = Below { format, pyramid: self.pyramid(key, &node), place };
        let above = above.pyramid.clone();
        let (key, versions) = (key.clone(), versions.into());
        Ok(Directory { key, node, below, above, flavour, documents, modified, notices, is_derived: false, versions })
    }

    /// The array that is shown as `name` below a dataset though the source has no such directory: [`DERIVED`], the most frequent
    /// label of each element of a dataset of label multisets.
    pub fn derived(&self, directory: &Directory, name: &[u8]) -> Option<Directory> {
        let labels = format::n5::most_frequent_labels(directory.array()?).filter(|_| name == DERIVED.as_bytes())?;
        let (key, node) = (directory.key.clone(), Node::Array(Box::new(labels)));
        let above = Below { pyramid: directory.above.clone(), ..directory.below.clone() };
        let late = self.depends_on_levels(&key, &node, &above);
        Some(Directory {
            documents: shown(&key, &node, directory.flavour, late, false),
            key,
            node: Ok(node),
            below: Below { pyramid: None, ..directory.below.clone() },
            above: above.pyramid,
            flavour: directory.flavour,
            modified: directory.modified,
            notices: Vec::new(),
            is_derived: true,
            versions: directory.versions.clone(),
        })
    }

    /// Whether an array keeps its chunks in directories, one for each axis, without a word of it in its metadata: some writers
    /// left `dimension_separator` out, and by the names that are meant then all chunks would be absent.
    fn has_nested_chunks(&self, key: &Key, node: &Result<Node>, documents: &Documents) -> Result<bool> {
        let Ok(Node::Array(array)) = node else { return Ok(false) };
        let rank = array.shape.len();
        if array.format != Format::Zarr2 || rank < 2 || !format::zarr2::leaves_separator_out(documents) {
            return Ok(false);
        }
        let present = |key: Result<Key>| match key.and_then(|key| self.store.head_object(&key)) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        // Nearly always there, and then nothing needs to be listed.
        if present(chunk::key(key, array, &vec![0; rank]))? {
            return Ok(false);
        }
        let names = match self.store.list(key) {
            Ok(names) => names,
            // Without listings the other name of the same chunk is all that can be asked for.
            Err(e) if e.kind() == Kind::Unsupported => return present(key.join(vec!["0"; rank].join("/"))),
            Err(e) => self.nothing(key, e)?,
        };
        if names.iter().any(|(name, _)| names::is_stored_chunk(array, name)) {
            return Ok(false);
        }
        let grid = array.grid();
        let first = |name: &[u8]| names::number(name).is_some_and(|i| grid.first().is_some_and(|n| i < *n));
        // One that can be looked into tells most; where there is none, what cannot be is an error.
        let is_directory = |(name, kind): &(&[u8], ObjectKind)| *kind == ObjectKind::Directory && first(name);
        let may_be = |(name, kind): &(&[u8], ObjectKind)| first(name) && may_lead_on(&*self.store, key.join(name), *kind);
        let Some((name, _)) = names.iter().find(is_directory).or_else(|| names.iter().find(may_be)) else { return Ok(false) };
        // An array or group of its own is no place for chunks.
        let below = key.join(name)?;
        Ok(!present(below.join(".zarray"))? && !present(below.join(".zgroup"))?)
    }

    /// Whether an error may be over when the store is asked again: it failed, or a service refused; what a local file system refuses
    /// stays so, as damage does.
    pub fn may_pass(&self, e: &Error) -> bool {
        !e.is_damage() && (e.kind() != Kind::Denied || self.store.is_distant())
    }

    /// Fetches the documents of a directory, and the time of the newest, or its own where it has none.
    ///
    /// # Errors
    /// When it cannot be told whether the directory is there.
    fn fetch(&self, key: &Key) -> Result<Found> {
        let entered = self.store.enter(key, format::DOCUMENTS)?;
        let mut modified = None;
        let (mut documents, mut versions) = (Documents::new(), Vec::new());
        for name in entered.present {
            let found = key.join(name).and_then(|key| {
                let mut bytes = Vec::new();
                let meta = self.store.get(&key, Range::All, None, limits::DOCUMENT, &mut bytes)?;
                modified = modified.max(Some(meta.modified));
                versions.push((key, meta.version));
                Ok(bytes)
            });
            match found {
                Err(e) if e.kind() == Kind::NotFound => {}
                // A document of another format's name that no reader could want (a directory called `attributes.json`
                // beside `.zarray`) is judged by `detect`, which knows whether it needs it.
                found => drop(documents.insert(name, found)),
            }
        }
        let modified = modified.unwrap_or(entered.meta.modified);
        if self.store.is_distant() {
            self.told.learn(key, &documents, modified, self.options.wanted);
        }
        Ok(Found { documents, modified, unread: None, versions })
    }

    /// The documents of a directory below one that is to be understood; `None` where it may not be looked into, or is gone.
    fn glance(&self, key: &Key) -> Result<Option<Documents>> {
        match self.fetch(key) {
            Ok(found) => Ok(Some(found.documents)),
            Err(e) if matches!(e.kind(), Kind::Denied | Kind::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }
}
