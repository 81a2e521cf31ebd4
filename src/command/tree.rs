//! `tree`: groups and arrays, drawn.

use super::info::{extent, format_name};
use super::text::{Out, plain};
use super::{Opened, Place, find_one, open, walk};
use crate::array::Node;
use crate::cli::commands::Tree;
use crate::error::Result;
use crate::store::ObjectKind;
use crate::view;

/// Runs `tree`.
///
/// # Errors
/// Those of the source, and of PATH; what is wrong below it is drawn in its place.
pub fn run(tree: &Tree) -> Result<()> {
    let opened = open(&tree.at)?;
    let place = find_one(&opened, tree.path.as_ref())?;
    let mut out = Out::new();
    let name = if place.path.is_empty() { opened.name.clone() } else { plain(&place.path) };
    let (words, _) = words(&opened, &place);
    let name = if place.is_directory() { out.painted("1;34", &name) } else { name };
    out.line(&format!("{name}{words}"))?;
    if place.is_directory() {
        draw(&opened, tree, &mut out, &place, "", 1)?;
    }
    out.flush()
}

/// Draws what lies in a directory, each line after `before`.
fn draw(opened: &Opened, tree: &Tree, out: &mut Out, here: &Place, before: &str, depth: u16) -> Result<()> {
    if tree.level.is_some_and(|level| depth > level) {
        return Ok(());
    }
    let last_line =
        |out: &mut Out, e: crate::error::Error| out.line(&format!("{before}└── {}", out.painted("31", &e.to_string())));
    let mut names = match walk::sorted(&opened.vfs, here.attr.inode) {
        Ok(names) => names,
        Err(e) => return last_line(out, e),
    };
    if !tree.all {
        names.retain(|(_, kind)| *kind == ObjectKind::Directory);
    }
    let mut shown = Vec::with_capacity(names.len());
    for (name, kind) in names {
        let place = match kind {
            ObjectKind::File => None,
            ObjectKind::Directory => match opened.vfs.lookup(here.attr.inode, &name) {
                Ok(attr) => Some(Ok(Place { attr, path: here.join(&name) })),
                Err(e) => Some(Err(e)),
            },
        };
        // Directories on the way to chunks are like the chunks.
        let is_way = matches!(&place, Some(Ok(place)) if matches!(opened.vfs.about(place.attr.inode), Ok(None)));
        if tree.all || !is_way {
            shown.push((name, place));
        }
    }
    let count = shown.len();
    for (i, (name, place)) in shown.into_iter().enumerate() {
        let is_last = i + 1 == count;
        let branch = if is_last { "└── " } else { "├── " };
        match place {
            None => out.line(&format!("{before}{branch}{}", plain(&name)))?,
            Some(Err(e)) => {
                let why = out.painted("31", &e.to_string());
                out.line(&format!("{before}{branch}{}  {why}", plain(&name)))?;
            }
            Some(Ok(place)) => {
                let (words, is_broken) = words(opened, &place);
                let words = if is_broken { out.painted("31", &words) } else { words };
                out.line(&format!("{before}{branch}{}{words}", out.painted("1;34", &plain(&name))))?;
                let before = format!("{before}{}", if is_last { "    " } else { "│   " });
                draw(opened, tree, out, &place, &before, depth.saturating_add(1))?;
            }
        }
    }
    Ok(())
}

/// What stands after the name of a directory, and whether that is an error.
fn words(opened: &Opened, place: &Place) -> (String, bool) {
    let Ok(Some(about)) = opened.vfs.about(place.attr.inode) else { return (String::new(), false) };
    match about.node() {
        Ok(Node::Directory) => (String::new(), false),
        Ok(Node::Group(group)) => (format!("  {} group", group.format.name()), false),
        Ok(Node::Array(array)) => {
            let codecs = array.stored.chain.names().join(", ");
            let by = if codecs.is_empty() { codecs } else { format!(", {codecs}") };
            let chunks = if array.shape.is_empty() { String::new() } else { format!(" in {}", extent(&array.chunks)) };
            let text = format!("  {} {} {}{chunks}{by}", format_name(array), view::dtype(array), extent(&array.shape));
            (text, false)
        }
        Err(e) => (format!("  {e}"), true),
    }
}
