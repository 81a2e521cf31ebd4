//! Headers and properties as other software writes them.
