//! `bench-peers files|zarrs DIRECTORY READERS` reads each chunk of an array once and prints seconds, bytes and a checksum.
//!
//! `files` reads the chunk files of a directory into one buffer for each reader, as a program that knows nothing of Zarr
//! would; `zarrs` decodes the chunks of the Zarr array in process. Both hand the chunks to their readers in turn. The
//! checksum (the wrapping sum of all 8-byte words) is made only with a fourth argument, and tells that both read the same.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use zarrs::array::{Array, ArrayBytes, CodecOptions};
use zarrs::filesystem::FilesystemStore;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, directory, readers, rest @ ..] = arguments.as_slice() else {
        return Err("usage: bench-peers files|zarrs DIRECTORY READERS [sum]".into());
    };
    let (readers, sum) = (readers.parse()?, !rest.is_empty());
    match mode.as_str() {
        "files" => files(Path::new(directory), readers, sum),
        "zarrs" => decoded(Path::new(directory), readers, sum),
        _ => Err("no such mode".into()),
    }
}

/// Runs `read` on each of `count` chunks, spread over `readers` threads, and prints what it took.
fn timed(count: usize, readers: usize, read: impl Fn(usize, &mut Vec<u8>) -> Outcome<(u64, u64)> + Sync) -> Outcome<()> {
    let (next, bytes, checksum) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = || -> Outcome<()> {
            let mut buffer = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok(());
                }
                let (length, sum) = read(index, &mut buffer)?;
                bytes.fetch_add(length, Ordering::Relaxed);
                checksum.fetch_add(sum, Ordering::Relaxed);
            }
        };
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a reader panicked")?)
    })?;
    println!("{} {} {}", start.elapsed().as_secs_f64(), bytes.into_inner(), checksum.into_inner());
    Ok(())
}

fn words(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| {
        let mut whole = [0; 8];
        whole.copy_from_slice(word);
        sum.wrapping_add(u64::from_le_bytes(whole))
    })
}

fn files(directory: &Path, readers: usize, sum: bool) -> Outcome<()> {
    let mut paths = Vec::new();
    find(directory, &mut paths)?;
    paths.sort();
    timed(paths.len(), readers, |index, buffer| {
        let mut file = File::open(&paths[index])?;
        let length = file.metadata()?.len() as usize;
        if buffer.len() < length + PAGE {
            buffer.resize(length + PAGE, 0);
        }
        let start = buffer.as_ptr().align_offset(PAGE);
        let content = &mut buffer[start..start + length];
        file.read_exact(content)?;
        Ok((length as u64, if sum { words(content) } else { 0 }))
    })
}

/// Buffers begin at pages, as those of `cat` and of zarrs do: some processors copy to a few bytes after the start of a page, where
/// malloc puts large buffers, at a fifth of their speed, whoever the data is from.
const PAGE: usize = 4096;

/// The chunk files below a directory: all files but the documents.
fn find(directory: &Path, paths: &mut Vec<PathBuf>) -> Outcome<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            find(&entry.path(), paths)?;
        } else if name.to_string_lossy().starts_with(|first: char| first.is_ascii_digit()) {
            paths.push(entry.path());
        }
    }
    Ok(())
}

fn decoded(directory: &Path, readers: usize, sum: bool) -> Outcome<()> {
    let parent = directory.parent().ok_or("no parent")?;
    let name = directory.file_name().ok_or("no name")?.to_string_lossy();
    let array = Array::open(FilesystemStore::new(parent)?.into(), &format!("/{name}"))?;
    let grid: Vec<u64> = array.chunk_grid_shape().to_vec();
    let count: u64 = grid.iter().product();
    let options = CodecOptions::default().with_concurrent_target(1);
    timed(count as usize, readers, |index, _| {
        let mut rest = index as u64;
        let mut place = vec![0; grid.len()];
        for (axis, length) in grid.iter().enumerate().rev() {
            place[axis] = rest % length;
            rest /= length;
        }
        let bytes: ArrayBytes = array.retrieve_chunk_opt(&place, &options)?;
        let bytes = bytes.into_fixed()?;
        Ok((bytes.len() as u64, if sum { words(&bytes) } else { 0 }))
    })
}
