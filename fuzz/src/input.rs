//! How the bytes of a fuzzer are taken apart: choices in front, then what is parsed.
//!
//! Choices are single bytes, and sections are text, so that mutations stay local and seeds can be written by hand.

use chunkmount::array::{Array, Node};
use chunkmount::format::{self, Context, Documents};

/// Bytes that are taken from the front.
pub struct Input<'a>(
    /// What is left.
    pub &'a [u8],
);

impl<'a> Input<'a> {
    /// The next byte; 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A choice among `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// The next two bytes as a little-endian number.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// What stands before the next newline, which is skipped; all that is left where there is none.
    pub fn line(&mut self) -> &'a [u8] {
        let all = self.0;
        match all.iter().position(|&b| b == b'\n') {
            Some(at) => {
                self.0 = &all[at + 1..];
                &all[..at]
            }
            None => {
                self.0 = &[];
                all
            }
        }
    }

    /// What is left, in sections: `@` at the beginning of a line, a name, a newline, and all up to the next section.
    pub fn sections(&self) -> Vec<(&'a [u8], &'a [u8])> {
        let data = self.0;
        let mut starts: Vec<usize> = (0..data.len()).filter(|&i| data[i] == b'@' && (i == 0 || data[i - 1] == b'\n')).collect();
        starts.push(data.len() + 1);
        let section = |pair: &[usize]| {
            let mut rest = Input(&data[pair[0] + 1..pair[1] - 1]);
            (rest.line(), rest.0)
        };
        starts.windows(2).map(section).collect()
    }
}

/// An array of Zarr v2, which has neither filters nor compressor; to be changed further.
pub fn array(shape: &[u64], chunks: &[u64], dtype: &str, separator: char) -> Array {
    let text = format!(
        r#"{{"zarr_format": 2, "shape": {shape:?}, "chunks": {chunks:?}, "dtype": "{dtype}", "fill_value": 0, "order": "C",
            "filters": null, "compressor": null, "dimension_separator": "{separator}"}}"#
    );
    let documents = Documents::from([(".zarray", Ok(text.into_bytes()))]);
    match format::detect(&documents, &Context::default()) {
        Ok(Node::Array(array)) => *array,
        other => panic!("{other:?}"),
    }
}
