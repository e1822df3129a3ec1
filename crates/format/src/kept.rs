//! Bytes that are kept as they were read, so that a rewrite returns what nobody understands unchanged.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// `N` kept bytes. They compare like bytes; printing them for debugging shows a summary only.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kept<const N: usize>(Box<[u8; N]>);

impl<const N: usize> Kept<N> {
    pub(crate) fn new(bytes: [u8; N]) -> Self {
        Self(Box::new(bytes))
    }
}

impl<const N: usize> Deref for Kept<N> {
    type Target = [u8; N];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<const N: usize> DerefMut for Kept<N> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<const N: usize> fmt::Debug for Kept<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().filter(|byte| **byte != 0).count();
        write!(f, "[{N} bytes, {used} not 0]")
    }
}
