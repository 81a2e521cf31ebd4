//! Chunk files, read as a program that knows nothing of arrays would read them.

use crate::timed::{Outcome, digest, median, scattered, timed};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Buffers begin at pages, as those of `cat` and of zarrs do: some processors copy to a few bytes after the start of a page, where
/// malloc puts large buffers, at a fifth of their speed, whoever the data is from.
const PAGE: usize = 4096;

/// What is read at once where the bytes are compared, so that many readers of large files take little memory.
const PIECE: usize = 1 << 20;

/// Reads all chunk files below a directory, each into the one buffer of its reader.
pub fn all(directory: &Path, readers: usize, sum: bool) -> Outcome<()> {
    let paths = chunks(directory)?;
    timed(paths.len(), readers, |index, buffer: &mut Vec<u8>| {
        let mut file = File::open(&paths[index])?;
        let length = file.metadata()?.len() as usize;
        if !sum {
            file.read_exact(aligned(buffer, length))?;
            return Ok((length, 0));
        }
        let mut hasher = crc32fast::Hasher::new();
        let mut rest = length;
        while rest > 0 {
            let piece = aligned(buffer, rest.min(PIECE));
            file.read_exact(piece)?;
            hasher.update(piece);
            rest -= piece.len();
        }
        Ok((length, hasher.finalize()))
    })
}

/// Opens each chunk file below a directory and reads its first 4 KiB, none after its neighbour; prints the median of microseconds
/// and a digest of what was read.
pub fn first(directory: &Path) -> Outcome<()> {
    let paths = chunks(directory)?;
    let (mut buffer, mut times, mut sums) = (Vec::new(), Vec::new(), vec![0; paths.len()]);
    for index in scattered(paths.len()) {
        let head = aligned(&mut buffer, PAGE);
        let start = Instant::now();
        let mut file = File::open(&paths[index])?;
        file.read_exact(head)?;
        times.push(start.elapsed());
        sums[index] = crc32fast::hash(head);
    }
    println!("{} {} {}", median(times), paths.len(), digest(&sums));
    Ok(())
}

fn aligned(buffer: &mut Vec<u8>, length: usize) -> &mut [u8] {
    if buffer.len() < length + PAGE {
        buffer.resize(length + PAGE, 0);
    }
    let start = buffer.as_ptr().align_offset(PAGE);
    &mut buffer[start..start + length]
}

/// The chunk files below a directory (all files but the documents) in the order of their places in the grid.
fn chunks(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let mut paths = Vec::new();
    find(directory, &mut Vec::new(), &mut paths)?;
    paths.sort();
    Ok(paths.into_iter().map(|(_, path)| path).collect())
}

fn find(directory: &Path, place: &mut Vec<u64>, paths: &mut Vec<(Vec<u64>, PathBuf)>) -> Outcome<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let before = place.len();
        place.extend(name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok()));
        if entry.file_type()?.is_dir() {
            find(&entry.path(), place, paths)?;
        } else if name.starts_with(|first: char| first.is_ascii_digit()) {
            paths.push((place.clone(), entry.path()));
        }
        place.truncate(before);
    }
    Ok(())
}
