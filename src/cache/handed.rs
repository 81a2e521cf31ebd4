//! Which blocks the kernel has been given whole, so that it has them in its own memory: a copy of them here serves only who comes when
//! the kernel has dropped its own. Of such copies the latest are kept, for those who read a few chunks again and again by ways that leave
//! nothing with the kernel; a reader of very many chunks would have all memory taken twice for each of them.

use super::BlockId;
use lru::LruCache;

/// Most bytes of blocks that the kernel has as well.
pub const MOST: u64 = 256 << 20;

/// The blocks, the one that was given first in front, and what each weighs in bytes.
pub struct Handed {
    blocks: LruCache<BlockId, u64>,
    bytes: u64,
}

impl Default for Handed {
    fn default() -> Self {
        Self { blocks: LruCache::unbounded(), bytes: 0 }
    }
}

impl Handed {
    /// The kernel has been given a block.
    pub fn put(&mut self, id: BlockId, weight: u64) {
        self.bytes += weight;
        self.bytes -= self.blocks.put(id, weight).unwrap_or_default();
    }

    /// A block is gone from here, or from the kernel.
    pub fn remove(&mut self, id: &BlockId) {
        self.bytes -= self.blocks.pop(id).unwrap_or_default();
    }

    /// Takes out the one that was given first, while there are more than [`MOST`] bytes.
    pub fn excess(&mut self) -> Option<BlockId> {
        if self.bytes <= MOST {
            return None;
        }
        let (id, weight) = self.blocks.pop_lru()?;
        self.bytes -= weight;
        Some(id)
    }
}
