//! One request at a time for the same thing: who comes meanwhile waits for that answer, a failure as well.

use crate::error::{Error, Kind, Result};
use crate::store::Key;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;

struct Flight<T> {
    answer: Mutex<Option<Result<T>>>,
    come: Condvar,
}

/// The requests under way.
pub struct Flights<T>(Mutex<HashMap<Key, Arc<Flight<T>>>>);

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Ends a request also when it panics, so that nobody waits for ever.
struct Landing<'a, T: Clone> {
    flights: &'a Flights<T>,
    key: &'a Key,
    flight: Arc<Flight<T>>,
    answer: Option<Result<T>>,
}

impl<T: Clone> Drop for Landing<'_, T> {
    fn drop(&mut self) {
        self.flights.0.lock().remove(self.key);
        let answer = self.answer.take().unwrap_or_else(|| Err(Error::new(Kind::Bug, "a request panicked")));
        *self.flight.answer.lock() = Some(answer);
        self.flight.come.notify_all();
    }
}

impl<T: Clone> Flights<T> {
    /// The answer for `key`: that of who asks for it now, or of `ask`.
    ///
    /// # Errors
    /// What `ask` failed with.
    pub fn take(&self, key: &Key, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(key).cloned() {
            drop(flights);
            let mut answer = flight.answer.lock();
            loop {
                if let Some(answer) = &*answer {
                    return answer.clone();
                }
                flight.come.wait(&mut answer);
            }
        }
        let flight = Arc::new(Flight { answer: Mutex::new(None), come: Condvar::new() });
        flights.insert(key.clone(), Arc::clone(&flight));
        drop(flights);
        let mut landing = Landing { flights: self, key, flight, answer: None };
        let answer = ask();
        landing.answer = Some(answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    #[test]
    fn one_asks_and_all_get_its_answer() {
        let (flights, asked) = (Flights::<u32>::default(), AtomicU32::new(0));
        let key = Key::root().join("a").unwrap();
        let ask = || {
            asked.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(300));
            Err(Error::new(Kind::TimedOut, "late"))
        };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(flights.take(&key, ask).unwrap_err().kind(), Kind::TimedOut));
            }
        });
        assert!(asked.load(Ordering::Relaxed) < 8);
        assert_eq!(flights.take(&key, || Ok(3)).unwrap(), 3);
    }
}
