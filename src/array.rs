//! What an array is, as plain data: shape, grid, data type, fill value, and how its stored blocks become the shown ones.
//!
//! Everything here is in the order of axes that is *shown*; [`Stored`] says what differs in the store. No I/O.

pub mod scales;

use crate::codec::Chain;
use crate::error::Error;
use scales::Multiscale;
use serde_json::{Map, Value};

/// Attributes by name, in the order of the source.
pub type Attributes = Map<String, Value>;

/// Which system a node was written by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Zarr version 2, NCZarr included: NCZarr is a dialect.
    Zarr2,
    /// Zarr version 3.
    Zarr3,
    /// N5.
    N5,
    /// WEBKNOSSOS WKW.
    Wkw,
}

impl Format {
    /// The name a person uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zarr2 => "zarr2",
            Self::Zarr3 => "zarr3",
            Self::N5 => "n5",
            Self::Wkw => "wkw",
        }
    }
}

/// Which formats are looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Formats {
    /// All that are known.
    #[default]
    All,
    /// Zarr of either version, which is where NCZarr is.
    Zarr,
    /// One alone.
    Only(Format),
}

impl Formats {
    /// Whether `format` is one of them.
    pub fn include(self, format: Format) -> bool {
        match self {
            Self::All => true,
            Self::Zarr => matches!(format, Format::Zarr2 | Format::Zarr3),
            Self::Only(only) => only == format,
        }
    }

    /// What a root without a document of its own belongs to, where it is not the content that tells.
    pub fn of_root(self) -> Option<Format> {
        match self {
            Self::All => None,
            Self::Zarr => Some(Format::Zarr2),
            Self::Only(only) => Some(only),
        }
    }
}

/// A directory of the source, understood.
#[derive(Debug, Clone)]
pub enum Node {
    /// Belongs to no format.
    Directory,
    /// A group.
    Group(Group),
    /// An array.
    Array(Box<Array>),
}

/// A group of a hierarchy.
#[derive(Debug, Clone)]
pub struct Group {
    /// Which format.
    pub format: Format,
    /// Attributes as shown, or why they cannot be read; the rest of the group works without them.
    pub attributes: Result<Attributes, Error>,
    /// Whether the source has consolidated metadata here.
    pub consolidated: bool,
    /// The scale pyramid that its arrays make, where that is known; shown as OME-Zarr's `multiscales`.
    pub multiscale: Option<Multiscale>,
}

impl Group {
    /// A group of `format` with these attributes and nothing else.
    pub fn of(format: Format, attributes: Result<Attributes, Error>) -> Self {
        Self { format, attributes, consolidated: false, multiscale: None }
    }
}

/// An array, as it is shown.
#[derive(Debug, Clone)]
pub struct Array {
    /// Which format it is stored in.
    pub format: Format,
    /// Length of each axis, in elements.
    pub shape: Vec<u64>,
    /// Length of each axis of a chunk, in elements; none is 0.
    pub chunks: Vec<u64>,
    /// Type of an element; shown bytes are little-endian.
    pub dtype: DType,
    /// Value of elements that are not stored.
    pub fill: Fill,
    /// Order of the elements in a shown chunk file; with codecs that stay it is the stored one, for nothing is transposed.
    pub order: Order,
    /// How indices make the names of shown chunk files; never [`Style::Cube`].
    pub keys: Keys,
    /// Names of the axes, where the source has them.
    pub dimension_names: Option<Vec<Option<String>>>,
    /// Attributes as shown (with `_ARRAY_DIMENSIONS`), or why they cannot be read; the data does not need them.
    pub attributes: Result<Attributes, Error>,
    /// What stays of the source in the metadata, and in the bytes.
    pub kept: Kept,
    /// How the stored blocks are found and decoded.
    pub stored: Stored,
}

/// Order of the elements in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Last axis fastest.
    C,
    /// First axis fastest.
    F,
}

/// How the indices of a chunk make its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// What stands before and between the indices.
    pub style: Style,
    /// What joins indices: `.` or `/`.
    pub separator: u8,
    /// What follows the last index in the store (an extension of some writers of Zarr v3); mostly nothing.
    pub suffix: String,
}

/// What stands before and between the indices in the name of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Nothing: `3.1.4`, and `0` without axes. Zarr v2, N5, and Zarr v3's chunk key encoding `v2`.
    Plain,
    /// A `c` and the separator: `c/3/1/4`, and `c` without axes. Zarr v3's chunk key encoding `default`.
    C,
    /// A WKW file: `z3/y1/x4.wkw`, of the first three axes.
    Cube,
}

impl Keys {
    /// Zarr v2's names with this separator.
    pub fn plain(separator: u8) -> Self {
        Self { style: Style::Plain, separator, suffix: String::new() }
    }

    /// Whether chunks lie in directories, one for each index but the last.
    pub fn nested(&self) -> bool {
        self.separator == b'/'
    }
}

/// Codecs that cannot be removed, none for a plain array; and words of the source that are shown again.
///
/// An array of Zarr v2 has `filters` and `compressor`; one of Zarr v3 has `zarr3`, and the others as well where they can be
/// spelled so.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// Filters that remain, in the order of `filters`; the innermost of the source's, so that all that follow were removed.
    pub filters: Vec<Value>,
    /// The compressor that remains; then nothing was removed at all.
    pub compressor: Option<Value>,
    /// The source's own spelling of `dtype`: what a kept codec holds is not touched, so its byte order is the stored one.
    /// Absent where nothing is kept.
    pub dtype: Option<Value>,
    /// All codecs that remain in the spelling of Zarr v3: those that change the array, the one that makes bytes, and those that
    /// change bytes.
    pub zarr3: Option<Vec<Value>>,
    /// The words of a Zarr v3 source, whether codecs are kept or not.
    pub words: Option<Words>,
}

/// What a Zarr v3 source says in words of its own, all of which are as true of what is shown.
#[derive(Debug, Clone)]
pub struct Words {
    /// `data_type`.
    pub data_type: Value,
    /// `fill_value`; absent where it is null.
    pub fill_value: Option<Value>,
}

impl Kept {
    /// Whether shown chunks are plain elements.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.compressor.is_none() && self.zarr3.is_none()
    }

    /// Names of the codecs that stay.
    pub fn names(&self) -> Vec<&str> {
        let zarr2 = self.filters.iter().chain(&self.compressor).filter(|_| self.zarr3.is_none());
        zarr2
            .chain(self.zarr3.iter().flatten())
            .filter_map(|codec| codec.as_str().or_else(|| codec.get("name").or_else(|| codec.get("id"))?.as_str()))
            .collect()
    }
}

/// How the blocks of an array are stored.
#[derive(Debug, Clone)]
pub struct Stored {
    /// How the indices of an object make its key: those of the chunk, or of the shard or cube that it lies in.
    pub keys: Keys,
    /// Where in an object the block of a chunk lies.
    pub placement: Placement,
    /// Whether keys hold the chunk indices in the opposite order of the shown axes (N5 shown as Zarr, WKW with its own axes).
    pub reversed: bool,
    /// What wraps the encoded bytes of a block.
    pub envelope: Envelope,
    /// The codecs to undo.
    pub chain: Chain,
    /// Which bytes of each element to reverse so that it is little-endian; empty where they are already.
    pub swaps: Vec<Swap>,
    /// Which shown axis each axis of the stored block is, in C order; empty where they are the same, or where nothing is moved.
    pub axes: Vec<usize>,
    /// Whether a block may hold one byte for each element instead of the four of [`DType::Text`]`(1)`: netcdf-c up to 4.9.0
    /// declares its characters `<U1` and, in pure Zarr, leaves no other mark. A block decodes to the full length, or to a
    /// quarter of it and then each byte is one code point; no other length is right.
    pub narrow_text: bool,
    /// Length along each axis of what the last object along it holds, a chunk or a shard of whole chunks, where some are shorter than
    /// all others; empty where they are not. A chunk is so only if it is of plain elements.
    pub last: Vec<u64>,
}

/// What wraps the encoded bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// Nothing.
    None,
    /// The N5 block header, which also tells how much of a block at the array's edge is stored.
    N5(Content),
}

/// What a block with an N5 header holds, and what is shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Elements in the shape that the header tells.
    Elements,
    /// As many numbers of so many bytes each as the header tells, whatever its shape is; shown as they are.
    Varlength(usize),
    /// A text for each element, ended by NUL; shown in Zarr's `vlen-utf8`.
    Strings,
    /// A serialised object; shown as it is.
    Object,
    /// A label multiset for each element; shown is its most frequent label.
    LabelMultisets,
}

/// Where in an object the block of a chunk lies.
#[derive(Debug, Clone, Default)]
pub enum Placement {
    /// It is the whole object.
    #[default]
    Object,
    /// It is a part of a shard, perhaps of a shard within a shard; the outermost first, never empty.
    Shards(Vec<Shard>),
    /// It is a block of a WKW cube.
    Cube(Cube),
}

/// One level of sharding: a container of parts with an index (Zarr v3's `sharding_indexed`).
///
/// Parts are chunks, or shards of the next level. Everything is in terms of shown axes and of chunks.
#[derive(Debug, Clone)]
pub struct Shard {
    /// Number of parts along each shown axis.
    pub parts: Vec<u64>,
    /// Number of chunks along each shown axis of one part; all 1 on the innermost level.
    pub chunks: Vec<u64>,
    /// Which shown axis each axis of the index is; the index is in C order of these.
    pub axes: Vec<usize>,
    /// Whether the index lies at the start of the shard or at its end.
    pub at_start: bool,
    /// Whether the numbers of the index are big-endian.
    pub big_endian: bool,
    /// What the index is encoded with; its encoded length follows from the decoded one.
    pub index: Chain,
    /// What the whole shard is encoded with. Where that is anything, the shard has to be read whole.
    pub envelope: Chain,
}

impl Shard {
    /// Number of parts; `None` when that is more than can be.
    pub fn count(&self) -> Option<u64> {
        self.parts.iter().try_fold(1u64, |n, &p| n.checked_mul(p))
    }
}

/// A WKW file: a header, perhaps a jump table, and the blocks in Morton order, the first of the axes x, y, z fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cube {
    /// Blocks along each side; a power of two.
    pub side: u64,
    /// Whether blocks are compressed, and found by the jump table.
    pub compressed: bool,
    /// Bytes of a decoded block.
    pub block: u64,
    /// The first eight bytes that each file has: magic, version, lengths, block and voxel type, voxel size.
    pub header: [u8; 8],
}

/// A run of numbers within an element whose bytes are to be reversed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// Offset of the first number in the element, in bytes.
    pub offset: usize,
    /// Width of a number, in bytes: 2, 4, 8 or 16.
    pub width: usize,
    /// How many numbers follow each other.
    pub count: usize,
}

/// The value of elements that are not stored.
#[derive(Debug, Clone)]
pub struct Fill {
    /// One element, little-endian; `None` where the source says `null`, which readers show as zeros (but a time as none).
    pub bytes: Option<Vec<u8>>,
    /// The value in the spelling of Zarr v2 metadata, as close to the source's own as is valid.
    pub zarr2: Value,
}

/// A type of elements. Byte order is not part of it: what is shown is little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DType {
    /// One byte, 0 or 1.
    Bool,
    /// Signed integer of 1, 2, 4 or 8 bytes.
    Int(u8),
    /// Unsigned integer of 1, 2, 4 or 8 bytes.
    UInt(u8),
    /// IEEE 754 number of 2, 4 or 8 bytes.
    Float(u8),
    /// The upper half of an IEEE 754 number of 4 bytes. In Zarr v2 only tensorstore has a name for it.
    BFloat16,
    /// A number of at most eight bits in a byte, by its name in Zarr v3. In Zarr v2 only tensorstore has names for some.
    Small(&'static str),
    /// Two IEEE 754 numbers, 8 or 16 bytes together.
    Complex(u8),
    /// Byte string of so many bytes, padded with NUL. `char` is netCDF's, spelled `>S1`.
    Bytes {
        /// Length in bytes.
        length: usize,
        /// Whether it is netCDF's character type.
        char: bool,
    },
    /// Text of so many UCS-4 code points.
    Text(usize),
    /// So many bytes without meaning.
    Void(usize),
    /// Date and time, 8 bytes, in `unit` (numpy's: `s`, `ns`, `25us`; empty for generic).
    DateTime(String),
    /// Difference of times, 8 bytes, in `unit`.
    TimeDelta(String),
    /// Fields one after another, packed.
    Struct(Vec<Field>),
    /// Objects, encoded by a codec that stays in the metadata.
    Object,
    /// Whatever a name of Zarr v3 means that is not known here; what made bytes of the elements stays in the metadata.
    Opaque,
}

/// A field of a structured type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its shape; empty for a single element.
    pub shape: Vec<u64>,
}

impl DType {
    /// Whether Zarr v2 has no name for this type, or for a part of it, that more than one reader knows.
    pub fn is_only_zarr3(&self) -> bool {
        match self {
            Self::BFloat16 | Self::Small(_) | Self::Opaque => true,
            Self::Struct(fields) => fields.iter().any(|field| field.dtype.is_only_zarr3()),
            _ => false,
        }
    }

    /// Bytes of one element; `None` for objects and what is not known, whose length the data alone tells, and on overflow.
    pub fn size(&self) -> Option<usize> {
        match self {
            Self::Bool | Self::Small(_) => Some(1),
            Self::Int(n) | Self::UInt(n) | Self::Float(n) | Self::Complex(n) => Some(usize::from(*n)),
            Self::BFloat16 => Some(2),
            Self::Bytes { length, .. } | Self::Void(length) => Some(*length),
            Self::Text(n) => n.checked_mul(4),
            Self::DateTime(_) | Self::TimeDelta(_) => Some(8),
            Self::Struct(fields) => fields.iter().try_fold(0usize, |sum, field| sum.checked_add(field.size()?)),
            Self::Object | Self::Opaque => None,
        }
    }
}

impl Field {
    /// Bytes of the whole field.
    pub fn size(&self) -> Option<usize> {
        let count = self.shape.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
        self.dtype.size()?.checked_mul(count)
    }
}

impl Array {
    /// Number of chunks along each axis.
    pub fn grid(&self) -> Vec<u64> {
        (0..self.shape.len()).filter_map(|axis| self.chunks_along(axis)).collect()
    }

    /// Number of chunks along one axis.
    pub fn chunks_along(&self, axis: usize) -> Option<u64> {
        let (n, c) = (*self.shape.get(axis)?, *self.chunks.get(axis)?);
        Some(if c == 0 { 0 } else { n.div_ceil(c) })
    }

    /// Takes the array's text for the bytes that its blocks hold (see [`Stored::narrow_text`]): netCDF's character type.
    pub fn narrow(&mut self) {
        self.dtype = DType::Bytes { length: 1, char: true };
        self.stored.narrow_text = false;
        self.stored.swaps.clear();
        // The fill value of a byte is that of its code point: the first byte of it, little-endian.
        self.fill.bytes.iter_mut().for_each(|bytes| bytes.truncate(1));
    }

    /// The shape of the block that is stored for a chunk, in the order of axes that is shown; `None` for that of a whole chunk.
    pub fn short_block(&self, index: &[u64]) -> Option<Vec<u64>> {
        if self.stored.last.is_empty() {
            return None;
        }
        let ends = |(axis, &chunk): (usize, &u64)| {
            let is_last = index.get(axis).zip(self.chunks_along(axis)).is_some_and(|(i, n)| i.checked_add(1) == Some(n));
            self.stored.last.get(axis).filter(|_| is_last).copied().unwrap_or(chunk)
        };
        let block: Vec<u64> = self.chunks.iter().enumerate().map(ends).collect();
        (block != self.chunks).then_some(block)
    }

    /// Takes the chunks to be named with `/`, which puts them into directories.
    pub fn nest(&mut self) {
        self.keys.separator = b'/';
        self.stored.keys.separator = b'/';
    }

    /// Takes the names of chunks for those of Zarr v2, which have nothing before or after the indices.
    pub fn name_as_zarr2(&mut self) {
        self.keys = Keys::plain(self.keys.separator);
    }

    /// Number of chunks along each axis that share an object of the store.
    pub fn chunks_per_object(&self) -> Vec<u64> {
        match &self.stored.placement {
            Placement::Object => vec![1; self.shape.len()],
            Placement::Shards(levels) => {
                let chunks = |level: &Shard| level.parts.iter().zip(&level.chunks).map(|(&p, &c)| p.saturating_mul(c)).collect();
                levels.first().map_or_else(|| vec![1; self.shape.len()], chunks)
            }
            Placement::Cube(cube) => {
                let (axes, side) = (0..self.shape.len(), |axis| if axis < 3 { cube.side } else { 1 });
                if self.stored.reversed { axes.rev().map(side).collect() } else { axes.map(side).collect() }
            }
        }
    }

    /// Whether the directories of the store are those that are shown, so that listing one tells the chunks.
    pub fn is_listed_as_stored(&self) -> bool {
        let ordered = !self.stored.reversed || self.shape.len() < 2;
        ordered && self.keys == self.stored.keys && matches!(self.stored.placement, Placement::Object)
    }

    /// Bytes of one shown chunk; `None` where only decoding tells (codecs that stay, objects).
    pub fn chunk_bytes(&self) -> Option<u64> {
        if !self.kept.is_empty() {
            return None;
        }
        let item = u64::try_from(self.dtype.size()?).ok()?;
        self.chunks.iter().try_fold(item, |n, &c| n.checked_mul(c))
    }
}
