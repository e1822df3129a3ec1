//! How far a migration is, and why it cannot be.

use std::fmt;

use plexum_layout::Organisation;

/// Which way the border moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From address 0 on: what is below the border has moved.
    Up,
    /// From the end on: what is above it has.
    Down,
}

/// How far a migration is, as it is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The border: an address of the volume.
    pub border_bytes: u64,
    /// So many bytes from address 0 on, the critical section, are kept by the ledger and count there alone; 0: none.
    pub kept_bytes: u64,
}

/// Why two geometries cannot be migrated between, or not from where they are said to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// An organisation without rows of strips, or members of several sizes.
    NoRows(Organisation),
    /// The new volume would not hold what the old one does, or not move in this direction.
    Sizes {
        /// Of the old one.
        before: u64,
        /// Of the new one.
        after: u64,
    },
    /// Every row would be written over itself.
    NoRoom,
    /// Less than the rows that have to be moved together.
    TooSmall,
    /// No migration between these geometries has ever stopped there.
    Position(Position),
    /// Downwards, and the last rows would be written over themselves.
    DownwardsInPlace,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRows(organisation) => write!(
                f,
                "{organisation} over these members has no rows of one length that could be moved"
            ),
            Self::Sizes { before, after } => {
                write!(f, "{before} bytes do not become {after} in this direction")
            }
            Self::NoRoom => f.write_str("every row would be written over itself: there is no room"),
            Self::TooSmall => f.write_str("it is smaller than the first rows, which move together"),
            Self::Position(position) => write!(
                f,
                "it is said to stand at byte {} with {} bytes kept, where it never stops",
                position.border_bytes, position.kept_bytes
            ),
            Self::DownwardsInPlace => f.write_str(
                "downwards its last rows would be written over themselves: there is no room",
            ),
        }
    }
}

impl std::error::Error for Unfit {}
