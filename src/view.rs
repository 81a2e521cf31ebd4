//! What is shown: the documents of a node, rendered.

pub mod nczarr;
pub mod zarr2;
pub mod zarr3;
