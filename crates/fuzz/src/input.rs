//! What a parser gets: bytes, and the numbers that its caller knows; and the corpus of valid ones in the repository.

use std::path::{Path, PathBuf};

/// Numbers that go with the bytes, such as the place where they were found.
pub const NUMBERS: usize = 4;

/// Input of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What the caller of the parser knows; each target says which is what.
    pub numbers: [u64; NUMBERS],
    /// What was read.
    pub bytes: Vec<u8>,
}

impl Input {
    /// As a file: the numbers as little-endian words, then the bytes.
    #[must_use]
    pub fn to_file(&self) -> Vec<u8> {
        let mut file: Vec<u8> = self.numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        file.extend_from_slice(&self.bytes);
        file
    }

    /// From a file; `None` when it is shorter than the numbers.
    #[must_use]
    pub fn from_file(file: &[u8]) -> Option<Self> {
        let (head, bytes) = file.split_at_checked(8 * NUMBERS)?;
        let mut numbers = [0; NUMBERS];
        for (number, word) in numbers.iter_mut().zip(head.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*word);
        }
        Some(Self {
            numbers,
            bytes: bytes.to_vec(),
        })
    }
}

/// The folder of a target's corpus.
#[must_use]
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target)
}

/// The corpus of a target, by name. Names that begin with `ok` are valid.
///
/// # Errors
/// A sentence when a file cannot be read or is too short.
pub fn corpus(target: &str) -> Result<Vec<(String, Input)>, String> {
    let folder = folder(target);
    let tell = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(tell)? {
        let path = entry.map_err(tell)?.path();
        let file = std::fs::read(&path).map_err(tell)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let input = Input::from_file(&file).ok_or(format!("{name}: too short"))?;
        inputs.push((name.into_owned(), input));
    }
    inputs.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_survives_its_file() {
        let input = Input {
            numbers: [1, u64::MAX, 3, 0],
            bytes: b"abc".to_vec(),
        };
        assert_eq!(Input::from_file(&input.to_file()), Some(input));
        assert_eq!(Input::from_file(&[0; 31]), None);
    }
}
