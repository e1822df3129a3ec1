//! The way md shows a UUID: four groups of eight hex digits, `9fce2b47:f7dcd3b9:c20db199:82a3e13c`.

use crate::error::{FormatError, Problem};

/// `uuid` in md's display form, in byte order.
#[must_use]
pub fn md_uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(35);
    for (index, byte) in uuid.iter().enumerate() {
        if index > 0 && index % 4 == 0 {
            text.push(':');
        }
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).expect("a nibble is a hex digit"));
        }
    }
    text
}

/// Reads 32 hex digits; colons and dashes anywhere between them are ignored, so both md's and the usual form work.
///
/// # Errors
/// [`Problem::Request`] when there are not exactly 32 hex digits or other characters are among them.
pub fn parse_md_uuid(text: &str) -> Result<[u8; 16], FormatError> {
    let wrong = || {
        FormatError::new(
            Problem::Request,
            "UUID",
            0,
            "text",
            format_args!("{:?}", text.chars().take(64).collect::<String>()),
            "32 hex digits, with or without colons or dashes",
        )
    };
    let mut uuid = [0_u8; 16];
    let mut digits = 0_usize;
    for letter in text.chars().filter(|letter| !matches!(letter, ':' | '-')) {
        let value = letter.to_digit(16).ok_or_else(wrong)?;
        let byte = uuid.get_mut(digits / 2).ok_or_else(wrong)?;
        *byte = (*byte << 4) | u8::try_from(value).expect("a hex digit is below 16");
        digits += 1;
    }
    if digits == 32 { Ok(uuid) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_form_reads_back() {
        let uuid: [u8; 16] = std::array::from_fn(|index| (index * 17) as u8);
        let text = md_uuid_text(&uuid);
        assert_eq!(text, "00112233:44556677:8899aabb:ccddeeff");
        assert_eq!(parse_md_uuid(&text), Ok(uuid));
        assert_eq!(
            parse_md_uuid("00112233-4455-6677-8899-AABBCCDDEEFF"),
            Ok(uuid)
        );
    }

    #[test]
    fn too_few_too_many_and_foreign_digits_are_refused() {
        for text in [
            "",
            "0011",
            "00112233:44556677:8899aabb:ccddeeff0",
            "g0112233:44556677:8899aabb:ccddeeff",
        ] {
            assert!(parse_md_uuid(text).is_err(), "{text}");
        }
    }
}
