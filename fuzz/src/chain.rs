//! Chains of codecs from their configurations, and a block through them.

use super::codec::check;
use super::input::Input;
use chunkmount::codec::{Chain, from_n5, from_numcodecs};
use chunkmount::format::json;
use serde_json::Value;

/// One byte is the size of an element, two are the length of the result, then come a line of JSON (a list of configurations as
/// numcodecs spells them, or the attributes of an N5 dataset) and the encoded bytes.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let item = Some(usize::from(input.byte())).filter(|n| *n > 0);
    let length = usize::from(input.short());
    let codecs = match json::parse(input.line()) {
        Ok(Value::Array(configs)) => {
            let codecs: Result<Option<Vec<_>>, _> = configs.iter().map(|config| from_numcodecs(config, item)).collect();
            codecs.ok().flatten()
        }
        Ok(Value::Object(attributes)) => from_n5(&attributes).ok(),
        _ => None,
    };
    let Some(Ok(chain)) = codecs.map(Chain::new) else { return };
    assert!(chain.names().iter().all(|name| !name.is_empty()));
    check(&chain, input.0, length);
}
