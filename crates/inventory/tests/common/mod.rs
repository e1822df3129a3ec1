//! Trees of sysfs from one text file each; see `fixtures/inventory/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use plexum_inventory::Roots;
use tempfile::TempDir;

/// All trees.
pub const TREES: [&str; 8] = [
    "equal-serials",
    "hostile",
    "nvme",
    "sata-ahci",
    "ses-shelf",
    "ses-without-driver",
    "usb-dock",
    "virtio",
];

/// An unpacked tree, gone when it is dropped.
pub struct Unpacked {
    pub folder: TempDir,
    pub roots: Roots,
}

impl Unpacked {
    /// A path below the root of sysfs.
    pub fn sys(&self, path: &str) -> PathBuf {
        self.roots.sys().join(path)
    }
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/inventory")
}

pub fn unpack(name: &str) -> Unpacked {
    let folder = tempfile::tempdir().unwrap();
    let sys = folder.path().join("sys");
    let text = fs::read_to_string(fixtures().join(format!("trees/{name}.tree"))).unwrap();
    fs::create_dir_all(&sys).unwrap();
    let mut place = PathBuf::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(next) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            place = match next {
                "udev" => folder.path().join("udev"),
                next => sys.join(next),
            };
            fs::create_dir_all(&place).unwrap();
        } else if let Some((path, target)) = line.split_once(" -> ") {
            let link = make_room(place.join(path));
            std::os::unix::fs::symlink(sys.join(target), link).unwrap();
        } else if let Some((path, bytes)) = line.split_once(" <- ") {
            fs::write(make_room(place.join(path)), parse_bytes(bytes)).unwrap();
        } else if let Some((path, text)) = line.split_once(" = ") {
            let text = text.replace("\\n", "\n").replace("\\\\", "\\");
            fs::write(make_room(place.join(path)), text + "\n").unwrap();
        } else {
            let path = line
                .strip_suffix('/')
                .expect("a line is a file, a link or a folder");
            fs::create_dir_all(place.join(path)).unwrap();
        }
    }
    let roots = Roots::new(&sys, folder.path().join("udev"));
    Unpacked { folder, roots }
}

fn make_room(path: PathBuf) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// Bytes in hexadecimal, and text in quotes.
fn parse_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            bytes.extend(part.as_bytes());
        } else {
            bytes.extend(
                part.split_whitespace()
                    .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
            );
        }
    }
    bytes
}
