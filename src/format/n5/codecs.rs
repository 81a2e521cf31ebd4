//! How the blocks of an N5 dataset are encoded: `compression`, the older `compressionType`, or `codecs` of N5 4.0 with its shards.
//!
//! `codecs` begins with the codec that makes bytes of a block, as Java's own readers demand: `n5bytes`, the block with its header;
//! `bytes`, the bare elements of a whole block; or `sharding_indexed`, a container of smaller blocks or of further containers.
//! All lengths here are in N5's order of axes.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::codec::{Chain, Codec, Location, Sum, config};
use crate::error::{Error, Result};
use crate::format::{axes, json};
use crate::limits;
use serde_json::{Map, Value};

/// The names of the codec that makes a container of blocks.
const SHARDING: &[&str] = &["sharding_indexed", "ShardingCodec"];

/// How the blocks of a dataset are encoded.
#[derive(Debug)]
pub struct Layout {
    /// The shards, outermost first; none where each block is an object.
    pub shards: Vec<Level>,
    /// Elements of a block along each axis.
    pub block: Vec<u64>,
    /// Whether a block begins with a header.
    pub header: bool,
    /// Whether elements are big-endian.
    pub big_endian: bool,
    /// What the elements of a block are encoded with.
    pub chain: Chain,
    /// Members that told of it and are none of the dataset's attributes, beside those that every dataset has.
    pub members: &'static [&'static str],
}

/// A container of blocks.
#[derive(Debug)]
pub struct Level {
    /// Elements of the container along each axis.
    pub shape: Vec<u64>,
    /// Elements of each of its parts along each axis.
    pub part: Vec<u64>,
    /// Whether the index lies at the start.
    pub at_start: bool,
    /// Whether the numbers of the index are big-endian.
    pub big_endian: bool,
    /// What the index is encoded with.
    pub index: Chain,
}

/// What the members of a dataset tell of its blocks.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] naming a codec that is not read; [`crate::error::Kind::Corrupt`] where none is given, or
/// where shards and blocks do not fit into each other; [`crate::error::Kind::TooBig`] for shards of more parts than [`limits::INDEX`].
pub fn layout(members: &Map<String, Value>) -> Result<Layout> {
    let block = axes(members, "blockSize")?;
    // Java looks at `codecs` first. What is no list of them is somebody's attribute.
    let codecs = members.get("codecs").and_then(Value::as_array).filter(|list| list.first().is_some_and(|c| name(c).is_some()));
    let Some(codecs) = codecs else {
        let chain = Chain::new(config::from_n5(members)?)?;
        return Ok(Layout { shards: Vec::new(), block, header: true, big_endian: true, chain, members: &[] });
    };
    // Versions before the first release told the size of a shard beside that of a block. Where there are none it is somebody's.
    let sharded = codecs.first().and_then(name).is_some_and(|name| SHARDING.contains(&name));
    let early = sharded && members.contains_key("shardSize");
    let outer = if early { axes(members, "shardSize")? } else { block.clone() };
    let told: &[&str] = if early { &["codecs", "shardSize"] } else { &["codecs"] };
    let mut layout =
        Layout { shards: Vec::new(), block: outer, header: true, big_endian: true, chain: Chain::default(), members: told };
    let mut codecs: &[Value] = codecs;
    loop {
        let (first, rest) = codecs.split_first().ok_or_else(|| Error::corrupt("codecs: an empty list"))?;
        match name(first) {
            Some(name) if SHARDING.contains(&name) => {
                if layout.shards.len() >= limits::CODECS {
                    return Err(Error::too_big(format!("codecs: more than {} shards in each other", limits::CODECS)));
                }
                codecs = layout.shard(first)?;
            }
            Some("n5bytes") => {
                // Only versions before the first release told an order here.
                layout.big_endian = is_big_endian(first)?;
                layout.chain = data_codecs(rest)?;
                break;
            }
            Some("bytes" | "rawbytes" | "raw-bytes") => {
                layout.header = false;
                layout.big_endian = is_big_endian(first)?;
                layout.chain = data_codecs(rest)?;
                break;
            }
            _ => return Err(Error::unsupported(format!("codecs: {} does not make bytes of a block", json::cite(first)))),
        }
    }
    if early && layout.block != block {
        return Err(Error::corrupt(format!("blockSize: {block:?}, where codecs tell {:?}", layout.block)));
    }
    Ok(layout)
}

impl Layout {
    /// Adds a level of sharding, and gives the codecs of its parts. Codecs that follow it are left alone: Java does not apply them.
    fn shard<'a>(&mut self, codec: &'a Value) -> Result<&'a [Value]> {
        let wrong = |what: &str| Error::corrupt(format!("codecs: sharding_indexed: {what} is missing or makes no sense"));
        let configuration = codec.get("configuration").and_then(Value::as_object).ok_or_else(|| wrong("configuration"))?;
        let list = |what: &str| configuration.get(what).and_then(Value::as_array).ok_or_else(|| wrong(what));
        let mut part = axes(configuration, "chunk_shape")?;
        // The one list that is in Zarr's order.
        part.reverse();
        let fits = part.len() == self.block.len()
            && part.iter().zip(&self.block).all(|(&p, &b)| p > 0 && b > 0 && b.checked_rem(p) == Some(0));
        if !fits {
            return Err(Error::corrupt(format!(
                "codecs: sharding_indexed: parts of {part:?}, in N5's order, do not fill a shard of {:?}",
                self.block
            )));
        }
        let parts = || part.iter().zip(&self.block).map(|(&p, &b)| b.checked_div(p).unwrap_or(0));
        if parts().try_fold(1u64, u64::checked_mul).is_none_or(|count| count > limits::INDEX) {
            let parts: Vec<u64> = parts().collect();
            return Err(Error::too_big(format!("codecs: a shard of {parts:?} parts; at most {} are read", limits::INDEX)));
        }
        let at_start = match configuration.get("index_location").map(Value::as_str) {
            None | Some(Some("end" | "END")) => false,
            Some(Some("start" | "START")) => true,
            Some(_) => return Err(wrong("index_location")),
        };
        let (first, rest) = list("index_codecs")?.split_first().ok_or_else(|| wrong("index_codecs"))?;
        let mut index = data_codecs_list(rest)?;
        let big_endian = match name(first) {
            Some("bytes" | "rawbytes" | "raw-bytes") => is_big_endian(first)?,
            // The index as a block of N5: always the same header before the same number of bytes.
            Some("n5bytes") => {
                index.insert(0, Codec::Prefix(index_header(parts())?));
                true
            }
            _ => return Err(Error::unsupported(format!("codecs: {} does not make bytes of an index", json::cite(first)))),
        };
        let shape = std::mem::replace(&mut self.block, part.clone());
        self.shards.push(Level { shape, part, at_start, big_endian, index: Chain::new(index)? });
        list("codecs").map(Vec::as_slice)
    }
}

/// The header of a block of two numbers for each part.
fn index_header(counts: impl ExactSizeIterator<Item = u64>) -> Result<Vec<u8>> {
    let long = || Error::too_big("an index of more parts than a block can have");
    let rank = u16::try_from(counts.len().saturating_add(1)).map_err(|_| long())?;
    let mut header = vec![0, 0];
    header.extend_from_slice(&rank.to_be_bytes());
    header.extend_from_slice(&2u32.to_be_bytes());
    for count in counts {
        header.extend_from_slice(&u32::try_from(count).map_err(|_| long())?.to_be_bytes());
    }
    Ok(header)
}

/// The name of a codec; those that were compressions before have it under `type` as well.
fn name(codec: &Value) -> Option<&str> {
    codec.get("name").or_else(|| codec.get("type")).and_then(Value::as_str)
}

/// Big-endian unless told otherwise, as in Java.
fn is_big_endian(codec: &Value) -> Result<bool> {
    match codec.get("configuration").and_then(|c| c.get("endian")).map(Value::as_str) {
        None | Some(Some("big")) => Ok(true),
        Some(Some("little")) => Ok(false),
        Some(_) => Err(Error::corrupt(format!("codecs: {}: no byte order", json::cite(codec)))),
    }
}

fn data_codecs(list: &[Value]) -> Result<Chain> {
    Chain::new(data_codecs_list(list)?)
}

fn data_codecs_list(list: &[Value]) -> Result<Vec<Codec>> {
    let mut codecs = Vec::new();
    for codec in list.iter().take(limits::CODECS.saturating_add(1)) {
        match name(codec) {
            Some("crc32c") => codecs.push(Codec::Checksum(Sum::Crc32c, Location::End)),
            Some("id" | "identity") => {}
            Some(name) => codecs.extend(config::n5_codec(name)?),
            None => return Err(Error::corrupt(format!("codecs: {} has no name", json::cite(codec)))),
        }
    }
    Ok(codecs)
}
