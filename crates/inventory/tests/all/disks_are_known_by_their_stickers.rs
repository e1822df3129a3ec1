//! Model, serial, name, transport and bay of each disk of each tree, as its sticker has them.

use plexum_inventory::{
    Below, DeviceNumber, Identity, Inventory, InventoryError, Medium, SerialSource, Stack,
    Transport, below, device_name,
};

use crate::common::unpack;

/// Tree and disk; then model, serial and its source, world-wide name, transport, bay and path.
type Row = (
    (&'static str, &'static str),
    (&'static str, &'static str, Option<SerialSource>),
    &'static str,
    Transport,
    (&'static str, &'static str),
);

const EXPECTED: [Row; 13] = [
    (
        ("ses-shelf", "sda"),
        (
            "ST4000NM0043",
            "Z1Z5ABCD0000C4123ABC",
            Some(SerialSource::UnitSerialPage),
        ),
        "naa.5000c500a1b2c3d4",
        Transport::Sas,
        (
            "bay 3 (Slot 03) of enclosure 0x500304801f0a24bd",
            "pci-0000:03:00.0-sas-exp0x500304801f0a24bf-phy3-lun-0",
        ),
    ),
    (
        // The kernel cuts this model to 16 characters.
        ("ses-shelf", "sdb"),
        (
            "WDC WD40EFRX-68N32N0",
            "WD-WCC4E17",
            Some(SerialSource::AtaIdentify),
        ),
        "naa.50014ee2b3000017",
        Transport::SataBehindSas,
        (
            "bay 4 (Slot 04) of enclosure 0x500304801f0a24bd",
            "pci-0000:03:00.0-sas-exp0x500304801f0a24bf-phy4-lun-0",
        ),
    ),
    (
        ("ses-without-driver", "sda"),
        (
            "ST4000NM0043",
            "Z1Z5ABCD0000C4123ABC",
            Some(SerialSource::UnitSerialPage),
        ),
        "naa.5000c500a1b2c3d4",
        Transport::Sas,
        (
            "path pci-0000:03:00.0-scsi-0:0:3:0",
            "pci-0000:03:00.0-scsi-0:0:3:0",
        ),
    ),
    (
        ("sata-ahci", "sda"),
        (
            "ST2000VN004-2E4164",
            "Z52ABCDE",
            Some(SerialSource::AtaIdentify),
        ),
        "naa.5000c5009f000001",
        Transport::Sata,
        (
            "port 1 of the SATA controller 0000:00:1f.2",
            "pci-0000:00:1f.2-ata-1",
        ),
    ),
    (
        // The kernel calls it ata9; on the board it is the third port.
        ("sata-ahci", "sdb"),
        (
            "Samsung SSD 870 EVO 2TB",
            "S6PNNM0T000002",
            Some(SerialSource::AtaIdentify),
        ),
        "naa.5002538f30000002",
        Transport::Sata,
        (
            "port 3 of the SATA controller 0000:00:1f.2",
            "pci-0000:00:1f.2-ata-3",
        ),
    ),
    (
        ("nvme", "nvme0n1"),
        (
            "Samsung SSD 980 PRO 1TB",
            "S4EWNX0N000001",
            Some(SerialSource::Nvme),
        ),
        "eui.0025384b11b0a001",
        Transport::Nvme,
        ("PCI slot 4 (0000:01:00)", "pci-0000:01:00.0-nvme-1"),
    ),
    (
        ("nvme", "nvme1n1"),
        (
            "INTEL SSDPE2KX040T8",
            "PHLJ0000000002",
            Some(SerialSource::Nvme),
        ),
        "eui.01000000010000005cd2e40000000002",
        Transport::Nvme,
        ("PCI slot 7 (10000:01:00)", "pci-10000:01:00.0-nvme-1"),
    ),
    (
        ("nvme", "nvme2n1"),
        (
            "Micron_7400_MTFDKBA960TDZ",
            "21380000000003",
            Some(SerialSource::Nvme),
        ),
        "eui.000000000000000100a0752138000003",
        Transport::Nvme,
        ("PCI slot 8 (0000:09:00)", "-"),
    ),
    (
        ("usb-dock", "sdc"),
        (
            "USB3.0 DISK00",
            "20170331000C3",
            Some(SerialSource::BridgeUnitSerial),
        ),
        "-",
        Transport::Usb,
        (
            "path pci-0000:00:14.0-usb-0:3:1.0-scsi-0:0:0:0",
            "pci-0000:00:14.0-usb-0:3:1.0-scsi-0:0:0:0",
        ),
    ),
    (
        // The bridge says 0123456789ABCDEF and a name of zeros; udev has asked the disk.
        ("usb-dock", "sde"),
        (
            "WDC WD80EFAX-68LHPN0",
            "7SGABCDC",
            Some(SerialSource::AtaIdentify),
        ),
        "naa.5000cca252000003",
        Transport::Usb,
        (
            "path pci-0000:00:14.0-usb-0:4:1.0-scsi-0:0:0:0",
            "pci-0000:00:14.0-usb-0:4:1.0-scsi-0:0:0:0",
        ),
    ),
    (
        ("equal-serials", "sda"),
        (
            "PERC H710P",
            "00fb0102030405060708090a0b0c0d0e",
            Some(SerialSource::UnitSerialPage),
        ),
        "naa.600508b1001c5e7d0123456789abcd00",
        Transport::Other,
        (
            "path pci-0000:02:00.0-scsi-0:2:0:0",
            "pci-0000:02:00.0-scsi-0:2:0:0",
        ),
    ),
    (
        ("virtio", "vda"),
        ("-", "plexum-root", Some(SerialSource::Virtio)),
        "-",
        Transport::Virtio,
        ("path pci-0000:00:05.0", "pci-0000:00:05.0"),
    ),
    (
        ("virtio", "vdb"),
        ("-", "-", None),
        "-",
        Transport::Virtio,
        ("path pci-0000:00:06.0", "pci-0000:00:06.0"),
    ),
];

fn or_dash(text: Option<&String>) -> &str {
    text.map_or("-", String::as_str)
}

#[test]
fn each_disk_has_what_is_printed_on_it() {
    for ((tree, name), (model, serial, source), wwn, transport, (bay, path)) in EXPECTED {
        let unpacked = unpack(tree);
        let found = Identity::read(&unpacked.roots, name).unwrap();
        let place = found.bay.as_ref().map(ToString::to_string);
        assert_eq!(or_dash(found.model.as_ref()), model, "{tree} {name}");
        assert_eq!(or_dash(found.serial.as_ref()), serial, "{tree} {name}");
        assert_eq!(found.serial_source, source, "{tree} {name}");
        assert_eq!(or_dash(found.wwn.as_ref()), wwn, "{tree} {name}");
        assert_eq!(found.transport, transport, "{tree} {name}");
        assert_eq!(or_dash(place.as_ref()), bay, "{tree} {name}");
        if path != "-" {
            assert_eq!(or_dash(found.path.as_ref()), path, "{tree} {name}");
        }
        assert_eq!(found.name, name);
    }
}

#[test]
fn size_medium_vendor_and_bridge_are_told() {
    let shelf = unpack("ses-shelf");
    let sas = Identity::read(&shelf.roots, "sda").unwrap();
    assert_eq!(sas.size_bytes, 4_000_787_030_016);
    assert_eq!(sas.medium, Some(Medium::Rotating));
    assert_eq!(sas.vendor.as_deref(), Some("SEAGATE"));
    assert_eq!(sas.enclosure.as_deref(), Some("0x500304801f0a24bd"));
    assert_eq!(sas.bridge, None);
    let sata = Identity::read(&shelf.roots, "sdb").unwrap();
    assert_eq!(sata.vendor, None, "ATA is no vendor");
    let dock = unpack("usb-dock");
    let bridge = Identity::read(&dock.roots, "sdc").unwrap().bridge.unwrap();
    assert_eq!(bridge.usb_id.as_deref(), Some("152d:0567"));
    assert_eq!(bridge.name.as_deref(), Some("External USB3.0 DOCK"));
    let virtio = Identity::read(&unpack("virtio").roots, "vda").unwrap();
    assert_eq!(virtio.vendor, None, "a number is no vendor");
}

#[test]
fn a_partition_is_its_disk() {
    let unpacked = unpack("ses-shelf");
    let disk = Identity::read(&unpacked.roots, "sdb").unwrap();
    assert_eq!(Identity::read(&unpacked.roots, "sdb1").unwrap(), disk);
    let want = Below::Partition {
        disk: "sdb".into(),
        number: 1,
    };
    assert_eq!(below(&unpacked.roots, "sdb1"), Ok(want));
    assert_eq!(below(&unpacked.roots, "sdb"), Ok(Below::Itself));
}

#[test]
fn what_is_no_disk_says_what_is_below_it() {
    let unpacked = unpack("sata-ahci");
    let both = vec!["sda".to_owned(), "sdb".to_owned()];
    for (name, want) in [
        (
            "loop0",
            Below::File {
                file: Some("/srv/image.raw".into()),
            },
        ),
        ("ram0", Below::Nothing),
        ("sr0", Below::Nothing),
        (
            "md127",
            Below::Devices {
                stack: Stack::Md,
                disks: both.clone(),
            },
        ),
        (
            "dm-0",
            Below::Devices {
                stack: Stack::DeviceMapper,
                disks: both,
            },
        ),
    ] {
        assert_eq!(below(&unpacked.roots, name), Ok(want.clone()));
        let refused = Identity::read(&unpacked.roots, name);
        assert_eq!(
            refused,
            Err(InventoryError::NotADisk {
                name: name.into(),
                below: want
            })
        );
    }
    let refused = Identity::read(&unpacked.roots, "dm-0")
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "dm-0 is not a disk: a mapped device of sda, sdb; ask for these"
    );
    let ways = below(&unpack("equal-serials").roots, "dm-1").unwrap();
    assert_eq!(
        ways,
        Below::Devices {
            stack: Stack::Multipath,
            disks: vec!["sdd".into(), "sde".into()]
        }
    );
}

#[test]
fn a_node_leads_to_its_device_by_number() {
    let unpacked = unpack("ses-shelf");
    let name = |major, minor| device_name(&unpacked.roots, DeviceNumber { major, minor });
    assert_eq!(name(8, 17).as_deref(), Some("sdb1"));
    assert_eq!(name(8, 99), None);
}

#[test]
fn a_name_that_is_no_name_is_refused() {
    let unpacked = unpack("virtio");
    for bad in ["", ".", "..", "../../etc", "/dev/vda", "vda/..", "vd\0a"] {
        let refused = Identity::read(&unpacked.roots, bad);
        assert!(
            matches!(refused, Err(InventoryError::NotAName { .. })),
            "{bad:?}"
        );
    }
    let refused = Identity::read(&unpacked.roots, "sdx")
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("sdx: no such block device under "),
        "{refused}"
    );
}

#[test]
fn the_inventory_has_the_disks_and_nothing_else() {
    for (tree, disks) in [
        ("ses-shelf", "sda sdb"),
        ("sata-ahci", "sda sdb"),
        ("nvme", "nvme0n1 nvme1n1 nvme2n1"),
        ("usb-dock", "sdc sdd sde"),
        ("virtio", "vda vdb"),
    ] {
        let inventory = Inventory::read(&unpack(tree).roots).unwrap();
        let names: Vec<&str> = inventory
            .disks
            .iter()
            .map(|disk| disk.name.as_str())
            .collect();
        assert_eq!(names.join(" "), disks, "{tree}");
    }
}
