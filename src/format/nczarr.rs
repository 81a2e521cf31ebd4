//! nczarr.
