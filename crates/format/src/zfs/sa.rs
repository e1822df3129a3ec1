//! System attributes of files: packed values in an order that a layout of the file system gives.
//!
//! Source: zfs-raidz.md 2.7.

use super::bytes::{le16, le32, le64, nowhere, require};
use crate::error::{FormatError, Problem};

const MAGIC: u32 = 0x2f_505a;
/// Most attributes of a layout.
const ATTRIBUTES_MAX: usize = 256;

/// What the registry says about an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its number in layouts.
    pub id: u16,
    /// Its name, such as `ZPL_SIZE`.
    pub name: String,
    /// Its length in bytes; 0: each file has its own.
    pub length_bytes: u16,
}

impl Attribute {
    /// An entry of the registry.
    #[must_use]
    pub fn of(name: String, value: u64) -> Self {
        Self {
            id: value as u16,
            name,
            length_bytes: (value >> 24) as u16,
        }
    }
}

/// Registry and layouts of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The registry, ascending by number.
    pub registry: Vec<Attribute>,
    /// Layouts: number and order of attributes.
    pub layouts: Vec<(u16, Vec<u16>)>,
}

impl Attributes {
    fn attribute(&self, id: u16) -> Option<&Attribute> {
        self.registry.iter().find(|attribute| attribute.id == id)
    }

    /// Takes apart an area of attributes: names and bytes, in the order of the layout.
    ///
    /// # Errors
    /// [`Problem::NoMagic`], [`Problem::TooShort`], [`Problem::Invalid`] for an unknown layout or attribute.
    pub fn decode<'a>(&self, area: &'a [u8]) -> Result<Vec<(&str, &'a [u8])>, FormatError> {
        let place = nowhere("system attributes");
        require(place, area, 8, "area")?;
        let magic = le32(area, 0).expect("the length was checked");
        if magic != MAGIC {
            let found = format!("{magic:#x}");
            return Err(place.error(Problem::NoMagic, 0, "magic", found, "0x2f505a"));
        }
        let info = le16(area, 4).expect("the length was checked");
        let (number, header_bytes) = (info & 0x3ff, usize::from(info >> 10) * 8);
        let layout = self.layouts.iter().find(|(found, _)| *found == number);
        let wrong = || place.error(Problem::Invalid, 4, "layout", number, "one that is known");
        let (_, ids) = layout.ok_or_else(wrong)?;
        let mut at = header_bytes.max(8);
        let mut lengths_at = 6;
        let mut found = Vec::new();
        for &id in ids.iter().take(ATTRIBUTES_MAX) {
            let wrong = || place.error(Problem::Invalid, 4, "attribute", id, "a registered one");
            let attribute = self.attribute(id).ok_or_else(wrong)?;
            let length = if attribute.length_bytes > 0 {
                attribute.length_bytes
            } else {
                lengths_at += 2;
                // Lengths stand in the header only.
                let inside = area.get(..header_bytes.max(8)).unwrap_or(area);
                le16(inside, lengths_at - 2).unwrap_or(0)
            };
            let end = at + usize::from(length);
            let Some(bytes) = area.get(at..end) else {
                let expected = format!("at least {end} bytes");
                return Err(place.error(Problem::TooShort, 0, "area", area.len(), expected));
            };
            found.push((attribute.name.as_str(), bytes));
            at = end.next_multiple_of(8);
        }
        Ok(found)
    }
}

/// The first number of an attribute; 0 when it is shorter.
#[must_use]
pub fn number(bytes: &[u8]) -> u64 {
    le64(bytes, 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes() -> Attributes {
        let registry = [
            ("ZPL_MODE", 5, 8),
            ("ZPL_SYMLINK", 17, 0),
            ("ZPL_SIZE", 6, 8),
        ];
        Attributes {
            registry: registry
                .map(|(name, id, length)| Attribute::of(name.into(), id | length << 24))
                .to_vec(),
            layouts: vec![(2, vec![5, 6]), (3, vec![5, 17, 6])],
        }
    }

    fn area(info: u16, lengths: &[u16], body: &[u8]) -> Vec<u8> {
        let mut area = MAGIC.to_le_bytes().to_vec();
        area.extend(info.to_le_bytes());
        lengths
            .iter()
            .for_each(|length| area.extend(length.to_le_bytes()));
        area.resize(area.len().next_multiple_of(8), 0);
        area.extend(body);
        area
    }

    #[test]
    fn values_come_in_the_order_of_the_layout_and_start_at_multiples_of_eight() {
        let body = [
            &7_u64.to_le_bytes()[..],
            b"link\0\0\0\0",
            &9_u64.to_le_bytes(),
        ]
        .concat();
        let area = area(3 | 1 << 10, &[4], &body);
        let known = attributes();
        let found = known.decode(&area).unwrap();
        assert_eq!(number(found[0].1), 7);
        assert_eq!(found[1], ("ZPL_SYMLINK", b"link".as_slice()));
        assert_eq!((found[2].0, number(found[2].1)), ("ZPL_SIZE", 9));
    }

    #[test]
    fn unknown_layouts_and_short_areas_are_refused() {
        let known = attributes();
        assert_eq!(
            known.decode(&area(9, &[], &[0; 16])).unwrap_err().field,
            "layout"
        );
        assert_eq!(
            known
                .decode(&area(2 | 1 << 10, &[], &[0; 15]))
                .unwrap_err()
                .field,
            "area"
        );
        assert_eq!(known.decode(&[0; 8]).unwrap_err().problem, Problem::NoMagic);
    }
}
