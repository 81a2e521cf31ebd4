//! zarr2.
