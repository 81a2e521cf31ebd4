//! zarr3.
