//! What a directory without documents is by what lies in it.
//!
//! An array of WKW whose header is missing, or a group that nobody gave a document: the root of an N5 container, a layer of a
//! WEBKNOSSOS dataset. Only the nearest nodes are looked at, and so many of them.

use super::{Tree, cubes};
use crate::array::{Attributes, Format, Group, Node};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Context};
use crate::store::{Key, Listing, ObjectKind};

/// Most directories looked at for the kind of one.
pub(super) const PEEKS: u32 = 64;
/// And so deep.
const DEPTH: u32 = 3;

/// What lies below a directory without documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peek {
    Nothing,
    /// Nodes of one format.
    Nodes(Format),
    /// Stores, or nodes of several formats.
    Stores,
}

impl Tree {
    /// What the directory `key`, which has no documents, is.
    ///
    /// # Errors
    /// When the store does not answer, which leaves the question open.
    pub(super) fn by_content(&self, key: &Key, context: &Context<'_>, notices: &mut Vec<String>) -> Result<Node> {
        let Some(listing) = self.looked_into(key)? else { return Ok(Node::Directory) };
        if self.is_wanted(Format::Wkw)
            && let Some(array) = self.headerless(key, &listing, context)?
        {
            notices.push(cubes::INFERRED.to_owned());
            return Ok(Node::Array(Box::new(array)));
        }
        if !self.is_wanted(Format::N5) && !self.is_wanted(Format::Wkw) {
            return Ok(Node::Directory);
        }
        Ok(match self.peek(key, &listing, DEPTH, &mut { PEEKS })? {
            Peek::Nodes(format) => Node::Group(Group::of(format, Ok(Attributes::new()))),
            Peek::Nothing | Peek::Stores => Node::Directory,
        })
    }

    fn is_wanted(&self, format: Format) -> bool {
        self.options.wanted.include(format)
    }

    /// The names in a directory; `None` where it may not be looked into, and then there is nothing to go by.
    fn looked_into(&self, key: &Key) -> Result<Option<Listing>> {
        match self.store.sample(key) {
            Ok(listing) => Ok(Some(listing)),
            Err(e) if matches!(e.kind(), Kind::Denied | Kind::NotFound) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Which format the nearest nodes below a directory have, where they do not start a hierarchy of their own.
    fn peek(&self, key: &Key, listing: &Listing, depth: u32, budget: &mut u32) -> Result<Peek> {
        let mut found = Peek::Nothing;
        for (name, kind) in listing.iter() {
            if kind != ObjectKind::Directory || *budget == 0 {
                continue;
            }
            *budget -= 1;
            let Ok(child) = key.join(name) else { continue };
            let below = self.peek_at(&child, depth, budget)?;
            found = match (found, below) {
                (found, Peek::Nothing) => found,
                (Peek::Nothing, below) => below,
                (Peek::Nodes(one), Peek::Nodes(other)) if one == other => found,
                _ => return Ok(Peek::Stores),
            };
        }
        Ok(found)
    }

    fn peek_at(&self, key: &Key, depth: u32, budget: &mut u32) -> Result<Peek> {
        let Some(documents) = self.glance(key)? else { return Ok(Peek::Nothing) };
        let context = Context { wanted: self.options.wanted, ..Context::default() };
        // Damage, and what may not be read, says nothing of what lies above it; but a store that does not answer leaves the
        // question open.
        let open = |e: Error| match e.kind() {
            Kind::Unavailable | Kind::Dangling | Kind::TimedOut | Kind::Changed => Err(e.about(key)),
            _ => Ok(Peek::Nothing),
        };
        if !documents.is_empty() {
            return match format::detect(&documents, &context) {
                Ok(Node::Array(array)) if matches!(array.format, Format::N5 | Format::Wkw) => Ok(Peek::Nodes(array.format)),
                Ok(Node::Group(Group { format: Format::N5, attributes: Ok(attributes), .. }))
                    if !attributes.contains_key("n5") =>
                {
                    Ok(Peek::Nodes(Format::N5))
                }
                // A container or a store of its own: this is a folder of stores.
                Ok(_) => Ok(Peek::Stores),
                Err(e) => open(e),
            };
        }
        let Some(listing) = self.looked_into(key)? else { return Ok(Peek::Nothing) };
        if self.is_wanted(Format::Wkw) {
            match self.headerless(key, &listing, &context) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(Peek::Nodes(Format::Wkw)),
                Err(e) => return open(e),
            }
        }
        if depth <= 1 {
            return Ok(Peek::Nothing);
        }
        match self.peek(key, &listing, depth - 1, budget)? {
            Peek::Stores => Ok(Peek::Nothing),
            below => Ok(below),
        }
    }
}
