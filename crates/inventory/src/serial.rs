//! Which of several serials counts.
//!
//! The rule: the serial that is printed on the disk counts, because a person compares it with a sticker before pulling
//! anything. So whoever speaks for the disk itself beats whoever speaks for what is in front of it, in the order of
//! [`SerialSource`]. Placeholders that makers of bridges leave in their firmware count as nothing, and so does a WWN
//! that a source gives in place of a serial. What was not chosen is kept beside it, so that a search finds it.

use serde::{Deserialize, Serialize};

/// Who gave a serial, most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SerialSource {
    /// The disk's own answer that smartctl fetched, through a bridge if there is one.
    Smartctl,
    /// The name of an ATA disk, as its identify data have it: page 0x83, or udev's `ata_id`.
    AtaIdentify,
    /// The serial of an NVMe controller's identify data.
    Nvme,
    /// Page 0x80 of a SCSI disk.
    UnitSerialPage,
    /// What udev's rules read of page 0x80.
    UdevUnitSerial,
    /// What the virtual machine's configuration says.
    Virtio,
    /// The serial file of the device (a memory card, and whatever else has one).
    Attribute,
    /// What udev calls the serial, of unknown origin.
    Udev,
    /// Page 0x80 behind a USB bridge: often the bridge's own.
    BridgeUnitSerial,
    /// The serial of the USB device: the bridge's, not the disk's.
    UsbDescriptor,
}

impl SerialSource {
    /// Whether it speaks for the disk, and not for a bridge in front of it.
    #[must_use]
    pub fn is_the_disks_own(self) -> bool {
        !matches!(
            self,
            SerialSource::Udev | SerialSource::BridgeUnitSerial | SerialSource::UsbDescriptor
        )
    }
}

/// A serial, and who says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SerialClaim {
    /// Who says so. It comes first, so that claims sort by trust.
    pub source: SerialSource,
    /// The serial.
    pub serial: String,
}

/// The claim that counts, and the others that say something else, most trusted first.
pub(crate) fn choose(
    mut claims: Vec<SerialClaim>,
    wwn: Option<&str>,
) -> (Option<SerialClaim>, Vec<SerialClaim>) {
    claims.retain(|claim| is_believable(&claim.serial, wwn));
    claims.sort();
    let mut claims = claims.into_iter();
    let Some(chosen) = claims.next() else {
        return (None, Vec::new());
    };
    let mut others: Vec<SerialClaim> = Vec::new();
    for claim in claims {
        let is_known = |known: &SerialClaim| known.serial == claim.serial;
        if !is_known(&chosen) && !others.iter().any(is_known) {
            others.push(claim);
        }
    }
    (Some(chosen), others)
}

/// Whether a text can be the serial of one disk.
fn is_believable(serial: &str, wwn: Option<&str>) -> bool {
    let bare: String = serial
        .chars()
        .filter(|c| c.is_alphanumeric())
        .collect::<String>()
        .to_ascii_lowercase();
    let Some(first) = bare.chars().next() else {
        return false;
    };
    let is_one_char = bare.chars().all(|c| c == first);
    // "0123456789ABCDEF", "123456789012": each digit is the one before and one more.
    let digits: Vec<u32> = bare.chars().filter_map(|c| c.to_digit(16)).collect();
    let is_counting = bare.chars().count() >= 6
        && digits.len() == bare.chars().count()
        && (digits.windows(2).all(|two| two[1] == (two[0] + 1) % 10)
            || digits.windows(2).all(|two| two[1] == (two[0] + 1) % 16));
    let is_word = matches!(
        bare.as_str(),
        "none" | "unknown" | "na" | "null" | "default" | "serialnumber"
    );
    let is_wwn = wwn
        .and_then(|wwn| wwn.split_once('.'))
        .is_some_and(|(_, digits)| bare == digits || bare.strip_prefix("0x") == Some(digits));
    !is_one_char && !is_counting && !is_word && !is_wwn
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(source: SerialSource, serial: &str) -> SerialClaim {
        SerialClaim {
            source,
            serial: serial.into(),
        }
    }

    #[test]
    fn the_stickers_serial_beats_the_bridges() {
        let (chosen, others) = choose(
            vec![
                claim(SerialSource::UsbDescriptor, "DD56419883891"),
                claim(SerialSource::AtaIdentify, "WD-WCC4E17"),
                claim(SerialSource::BridgeUnitSerial, "DD56419883891"),
            ],
            None,
        );
        assert_eq!(chosen, Some(claim(SerialSource::AtaIdentify, "WD-WCC4E17")));
        assert_eq!(
            others,
            [claim(SerialSource::BridgeUnitSerial, "DD56419883891")]
        );
    }

    #[test]
    fn placeholders_and_world_wide_names_are_no_serials() {
        for bad in [
            "000000000000",
            "0123456789ABCDEF",
            "123456789012",
            "FFFFFFFF",
            "none",
            "---",
            "5000c500a1b2c3d4",
        ] {
            let (chosen, _) = choose(
                vec![claim(SerialSource::Udev, bad)],
                Some("naa.5000c500a1b2c3d4"),
            );
            assert_eq!(chosen, None, "{bad}");
        }
        for good in ["20170331000C3", "S3YJNX0K", "12345", "PHLJ1234", "ABC123"] {
            let (chosen, _) = choose(vec![claim(SerialSource::Udev, good)], None);
            assert!(chosen.is_some(), "{good}");
        }
    }
}
