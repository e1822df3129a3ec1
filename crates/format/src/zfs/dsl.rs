//! Data sets and snapshots: the bonus areas that link them.
//!
//! Source: zfs-raidz.md 2.6.

use super::blockptr::BlockPointer;
use super::bytes::{le64, nowhere, require};
use crate::error::FormatError;

/// A node of the tree of data sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DslDir {
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// Its data set; 0: none.
    pub head_object: u64,
    /// The snapshot that it is a clone of; 0: none.
    pub origin_object: u64,
    /// ZAP of its children; 0: none.
    pub children_object: u64,
    /// Space that it and everything below it take.
    pub used_bytes: u64,
}

impl DslDir {
    /// Reads the bonus area.
    ///
    /// # Errors
    /// [`Problem::TooShort`](crate::Problem::TooShort).
    pub fn parse(bonus: &[u8]) -> Result<Self, FormatError> {
        require(nowhere("dsl directory"), bonus, 48, "bonus")?;
        let word = |n: usize| le64(bonus, 8 * n).expect("the length was checked");
        Ok(Self {
            created_s: word(0),
            head_object: word(1),
            origin_object: word(3),
            children_object: word(4),
            used_bytes: word(5),
        })
    }
}

/// A data set or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DslDataset {
    /// Its node in the tree.
    pub dir_object: u64,
    /// The snapshot before it; 0: none.
    pub previous_object: u64,
    /// ZAP of the names of its snapshots; 0: none.
    pub snapshot_names_object: u64,
    /// When it was made, seconds since 1970.
    pub created_s: u64,
    /// Transaction group in which it was made.
    pub created_txg: u64,
    /// Space that it can reach.
    pub referenced_bytes: u64,
    /// Its identity.
    pub guid: u64,
    /// The object set.
    pub root: BlockPointer,
}

impl DslDataset {
    /// Reads the bonus area.
    ///
    /// # Errors
    /// [`Problem::TooShort`](crate::Problem::TooShort), those of a block pointer.
    pub fn parse(bonus: &[u8]) -> Result<Self, FormatError> {
        require(nowhere("dsl data set"), bonus, 256, "bonus")?;
        let word = |n: usize| le64(bonus, 8 * n).expect("the length was checked");
        Ok(Self {
            dir_object: word(0),
            previous_object: word(1),
            snapshot_names_object: word(4),
            created_s: word(6),
            created_txg: word(7),
            referenced_bytes: word(9),
            guid: word(14),
            root: BlockPointer::parse(&bonus[128..])?,
        })
    }
}
