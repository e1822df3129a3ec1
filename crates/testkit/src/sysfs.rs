//! Trees of sysfs and udev's database from one text file each; see `fixtures/inventory/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use super::unpack::fixtures;

/// Unpacks the tree `name` into a folder that is there: `sys` and `udev` are made in it.
///
/// # Panics
/// The tree is not there or is not written as it should be.
pub fn unpack_sysfs(name: &str, folder: &Path) {
    let path = fixtures().join(format!("inventory/trees/{name}.tree"));
    let text = fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let sys = folder.join("sys");
    fs::create_dir_all(&sys).expect("the folder takes files");
    let mut place = PathBuf::new();
    let lines = text.lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let head = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(next) = head {
            place = match next {
                "udev" => folder.join("udev"),
                next => sys.join(next),
            };
            fs::create_dir_all(&place).expect("the folder takes folders");
            continue;
        }
        let made = match (
            line.split_once(" -> "),
            line.split_once(" <- "),
            line.split_once(" = "),
        ) {
            (Some((path, target)), _, _) => {
                std::os::unix::fs::symlink(sys.join(target), make_room(place.join(path)))
            }
            (_, Some((path, bytes)), _) => {
                fs::write(make_room(place.join(path)), parse_bytes(bytes))
            }
            (_, _, Some((path, text))) => {
                let text = text.replace("\\n", "\n").replace("\\\\", "\\");
                fs::write(make_room(place.join(path)), text + "\n")
            }
            _ => fs::create_dir_all(
                place.join(
                    line.strip_suffix('/')
                        .expect("a line is a file, a link or a folder"),
                ),
            ),
        };
        made.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

fn make_room(path: PathBuf) -> PathBuf {
    let folder = path.parent().expect("it lies in the tree");
    fs::create_dir_all(folder).expect("the folder takes folders");
    path
}

/// Bytes in hexadecimal, and text in quotes.
fn parse_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        match index % 2 {
            1 => bytes.extend(part.as_bytes()),
            _ => {
                bytes.extend(part.split_whitespace().map(|byte| {
                    u8::from_str_radix(byte, 16).expect("two hexadecimal digits a byte")
                }))
            }
        }
    }
    bytes
}
