//! dir.
