//! Controllers and docks that give several disks one serial.

use plexum_inventory::{Apart, Identity, Inventory, Repeated, Sameness};

use crate::common::unpack;

#[test]
fn disks_with_one_serial_are_told_apart_by_what_differs() {
    let inventory = Inventory::read(&unpack("equal-serials").roots).unwrap();
    let duplicates = inventory.duplicates();
    let said: Vec<(Apart, String)> = duplicates
        .iter()
        .map(|duplicate| (duplicate.apart, duplicate.disks.join(" ")))
        .collect();
    // sdc has no world-wide name, so the port alone tells the three apart; sdd and sde are one disk by two ways.
    assert_eq!(
        said,
        [
            (Apart::ByPath, "sda sdb sdc".to_owned()),
            (Apart::OneDisk, "sdd sde".to_owned()),
            (Apart::OneDisk, "sdd sde".to_owned()),
        ]
    );
    let unpacked = unpack("equal-serials");
    std::fs::remove_file(unpacked.sys("class/block/sdc")).unwrap();
    let duplicates = Inventory::read(&unpacked.roots).unwrap().duplicates();
    assert_eq!(duplicates[0].apart, Apart::ByWwn);
    assert_eq!(
        duplicates[0].to_string(),
        "sda, sdb: serial 00fb0102030405060708090a0b0c0d0e is not unique here; the world-wide name tells them apart"
    );
}

#[test]
fn a_docks_serial_is_not_taken_for_one_disk() {
    let inventory = Inventory::read(&unpack("usb-dock").roots).unwrap();
    let duplicates = inventory.duplicates();
    assert_eq!(duplicates.len(), 1);
    assert_eq!(
        duplicates[0].repeated,
        Repeated::Serial("20170331000C3".into())
    );
    assert_eq!(duplicates[0].apart, Apart::ByPath);
}

#[test]
fn sameness_is_proven_or_unsure() {
    let shelf = Inventory::read(&unpack("ses-shelf").roots).unwrap();
    let (sas, sata) = (&shelf.disks[0], &shelf.disks[1]);
    assert_eq!(sas.compare(sas), Sameness::Same);
    assert_eq!(sas.compare(sata), Sameness::Other);
    let moved = Identity {
        name: "sdz".into(),
        bay: None,
        path: None,
        ..sas.clone()
    };
    assert_eq!(
        sas.compare(&moved),
        Sameness::Same,
        "names and bays are no identity"
    );
    let nameless = Identity {
        wwn: None,
        ..sas.clone()
    };
    assert_eq!(
        sas.compare(&nameless),
        Sameness::Same,
        "the disk's own serial and its size"
    );
    let shrunk = Identity {
        size_bytes: 1,
        ..nameless.clone()
    };
    assert_eq!(nameless.compare(&shrunk), Sameness::Unsure);
    let forged = Identity {
        serial: Some("OTHER".into()),
        ..sas.clone()
    };
    assert_eq!(
        sas.compare(&forged),
        Sameness::Unsure,
        "one name, two serials: somebody lies"
    );
    let dock = Inventory::read(&unpack("usb-dock").roots).unwrap();
    assert_eq!(
        dock.disks[0].compare(&dock.disks[1]),
        Sameness::Unsure,
        "the bridge's serial"
    );
    let named = |disk: &Identity| Identity {
        wwn: Some("naa.5000cca252000003".into()),
        ..disk.clone()
    };
    assert_eq!(
        named(&dock.disks[0]).compare(&named(&dock.disks[1])),
        Sameness::Unsure
    );
    let nobody = Identity::default();
    assert_eq!(nobody.compare(&nobody.clone()), Sameness::Unsure);
}
