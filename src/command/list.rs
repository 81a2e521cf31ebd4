//! `ls` and `cat`: the names of the tree, and the bytes of its files.

use super::progress::{self, Progress};
use super::text::{Out, plain};
use super::{Opened, Place, find_one, open, walk};
use crate::cli::commands::{Cat, Ls};
use crate::error::{Error, Kind, Result};
use crate::logs;
use crate::store::ObjectKind;

/// What `ls -l` tells of a name that cannot be looked at, as wide as what it tells of others.
const UNKNOWN: &str = "??????????            ?                    ? ";

/// Runs `ls`.
///
/// # Errors
/// Those of the source, of PATH, and of a store far away that does not answer. What else cannot be looked at below it is named on the
/// standard error, all else is listed, and the error is of the gravest kind.
pub fn run(ls: &Ls) -> Result<()> {
    let opened = open(&ls.at)?;
    let place = find_one(&opened, ls.path.as_ref())?;
    let mut out = Out::new();
    if !place.is_directory() {
        entry(&mut out, ls, &place, walk::name(&place.path))?;
        return out.flush();
    }
    let problems = Progress::new(true, false);
    let mut left = vec![place.clone()];
    while let Some(here) = left.pop() {
        let mut below = Vec::new();
        let names = match walk::sorted(&opened.vfs, here.attr.inode) {
            Ok(names) => names,
            Err(e) if here.path == place.path || is_down(&opened, &e) => return Err(e.within(&opened.name)),
            Err(e) => {
                problems.failed(&here.path, e);
                continue;
            }
        };
        for (name, kind) in names {
            let path = here.join(&name);
            let shown = if place.path.is_empty() { &path } else { path.get(place.path.len() + 1..).unwrap_or(&path) };
            if !(ls.long || ls.recursive && kind == ObjectKind::Directory) {
                line(&mut out, "", shown, kind)?;
                continue;
            }
            let attr = match opened.vfs.lookup(here.attr.inode, &name) {
                Ok(attr) => attr,
                Err(e) if is_down(&opened, &e) => return Err(e.within(&opened.name)),
                Err(e) => {
                    problems.failed(&path, e);
                    let unknown = if ls.long { UNKNOWN } else { "" };
                    line(&mut out, unknown, shown, kind)?;
                    continue;
                }
            };
            let found = Place { attr, path: path.clone() };
            entry(&mut out, ls, &found, shown)?;
            if kind == ObjectKind::Directory && ls.recursive {
                below.push(found);
            } else {
                opened.vfs.forget(attr.inode, 1);
            }
        }
        left.extend(below.into_iter().rev());
    }
    out.flush()?;
    problems.finish(&opened.name, None)
}

/// Whether the store does not answer, which for each name would have to be waited for.
fn is_down(opened: &Opened, e: &Error) -> bool {
    opened.vfs.is_distant() && matches!(e.kind(), Kind::TimedOut | Kind::Unavailable)
}

/// Writes a line for one entry, as `ls -l` has it.
fn entry(out: &mut Out, ls: &Ls, place: &Place, shown: &[u8]) -> Result<()> {
    let attr = &place.attr;
    if !ls.long {
        return line(out, "", shown, attr.kind);
    }
    let mode = if attr.kind == ObjectKind::Directory { "dr-xr-xr-x" } else { "-r--r--r--" };
    line(out, &format!("{mode} {:>12} {} ", attr.size, logs::utc(attr.modified)), shown, attr.kind)
}

fn line(out: &mut Out, before: &str, name: &[u8], kind: ObjectKind) -> Result<()> {
    match kind {
        ObjectKind::Directory => {
            let name = out.painted("1;34", &plain(name));
            out.line(&format!("{before}{name}/"))
        }
        ObjectKind::File => out.line(&format!("{before}{}", plain(name))),
    }
}

/// Runs `cat`.
///
/// # Errors
/// Those of the source and of the tree. What follows a file that fails is not written.
pub fn cat(cat: &Cat) -> Result<()> {
    let opened = open(&cat.at)?;
    let mut out = Out::new();
    for path in &cat.path {
        let place = find_one(&opened, Some(path))?;
        let mut unwritten = None;
        let written = walk::contents(&opened.vfs, &place.attr, &mut |_, bytes| {
            out.bytes(bytes).inspect_err(|e| unwritten = Some(e.clone()))
        });
        written.map_err(|e| unwritten.unwrap_or_else(|| progress::at(&place.path, e).within(&opened.name)))?;
        opened.vfs.forget(place.attr.inode, 1);
    }
    out.flush()
}
