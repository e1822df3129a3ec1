//! What OpenZFS wrote into the labels of the recorded pools comes out byte for byte when it is read and written again.

use plexum_format::zfs::label_write::encode_head;
use plexum_format::zfs::{LABEL_BYTES, NvList, label_offsets};
use plexum_testkit::{unpack_zfs_case, zfs_cases};

const LIST: std::ops::Range<usize> = 16 << 10..128 << 10;

#[test]
fn a_label_that_was_read_is_written_as_it_was() {
    let mut count = 0;
    for case in zfs_cases() {
        let id = case["id"].as_str().unwrap();
        let unpacked = unpack_zfs_case(id);
        for entry in std::fs::read_dir(unpacked.folder()).unwrap() {
            let path = entry.unwrap().path();
            let member = std::fs::read(&path).unwrap();
            for offset in label_offsets(member.len() as u64) {
                let label = &member[offset as usize..][..LABEL_BYTES];
                let Ok(list) = NvList::parse(&label[LIST]) else {
                    continue;
                };
                let head = encode_head(&list, offset).unwrap();
                assert!(
                    head[LIST] == label[LIST],
                    "{id}, {}, label at {offset}",
                    path.display()
                );
                count += 1;
            }
        }
    }
    assert!(count > 40, "{count} labels");
}
