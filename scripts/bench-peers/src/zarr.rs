//! Zarr arrays, decoded in process by zarrs.

use crate::timed::{Outcome, median, place, scattered, timed};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use zarrs::array::{
    Array, ArrayBytes, ArrayShardedExt, ArrayShardedReadableExt, ArrayShardedReadableExtCache, ArrayToBytesCodecTraits,
    CodecOptions,
};
use zarrs::filesystem::FilesystemStore;
use zarrs::storage::{ReadableStorageTraits, StoreKey};
use zarrs_zip::ZipStorageAdapter;

type Source = Array<dyn ReadableStorageTraits>;

/// The array in a directory.
pub fn directory(path: &Path) -> Outcome<Source> {
    let (store, name) = split(path)?;
    let store: Arc<dyn ReadableStorageTraits> = Arc::new(store);
    Ok(Array::open(store, &format!("/{name}"))?)
}

/// The array `a` in a zip archive.
pub fn archive(path: &Path) -> Outcome<Source> {
    let (store, name) = split(path)?;
    let store: Arc<dyn ReadableStorageTraits> = Arc::new(ZipStorageAdapter::new(Arc::new(store), StoreKey::new(name)?)?);
    Ok(Array::open(store, "/a")?)
}

fn split(path: &Path) -> Outcome<(FilesystemStore, String)> {
    let name = path.file_name().ok_or("no name")?.to_string_lossy().into_owned();
    Ok((FilesystemStore::new(path.parent().ok_or("no parent")?)?, name))
}

/// Decodes each chunk; of a shard each chunk in it, with the index of the shard kept.
pub fn all(array: &Source, readers: usize, sum: bool) -> Outcome<()> {
    let cache = ArrayShardedReadableExtCache::new(array);
    let grid: Vec<u64> =
        if array.is_sharded() { array.subchunk_grid_shape().to_vec() } else { array.chunk_grid_shape().to_vec() };
    // The threads are here: none inside of a chunk.
    let options = CodecOptions::default().with_concurrent_target(1);
    timed(grid.iter().product::<u64>() as usize, readers, |index, _: &mut ()| {
        let place = place(index, &grid);
        let bytes: ArrayBytes = if array.is_sharded() {
            array.retrieve_subchunk_opt(&cache, &place, &options)?
        } else {
            array.retrieve_chunk_opt(&place, &options)?
        };
        let bytes = bytes.into_fixed()?;
        Ok((bytes.len(), if sum { crc32fast::hash(&bytes) } else { 0 }))
    })
}

/// Decodes each chunk out of memory, in the order of `first`; prints the median of microseconds that decoding alone took.
pub fn decode(path: &Path) -> Outcome<()> {
    let array = directory(path)?;
    let grid = array.chunk_grid_shape().to_vec();
    let count = grid.iter().product::<u64>() as usize;
    let options = CodecOptions::default().with_concurrent_target(1);
    let mut times = Vec::new();
    for index in scattered(count) {
        let place = place(index, &grid);
        let encoded = array.retrieve_encoded_chunk(&place)?.ok_or("a chunk is absent")?;
        let shape = array.chunk_shape(&place)?;
        let start = Instant::now();
        let decoded = array.codecs().decode(encoded.into(), &shape, array.data_type(), array.fill_value(), &options)?;
        times.push(start.elapsed());
        std::hint::black_box(decoded);
    }
    println!("{} {count}", median(times));
    Ok(())
}
