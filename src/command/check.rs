//! `check`: decodes everything, and lists what is corrupt or missing.
//!
//! A directory that cannot be understood is one problem, whatever lies in it: nobody can tell what its files are.

use super::progress::Progress;
use super::text::size;
use super::walk::{self, Job, Met, Owners};
use super::{find_one, open};
use crate::array::Node;
use crate::cli::commands::Check;
use crate::error::{Error, Result};
use crate::vfs::About;
use crate::view::names;
use std::collections::HashSet;

/// Largest grid whose absent chunks are named one by one.
const GRID: u64 = 1 << 24;

/// An array that was met.
struct Seen {
    path: Vec<u8>,
    about: About,
    /// Chunks that are there.
    count: u64,
    /// Their names, where absent ones are missing ones.
    names: HashSet<Box<[u8]>>,
    /// Those in the directory that is listed.
    here: u64,
    /// What the indices of chunks begin with that lie in directories which cannot be listed: nobody knows which of them are there.
    doubtful: Vec<Vec<u64>>,
    /// Chunks of these that are there all the same: listed before that failed, or further below.
    known: u64,
}

impl Seen {
    /// What lies below the array at `path`, as an index or the beginning of one.
    fn place(&self, path: &[u8]) -> Option<names::Path> {
        let Ok(Node::Array(array)) = self.about.node() else { return None };
        let below = path.get(self.path.len()..).unwrap_or_default();
        walk::place(array, below.strip_prefix(b"/").unwrap_or(below))
    }

    fn is_doubtful(&self, index: &[u64]) -> bool {
        self.doubtful.iter().any(|prefix| index.starts_with(prefix))
    }

    /// A directory at or below the array, which is listed no further.
    fn doubt(&mut self, path: &[u8], is_listed: bool) {
        if let Some(names::Path::Prefix(prefix)) = self.place(path)
            && !self.is_doubtful(&prefix)
        {
            self.doubtful.push(prefix);
            self.known += if is_listed { self.here } else { 0 };
        }
    }

    /// Chunks of which it is not known whether they are there; `None` for too many.
    fn in_doubt(&self) -> Option<u64> {
        let Ok(Node::Array(array)) = self.about.node() else { return Some(0) };
        let grid = array.grid();
        let below = |prefix: &Vec<u64>| {
            let rest = grid.get(prefix.len()..).unwrap_or_default();
            rest.iter().try_fold(1_u64, |n, g| n.checked_mul(*g))
        };
        let all = self.doubtful.iter().try_fold(0_u64, |sum, prefix| sum.checked_add(below(prefix)?))?;
        Some(all.saturating_sub(self.known))
    }

    /// Chunks of the grid that are positively absent; `None` for too many.
    fn absent(&self) -> Option<u64> {
        Some(total(&self.about)?.saturating_sub(self.count).saturating_sub(self.in_doubt()?))
    }
}

/// Runs `check`.
///
/// # Errors
/// Those of the source; and where anything is wrong, an error of the gravest kind.
pub fn run(check: &Check) -> Result<()> {
    let opened = open(&check.at)?;
    let vfs = &opened.vfs;
    let from = find_one(&opened, check.path.as_ref())?;
    let progress = Progress::new(check.quiet, true);
    let mut seen: Vec<Seen> = Vec::new();
    let work = |job: Job| {
        let mut length = 0;
        let read = walk::read(vfs, &job, &mut |_, bytes| {
            length += bytes.len() as u64;
            Ok(())
        });
        if let Err(e) = read {
            progress.failed(&job.path, e);
        }
        progress.done(length);
        Ok(())
    };
    if !from.is_directory() {
        let length = &mut 0;
        let read = walk::contents(vfs, &from.attr, &mut |_, bytes| {
            *length += bytes.len() as u64;
            Ok(())
        });
        read.unwrap_or_else(|e| progress.failed(&from.path, e));
        progress.done(*length);
        return progress.finish(&opened.name, Some(&format!("{} in 1 file", size(progress.bytes()))));
    }
    walk::parallel(walk::threads(check.jobs), &work, |add| {
        // Which of the arrays the files met belong to; or that they are not looked at.
        let mut owners: Owners<Option<usize>> = Owners::default();
        let mut broken: Owners<bool> = Owners::default();
        walk::walk(vfs, &from, &mut |met| {
            match met {
                Met::Directory(place) => {
                    let Some(about) = vfs.about(place.attr.inode)? else {
                        if let Some(array) = owners.of(&place.path).copied().flatten().and_then(|at| seen.get_mut(at)) {
                            array.here = 0;
                        }
                        return Ok(());
                    };
                    broken.enter(&place.path, about.node().is_err());
                    let owner = match about.node() {
                        Err(e) => {
                            progress.problem(&e.clone().about(about.key()));
                            None
                        }
                        Ok(Node::Array(_)) => {
                            let (path, names) = (place.path.clone(), HashSet::new());
                            let (doubtful, here, known) = Default::default();
                            seen.push(Seen { path, about, count: 0, names, here, doubtful, known });
                            Some(seen.len() - 1)
                        }
                        Ok(_) => None,
                    };
                    owners.enter(&place.path, owner);
                }
                Met::File(place, name) => {
                    if broken.of(&place.path).copied().unwrap_or(false) {
                        return Ok(());
                    }
                    let path = place.join(name);
                    let owner = owners.of(&place.path).copied().flatten();
                    if let Some(array) = owner.and_then(|at| seen.get_mut(at))
                        && let Some(names::Path::Chunk(index)) = array.place(&path)
                    {
                        array.count += 1;
                        array.here += 1;
                        array.known += u64::from(array.is_doubtful(&index));
                        if check.complete {
                            let below = path.get(array.path.len()..).unwrap_or_default();
                            array.names.insert(below.strip_prefix(b"/").unwrap_or(below).into());
                        }
                    }
                    progress.found();
                    add(Job { parent: place.attr.inode, path })?;
                }
                Met::Listed(..) => {}
                Met::Failed(place, is_listed, e) => {
                    if let Some(array) = owners.of(place).copied().flatten().and_then(|at| seen.get_mut(at)) {
                        array.doubt(place, is_listed);
                    }
                    progress.failed(place, e);
                }
            }
            Ok(())
        })
    })?;
    if check.complete {
        seen.iter().for_each(|array| missing(array, &progress));
    }
    end(&progress, &opened.name, &seen)
}

/// Names the chunks of the grid that are not there.
fn missing(seen: &Seen, progress: &Progress) {
    let Ok(Node::Array(array)) = seen.about.node() else { return };
    let grid = array.grid();
    let total = total(&seen.about);
    if total.is_none_or(|total| total > GRID) {
        let absent = seen.absent();
        let number = absent.map_or_else(|| "many".to_owned(), |absent| absent.to_string());
        let e = Error::not_found().about(format_args!("{}: {number} chunks of the grid", seen.about.key()));
        return if absent != Some(0) {
            progress.problem(&e)
        };
    }
    for number in 0..total.unwrap_or(0) {
        let mut rest = number;
        let mut index = vec![0; grid.len()];
        for (slot, length) in index.iter_mut().zip(&grid).rev() {
            *slot = rest.checked_rem(*length).unwrap_or(0);
            rest = rest.checked_div(*length).unwrap_or(0);
        }
        if !seen.is_doubtful(&index) && !seen.names.contains(names::shown(array, &index).as_bytes()) {
            let key = seen.about.chunk_key(&index).map_or_else(|e| e.to_string(), |key| key.to_string());
            progress.problem(&Error::not_found().about(format_args!("{key}: chunk {index:?}")));
        }
    }
}

/// Chunks of the grid.
fn total(about: &About) -> Option<u64> {
    let Ok(Node::Array(array)) = about.node() else { return Some(0) };
    array.grid().iter().try_fold(1_u64, |n, g| n.checked_mul(*g))
}

/// Sums up, and ends with what was found.
fn end(progress: &Progress, source: &str, seen: &[Seen]) -> Result<()> {
    let chunks: u64 = seen.iter().map(|array| array.count).sum();
    let absent = seen.iter().try_fold(0_u64, |sum, a| sum.checked_add(a.absent()?));
    let absent = match absent {
        Some(0) => String::new(),
        Some(1) => "; 1 absent chunk stands for the fill value".to_owned(),
        Some(absent) => format!("; {absent} absent chunks stand for the fill value"),
        None => "; absent chunks stand for the fill value".to_owned(),
    };
    let in_doubt = match seen.iter().try_fold(0_u64, |sum, a| sum.checked_add(a.in_doubt()?)) {
        Some(0) => String::new(),
        Some(number) => format!("; {number} may be in directories that cannot be listed"),
        None => "; others may be in directories that cannot be listed".to_owned(),
    };
    let noun = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let sum = format!(
        "{} in {} ({}, {}){absent}{in_doubt}",
        size(progress.bytes()),
        noun(progress.files(), "file"),
        noun(seen.len() as u64, "array"),
        noun(chunks, "chunk"),
    );
    progress.finish(source, Some(&sum))
}
