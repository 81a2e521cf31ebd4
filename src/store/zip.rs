//! zip.
