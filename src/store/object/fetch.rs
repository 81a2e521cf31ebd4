//! The bytes of an object, as they come: no more and no fewer than were promised, in time, and from one version.
//!
//! A server that answers a range with all of the object is taken at its word, and what was not asked for is let go by as it comes.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::client::Client;
use super::fail;
use super::wire::{Ask, TRACE, Trace};
use crate::error::{Error, Kind, Result};
use crate::pieces;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// So many bytes must come within the deadline; then it starts anew.
const WINDOW: u64 = 8 << 20;

/// Most repetitions of a read whose body was not what was promised.
const REREADS: u32 = 2;

/// Largest object that is read whole because the server does not answer ranges, or does not tell its length.
pub const NO_RANGES: usize = 64 << 20;

impl Client {
    /// Reads `range` of an object into `into`, at the version `tag` where one is given: an entity tag that can be compared.
    /// `accept` sees what is known of the object, and the number of bytes that are to come, before they do. `None` where the
    /// range begins after the end of the object.
    ///
    /// # Errors
    /// See [`fail::sort`]; what `accept` fails with.
    pub fn read(
        &self,
        path: &Path,
        range: Option<GetRange>,
        tag: Option<&str>,
        into: &mut Vec<u8>,
        accept: &dyn Fn(&ObjectMeta, u64) -> Result<()>,
    ) -> Result<Option<ObjectMeta>> {
        let trace = Trace::new(Ask::Get);
        self.runtime.block_on(TRACE.scope(Arc::clone(&trace), async {
            let deadline = self.deadline();
            let mut again = 0;
            loop {
                let read = self.read_once(path, range.as_ref(), tag, into, accept, &trace, deadline).await;
                match read {
                    Err((e, true)) if again < REREADS && Instant::now() < deadline => {
                        again = again.saturating_add(1);
                        log::debug!("{path}: {}; asked again", e.reason());
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                    Err((e, _)) => return Err(e),
                    Ok(meta) => {
                        self.note_answer();
                        return Ok(meta);
                    }
                }
            }
        }))
    }

    // One read; an error says whether asking again may help. `None` where the range begins after the end.
    #[expect(clippy::too_many_arguments, reason = "a part of `read`, with its state")]
    async fn read_once(
        &self,
        path: &Path,
        range: Option<&GetRange>,
        tag: Option<&str>,
        into: &mut Vec<u8>,
        accept: &dyn Fn(&ObjectMeta, u64) -> Result<()>,
        trace: &Trace,
        mut deadline: Instant,
    ) -> std::result::Result<Option<ObjectMeta>, (Error, bool)> {
        use futures_util::StreamExt;
        let is_suffix = matches!(range, Some(GetRange::Suffix(_)));
        let options = |range| GetOptions { if_match: tag.map(ToOwned::to_owned), range, ..GetOptions::default() };
        let asked = self.until(deadline, trace, || self.objects.get_opts(path, options(range.cloned()))).await;
        let (result, wanted) = match asked {
            Ok(result) => {
                let wanted = 0..result.range.end.saturating_sub(result.range.start);
                (result, wanted)
            }
            // There are servers that know no range without a beginning; whoever asked asks for another one.
            Err(e) if is_suffix && e.kind() != Kind::TimedOut && fail::is_no_suffix(trace) && !self.knows_suffixes() => {
                self.note_suffix(false);
                return Err((e, false));
            }
            // A good answer to another question than was asked: there are servers that know no ranges.
            Err(e) if range.is_some() && e.kind() == Kind::Unavailable && fail::answered(trace) => {
                let all = self
                    .until(deadline, trace, || self.objects.get_opts(path, options(None)))
                    .await
                    .map_err(|_| (e.clone(), false))?;
                let inside = range.and_then(|range| range.as_range(all.meta.size).ok());
                match inside.filter(|_| all.meta.size <= crate::store::len64(NO_RANGES) && all.range == (0..all.meta.size)) {
                    Some(inside) => (all, inside),
                    None => return Err((e, false)),
                }
            }
            // Only before any byte has come: what was there once is no empty range when it is asked for again.
            Err(_) if range.is_some() && fail::status(trace) == Some(416) => return Ok(None),
            Err(e) => return Err((e, false)),
        };
        let meta = result.meta.clone();
        let expected = result.range.end.saturating_sub(result.range.start);
        accept(&meta, wanted.end.saturating_sub(wanted.start)).map_err(|e| (e, false))?;
        let length = wanted.end.saturating_sub(wanted.start);
        let room = usize::try_from(length).map_err(|_| (Error::too_big(format!("{length} bytes")), false))?;
        into.clear();
        crate::store::reserve(into, room).map_err(|e| (e, false))?;
        let mut stream = std::pin::pin!(pieces::body(result.into_stream()));
        let (mut window, mut come) = (0_u64, 0_u64);
        while let Some(piece) = timeout_at(deadline, stream.next()).await.map_err(|_| (self.late(trace), false))? {
            let piece = piece.map_err(|e| (fail::broke_off(&e), true))?;
            let length = crate::store::len64(piece.len());
            self.counters.bytes.fetch_add(length, Ordering::Relaxed);
            let end = come.saturating_add(length);
            if end > expected {
                let reason = format!("the server gave more than the {expected} bytes that it promised");
                return Err((Error::new(Kind::Unavailable, reason), true));
            }
            // Of an object that comes whole nothing is held but what was asked for.
            let place = |at: u64| usize::try_from(at.clamp(come, end).saturating_sub(come)).unwrap_or(usize::MAX);
            into.extend_from_slice(piece.get(place(wanted.start)..place(wanted.end)).unwrap_or_default());
            come = end;
            window = window.saturating_add(length);
            if window >= WINDOW {
                window = 0;
                deadline = self.deadline();
            }
        }
        if come != expected {
            let reason = format!("the server promised {expected} bytes and gave {come}");
            return Err((Error::new(Kind::Unavailable, reason), true));
        }
        if is_suffix {
            self.note_suffix(true);
        }
        Ok(Some(meta))
    }
}
