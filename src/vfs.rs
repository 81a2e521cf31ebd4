//! The mounted tree as a file system on inode numbers, without the kernel's types: everything here runs in a test as well.
//!
//! A file's inode stands for one version of its content. Without `--refresh` an inode is pinned to the version that was first
//! opened (or, for files of no format, looked up) until the kernel forgets it; with `--refresh` a new version gets a new
//! inode. So what the kernel caches under an inode is never a mix: a reader gets the old bytes or [`Kind::Changed`].

mod about;
mod ahead;
mod attributes;
mod control;
mod described;
mod directory;
mod doubt;
mod failures;
mod file;
mod growing;
mod inode;
mod lookup;
mod pins;
mod presence;

use crate::array::Array;
use crate::cache::{Budget, Cache};
use crate::chunk;
use crate::error::{Error, Kind, Result};
use crate::placement::Indexes;
use crate::store::{Key, Meta, ObjectKind, Store};
use crate::tree::{Below, Directory, Tree};
use inode::{Places, Table};
use parking_lot::{Mutex, RwLock};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

pub use crate::cache::Hold;
pub use about::About;
pub use control::DIRECTORY as CONTROL_DIRECTORY;
pub use directory::Entry;
pub use file::{Opened, Pages, Whole};
pub use inode::ROOT;

/// What [`Options::retry`] is in a mount.
pub const RETRY: Duration = Duration::from_secs(1);

/// What the user chose for the file system.
#[derive(Debug, Clone)]
pub struct Options {
    /// Show the whole grid, absent chunks as fill values.
    pub fill_missing: bool,
    /// Look again at what is older; `None` for data that does not change.
    pub refresh: Option<Duration>,
    /// Ask again after so long what the store failed to tell.
    pub retry: Duration,
    /// Most bytes of decoded blocks held.
    pub cache_size: u64,
    /// What the source is called.
    pub name: String,
}

/// What is told of a file or directory without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub inode: u64,
    /// File or directory.
    pub kind: ObjectKind,
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Time of the source's last modification.
    pub modified: SystemTime,
    /// Whether the kernel must ask each time (live statistics).
    pub volatile: bool,
    /// Whether its name may soon stand for something else: the store failed to tell something of it, or of where it is.
    pub brief: bool,
}

/// A shown directory of the source.
struct Dir {
    directory: Directory,
    chunks: Option<Arc<Chunks>>,
    looked: Instant,
    /// The inode of the directory that it is in; the root is in itself.
    parent: u64,
    /// The store failed to tell what it is, or what a directory above it is: it may be shown otherwise soon.
    doubtful: bool,
    /// Held by who looks again, with what that failed with last.
    healing: Mutex<Option<(Instant, Error)>>,
}

/// The chunks of an array.
struct Chunks {
    key: Key,
    array: Array,
    places: Places,
    slot: usize,
    modified: SystemTime,
    /// With `--refresh`: what says that they are still decoded so.
    told: doubt::Told,
    /// How often a chunk was looked up by its name.
    looked_up: AtomicU64,
    presence: presence::Presence,
    streams: Mutex<ahead::Streams>,
    /// The kernel has lost what it had been given: it lacks memory, or somebody reads past its pages.
    lost: AtomicBool,
    counters: ArrayCounters,
    /// What the array was understood as, once that is asked for: see [`Vfs::chunk_state`].
    understood: OnceLock<u64>,
}

/// Counters of one array.
#[derive(Debug, Default)]
struct ArrayCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    encoded: AtomicU64,
    decoded: AtomicU64,
    nanoseconds: AtomicU64,
    errors: AtomicU64,
}

/// A file that is shown as it is.
struct File {
    key: Key,
    meta: Meta,
    /// Why it cannot be read: it lies in a directory that could not be understood, and may be an encoded chunk.
    broken: Option<Error>,
}

/// A rendered document.
struct Document {
    content: Result<Arc<Vec<u8>>>,
    modified: SystemTime,
    key: Key,
}

/// A chunk, or a directory on the way to some (fewer indices than axes).
#[derive(Clone)]
struct Place {
    chunks: Arc<Chunks>,
    path: Arc<[u64]>,
    /// What this inode stands for, where the inode itself carries it: with `--refresh`, and where the version decides the size.
    pin: Option<Meta>,
}

impl Place {
    fn is_chunk(&self) -> bool {
        self.path.len() == self.chunks.array.shape.len()
    }

    /// Its number among all places of the mount; `None` where there are too many.
    fn number(&self) -> Option<u64> {
        self.chunks.places.pack(self.chunks.slot, &self.path)
    }

    fn key(&self) -> Result<Key> {
        chunk::key(&self.chunks.key, &self.chunks.array, &self.path)
    }
}

/// What an inode is.
#[derive(Clone)]
enum Thing {
    Directory(Arc<Dir>),
    Document(Arc<Document>),
    File(Arc<File>),
    Place(Place),
    Control,
    Statistics,
    /// A directory of the untouched source.
    Raw(Key),
}

/// What names an entry of the table: parent, name, and the version it stands for (0 where there is only one).
type TableKey = (u64, Box<[u8]>, u64);

/// See the module.
pub struct Vfs {
    tree: Tree,
    options: Options,
    cache: Cache,
    indexes: Indexes,
    budget: Budget,
    ahead: ahead::Ahead,
    table: Table<TableKey, Thing>,
    arrays: RwLock<Vec<Arc<Chunks>>>,
    root: RwLock<Arc<Dir>>,
    pins: pins::Pins,
    files: file::Handles<file::Open>,
    failures: failures::Failures,
    directories: file::Handles<Arc<directory::Names>>,
    errors: AtomicU64,
    /// Files that were opened for the kernel to read by itself.
    passed: AtomicU64,
    /// Entries of listings that were told with their attributes.
    described: AtomicU64,
    reported: Mutex<lru::LruCache<u64, ()>>,
    started: Instant,
}

/// Most errors remembered as logged.
const REPORTED: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();

impl Vfs {
    /// The file system of `tree`.
    ///
    /// # Errors
    /// When the root of the source cannot be opened.
    pub fn new(tree: Tree, options: Options) -> Result<Self> {
        let arrays = RwLock::new(Vec::new());
        let root = Arc::new(dir(tree.open(&Key::root(), &Below::default())?, ROOT, false, &tree, &arrays));
        let budget = Budget::new((options.cache_size / 4).max(64 << 20));
        let vfs = Self {
            cache: Cache::new(options.cache_size),
            indexes: Indexes::new((options.cache_size / 8).max(32 << 20), options.refresh),
            budget,
            ahead: ahead::Ahead::default(),
            table: Table::new(),
            arrays,
            root: RwLock::new(root),
            pins: pins::Pins::default(),
            files: file::Handles::default(),
            failures: failures::Failures::default(),
            directories: file::Handles::default(),
            errors: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            described: AtomicU64::new(0),
            reported: Mutex::new(lru::LruCache::new(REPORTED)),
            started: Instant::now(),
            tree,
            options,
        };
        vfs.announce(&vfs.root.read());
        Ok(vfs)
    }

    /// Gives an opened directory its chunks, and says what is wrong with it.
    fn adopt(&self, directory: Directory, parent: u64, above: bool) -> Arc<Dir> {
        let dir = dir(directory, parent, above, &self.tree, &self.arrays);
        self.announce(&dir);
        Arc::new(dir)
    }

    fn announce(&self, dir: &Dir) {
        for notice in &dir.directory.notices {
            let text = format!("{}: {notice}", dir.directory.key);
            if self.reported.lock().put(digest(&text), ()).is_none() {
                log::warn!("{text}");
            }
        }
        dir.directory.faults().for_each(|e| self.report(e));
        if let Some(kept) = dir.directory.array().map(|array| &array.kept).filter(|kept| !kept.is_empty()) {
            log::info!("{}: stays encoded by {}", dir.directory.key, kept.names().join(", "));
        }
    }

    /// The options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The root of the source, for those who want to know what was mounted.
    pub fn root_format(&self) -> Option<crate::array::Format> {
        self.root.read().directory.below.format
    }

    /// Whether reading waits for a network.
    pub fn is_distant(&self) -> bool {
        self.store().is_distant()
    }

    fn store(&self) -> &dyn Store {
        self.tree.store()
    }

    /// Counts an error, and logs it once.
    pub fn report(&self, e: &Error) {
        if e.kind() == Kind::NotFound {
            return;
        }
        self.errors.fetch_add(1, Ordering::Relaxed);
        log::debug!("request: {e}");
        if self.reported.lock().put(digest(&e.to_string()), ()).is_none() {
            log::log!(e.level(), "{e}");
        }
    }

    fn thing(&self, inode: u64) -> Result<Thing> {
        if inode == ROOT {
            return Ok(Thing::Directory(self.root()?));
        }
        let stale = || Error::new(Kind::Changed, format!("inode {inode} is gone"));
        if let Some((slot, place)) = inode::unpack(inode) {
            let chunks = self.arrays.read().get(slot).cloned().ok_or_else(stale)?;
            let path = inode::path(&chunks.places, place).ok_or_else(stale)?.into();
            return Ok(Thing::Place(Place { chunks, path, pin: None }));
        }
        match self.table.get(inode).ok_or_else(stale)? {
            Thing::Directory(dir) if dir.doubtful && self.is_old(&dir) => self.heal(inode, &dir).map(Thing::Directory),
            thing => Ok(thing),
        }
    }

    /// Takes back a lookup whose answer has not reached the kernel.
    pub fn take_back(&self, inode: u64) {
        // What it knew of the inode before, it knows still.
        if inode::unpack(inode).is_none() {
            self.table.forget(inode, 1);
        }
    }

    /// The kernel gives back `count` lookups of `inode`.
    pub fn forget(&self, inode: u64, count: u64) {
        if self.pins.forget(inode) && !self.cache.forgotten(inode.into()) {
            self.note_lost(inode);
        }
        if inode::unpack(inode).is_none() {
            self.table.forget(inode, count);
        }
    }
}

/// Gives an opened directory its chunks and them a slot.
fn dir(directory: Directory, parent: u64, above: bool, tree: &Tree, arrays: &RwLock<Vec<Arc<Chunks>>>) -> Dir {
    let chunks = directory.array().map(|array| {
        let mut arrays = arrays.write();
        let chunks = Arc::new(Chunks {
            key: directory.key.clone(),
            array: array.clone(),
            places: Places::new(array),
            slot: arrays.len(),
            modified: directory.modified,
            told: doubt::Told::new(&directory, parent),
            looked_up: AtomicU64::new(0),
            presence: presence::Presence::default(),
            streams: Mutex::default(),
            lost: AtomicBool::new(false),
            counters: ArrayCounters::default(),
            understood: OnceLock::new(),
        });
        arrays.push(chunks.clone());
        chunks
    });
    Dir { chunks, ..doubt::bare(directory, parent, above, tree) }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    value.hash(&mut hasher);
    // 0 stands for "only one version".
    hasher.finish() | 1
}
