//! Every bound on untrusted input, in one place, each with its reason.

/// Largest metadata document that is read, in bytes. Consolidated metadata of ten thousand arrays is about 20 MB; a parsed
/// document takes some ten times its text, and forty where it is a million of tiny attributes.
pub const DOCUMENT: u64 = 64 << 20;

/// Largest number of dimensions. numpy and netCDF stop at 64 and 1024, HDF5 at 32; N5 headers can claim 65,535.
pub const RANK: usize = 64;

/// Largest decoded chunk, in bytes: N5's own limit of 2^31, and Blosc's and LZ4's.
pub const CHUNK: u64 = 1 << 31;

/// Largest decoded chunk whose length the metadata does not tell (variable-length codecs that stay in the metadata).
pub const VARIABLE_CHUNK: u64 = 256 << 20;

/// Most codecs in one chain; real ones have at most about six.
pub const CODECS: usize = 64;

/// Largest item of a data type, in bytes (fixed-length strings and structured types can be wide).
pub const ITEM: u64 = 64 << 20;

/// Most fields of a structured data type, counted through all nesting.
pub const FIELDS: usize = 4096;

/// Deepest nesting of a structured data type.
pub const DTYPE_DEPTH: usize = 16;

/// Most parts of one shard or blocks of one cube. WEBKNOSSOS writes 32,768; an index of this many takes 256 MiB.
pub const INDEX: u64 = 1 << 24;

/// Most memory for the listing of one directory of an object store, in bytes: some ten million names, which take a server
/// ten thousand pages.
pub const LISTING: usize = 1 << 30;

/// Longest key of a store, in bytes; Linux paths stop at 4096.
pub const KEY: usize = 4096;

/// What stands in a text for half of a surrogate pair, which JSON may spell and no text can hold (see `format/json.rs`), begins with these
/// bytes: U+FDD0, which is no character, and the first two of one beyond U+F000 in the last plane. No name of a store holds them.
pub const HALF: [u8; 5] = [0xef, 0xb7, 0x90, 0xf4, 0x8f];

/// Largest file that must be held whole to be shown (a deflated zip entry of no format, for example).
pub const WHOLE_FILE: u64 = 1 << 30;

/// Most bytes of deflated archives within an archive that are held to be shown as directories. A downloaded annotation has some
/// megabytes; stored archives are read by ranges and are not counted.
pub const NESTED: u64 = 512 << 20;

/// The most encoded bytes that can stand for `decoded` bytes. Every codec's own worst case is below 1.2 times plus a header;
/// the rest is slack for concatenated members and padding, so that no real chunk is refused.
pub const fn encoded(decoded: u64) -> u64 {
    decoded.saturating_mul(2).saturating_add(1 << 20)
}
