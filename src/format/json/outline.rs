//! Documents in which the members of one object are left as they are written: consolidated metadata holds those of very many nodes, few
//! of which are looked at, and to build them all takes many times as long as to find where each begins and ends.

use super::{DEPTH, Parser, Value, whole};
use crate::error::Result;
use serde_json::Map;
use std::ops::Range;

/// See [`outline`].
#[derive(Debug)]
pub struct Outline {
    /// The document; the object is empty in it.
    pub value: Value,
    /// Names of the object's members in their order, and where in the document's bytes their values are. Of a name given twice the
    /// last counts.
    pub members: Vec<(String, Range<usize>)>,
}

/// Parses a document, but of the object at `path` finds only where its members are; none where there is none. All of it is checked.
///
/// # Errors
/// As [`super::parse`].
pub fn outline(bytes: &[u8], path: &[&str]) -> Result<Outline> {
    let mut members = Vec::new();
    let value = whole(bytes, |parser| parser.outline(DEPTH, path, &mut members))?;
    Ok(Outline { value, members })
}

impl Parser<'_> {
    fn outline(&mut self, depth: usize, path: &[&str], members: &mut Vec<(String, Range<usize>)>) -> Result<Value> {
        if self.peek() != Some(b'{') {
            return self.value(depth);
        }
        let below = self.below(depth)?;
        let mut map = Map::new();
        self.items(b'}', "an object", |parser| {
            let name = parser.name()?;
            match path.split_first() {
                None => {
                    let from = parser.at;
                    parser.pass(below)?;
                    members.push((name, from..parser.at));
                }
                Some((first, rest)) if name == *first => {
                    // What was found below another of the name does not count.
                    members.clear();
                    map.insert(name, parser.outline(below, rest, members)?);
                }
                Some(_) => drop(map.insert(name, parser.value(below)?)),
            }
            Ok(())
        })?;
        Ok(Value::Object(map))
    }

    /// Goes to the end of a value, and checks it as if it were built.
    fn pass(&mut self, depth: usize) -> Result<()> {
        let below = self.below(depth)?;
        match self.peek() {
            Some(b'{') => self.items(b'}', "an object", |parser| {
                parser.quote()?;
                parser.pass_string()?;
                parser.colon()?;
                parser.pass(below)
            }),
            Some(b'[') => self.items(b']', "a list", |parser| parser.pass(below)),
            Some(b'"') => self.pass_string(),
            Some(_) => self.bare().map(drop),
            None => Err(self.ends_early()),
        }
    }

    fn pass_string(&mut self) -> Result<()> {
        self.skip(1);
        while !self.plain()?.1 {
            self.escape()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json::parse;

    /// The members of one object as they are written, of names given twice the last.
    #[test]
    fn an_outline_leaves_the_members_of_an_object() {
        let text = "\u{feff}{\"n\": {\"m\": {\"gone\": 1}}, \"k\": [NaN], \"n\": {\"m\" : { \"é\" : {\"x\": \"\\\"}\", \"y\": [ ] } ,\"b\":-1e5}}}";
        let Outline { value, members } = outline(text.as_bytes(), &["n", "m"]).unwrap();
        assert_eq!(value.to_string(), r#"{"n":{"m":{}},"k":[NaN]}"#);
        let members: Vec<_> = members.into_iter().map(|(name, at)| (name, &text[at])).collect();
        assert_eq!(members, [("é".to_owned(), r#"{"x": "\"}", "y": [ ] }"#), ("b".to_owned(), "-1e5")]);
        for text in [r#"{"n": {"m": {"x": 1}}, "n": 5}"#, "[1]", r#"{"m": {"x": 1}}"#] {
            let outline = outline(text.as_bytes(), &["n", "m"]).unwrap();
            assert!(outline.members.is_empty() && outline.value == parse(text.as_bytes()).unwrap(), "{outline:?}");
        }
    }
}
