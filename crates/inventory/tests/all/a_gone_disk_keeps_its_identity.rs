//! What was written down of a disk is what is told of it when it is gone.

use plexum_inventory::{Identity, Inventory, Sameness};

use crate::common::unpack;

#[test]
fn the_names_in_the_written_form_are_stable() {
    let identity = Identity::read(&unpack("ses-shelf").roots, "sdb").unwrap();
    let written = serde_json::to_value(&identity).unwrap();
    let want = serde_json::json!({
        "name": "sdb",
        "vendor": null,
        "model": "WDC WD40EFRX-68N32N0",
        "serial": "WD-WCC4E17",
        "serial_source": "ata_identify",
        "other_serials": [],
        "wwn": "naa.50014ee2b3000017",
        "size_bytes": 4_000_787_030_016_u64,
        "medium": "rotating",
        "transport": "sata_behind_sas",
        "bridge": null,
        "path": "pci-0000:03:00.0-sas-exp0x500304801f0a24bf-phy4-lun-0",
        "enclosure": "0x500304801f0a24bd",
        "bay": {"kind": "enclosure", "enclosure": "0x500304801f0a24bd", "component": "Slot 04", "slot": 4},
    });
    assert_eq!(written, want);
}

#[test]
fn every_identity_survives_being_written_down() {
    for tree in crate::common::TREES {
        let inventory = Inventory::read(&unpack(tree).roots).unwrap();
        let written = serde_json::to_string(&inventory).unwrap();
        assert_eq!(
            serde_json::from_str::<Inventory>(&written).unwrap(),
            inventory,
            "{tree}"
        );
    }
}

#[test]
fn a_form_that_lacks_or_has_more_fields_is_read() {
    let old: Identity = serde_json::from_str(r#"{"serial":"WD-WCC4E17","colour":"blue"}"#).unwrap();
    assert_eq!(old.serial.as_deref(), Some("WD-WCC4E17"));
    assert_eq!(
        old.compare(&old),
        Sameness::Unsure,
        "who gave the serial was not written down"
    );
}

#[test]
fn a_disk_is_found_again_under_another_name() {
    let tree = unpack("ses-shelf");
    let known = Identity::read(&tree.roots, "sdb").unwrap();
    let folder = std::fs::canonicalize(tree.sys("class/block/sdb")).unwrap();
    let renamed = folder.with_file_name("sdq");
    std::fs::rename(&folder, &renamed).unwrap();
    std::fs::remove_file(tree.sys("class/block/sdb")).unwrap();
    std::os::unix::fs::symlink(renamed, tree.sys("class/block/sdq")).unwrap();
    let inventory = Inventory::read(&tree.roots).unwrap();
    assert_eq!(inventory.find(&known).unwrap().name, "sdq");
    assert!(inventory.disk("sdb").is_none());
    // Behind a dock that gives one serial to all, nobody is "found".
    let dock = Inventory::read(&unpack("usb-dock").roots).unwrap();
    assert_eq!(dock.find(&dock.disks[0]), None);
}
