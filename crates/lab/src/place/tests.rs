use super::*;
use crate::workload::Operation;

fn file_of(bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    std::fs::write(&path, bytes).unwrap();
    let name = path.to_str().unwrap().to_owned();
    (folder, name)
}

fn actors(requests: Vec<IoRequest>, depth: usize) -> Vec<Actor> {
    vec![Actor::of(Process {
        depth,
        requests: Box::new(requests.into_iter()),
    })]
}

#[test]
fn nothing_is_written_to_what_was_not_named() {
    let (_folder, name) = file_of(&[7; 65536]);
    let wish = Wish {
        writes: true,
        ..Wish::default()
    };
    let refused = RealPlace::open(&name, wish).err().unwrap();
    assert!(matches!(refused, LabError::WouldDestroy(_)), "{refused}");
    let other = Wish {
        destroy: Some("/dev/other"),
        ..wish
    };
    let refused = RealPlace::open(&name, other).err().unwrap();
    assert!(matches!(refused, LabError::Usage(_)), "{refused}");

    // Opened for reading, a write fails instead of reaching the file.
    let place = RealPlace::open(&name, Wish::default()).unwrap();
    let write = vec![IoRequest::write(0, 4096)];
    assert!(place.run(actors(write, 1), None).is_err());
    assert!(std::fs::read(&name).unwrap() == [7; 65536]);
}

#[test]
fn every_request_is_carried_out_where_it_belongs() {
    let (_folder, name) = file_of(&[0; 65536]);
    let wish = Wish {
        writes: true,
        destroy: Some(&name),
        ..Wish::default()
    };
    let place = RealPlace::open(&name, wish).unwrap();
    assert_eq!(place.size_bytes(), 65536);
    let mut requests = vec![
        IoRequest::write(4096, 4096),
        IoRequest {
            operation: Operation::WriteThrough,
            ..IoRequest::read(16384, 8192)
        },
        IoRequest {
            operation: Operation::Flush,
            ..IoRequest::read(0, 0)
        },
    ];
    requests.extend((0..16).map(|block| IoRequest::read(block * 4096, 4096)));
    let outcome = place.run(actors(requests, 3), None).unwrap();
    assert_eq!(outcome.traffic.writes.bytes(), 12288);
    assert_eq!(outcome.traffic.reads.count(), 16);
    assert_eq!(outcome.traffic.flushes.count(), 1);
    assert_eq!(outcome.process_bytes, [12288 + 65536]);
    let bytes = std::fs::read(&name).unwrap();
    for (block, content) in bytes.chunks(4096).enumerate() {
        let was_written = matches!(block, 1 | 4 | 5);
        assert_eq!(
            content.iter().any(|byte| *byte != 0),
            was_written,
            "{block}"
        );
    }
    for bad in [IoRequest::read(65536, 512), IoRequest::read(u64::MAX, 512)] {
        assert!(place.run(actors(vec![bad], 1), None).is_err(), "{bad:?}");
    }
    assert!(place.run(actors(Vec::new(), LANES_MAX + 1), None).is_err());
}

#[test]
fn a_folder_of_ours_is_removed_with_its_file() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::write(parent.path().join("theirs"), "data").unwrap();
    let name = parent.path().to_str().unwrap().to_owned();
    let wish = Wish {
        writes: true,
        range_bytes: 1 << 20,
        has_content: true,
        ..Wish::default()
    };
    let place = RealPlace::open(&name, wish).unwrap();
    let folder = place.folder().unwrap().to_owned();
    assert_eq!(folder.parent().unwrap(), parent.path());
    let content = std::fs::read(folder.join("data")).unwrap();
    assert_eq!(content.len(), 1 << 20);
    assert!(
        content
            .chunks(4096)
            .all(|block| block.iter().any(|byte| *byte != 0))
    );
    let write = vec![IoRequest::write(0, 4096)];
    place.run(actors(write, 1), None).unwrap();
    drop(place);
    assert!(!folder.exists());
    assert_eq!(
        std::fs::read(parent.path().join("theirs")).unwrap(),
        b"data"
    );

    // Too little space is said before anything is made, and a folder has nothing to destroy.
    let huge = Wish {
        range_bytes: u64::MAX >> 1,
        ..wish
    };
    assert!(matches!(
        RealPlace::open(&name, huge),
        Err(LabError::Usage(_))
    ));
    let destroy = Wish {
        destroy: Some(&name),
        ..wish
    };
    assert!(matches!(
        RealPlace::open(&name, destroy),
        Err(LabError::Usage(_))
    ));
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn a_trace_keeps_its_times() {
    let (_folder, name) = file_of(&[0; 65536]);
    let place = RealPlace::open(&name, Wish::default()).unwrap();
    let trace = vec![
        (0, IoRequest::read(0, 512)),
        (30_000_000, IoRequest::read(512, 512)),
    ];
    let outcome = place.run(vec![Actor::replay(trace)], None).unwrap();
    assert!(outcome.elapsed_ns >= 30_000_000, "{}", outcome.elapsed_ns);
    assert_eq!(outcome.traffic.reads.count(), 2);
}
