//! Unpacks an archive of sparse images into a temporary folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The folder of the repository that holds all fixtures.
#[must_use]
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// An unpacked archive; its folder goes when this is dropped.
#[derive(Debug)]
pub struct Unpacked {
    folder: TempDir,
}

impl Unpacked {
    /// The folder with the files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The path of one file.
    #[must_use]
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder().join(file)
    }

    /// The content of one file.
    ///
    /// # Panics
    /// When it cannot be read: the test that asked fails.
    #[must_use]
    pub fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

/// Unpacks a `.tar.zst` with holes into a fresh folder.
///
/// # Panics
/// When the archive or one of the tools `zstd` and `tar` is missing: the test that asked fails.
#[must_use]
pub fn unpack(archive: &Path) -> Unpacked {
    let shown = archive.display();
    let file = File::open(archive).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let folder = TempDir::new().unwrap_or_else(|error| panic!("temporary folder: {error}"));
    let mut zstd = Command::new("zstd")
        .args(["-dcq", "--long=27"])
        .stdin(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("zstd (install the package of that name): {error}"));
    let stream = zstd
        .stdout
        .take()
        .unwrap_or_else(|| panic!("{shown}: zstd has no output"));
    let unpacked = Command::new("tar")
        .args(["-xSf", "-", "-C"])
        .arg(folder.path())
        .stdin(stream)
        .status()
        .unwrap_or_else(|error| panic!("tar: {error}"));
    let decompressed = zstd.wait().unwrap_or_else(|error| panic!("zstd: {error}"));
    assert!(
        unpacked.success() && decompressed.success(),
        "{shown}: unpacking failed"
    );
    Unpacked { folder }
}
