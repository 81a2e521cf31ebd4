//! The commands: what is done with a tree without mounting it, through the same calls that the kernel's requests become.

mod check;
mod copy;
mod generate;
mod info;
mod list;
mod progress;
mod stats;
mod text;
mod tree;
mod walk;

use crate::cli::commands::Source;
use crate::cli::{Cli, Command};
use crate::error::{Error, Kind, Result};
use crate::store::ObjectKind;
use crate::vfs::{Attr, ROOT, Vfs};
use crate::{logs, mount};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Most bytes of decoded blocks that a command keeps where nothing else is asked for: none of them reads a chunk twice.
const CACHE: u64 = 64 << 20;

/// Runs the command line.
///
/// # Errors
/// What a person must be told; the exit status follows from its kind.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        None => mount::run(cli),
        Some(Command::Ls(ls)) => list::run(ls),
        Some(Command::Tree(tree)) => tree::run(tree),
        Some(Command::Cat(cat)) => list::cat(cat),
        Some(Command::Info(info)) => info::run(info),
        Some(Command::Cp(copy)) => copy::run(copy),
        Some(Command::Check(check)) => check::run(check),
        Some(Command::Stats(stats)) => stats::run(stats),
        Some(Command::Generate(what)) => generate::run(what.what),
    }
}

/// Prints the help, or the version, that was asked for.
///
/// # Errors
/// When it cannot be written.
pub fn print(help: &clap::Error) -> Result<()> {
    match help.print().and_then(|()| std::io::stdout().flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(text::unwritten(&e)),
        _ => Ok(()),
    }
}

/// A source that is open, and its tree.
struct Opened {
    vfs: Vfs,
    /// What the source is called.
    name: String,
    /// The local file or directory.
    path: Option<PathBuf>,
}

/// Opens a source as mounting would, without the threads that read ahead.
fn open(at: &Source) -> Result<Opened> {
    logs::start(&at.logs)?;
    let source = mount::open(&at.source, &at.view)?;
    let vfs = mount::shown(&source, &at.view, at.view.cache_size.unwrap_or(CACHE))?;
    Ok(Opened { vfs, name: source.name, path: source.path })
}

/// A place in the tree.
#[derive(Clone)]
struct Place {
    attr: Attr,
    /// The way there from the root, without a slash at either end; empty for the root.
    path: Vec<u8>,
}

impl Place {
    fn is_directory(&self) -> bool {
        self.attr.kind == ObjectKind::Directory
    }

    /// The path of what is called `name` in this directory.
    fn join(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

/// Finds a path; the last place is what it names, those before are the directories on the way, the root first.
fn find(opened: &Opened, path: Option<&OsString>) -> Result<Vec<Place>> {
    let vfs = &opened.vfs;
    let mut places = vec![Place { attr: vfs.attr(ROOT)?, path: Vec::new() }];
    let names = path.map(|path| path.as_bytes()).unwrap_or_default();
    for name in names.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        let here = places.last().cloned().ok_or_else(|| Error::new(Kind::Bug, "a path without a root"))?;
        let path = here.join(name);
        // The error may name a key below; what was asked for comes first.
        let about = |e: Error| match e.kind() {
            Kind::NotFound => Error::not_found().about(format_args!("{}: {}", opened.name, text::plain(&path))),
            _ => e.within(&opened.name),
        };
        if name == b".." {
            return Err(Error::usage("a path begins at the root of the tree, and has no \"..\"").about(text::plain(&path)));
        }
        if !here.is_directory() {
            return Err(about(Error::not_found()));
        }
        let attr = vfs.lookup(here.attr.inode, name).map_err(about)?;
        places.push(Place { attr, path });
    }
    Ok(places)
}

/// What a path names.
fn find_one(opened: &Opened, path: Option<&OsString>) -> Result<Place> {
    find(opened, path)?.pop().ok_or_else(|| Error::new(Kind::Bug, "a path without a root"))
}

/// What two errors make the command end with: the graver one.
fn graver(one: Option<Kind>, other: Kind) -> Kind {
    const ORDER: [Kind; 11] = [
        Kind::Bug,
        Kind::Corrupt,
        Kind::TooBig,
        Kind::Unavailable,
        Kind::Dangling,
        Kind::TimedOut,
        Kind::Changed,
        Kind::Denied,
        Kind::Unsupported,
        Kind::NotFound,
        Kind::Usage,
    ];
    let rank = |kind: Kind| ORDER.iter().position(|k| *k == kind).unwrap_or(ORDER.len());
    one.filter(|one| rank(*one) <= rank(other)).unwrap_or(other)
}
