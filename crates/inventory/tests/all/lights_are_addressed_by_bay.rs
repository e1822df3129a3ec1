//! Bays with and without disks, and their lights.

use std::fs;

use plexum_inventory::{
    BayAddress, BayStatus, Identity, Inventory, Ledctl, Light, LightError, Lit, read_light,
    set_light,
};

use crate::common::unpack;

fn bay_of(tree: &crate::common::Unpacked, disk: &str) -> BayAddress {
    Identity::read(&tree.roots, disk).unwrap().bay.unwrap()
}

#[test]
fn a_shelf_lists_its_bays_and_not_its_disks() {
    let inventory = Inventory::read(&unpack("ses-shelf").roots).unwrap();
    let bays: Vec<String> = inventory
        .bays
        .iter()
        .map(|bay| {
            format!(
                "{} {:?} {}",
                bay.address.label(),
                bay.status.unwrap(),
                bay.disk.as_deref().unwrap_or("-")
            )
        })
        .collect();
    let want = [
        "1 NotInstalled -",
        "2 NotInstalled -",
        "3 Ok sda",
        "4 Critical sdb",
        "5 NotInstalled -",
    ];
    assert_eq!(bays, want, "the power supply is no bay");
    assert_eq!(
        inventory.bays[0].enclosure_model.as_deref(),
        Some("LSI SAS2X28")
    );
    assert_eq!(inventory.bays[3].status, Some(BayStatus::Critical));
    assert_eq!(inventory.bays_called("4").len(), 1);
    assert_eq!(inventory.bays_called("Slot 04"), inventory.bays_called("4"));
    let ports = Inventory::read(&unpack("sata-ahci").roots).unwrap().bays;
    let ports: Vec<String> = ports
        .iter()
        .map(|bay| {
            format!(
                "{} {}",
                bay.address.label(),
                bay.disk.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(ports, ["ata-1 sda", "ata-2 -", "ata-3 sdb"]);
    let slots = Inventory::read(&unpack("nvme").roots).unwrap().bays;
    let slots: Vec<String> = slots
        .iter()
        .map(|bay| {
            format!(
                "{} {}",
                bay.address.label(),
                bay.disk.as_deref().unwrap_or("-")
            )
        })
        .collect();
    assert_eq!(slots, ["4 nvme0n1", "5 -", "7 nvme1n1", "8 nvme2n1"]);
}

#[test]
fn a_light_goes_on_and_off_and_says_what_it_was() {
    let tree = unpack("ses-shelf");
    let bay = bay_of(&tree, "sda");
    assert_eq!(read_light(&tree.roots, &bay, Light::Locate), Ok(Lit::Off));
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Locate, Lit::On),
        Ok(Lit::Off)
    );
    assert_eq!(read_light(&tree.roots, &bay, Light::Locate), Ok(Lit::On));
    assert_eq!(
        read_light(&tree.roots, &bay, Light::Fault),
        Ok(Lit::Off),
        "the other light is as it was"
    );
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Locate, Lit::Off),
        Ok(Lit::On)
    );
    let broken = bay_of(&tree, "sdb");
    assert_eq!(
        read_light(&tree.roots, &broken, Light::Fault),
        Ok(Lit::On),
        "bits of a fault are on"
    );
}

#[test]
fn the_light_of_a_gone_disk_goes_out() {
    let tree = unpack("ses-shelf");
    let bay = bay_of(&tree, "sdb");
    set_light(&tree.roots, &bay, Light::Fault, Lit::On).unwrap();
    let kept = serde_json::to_string(&bay).unwrap();
    // What an unplug leaves: the node, the link of the bay and the device are gone; the bay is there.
    fs::remove_file(tree.sys("class/block/sdb")).unwrap();
    let component = fs::canonicalize(tree.sys("class/enclosure/0:0:24:0/Slot 04")).unwrap();
    let device = fs::canonicalize(component.join("device")).unwrap();
    fs::remove_file(component.join("device")).unwrap();
    fs::remove_dir_all(device).unwrap();
    assert!(Identity::read(&tree.roots, "sdb").is_err());
    let bay: BayAddress = serde_json::from_str(&kept).unwrap();
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Fault, Lit::Off),
        Ok(Lit::On)
    );
    assert_eq!(read_light(&tree.roots, &bay, Light::Fault), Ok(Lit::Off));
}

#[test]
fn an_nvme_slot_has_the_lights_of_its_port() {
    let tree = unpack("nvme");
    let bay = bay_of(&tree, "nvme0n1");
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Fault, Lit::On),
        Ok(Lit::Off)
    );
    let file = tree.sys("class/leds/0000:00:1d.0:enclosure:fail/brightness");
    assert_eq!(fs::read_to_string(file).unwrap().trim(), "1");
    assert_eq!(read_light(&tree.roots, &bay, Light::Locate), Ok(Lit::Off));
}

#[test]
fn the_attention_lamp_of_a_slot_is_two_lights() {
    let tree = unpack("nvme");
    let bay = bay_of(&tree, "nvme2n1");
    let lamp = || fs::read_to_string(tree.sys("bus/pci/slots/8/attention")).unwrap();
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Locate, Lit::On),
        Ok(Lit::Off)
    );
    assert_eq!(lamp(), "2\n", "it blinks");
    assert_eq!(read_light(&tree.roots, &bay, Light::Fault), Ok(Lit::Off));
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Fault, Lit::Off),
        Ok(Lit::Off)
    );
    assert_eq!(lamp(), "2\n", "who ends a fault does not end a search");
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Fault, Lit::On),
        Ok(Lit::Off)
    );
    assert_eq!(lamp(), "1\n", "it is steady");
    assert_eq!(
        set_light(&tree.roots, &bay, Light::Fault, Lit::Off),
        Ok(Lit::On)
    );
    assert_eq!(lamp(), "0\n");
}

#[test]
fn where_nobody_speaks_it_is_said_and_whether_ledctl_would() {
    for (tree, disk, want, hint) in [
        (
            "sata-ahci",
            "sda",
            Ledctl::ThroughAhci,
            "`ledctl` (package ledmon) would reach it",
        ),
        (
            "nvme",
            "nvme1n1",
            Ledctl::ThroughVmd,
            "`ledctl` (package ledmon) would reach it",
        ),
        ("virtio", "vda", Ledctl::WouldNot, "nor would `ledctl`"),
        ("usb-dock", "sdc", Ledctl::WouldNot, "nor would `ledctl`"),
        (
            "ses-without-driver",
            "sda",
            Ledctl::WouldNot,
            "try `modprobe ses`",
        ),
    ] {
        let tree = unpack(tree);
        let bay = bay_of(&tree, disk);
        let refused = set_light(&tree.roots, &bay, Light::Locate, Lit::On).unwrap_err();
        let LightError::NobodySpeaks { ledctl, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(*ledctl, want, "{disk}");
        assert!(refused.to_string().contains(hint), "{refused}");
    }
    // An empty slot without a lamp.
    let tree = unpack("nvme");
    let empty = BayAddress::PciSlot {
        slot: "5".into(),
        pci: "0000:02:00".into(),
    };
    let refused = read_light(&tree.roots, &empty, Light::Locate).unwrap_err();
    assert!(
        refused.to_string().contains("nor would `ledctl`"),
        "{refused}"
    );
    // The same board with messages switched off.
    let tree = unpack("sata-ahci");
    let bay = bay_of(&tree, "sda");
    for host in ["host6", "host7", "host8"] {
        fs::write(
            tree.sys(&format!("class/scsi_host/{host}/em_message_supported")),
            "\n",
        )
        .unwrap();
    }
    let refused = read_light(&tree.roots, &bay, Light::Locate).unwrap_err();
    assert!(
        refused.to_string().contains("nor would `ledctl`"),
        "{refused}"
    );
}

#[test]
fn what_is_not_there_is_named() {
    let tree = unpack("ses-shelf");
    let bay = |enclosure: &str, component: &str| BayAddress::Enclosure {
        enclosure: enclosure.into(),
        component: component.into(),
        slot: None,
    };
    let ours = "0x500304801f0a24bd";
    for (address, want) in [
        (bay("0x1", "Slot 01"), "no such bay now"),
        (bay(ours, "Slot 09"), "no such bay now"),
        (bay(ours, "../../../../class/leds"), "no such bay now"),
        (bay(ours, "Power Supply 1"), "no such bay now"),
        (bay(ours, "Slot 05"), "it has no locate light"),
    ] {
        let refused = set_light(&tree.roots, &address, Light::Locate, Lit::On).unwrap_err();
        assert!(refused.to_string().contains(want), "{refused}");
    }
}

#[test]
fn an_enclosure_that_ignores_the_command_is_found_out() {
    let tree = unpack("ses-shelf");
    let bay = bay_of(&tree, "sda");
    // A plain file keeps what is behind the written bytes: "0", end of line, "01" is one, as if nothing had been done.
    let file = tree.sys("class/enclosure/0:0:24:0/Slot 03/locate");
    fs::write(&file, "0001").unwrap();
    let refused = set_light(&tree.roots, &bay, Light::Locate, Lit::Off).unwrap_err();
    assert!(
        matches!(refused, LightError::NotTaken { lit: Lit::Off, .. }),
        "{refused}"
    );
}
