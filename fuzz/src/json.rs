//! The JSON parser, against serde_json, and what it writes.

use chunkmount::error::Result;
use chunkmount::format::json::{self, NonFinite};
use serde_json::Value;

/// A document.
pub fn target(data: &[u8]) {
    let ours = json::parse(data);
    if let Err(e) = &ours {
        assert!(e.reason().len() < 300, "{e}");
    }
    // An empty name and one that is likely are looked for, below the document itself.
    for path in [&[][..], &["a"], &["a", "a"], &[""]] {
        outlined(data, path, &ours);
    }
    // serde_json takes an object with a member of its own for a number.
    let private = data.windows(7).any(|w| w == b"private") || data.windows(2).any(|w| w == b"\\u");
    if let Ok(theirs) = serde_json::from_slice::<Value>(data) {
        match &ours {
            Ok(ours) if !private => assert!(same(ours, &theirs), "{ours:?}\n{theirs:?}"),
            Ok(_) => {}
            Err(e) => assert!(e.reason().contains("nested deeper") || private, "{e}"),
        }
    }
    let Ok(ours) = ours else { return };
    assert!(json::cite(&ours).chars().count() <= 61);
    let written = json::render(&ours, NonFinite::Token);
    let again = json::parse(&written).unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(&written)));
    assert!(again == ours, "{again:?}\n{ours:?}");
    let written = json::render(&ours, NonFinite::Text);
    let strict = serde_json::from_slice::<Value>(&written);
    assert!(private || strict.is_ok(), "{strict:?}: {}", String::from_utf8_lossy(&written));
}

/// Checks that an outline refuses what the parser refuses, for the same reason, and that its parts make what the parser makes.
fn outlined(data: &[u8], path: &[&str], whole: &Result<Value>) {
    match (json::outline(data, path), whole) {
        (Ok(json::Outline { mut value, members }), Ok(whole)) => {
            let mut held = Some(&mut value);
            for name in path {
                held = held.and_then(|value| value.get_mut(name));
            }
            match held.and_then(Value::as_object_mut) {
                Some(held) => {
                    assert!(held.is_empty());
                    for (name, at) in members {
                        let text = &data[at];
                        held.insert(name, json::parse(text).unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(text))));
                    }
                }
                None => assert!(members.is_empty()),
            }
            assert!(value == *whole, "{value:?}\n{whole:?}");
        }
        (Err(ours), Err(whole)) => assert_eq!(ours.to_string(), whole.to_string()),
        (ours, whole) => panic!("{ours:?}\n{whole:?}"),
    }
}

/// Whether both say the same; numbers may be spelled otherwise.
fn same(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => a.as_str().parse::<serde_json::Number>().is_ok_and(|a| a == *b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => ours == theirs,
    }
}
