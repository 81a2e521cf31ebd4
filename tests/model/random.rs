//! Random numbers that are the same everywhere, so that a seed is a case.

/// A small generator of numbers (xorshift64*), the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Seeds that follow each other must not begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % n.max(1)
    }

    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
