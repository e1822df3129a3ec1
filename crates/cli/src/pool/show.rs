//! `plexum pool ls` and `plexum pool cat`.

use std::io::Write;

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::RealPool;
use plexum_format::zfs::znode::FileKind;
use plexum_zfs::{Node, Piece};
use serde_json::json;

use super::args::{Cat, Ls};
use super::{PoolPath, problem};
use crate::errors::Outcome;
use crate::output::{Screen, object, table};
use crate::units::{show_bytes, show_time};

/// Zeroes that are written at once.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Names in a directory, or one file. Exit code 1 when an entry cannot be read; the others are listed.
///
/// # Errors
/// No such place; why it cannot be read.
pub async fn ls(pool: &RealPool, args: &Ls, screen: &Screen) -> Outcome {
    let place = PoolPath::parse(&args.place);
    let tell = |error| problem(error, &args.place);
    let system = pool.file_system(&place.dataset).await.map_err(tell)?;
    let path = place.path.clone().unwrap_or_else(|| "/".into());
    let node = system.lookup(path.as_bytes()).await.map_err(tell)?;
    let mut rows = Vec::new();
    let mut exit = 0;
    let names = match node.znode.kind() {
        FileKind::Directory => {
            let entries = system.entries(&node).await.map_err(tell)?;
            entries
                .into_iter()
                .map(|entry| (entry.name, entry.object))
                .collect()
        }
        _ => vec![(
            path.rsplit('/').next().unwrap_or(&path).as_bytes().to_vec(),
            node.number(),
        )],
    };
    for (name, number) in names {
        let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
        match system.node(number).await {
            Ok(node) => {
                let target = match node.znode.kind() {
                    FileKind::Link => system.link_target(&node).await.ok(),
                    _ => None,
                };
                let target = target
                    .map(|target| String::from_utf8_lossy(&target).escape_debug().to_string());
                rows.push(row(&shown, &node, target.as_deref()));
                screen.object(&entry_json(&args.place, &shown, &node, target.as_deref()));
            }
            Err(error) => {
                exit = 1;
                screen.note(format!("{shown} cannot be read: {error}"));
                let fields =
                    json!({"place": args.place, "name": shown, "problem": error.to_string()});
                screen.object(&object("entry", None, fields));
            }
        }
    }
    for line in table(&rows) {
        screen.line(line);
    }
    Ok(exit)
}

fn row(name: &str, node: &Node, target: Option<&str>) -> Vec<String> {
    let znode = &node.znode;
    let name = match target {
        Some(target) => format!("{name} -> {target}"),
        None => name.to_owned(),
    };
    vec![
        mode_text(znode.mode),
        znode.link_count.to_string(),
        format!("{}:{}", znode.user_id, znode.group_id),
        show_bytes(znode.size_bytes),
        show_time(u64::try_from(znode.modified.seconds).unwrap_or(0)),
        name,
    ]
}

/// `drwxr-xr-x`.
fn mode_text(mode: u32) -> String {
    let kind = match FileKind::of((mode >> 12 & 0xf) as u8) {
        FileKind::Directory => 'd',
        FileKind::Link => 'l',
        FileKind::File => '-',
        FileKind::Special(2) => 'c',
        FileKind::Special(6) => 'b',
        FileKind::Special(1) => 'p',
        FileKind::Special(12) => 's',
        FileKind::Special(_) => '?',
    };
    let bits = (0..9)
        .rev()
        .map(|bit| match (mode >> bit & 1 == 1, bit % 3) {
            (false, _) => '-',
            (true, 2) => 'r',
            (true, 1) => 'w',
            (true, _) => 'x',
        });
    std::iter::once(kind).chain(bits).collect()
}

fn entry_json(place: &str, name: &str, node: &Node, target: Option<&str>) -> serde_json::Value {
    let znode = &node.znode;
    let kind = match znode.kind() {
        FileKind::Directory => "directory",
        FileKind::File => "file",
        FileKind::Link => "link",
        FileKind::Special(_) => "special",
    };
    object(
        "entry",
        None,
        json!({"place": place, "name": name, "entry_kind": kind, "size_bytes": znode.size_bytes,
            "mode": format!("{:o}", znode.mode), "user_id": znode.user_id, "group_id": znode.group_id,
            "link_count": znode.link_count, "modified_s": znode.modified.seconds,
            "object": node.number(), "target": target}),
    )
}

/// A file or a volume to standard output. It ends at the first block that cannot be read.
///
/// # Errors
/// No such place; which block cannot be read.
pub async fn cat(pool: &RealPool, args: &Cat) -> Outcome {
    let place = PoolPath::parse(&args.place);
    let tell = |error| problem(error, &args.place);
    let mut reader = match &place.path {
        None => pool.volume(&place.dataset).await.map_err(tell)?.reader(),
        Some(path) => {
            let system = pool.file_system(&place.dataset).await.map_err(tell)?;
            let node = system.lookup(path.as_bytes()).await.map_err(tell)?;
            if node.znode.kind() != FileKind::File {
                return Err(
                    Problem::new(Code::Usage, format!("{} is no plain file", args.place)).hint(
                        format!(
                            "to see what it is:   plexum pool ls {} MEMBER...",
                            args.place
                        ),
                    ),
                );
            }
            system.reader(&node, &args.place)
        }
    };
    let mut out = std::io::stdout().lock();
    while let Some(piece) = reader.next().await.map_err(tell)? {
        if write_piece(&mut out, &piece).is_err() {
            return Ok(0); // the reader has seen enough
        }
    }
    let _ = out.flush();
    Ok(0)
}

fn write_piece(out: &mut impl Write, piece: &Piece) -> std::io::Result<()> {
    let mut zeroes = match piece {
        Piece::Zeroes(count) => *count,
        Piece::Data(..) => return piece.slices().try_for_each(|bytes| out.write_all(bytes)),
    };
    while zeroes > 0 {
        let step = zeroes.min(ZEROES.len() as u64);
        out.write_all(&ZEROES[..step as usize])?;
        zeroes -= step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_people_know_them() {
        assert_eq!(mode_text(0o040_755), "drwxr-xr-x");
        assert_eq!(mode_text(0o100_640), "-rw-r-----");
        assert_eq!(mode_text(0o120_777), "lrwxrwxrwx");
    }
}
