//! Codecs: bytes to bytes, backwards, into a known length.
//!
//! A [`Chain`] lists codecs in the order in which a writer applied them; decoding undoes them from the last to the first. The
//! length of the result is known before anything is allocated, and each stage's own length follows from it, so that a header
//! that claims more, or a stream that goes on for ever, ends in an error.

pub mod config;

use crate::error::{Error, Result};

/// How long the result of a stage must be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Just so long.
    Exact(usize),
    /// Not longer; the true length shows only when decoded.
    AtMost(usize),
}

/// One codec with what decoding needs of its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Codec {
    /// gzip, also of several members.
    Gzip,
}

/// Codecs in the order in which they were applied when writing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    codecs: Vec<Codec>,
}

impl Chain {
    /// A chain of `codecs`, first applied first.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooBig`] over [`crate::limits::CODECS`].
    pub fn new(codecs: Vec<Codec>) -> Result<Self> {
        if codecs.len() > crate::limits::CODECS {
            return Err(Error::too_big(format!("{} codecs; at most {} are read", codecs.len(), crate::limits::CODECS)));
        }
        Ok(Self { codecs })
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.codecs.is_empty()
    }

    /// The most encoded bytes that can stand for a result of `length`; exact where no codec compresses.
    pub fn encoded_length(&self, length: Length) -> Length {
        length
    }

    /// Undoes the chain: `encoded` becomes a result of `length`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Corrupt`] when the bytes are not what a writer produces, or give another length.
    pub fn decode(&self, encoded: &[u8], length: Length) -> Result<Vec<u8>> {
        let _ = (encoded, length);
        Err(Error::unsupported("not yet"))
    }

    /// Names of the codecs as a person knows them, in the order of writing (`shuffle`, `zlib`).
    pub fn names(&self) -> Vec<String> {
        Vec::new()
    }
}
