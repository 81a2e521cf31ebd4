//! A store that fails by a script, for tests: it wraps another one and disturbs chosen calls.
//!
//! A call takes the first fault that matches it and is not used up. `Short` and `Damage` break the contract of [`Store`] on
//! purpose: what reads through them must notice by its own checks.

use super::{Key, Listing, Meta, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A call of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// [`Store::get`].
    Get,
    /// [`Store::head`].
    Head,
    /// [`Store::list`].
    List,
}

/// What happens to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this kind and reason.
    Fail(Kind, String),
    /// It is answered after a while.
    Delay(Duration),
    /// The answer has another version than the object; a pinned read fails as changed.
    OtherVersion,
    /// At most this many bytes are returned, without an error.
    Short(usize),
    /// The byte at this place of the answer (or its last one) is inverted.
    Damage(usize),
}

/// One line of the script.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The call it is for; all where none is named.
    pub call: Option<Call>,
    /// The key it is for; all where none is named.
    pub key: Option<Key>,
    /// Matching calls that are let through first.
    pub after: u64,
    /// Matching calls that are disturbed then.
    pub times: u64,
    /// What happens.
    pub effect: Effect,
}

/// A store with a script of faults. Part of the test kit.
pub struct Faulty {
    inner: Arc<dyn Store>,
    script: Mutex<Vec<Fault>>,
    calls: Mutex<Vec<(Call, Key)>>,
}

impl Faulty {
    /// Wraps `inner`; without a script it only records calls.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, script: Mutex::default(), calls: Mutex::default() }
    }

    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        self.script.lock().push(fault);
    }

    /// Adds a fault that always holds for `call` of `key`.
    pub fn always(&self, call: Call, key: Key, effect: Effect) {
        self.add(Fault { call: Some(call), key: Some(key), after: 0, times: u64::MAX, effect });
    }

    /// Forgets all faults.
    pub fn heal(&self) {
        self.script.lock().clear();
    }

    /// The calls so far, in order.
    pub fn calls(&self) -> Vec<(Call, Key)> {
        self.calls.lock().clone()
    }

    // Records a call, waits and fails as the script says, and returns what is left to do to the answer.
    fn disturb(&self, call: Call, key: &Key) -> Result<Option<Effect>> {
        self.calls.lock().push((call, key.clone()));
        let effect = self.script.lock().iter_mut().find_map(|fault| {
            let matches = fault.call.is_none_or(|c| c == call) && fault.key.as_ref().is_none_or(|k| k == key);
            if !matches || fault.times == 0 {
                return None;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return None;
            }
            fault.times -= 1;
            Some(fault.effect.clone())
        });
        match effect {
            Some(Effect::Fail(kind, reason)) => Err(Error::new(kind, reason).about(key)),
            Some(Effect::Delay(time)) => {
                std::thread::sleep(time);
                Ok(None)
            }
            effect => Ok(effect),
        }
    }
}

fn other(meta: Meta) -> Meta {
    Meta { version: Version::Tag("another version".into()), ..meta }
}

impl Store for Faulty {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        let effect = self.disturb(Call::Head, key)?;
        let meta = self.inner.head(key)?;
        Ok(if effect == Some(Effect::OtherVersion) { other(meta) } else { meta })
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        let effect = self.disturb(Call::Get, key).inspect_err(|_| into.clear())?;
        let meta = self.inner.get(key, range, pin, limit, into)?;
        match effect {
            Some(Effect::OtherVersion) if pin.is_some() => {
                into.clear();
                return Err(Error::new(Kind::Changed, "the object is another version than the one that was opened").about(key));
            }
            Some(Effect::OtherVersion) => return Ok(other(meta)),
            Some(Effect::Short(length)) => into.truncate(length),
            Some(Effect::Damage(at)) => {
                let last = into.len().saturating_sub(1);
                if let Some(byte) = into.get_mut(at.min(last)) {
                    *byte = !*byte;
                }
            }
            _ => {}
        }
        Ok(meta)
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        self.disturb(Call::List, key)?;
        self.inner.list(key)
    }

    fn locate(&self, key: &Key) -> String {
        self.inner.locate(key)
    }

    fn lanes(&self) -> usize {
        self.inner.lanes()
    }

    fn requests(&self) -> Requests {
        self.inner.requests()
    }
}
