//! What the FreeBSD formats share on the way from devices to a volume.

use std::fmt;

use plexum_format::{FormatError, Problem};

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError, read_range};

/// Sectors that a provider of unknown sector size may have: an image file does not say.
const SECTORS_BYTES: [u32; 2] = [512, 4096];

/// Why devices do not make a volume of a FreeBSD format.
#[derive(Debug)]
#[non_exhaustive]
pub enum ForeignError {
    /// A device could not be read; its number as given.
    Io(usize, IoError),
    /// A device does not carry what the others do.
    NothingFound(usize),
    /// A device carries damaged metadata.
    Format(usize, Box<FormatError>),
    /// The members do not make a volume; who is to blame, and the sentence.
    Unfit(Option<usize>, String),
    /// It would start without members that may be newer, and that was not asked for.
    Degraded(String),
    /// Writes were under way, and a member is missing: parity cannot be trusted.
    DirtyDegraded(String),
    /// Too much is missing.
    Missing(String),
    /// A label is bound to a provider of another name; whose, and the sentence.
    Bound(usize, String),
}

/// The name by which FreeBSD would know a device or file: its last part, and all of what a label is `bound` to where
/// the path ends with that (`/dev/mirror/gm0`).
#[must_use]
pub fn provider_name<'a>(path: &'a str, bound: &'a str) -> &'a str {
    let is_whole = path
        .strip_suffix(bound)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    if is_whole && bound.contains('/') {
        return bound;
    }
    path.rsplit('/').next().unwrap_or(path)
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(index, error) => write!(f, "member {index}: {error}"),
            Self::NothingFound(index) => write!(f, "member {index}: nothing was found"),
            Self::Format(index, error) => write!(f, "member {index}: {error}"),
            Self::Unfit(_, text)
            | Self::Degraded(text)
            | Self::DirtyDegraded(text)
            | Self::Missing(text)
            | Self::Bound(_, text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ForeignError {}

/// Looks for a label in the last sector, of 512 or of 4096 bytes. Gives it with the size of the sector.
///
/// # Errors
/// [`ForeignError`] with `index`.
pub async fn last_sector<D: Device, L>(
    device: &D,
    pool: &BufPool,
    index: usize,
    parse: impl Fn(&[u8], u64, u64) -> Result<L, FormatError>,
) -> Result<(L, u32), ForeignError> {
    let size_bytes = device.info().size_bytes;
    let mut damage = None;
    for sector_bytes in SECTORS_BYTES {
        let Some(at) = size_bytes.checked_sub(u64::from(sector_bytes)) else {
            continue;
        };
        let bytes = match read_range(device, pool, at..at + 512).await {
            Ok(bytes) => bytes,
            Err(IoError::Medium) => continue,
            Err(error) => return Err(ForeignError::Io(index, error)),
        };
        match parse(&bytes, at, size_bytes) {
            Ok(label) => return Ok((label, sector_bytes)),
            Err(error) if error.problem == Problem::NoMagic => {}
            Err(error) => damage = Some(error),
        }
    }
    Err(match damage {
        Some(error) => ForeignError::Format(index, Box::new(error)),
        None => ForeignError::NothingFound(index),
    })
}
