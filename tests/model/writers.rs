//! Small writers of Zarr v2, Zarr v3, N5 and WKW, written from the specifications and sharing no code with the readers.
//!
//! A chunk is given as it must be shown: of the whole chunk shape, little-endian, last axis fastest.

use crate::random::Random;
use flate2::Compression;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Chunks by their index in the grid that is shown.
pub type Chunks = BTreeMap<Vec<u64>, Vec<u8>>;

/// How the chunks of an array are written.
#[derive(Debug, Clone)]
pub enum Kind {
    Zarr2 {
        separator: char,
        big: bool,
        fortran: bool,
        compressor: &'static str,
    },
    Zarr3 {
        prefix: &'static str,
        separator: char,
        big: bool,
        transposed: bool,
        gzip: bool,
        checksum: bool,
    },
    Shards {
        per: Vec<u64>,
        /// Chunks in each of the shards that the shard consists of, if it does.
        within: Option<Vec<u64>>,
        at_start: bool,
        gzip: bool,
    },
    N5 {
        gzip: bool,
        cropped: bool,
    },
    Wkw {
        block: u32,
        side: u32,
        lz4: bool,
    },
    /// A file of no format.
    Foreign,
}

/// An object of the store, and the chunks that lie in it.
#[derive(Debug, Clone)]
pub struct Layout {
    pub key: String,
    pub parts: Vec<Vec<u64>>,
}

/// An array as it is written.
#[derive(Debug, Clone)]
pub struct Array {
    pub path: String,
    pub kind: Kind,
    pub shape: Vec<u64>,
    pub chunk: Vec<u64>,
    pub item: usize,
}

/// The fill value of all arrays whose format lets them have one.
const FILL: u64 = 7;

/// All indices of a grid, the last axis fastest.
pub fn indices(grid: &[u64]) -> Vec<Vec<u64>> {
    grid.iter().fold(vec![Vec::new()], |above, &n| {
        above.iter().flat_map(|index| (0..n).map(|i| index.iter().copied().chain([i]).collect())).collect()
    })
}

fn joined(index: impl Iterator<Item = u64>, separator: char) -> String {
    index.map(|i| i.to_string()).collect::<Vec<_>>().join(&separator.to_string())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A shard of the parts that there are, and its index.
fn packed(per: &[u64], at_start: bool, part: impl Fn(&[u64]) -> Option<Vec<u8>>) -> Vec<u8> {
    let slots = indices(per);
    let index_length = slots.len() * 16 + 4;
    let mut body = Vec::new();
    let mut table = Vec::new();
    for slot in slots {
        let Some(bytes) = part(&slot) else {
            table.extend([0xff; 16]);
            continue;
        };
        let offset = body.len() + if at_start { index_length } else { 0 };
        table.extend((offset as u64).to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        body.extend(bytes);
    }
    table.extend(crc32c::crc32c(&table).to_le_bytes());
    if at_start { [table, body].concat() } else { [body, table].concat() }
}

impl Array {
    /// A random array at `path`, small. All formats have something of it.
    pub fn random(random: &mut Random, path: &str, format: usize) -> Self {
        let mut rank = 1 + random.below(3);
        let item = 1 << random.below(4);
        let mut number = |n: usize| 1 + random.below(n) as u64;
        let mut chunk: Vec<u64> = (0..rank).map(|_| number(4)).collect();
        let mut shape: Vec<u64> = chunk.iter().map(|c| number((c * 3) as usize)).collect();
        let kind = match format {
            0 => Kind::Zarr2 {
                separator: random.one(&['.', '/']),
                big: random.flip(),
                fortran: random.flip(),
                compressor: random.one(&["null", "zlib", "gzip"]),
            },
            1 => {
                let (prefix, separator) = random.one(&[("c/", '/'), ("c.", '.'), ("", '.'), ("", '/')]);
                let (big, transposed, gzip, checksum) = (random.flip(), random.flip(), random.flip(), random.flip());
                Kind::Zarr3 { prefix, separator, big, transposed, gzip, checksum }
            }
            2 => {
                let per = (0..rank).map(|_| 1 + random.below(3) as u64).collect();
                Kind::Shards { per, within: None, at_start: random.flip(), gzip: random.flip() }
            }
            3 => Kind::N5 { gzip: random.flip(), cropped: random.flip() },
            _ => {
                rank = 3;
                let (block, side) = (random.below(3) as u32, random.below(2) as u32);
                chunk = vec![1 << block; rank];
                shape = (0..rank).map(|_| (1 + random.below(2) as u64) << (block + side)).collect();
                Kind::Wkw { block, side, lz4: random.flip() }
            }
        };
        Self { path: path.to_owned(), kind, shape, chunk, item }
    }

    /// Makes shards consist of shards, at times.
    pub fn nest(&mut self, random: &mut Random) {
        if let Kind::Shards { per, within, .. } = &mut self.kind
            && random.flip()
        {
            *within = Some(per.clone());
            per.iter_mut().for_each(|n| *n *= 1 + random.below(2) as u64);
        }
    }

    /// A file of no format.
    pub fn foreign(path: &str) -> Self {
        Self { path: path.to_owned(), kind: Kind::Foreign, shape: Vec::new(), chunk: Vec::new(), item: 1 }
    }

    pub fn grid(&self) -> Vec<u64> {
        self.shape.iter().zip(&self.chunk).map(|(s, c)| s.div_ceil(*c)).collect()
    }

    /// Bytes of a chunk.
    pub fn bytes(&self) -> usize {
        self.chunk.iter().product::<u64>() as usize * self.item
    }

    /// What is shown of a chunk that is absent, if it is.
    pub fn fill(&self) -> Vec<u8> {
        let value = if matches!(self.kind, Kind::N5 { .. } | Kind::Wkw { .. }) { 0 } else { FILL };
        value.to_le_bytes()[..self.item].repeat(self.bytes() / self.item)
    }

    /// Whether chunks are parts of objects that have an index.
    pub fn has_parts(&self) -> bool {
        matches!(self.kind, Kind::Shards { .. } | Kind::Wkw { .. })
    }

    /// The path below the mount where a chunk is shown.
    pub fn shown(&self, index: &[u64]) -> String {
        let name = |prefix: &str, separator| format!("{}/{prefix}{}", self.path, joined(index.iter().copied(), separator));
        match self.kind {
            Kind::Zarr2 { separator, .. } => name("", separator),
            Kind::Zarr3 { prefix, separator, .. } => name(prefix, separator),
            Kind::Shards { .. } => name("c/", '/'),
            Kind::N5 { .. } | Kind::Wkw { .. } => name("", '/'),
            Kind::Foreign => self.path.clone(),
        }
    }

    fn data_type(&self) -> String {
        format!("uint{}", self.item * 8)
    }

    /// The documents of the array and their keys.
    pub fn documents(&self) -> Vec<(String, Vec<u8>)> {
        let reversed = |numbers: &[u64]| numbers.iter().rev().copied().collect::<Vec<_>>();
        let gzip = json!({"name": "gzip", "configuration": {"level": 1}});
        let zarr3 = |chunk: &[u64], codecs: Vec<Value>, encoding: Value| {
            json!({"zarr_format": 3, "node_type": "array", "shape": self.shape, "data_type": self.data_type(), "fill_value": FILL,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "chunk_key_encoding": encoding,
                "codecs": codecs, "attributes": {}})
        };
        let (name, document) = match &self.kind {
            Kind::Zarr2 { separator, big, fortran, compressor } => {
                let letter = if self.item == 1 { '|' } else { ['<', '>'][usize::from(*big)] };
                let compressor = if *compressor == "null" { Value::Null } else { json!({"id": compressor, "level": 1}) };
                let document = json!({"zarr_format": 2, "shape": self.shape, "chunks": self.chunk, "filters": null, "fill_value": FILL,
                    "dtype": format!("{letter}u{}", self.item), "order": if *fortran { "F" } else { "C" },
                    "compressor": compressor, "dimension_separator": separator.to_string()});
                (".zarray", document)
            }
            Kind::Zarr3 { prefix, separator, big, transposed, gzip: compressed, checksum } => {
                let mut codecs = Vec::new();
                if *transposed {
                    let order: Vec<usize> = (0..self.chunk.len()).rev().collect();
                    codecs.push(json!({"name": "transpose", "configuration": {"order": order}}));
                }
                codecs.push(json!({"name": "bytes", "configuration": {"endian": if *big { "big" } else { "little" }}}));
                codecs.extend(compressed.then(|| gzip.clone()));
                codecs.extend(checksum.then(|| json!({"name": "crc32c"})));
                let encoding = if prefix.is_empty() { "v2" } else { "default" };
                let encoding = json!({"name": encoding, "configuration": {"separator": separator.to_string()}});
                ("zarr.json", zarr3(&self.chunk, codecs, encoding))
            }
            Kind::Shards { per, within, at_start, gzip: compressed } => {
                let times = |parts: &[u64]| self.chunk.iter().zip(parts).map(|(c, p)| c * p).collect::<Vec<u64>>();
                let little = json!({"name": "bytes", "configuration": {"endian": "little"}});
                let sharding = |chunk: &[u64], codecs: Vec<Value>| {
                    json!({"name": "sharding_indexed", "configuration": {"chunk_shape": chunk, "codecs": codecs,
                        "index_codecs": [little, {"name": "crc32c"}], "index_location": if *at_start { "start" } else { "end" }}})
                };
                let mut codecs = sharding(&self.chunk, [little.clone()].into_iter().chain(compressed.then_some(gzip)).collect());
                if let Some(within) = within {
                    codecs = sharding(&times(within), vec![codecs]);
                }
                ("zarr.json", zarr3(&times(per), vec![codecs], json!({"name": "default"})))
            }
            Kind::N5 { gzip, .. } => {
                let document = json!({"dimensions": reversed(&self.shape), "blockSize": reversed(&self.chunk),
                    "dataType": self.data_type(), "compression": {"type": if *gzip { "gzip" } else { "raw" }}});
                ("attributes.json", document)
            }
            Kind::Wkw { .. } => return vec![(format!("{}/header.wkw", self.path), self.wkw_header(0))],
            Kind::Foreign => return Vec::new(),
        };
        vec![(format!("{}/{name}", self.path), document.to_string().into_bytes())]
    }

    /// The objects that chunks can lie in.
    pub fn objects(&self) -> Vec<Layout> {
        let grid = self.grid();
        let per = match &self.kind {
            Kind::Shards { per, .. } => per.clone(),
            Kind::Wkw { side, .. } => vec![1 << side; 3],
            _ => vec![1; grid.len()],
        };
        let outer: Vec<u64> = grid.iter().zip(&per).map(|(g, p)| g.div_ceil(*p)).collect();
        let of = |object: &[u64]| {
            let inside = |index: &Vec<u64>| index.iter().zip(&per).zip(object).all(|((i, p), o)| i / p == *o);
            indices(&grid).into_iter().filter(inside).collect()
        };
        let key = |object: &[u64]| match &self.kind {
            Kind::N5 { .. } => format!("{}/{}", self.path, joined(object.iter().rev().copied(), '/')),
            Kind::Wkw { .. } => format!("{}/z{}/y{}/x{}.wkw", self.path, object[0], object[1], object[2]),
            _ => self.shown(object),
        };
        indices(&outer).iter().map(|object| Layout { key: key(object), parts: of(object) }).collect()
    }

    /// New content of an object: chunks at random, and the bytes that hold them.
    pub fn write(&self, random: &mut Random, layout: &Layout) -> (Chunks, Vec<u8>) {
        let mut chunks = Chunks::new();
        for index in &layout.parts {
            if matches!(self.kind, Kind::Shards { .. }) && random.below(5) == 0 {
                continue;
            }
            let length = if matches!(self.kind, Kind::Foreign) { random.below(3000) } else { self.bytes() };
            let mut chunk: Vec<u8> = (0..length).map(|_| random.byte()).collect();
            if matches!(self.kind, Kind::N5 { cropped: true, .. }) {
                let inside = self.inside(index);
                chunk.chunks_mut(self.item).zip(inside).filter(|(_, inside)| !inside).for_each(|(value, _)| value.fill(0));
            }
            chunks.insert(index.clone(), chunk);
        }
        let first = |chunks: &Chunks| chunks.values().next().cloned().unwrap_or_default();
        let bytes = match &self.kind {
            Kind::Zarr2 { big, fortran, compressor, .. } => {
                let raw = self.stored(&first(&chunks), *big, *fortran);
                match *compressor {
                    "zlib" => zlib(&raw),
                    "gzip" => gzip(&raw),
                    _ => raw,
                }
            }
            Kind::Zarr3 { big, transposed, gzip: compressed, checksum, .. } => {
                let mut bytes = self.stored(&first(&chunks), *big, *transposed);
                if *compressed {
                    bytes = gzip(&bytes);
                }
                if *checksum {
                    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
                }
                bytes
            }
            Kind::Shards { .. } => self.shard(&chunks, layout),
            Kind::N5 { gzip: compressed, cropped } => {
                let index = &layout.parts[0];
                let mut sizes = self.chunk.clone();
                let mut raw = self.stored(&first(&chunks), true, false);
                if *cropped {
                    let ends = index.iter().zip(&self.chunk).zip(&self.shape);
                    sizes = ends.map(|((i, c), s)| (s - i * c).min(*c)).collect();
                    let values = raw.chunks(self.item).zip(self.inside(index)).filter(|(_, inside)| *inside);
                    raw = values.flat_map(|(value, _)| value.to_vec()).collect();
                }
                let mut bytes = vec![0, 0, 0, sizes.len() as u8];
                sizes.iter().rev().for_each(|n| bytes.extend((*n as u32).to_be_bytes()));
                bytes.extend(if *compressed { gzip(&raw) } else { raw });
                bytes
            }
            Kind::Wkw { side, lz4, .. } => self.cube(&chunks, *side, *lz4),
            Kind::Foreign => first(&chunks),
        };
        (chunks, bytes)
    }

    /// For each element of a chunk whether it lies inside the array.
    fn inside(&self, chunk: &[u64]) -> Vec<bool> {
        let at = |index: &Vec<u64>| (0..index.len()).all(|d| chunk[d] * self.chunk[d] + index[d] < self.shape[d]);
        indices(&self.chunk).iter().map(at).collect()
    }

    /// Elements in another byte order, and with the first axis fastest.
    fn stored(&self, chunk: &[u8], big: bool, fortran: bool) -> Vec<u8> {
        let mut order: Vec<usize> = (0..chunk.len() / self.item).collect();
        if fortran {
            let all = indices(&self.chunk);
            order.sort_by_key(|&i| all[i].iter().rev().copied().collect::<Vec<_>>());
        }
        let mut bytes = Vec::with_capacity(chunk.len());
        for i in order {
            let value = &chunk[i * self.item..(i + 1) * self.item];
            if big { bytes.extend(value.iter().rev()) } else { bytes.extend(value) }
        }
        bytes
    }

    fn shard(&self, chunks: &Chunks, layout: &Layout) -> Vec<u8> {
        let Kind::Shards { per, within, at_start, gzip: compressed } = &self.kind else { return Vec::new() };
        let encoded = |slot: &[u64]| {
            let of_slot = |index: &&Vec<u64>| index.iter().zip(per).zip(slot).all(|((i, p), s)| i % p == *s);
            let chunk = layout.parts.iter().find(of_slot).and_then(|index| chunks.get(index))?;
            Some(if *compressed { gzip(chunk) } else { chunk.clone() })
        };
        let Some(within) = within else { return packed(per, *at_start, encoded) };
        let outer: Vec<u64> = per.iter().zip(within).map(|(p, w)| p / w).collect();
        packed(&outer, *at_start, |part| {
            let slot = |inner: &[u64]| part.iter().zip(within).zip(inner).map(|((o, w), i)| o * w + i).collect::<Vec<u64>>();
            let any = indices(within).iter().any(|inner| encoded(&slot(inner)).is_some());
            any.then(|| packed(within, *at_start, |inner| encoded(&slot(inner))))
        })
    }

    fn wkw_header(&self, data: u64) -> Vec<u8> {
        let Kind::Wkw { block, side, lz4 } = self.kind else { return Vec::new() };
        let voxel = [1, 2, 0, 3, 0, 0, 0, 4][self.item - 1];
        let mut bytes = b"WKW\x01".to_vec();
        bytes.extend([(side << 4 | block) as u8, 1 + u8::from(lz4), voxel, self.item as u8]);
        bytes.extend(data.to_le_bytes());
        bytes
    }

    /// A file of blocks along the curve of Morton, x in the lowest bit.
    fn cube(&self, chunks: &Chunks, side: u32, lz4: bool) -> Vec<u8> {
        let code = |index: &[u64]| {
            (0..side)
                .map(|bit| (0..3).map(|axis| (index[2 - axis] >> bit & 1) << (3 * bit as usize + axis)).sum::<u64>())
                .sum::<u64>()
        };
        let mut blocks: Vec<_> = chunks.iter().map(|(index, chunk)| (code(index), chunk)).collect();
        blocks.sort();
        let data = 16 + if lz4 { blocks.len() * 8 } else { 0 };
        let mut table = Vec::new();
        let mut body = Vec::new();
        for (_, chunk) in &blocks {
            body.extend(if lz4 { lz4_flex::block::compress(chunk) } else { (*chunk).clone() });
            if lz4 {
                table.extend(((data + body.len()) as u64).to_le_bytes());
            }
        }
        [self.wkw_header(data as u64), table, body].concat()
    }
}
