//! Readers that the benchmark measures chunkmount against; each mode reads once and prints what it took.
//!
//! `files`, `zarrs`, `zarrs-zip` and `n5` read each chunk of an array once, handed in turn to READERS threads, and print seconds,
//! bytes and a digest. `files` knows nothing of arrays; the others decode in process. With `sum` the digest tells that two
//! readers had the same bytes of the same chunks; without, it is 0 and costs nothing.

mod archive;
mod files;
mod n5;
mod timed;
mod zarr;

use std::path::Path;
use timed::Outcome;

const USAGE: &str = "usage: bench-peers files|zarrs|zarrs-zip|n5 ARRAY READERS [sum] | first DIRECTORY | decode ARRAY | zip FILE | n5-lz4 FROM TO";

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["first", directory] => files::first(Path::new(directory)),
        ["decode", array] => zarr::decode(Path::new(array)),
        ["zip", file] => archive::open(Path::new(file)),
        ["n5-lz4", from, to] => n5::pack(Path::new(from), Path::new(to)),
        [mode, array, readers, ref rest @ ..] => {
            let (array, readers, sum) = (Path::new(array), readers.parse()?, !rest.is_empty());
            match mode {
                "files" => files::all(array, readers, sum),
                "zarrs" => zarr::all(&zarr::directory(array)?, readers, sum),
                "zarrs-zip" => zarr::all(&zarr::archive(array)?, readers, sum),
                "n5" => n5::all(array, readers, sum),
                _ => Err(USAGE.into()),
            }
        }
        _ => Err(USAGE.into()),
    }
}
