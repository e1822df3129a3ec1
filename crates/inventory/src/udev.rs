//! One entry of udev's database: what its rules found out when the device appeared.
//!
//! A line is a letter, a colon and a value; properties are `E:KEY=value`. Nothing but properties is used.

use std::collections::BTreeMap;

use crate::roots::{DATABASE_BYTES_MAX, Roots, clean, read_bytes};

/// Properties that are kept: an entry with more is no entry.
const PROPERTIES_MAX: usize = 1024;

/// The properties of one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UdevEntry(BTreeMap<String, String>);

impl UdevEntry {
    /// The entry of the block device with this number (`8:0`); empty if there is none.
    pub(crate) fn read(roots: &Roots, device_number: &str) -> UdevEntry {
        let is_number = device_number
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b':');
        if !is_number {
            return UdevEntry::default();
        }
        let path = roots.udev().join(format!("b{device_number}"));
        read_bytes(&path, DATABASE_BYTES_MAX).map_or_else(UdevEntry::default, |text| parse(&text))
    }

    /// A property, as clean text.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A model's name: udev writes blanks as underscores, and the encoded form keeps them as `\x20`.
    pub(crate) fn model(&self) -> Option<String> {
        let encoded = self.get("ID_MODEL_ENC").and_then(decode);
        encoded.or_else(|| Some(self.get("ID_MODEL")?.replace('_', " ")))
    }
}

fn parse(text: &[u8]) -> UdevEntry {
    let lines = text.split(|byte| *byte == b'\n').take(PROPERTIES_MAX);
    let properties = lines.filter_map(|line| {
        let property = line.strip_prefix(b"E:")?;
        let at = property.iter().position(|byte| *byte == b'=')?;
        let (key, value) = property.split_at(at);
        Some((clean(key)?, clean(value.get(1..)?)?))
    });
    UdevEntry(properties.collect())
}

/// `\x20` becomes a blank. None if what follows a `\x` is no byte.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    clean(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_and_everything_else_is_passed_over() {
        let entry = parse(b"S:disk/by-id/x\nE:ID_BUS=ata\nE:BROKEN\nI:12\nE:ID_MODEL_ENC=WDC\\x20WD40\\x20\\x20\n\xff");
        assert_eq!(entry.get("ID_BUS"), Some("ata"));
        assert_eq!(entry.get("BROKEN"), None);
        assert_eq!(entry.model().as_deref(), Some("WDC WD40"));
        let plain = parse(b"E:ID_MODEL=WDC_WD40\nE:ID_MODEL_ENC=bad\\xzz");
        assert_eq!(plain.model().as_deref(), Some("WDC WD40"));
        assert_eq!(decode("a\\x2"), None);
    }
}
