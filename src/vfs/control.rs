//! The control directory: live statistics, and the untouched source.

use super::{Attr, Thing, Vfs};
use crate::array::{Content, Envelope};
use crate::cache::Files;
use crate::error::{Error, Result};
use crate::store::{Key, ObjectKind};
use crate::tree::DERIVED;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Its name in the root; not listed, so that nobody copies it by accident.
pub const DIRECTORY: &[u8] = b".chunkmount";

/// What lies in it.
pub const ENTRIES: &[(&[u8], ObjectKind)] = &[(b"stats.json", ObjectKind::File), (b"source", ObjectKind::Directory)];

impl Vfs {
    pub(super) fn lookup_control(&self, parent: u64, name: &[u8]) -> Result<Attr> {
        match name {
            b"stats.json" => self.enter(parent, name, 0, || Ok(Thing::Statistics)),
            b"source" => self.enter(parent, name, 0, || Ok(Thing::Raw(Key::root()))),
            _ => Err(Error::not_found()),
        }
    }

    /// The content of `stats.json`: counters since the mount, times in seconds, sizes in bytes.
    pub fn statistics(&self) -> Vec<u8> {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (used, capacity, blocks) = self.cache.usage();
        let counters = self.cache.counters();
        let (index_bytes, index_count) = self.indexes.usage();
        let requests = self.store().requests();
        let files = self.cache.files();
        let mut total = [0u64; 3];
        let mut arrays = Map::new();
        for chunks in self.arrays.read().iter() {
            let c = &chunks.counters;
            let seconds = std::time::Duration::from_nanos(load(&c.nanoseconds)).as_secs_f64();
            for (sum, n) in total.iter_mut().zip([&c.encoded, &c.decoded, &c.nanoseconds]) {
                *sum = sum.saturating_add(load(n));
            }
            if load(&c.hits) + load(&c.misses) == 0 {
                continue;
            }
            let entry = json!({
                "hits": load(&c.hits), "misses": load(&c.misses), "bytes_in": load(&c.encoded), "bytes_out": load(&c.decoded),
                "decode_seconds": seconds, "errors": load(&c.errors),
            });
            let name = match chunks.array.stored.envelope {
                Envelope::N5(Content::LabelMultisets) => chunks.key.join(DERIVED),
                _ => Ok(chunks.key.clone()),
            };
            let name = name.as_ref().unwrap_or(&chunks.key).to_string();
            arrays.insert(name, entry);
        }
        let [encoded, decoded, nanoseconds] = total;
        let statistics = json!({
            "chunkmount": env!("CARGO_PKG_VERSION"),
            "source": self.options.name,
            "seconds": self.started.elapsed().as_secs_f64(),
            "cache": {
                "bytes": used, "capacity": capacity, "blocks": blocks, "hits": load(&counters.hits), "misses": load(&counters.misses),
                "waits": load(&counters.waits), "evictions": load(&counters.evictions),
            },
            "passthrough": {
                "possible": files.is_some_and(Files::works), "opens": load(&self.passed), "held": files.map_or(0, Files::held),
            },
            "listings": { "described": load(&self.described) },
            "read_ahead": { "chunks": load(&self.ahead.fetched), "in_pairs": load(&self.ahead.in_pairs) },
            "indexes": { "bytes": index_bytes, "count": index_count },
            "decode": {
                "bytes_in": encoded, "bytes_out": decoded, "seconds": std::time::Duration::from_nanos(nanoseconds).as_secs_f64(),
            },
            "store": { "get": requests.get, "head": requests.head, "list": requests.list, "bytes": requests.bytes },
            "disk": self.store().kept().map(|kept| {
                json!({ "hits": kept.hits, "bytes": kept.bytes, "written": kept.written, "held": kept.held })
            }),
            "open": { "files": self.files.len(), "directories": self.directories.len(), "inodes": self.table.len() },
            "errors": load(&self.errors),
            "arrays": Value::Object(arrays),
        });
        let mut text = serde_json::to_vec_pretty(&statistics).unwrap_or_default();
        text.push(b'\n');
        text
    }
}
