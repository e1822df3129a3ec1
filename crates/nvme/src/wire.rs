//! NVMe over TCP as bytes: pure, and each thing is decoded into a value that was checked, or refused.
//!
//! Numbers are little endian. Sources: "NVM Express Base Specification" 1.4 (commands, structures, log pages), "NVM
//! Express over Fabrics" 1.1 (capsules, Connect, properties, discovery) and its "NVMe/TCP Transport Binding" (PDUs);
//! what hosts really ask for was traced with Linux 6.12.

pub mod command;
pub mod digest;
pub mod fabrics;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod status;

/// Writes `bytes` at their place in a structure.
fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("the slice has this length")
}

/// Text of a fixed field: cut or filled with spaces, and nothing but printable ASCII.
fn put_padded(field: &mut [u8], text: &str) {
    let shown = text.bytes().map(|byte| match byte {
        0x20..=0x7e => byte,
        _ => b'_',
    });
    for (target, byte) in field.iter_mut().zip(shown.chain(std::iter::repeat(b' '))) {
        *target = byte;
    }
}

/// Text of a field that ends with a NUL, cut when it is longer.
fn put_text(field: &mut [u8], text: &str) {
    let count = text.len().min(field.len() - 1);
    field[..count].copy_from_slice(&text.as_bytes()[..count]);
}

/// Text up to its NUL; `None` without one, or when it is no UTF-8.
fn text_of(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|byte| *byte == 0)?;
    String::from_utf8(field[..end].to_vec()).ok()
}
