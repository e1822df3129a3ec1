//! The way md shows a UUID: four groups of eight hex digits, `9fce2b47:f7dcd3b9:c20db199:82a3e13c`.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_groups_of_eight_digits_are_shown() {
        let uuid: [u8; 16] = std::array::from_fn(|index| (index * 17) as u8);
        let text = md_uuid_text(&uuid);
        assert_eq!(text, "00112233:44556677:8899aabb:ccddeeff");
    }
}
