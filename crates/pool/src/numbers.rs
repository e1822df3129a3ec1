//! Numbers of the format that several rooms need, and identities.

/// Bytes of a block of a space map.
pub(crate) const SPACE_MAP_BLOCK_BYTES: u64 = 4096;
/// Bytes of the header of a space map in its bonus area, without a histogram.
pub(crate) const SPACE_MAP_HEAD_BYTES: usize = 24;
/// Bytes of a block of the configuration.
pub(crate) const CONFIG_BLOCK_BYTES: u64 = 16 << 10;
/// Objects of a volume: its data, and what it is.
pub(crate) const DATA_OBJECT: u64 = 1;
/// See [`DATA_OBJECT`].
pub(crate) const PROPERTIES_OBJECT: u64 = 2;
/// Type of the object set of a volume.
pub(crate) const SET_VOLUME: u64 = 3;
/// Where the block of an object set says what it is.
pub(crate) const TYPE_OFFSET: usize = 704;

/// The first transaction group of a pool.
pub(crate) const FIRST_TXG: u64 = 4;

/// Numbers out of a seed.
pub(crate) struct Identities(pub u64);

impl Identities {
    /// The next one; never zero.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31).max(1)
    }
}
