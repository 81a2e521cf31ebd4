//! What is shown: the documents of a node, rendered.

pub mod zarr2;
pub mod zarr3;
