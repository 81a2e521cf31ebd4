//! N5 datasets of 16-bit values, decoded in process by the crate `n5`.

use crate::timed::{Outcome, place, timed};
use n5::prelude::*;
use n5::smallvec::SmallVec;
use std::path::Path;

fn open(path: &Path) -> Outcome<(N5Filesystem, String, DatasetAttributes)> {
    let name = path.file_name().ok_or("no name")?.to_string_lossy().into_owned();
    let store = N5Filesystem::open(path.parent().ok_or("no parent")?)?;
    let attributes = store.get_dataset_attributes(&name)?;
    Ok((store, name, attributes))
}

/// The grid with its fastest axis, N5's first, last.
fn grid(attributes: &DatasetAttributes) -> Vec<u64> {
    attributes.get_grid_extent().iter().rev().copied().collect()
}

fn coordinates(index: usize, grid: &[u64]) -> GridCoord {
    place(index, grid).into_iter().rev().collect()
}

/// Decodes each block into the one buffer of its reader.
pub fn all(path: &Path, readers: usize, sum: bool) -> Outcome<()> {
    let (store, name, attributes) = open(path)?;
    let grid = grid(&attributes);
    timed(grid.iter().product::<u64>() as usize, readers, |index, state: &mut Option<VecDataBlock<u16>>| {
        let at = coordinates(index, &grid);
        let block = state.get_or_insert_with(|| VecDataBlock::new(SmallVec::new(), at.clone(), Vec::new()));
        store.read_block_into(&name, &attributes, at, block)?.ok_or("a block is absent")?;
        let values = block.get_data();
        let bytes = || values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        Ok((values.len() * 2, if sum { crc32fast::hash(&bytes()) } else { 0 }))
    })
}

/// Writes a dataset once more, compressed by LZ4, which tensorstore does not write.
pub fn pack(from: &Path, to: &Path) -> Outcome<()> {
    let (store, name, attributes) = open(from)?;
    let target = N5Filesystem::open_or_create(to.parent().ok_or("no parent")?)?;
    let target_name = to.file_name().ok_or("no name")?.to_string_lossy().into_owned();
    let dimensions: GridCoord = attributes.get_dimensions().iter().copied().collect();
    let block_size: BlockCoord = attributes.get_block_size().iter().copied().collect();
    let packed = DatasetAttributes::new(
        dimensions,
        block_size,
        *attributes.get_data_type(),
        CompressionType::new::<compression::lz::Lz4Compression>(),
    );
    target.create_dataset(&target_name, &packed)?;
    let grid = grid(&attributes);
    for index in 0..grid.iter().product::<u64>() as usize {
        let block = store.read_block::<u16>(&name, &attributes, coordinates(index, &grid))?.ok_or("a block is absent")?;
        target.write_block(&target_name, &packed, &block)?;
    }
    Ok(())
}
