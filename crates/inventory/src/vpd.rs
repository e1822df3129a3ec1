//! Two pages of vital product data of a SCSI device, as sysfs shows them: the unit serial number (0x80) and the
//! identification of the device (0x83).
//!
//! Source: SPC-4, 7.8.15 (unit serial number) and 7.8.5 (designators); SAT-3, 10.3.4.2 for the name of an ATA device.

use crate::roots::clean;

/// A page has four bytes before its contents.
const HEADER_BYTES: usize = 4;
/// Designators that are looked at: real devices have under ten.
const DESIGNATORS_MAX: usize = 64;

/// What an ATA device is called by the translation layer: vendor `ATA`, then model and serial as on the sticker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AtaName {
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
}

/// What is used of page 0x83.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Designators {
    /// The world-wide name of the logical unit, `naa.` or `eui.` and lower-case digits.
    pub(crate) wwn: Option<String>,
    pub(crate) ata: Option<AtaName>,
}

/// The serial of page 0x80.
pub(crate) fn unit_serial(page: &[u8]) -> Option<String> {
    clean(contents(page, 0x80)?)
}

/// The names of page 0x83.
pub(crate) fn designators(page: &[u8]) -> Designators {
    let mut found = Designators::default();
    let Some(mut rest) = contents(page, 0x83) else {
        return found;
    };
    for _ in 0..DESIGNATORS_MAX {
        let [set, kind, _, length, after @ ..] = rest else {
            break;
        };
        let Some((value, next)) = after.split_at_checked(usize::from(*length)) else {
            break;
        };
        // Two bits of association: 0 is the logical unit, the others are ports and the target.
        if kind >> 4 & 3 == 0 {
            note(&mut found, [kind & 15, set & 15], value);
        }
        rest = next;
    }
    found
}

/// Takes in one designator of the unit: its type and its code set (1 is binary, 2 and 3 are text), and the name.
fn note(found: &mut Designators, type_and_set: [u8; 2], value: &[u8]) {
    match type_and_set {
        [1, 2 | 3] if found.ata.is_none() => found.ata = ata_name(value),
        // The name that a registered authority gave beats an EUI-64: it is the one on the sticker.
        [3, 1] => found.wwn = checked_wwn("naa", value).or(found.wwn.take()),
        [2, 1] if found.wwn.is_none() => found.wwn = checked_wwn("eui", value),
        _ => {}
    }
}

/// `ATA`, padded to 8 bytes, then 40 bytes of model and 20 of serial.
fn ata_name(value: &[u8]) -> Option<AtaName> {
    let rest = value.strip_prefix(b"ATA     ")?;
    let (model, serial) = rest.split_at_checked(40)?;
    Some(AtaName {
        model: clean(model),
        serial: clean(serial),
    })
}

/// The bytes behind a page's header, if the header is this page's and tells the truth about the length.
fn contents(page: &[u8], code: u8) -> Option<&[u8]> {
    let [_, found, high, low, ..] = page else {
        return None;
    };
    if *found != code {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    page.get(HEADER_BYTES..HEADER_BYTES + length)
}

fn checked_wwn(kind: &str, value: &[u8]) -> Option<String> {
    let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
    normal_wwn(&format!("{kind}.{digits}"))
}

/// A world-wide name in one form: `naa.`, `eui.` or `uuid.` and lower-case digits; none for what only looks like one.
///
/// The kernel's `t10.` and `nvme.` forms are made of model and serial. They say nothing that the serial does not.
pub(crate) fn normal_wwn(text: &str) -> Option<String> {
    let text = text.trim().to_ascii_lowercase();
    let (kind, digits) = match text.strip_prefix("0x") {
        Some(digits) => ("naa", digits),
        None => text.split_once('.')?,
    };
    let bare: String = digits.chars().filter(|c| *c != '-').collect();
    if !bare.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    // All zeros or all ones behind the first digit: a bridge that had nothing to say.
    let tail = bare.get(1..)?;
    if tail.bytes().all(|byte| byte == b'0') || tail.bytes().all(|byte| byte == b'f') {
        return None;
    }
    let fits = match kind {
        // NAA 2, 3 and 5 have 8 bytes, 6 has 16: SPC-4, 7.8.5.6.
        "naa" => matches!(
            (bare.as_bytes().first(), bare.len()),
            (Some(b'2' | b'3' | b'5'), 16) | (Some(b'6'), 32)
        ),
        "eui" => matches!(bare.len(), 16 | 24 | 32),
        "uuid" => bare.len() == 32,
        _ => false,
    };
    fits.then(|| format!("{kind}.{bare}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_83(designators: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (set, kind, value) in designators {
            body.extend([*set, *kind, 0, value.len() as u8]);
            body.extend(*value);
        }
        let mut page = vec![0, 0x83];
        page.extend((body.len() as u16).to_be_bytes());
        page.extend(body);
        page
    }

    #[test]
    fn a_serial_is_read_and_a_lying_length_is_not_believed() {
        assert_eq!(
            unit_serial(b"\0\x80\0\x0c   ZDH9ABCD ").as_deref(),
            Some("ZDH9ABCD")
        );
        assert_eq!(unit_serial(b"\0\x80\x01\x0cZDH9"), None);
        assert_eq!(unit_serial(b"\0\x83\0\x04ZDH9"), None);
        assert_eq!(unit_serial(b"\0\x80"), None);
    }

    #[test]
    fn the_units_own_name_counts_and_not_its_ports() {
        let own = [0x50, 0, 0xc5, 0, 0xa1, 0xb2, 0xc3, 0xd4];
        let port = [0x50, 0, 0xc5, 0, 0xa1, 0xb2, 0xc3, 0xd5];
        let page = page_83(&[
            (1, 0x93, &port),
            (1, 2, &[1, 2, 3, 4, 5, 6, 7, 8]),
            (1, 3, &own),
            (1, 0x93, &port),
        ]);
        assert_eq!(
            designators(&page).wwn.as_deref(),
            Some("naa.5000c500a1b2c3d4")
        );
    }

    #[test]
    fn the_name_of_an_ata_device_has_the_stickers_serial() {
        let name = format!(
            "ATA     {:<40}{:>20}",
            "WDC WD40EFRX-68N32N0", "WD-WCC7K0000001"
        );
        let found = designators(&page_83(&[(2, 1, name.as_bytes())]))
            .ata
            .unwrap();
        assert_eq!(found.serial.as_deref(), Some("WD-WCC7K0000001"));
        assert_eq!(found.model.as_deref(), Some("WDC WD40EFRX-68N32N0"));
    }

    #[test]
    fn no_cut_or_garbled_page_is_too_much() {
        let name = format!("ATA     {:<40}{:>20}", "M", "S");
        let page = page_83(&[
            (1, 3, &[0x50, 1, 2, 3, 4, 5, 6, 7]),
            (2, 1, name.as_bytes()),
            (3, 9, b""),
        ]);
        for end in 0..page.len() {
            designators(&page[..end]);
            unit_serial(&page[..end]);
        }
        for at in 0..page.len() {
            for bit in 0..8 {
                let mut bad = page.clone();
                bad[at] ^= 1 << bit;
                designators(&bad);
            }
        }
    }

    #[test]
    fn only_a_world_wide_name_is_one() {
        for (text, want) in [
            ("0x5000C500A1B2C3D4", Some("naa.5000c500a1b2c3d4")),
            (
                "naa.600508b1001c5e7d0123456789abcdef",
                Some("naa.600508b1001c5e7d0123456789abcdef"),
            ),
            ("eui.0025385b71b0a1b2", Some("eui.0025385b71b0a1b2")),
            (
                "uuid.12345678-1234-1234-1234-123456789abc",
                Some("uuid.12345678123412341234123456789abc"),
            ),
            ("t10.ATA     WDC WD40", None),
            ("nvme.1b36-31-32-00000001", None),
            ("naa.5000000000000000", None),
            ("eui.ffffffffffffffff", None),
            ("naa.1234", None),
            ("naa.9000c500a1b2c3d4", None),
            ("", None),
        ] {
            assert_eq!(normal_wwn(text).as_deref(), want, "{text}");
        }
    }
}
