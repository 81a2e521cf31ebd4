//! Names of chunks, both ways, as shown and as stored.

use super::input::{self, Input};
use chunkmount::array::{Array, Cube, Placement, Shard, Style};
use chunkmount::codec::Chain;
use chunkmount::store::Key;
use chunkmount::view::names::{self, Path};

/// Four bytes choose the array, a line is a name, and the rest are indices of a chunk.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let array = choose(&mut input);
    let name = input.line();
    walk(&array, name);
    let rank = array.shape.len();
    let grid = array.grid();
    let index: Vec<u64> = grid.iter().map(|&n| u64::from(input.short()) * u64::from(input.byte() | 1) % n.max(1)).collect();
    if !grid.contains(&0) {
        shown_and_back(&array, &index);
        stored_and_back(&array, &index);
    }
    for depth in 0..=rank {
        names::stored_index(&array, depth, name);
    }
    names::stored_indices(&array, name);
}

fn choose(input: &mut Input<'_>) -> Array {
    let shapes: &[(&[u64], &[u64])] = &[
        (&[], &[]),
        (&[100], &[7]),
        (&[10, 1 << 61], &[5, 1]),
        (&[9, 8, 40], &[1, 2, 4]),
        (&[64, 64, 64, 3], &[4, 4, 4, 3]),
        (&[0, 4], &[1, 2]),
    ];
    let (shape, chunks) = input.pick(shapes);
    let (shown, stored) = (input.byte(), input.byte());
    let separator = |bits: u8| if bits & 1 == 0 { '.' } else { '/' };
    let mut array = input::array(shape, chunks, "|u1", separator(shown));
    array.stored.keys.separator = separator(stored) as u8;
    for (keys, bits) in [(&mut array.keys, shown), (&mut array.stored.keys, stored)] {
        keys.style = if bits & 2 == 0 { Style::Plain } else { Style::C };
        keys.suffix = ["", ".zstd", "0"][usize::from(bits >> 2 & 3) % 3].to_owned();
    }
    array.stored.reversed = shown & 16 != 0;
    let ones = vec![1; shape.len()];
    match input.below(4) {
        1 => {
            let shard = Shard {
                parts: vec![2; shape.len()],
                chunks: ones,
                axes: (0..shape.len()).collect(),
                at_start: false,
                big_endian: false,
                index: Chain::default(),
                envelope: Chain::default(),
            };
            array.stored.placement = Placement::Shards(vec![shard]);
        }
        2 if shape.len() >= 3 => {
            array.stored.placement = Placement::Cube(Cube { side: 4, compressed: false, block: 64, header: [0; 8] });
            array.stored.keys.style = Style::Cube;
            array.stored.keys.separator = b'/';
            array.stored.keys.suffix = ".wkw".to_owned();
        }
        _ => {}
    }
    array
}

/// What a name is taken for is shown under that name.
fn walk(array: &Array, name: &[u8]) {
    let mut parts = name.split(|&b| b == b'/');
    let mut path = names::parse_first(array, parts.next().unwrap_or_default());
    for part in parts {
        match &path {
            Some(Path::Prefix(prefix)) => path = names::parse(array, prefix, part),
            _ => return,
        }
    }
    match path {
        Some(Path::Chunk(index)) => {
            assert!(index.len() == array.shape.len() && index.iter().zip(array.grid()).all(|(&i, n)| i < n));
            assert_eq!(names::shown(array, &index).as_bytes(), name);
        }
        Some(Path::Prefix(prefix)) if !prefix.is_empty() => {
            assert!(array.keys.nested() && prefix.len() < array.shape.len());
            assert_eq!(names::shown(array, &prefix).as_bytes(), name);
        }
        Some(Path::Prefix(_)) => assert_eq!(name, b"c"),
        None => {}
    }
}

/// The name that a chunk is shown under leads back to it.
fn shown_and_back(array: &Array, index: &[u64]) {
    let name = names::shown(array, index);
    let last = name.rsplit('/').next().unwrap_or_default();
    assert_eq!(names::shown_last(array, index), last);
    let mut prefix = Vec::new();
    for (depth, part) in name.split('/').enumerate() {
        let path =
            if depth == 0 { names::parse_first(array, part.as_bytes()) } else { names::parse(array, &prefix, part.as_bytes()) };
        match path {
            Some(Path::Prefix(path)) => prefix = path,
            Some(Path::Chunk(path)) => return assert_eq!(path, index, "{name}"),
            None => panic!("{name} is no name of a chunk"),
        }
    }
    panic!("{name} is not the whole name of a chunk");
}

/// The object of a chunk is known for one, and its name leads back to its place among the objects.
fn stored_and_back(array: &Array, index: &[u64]) {
    let keys = &array.stored.keys;
    let name = names::stored(array, index);
    assert!(Key::root().join(&name).is_ok(), "{name}");
    let first = name.split('/').next().unwrap_or_default();
    assert!(names::is_stored_chunk(array, first.as_bytes()), "{name}");
    if array.is_listed_as_stored() {
        assert_eq!(names::shown(array, index), name);
    }
    let per_object = array.chunks_per_object();
    let mut object: Vec<u64> = index.iter().zip(&per_object).map(|(i, n)| i / n).collect();
    if array.stored.reversed {
        object.reverse();
    }
    if keys.style == Style::Cube {
        object.truncate(3);
    }
    if object.is_empty() {
        return;
    }
    if !keys.nested() {
        assert_eq!(names::stored_indices(array, name.as_bytes()), Some(object), "{name}");
        return;
    }
    let parts = name.split('/').skip(usize::from(keys.style == Style::C));
    let found: Option<Vec<_>> =
        parts.enumerate().map(|(depth, part)| names::stored_index(array, depth, part.as_bytes())).collect();
    let last = object.len() - 1;
    let expected: Vec<_> = object.into_iter().enumerate().map(|(depth, i)| (i, depth == last)).collect();
    assert_eq!(found, Some(expected), "{name}");
}
