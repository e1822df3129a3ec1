//! Name-value lists as bytes, in the XDR form of labels and of the pool's own configuration.
//!
//! Invariants:
//! - what [`NvList::parse`] reads of numbers, texts, lists and marks is written back byte for byte;
//! - every pair says how long it is decoded: OpenZFS refuses one that says too little.
//!
//! Source: zfs-write.md 1.1.

use super::nvlist::{NvList, NvValue};

const KIND_PRESENT: u32 = 1;
const KIND_NUMBER: u32 = 8;
const KIND_TEXT: u32 = 9;
const KIND_NUMBERS: u32 = 16;
const KIND_LIST: u32 = 19;
const KIND_LISTS: u32 = 20;
/// Decoded bytes of a list, and of an element of an array of lists.
const LIST_DECODED_BYTES: usize = 24;
const ELEMENT_DECODED_BYTES: usize = 32;

impl NvList {
    /// Adds a number, or replaces the one of this name where it stands.
    pub fn put_number(&mut self, name: &str, number: u64) {
        self.put(name, NvValue::Number(number));
    }

    /// Adds a text, or replaces the one of this name where it stands.
    pub fn put_text(&mut self, name: &str, text: &str) {
        self.put(name, NvValue::Text(text.to_owned()));
    }

    /// Adds a value, or replaces the one of this name where it stands.
    pub fn put(&mut self, name: &str, value: NvValue) {
        match self.pairs.iter_mut().find(|(found, _)| found == name) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((name.to_owned(), value)),
        }
    }

    /// Takes a pair away.
    pub fn remove(&mut self, name: &str) {
        self.pairs.retain(|(found, _)| found != name);
    }

    /// The list with its header of four bytes; `None` when it holds a value of a kind that is not written here, which
    /// is any but numbers of 64 bits, texts, lists and marks. Lists nest no deeper than they were built.
    #[must_use]
    pub fn encode(&self) -> Option<Vec<u8>> {
        // XDR, from a little-endian host.
        let mut out = vec![1, 1, 0, 0];
        encode_list(self, &mut out)?;
        Some(out)
    }
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend(word.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) -> Option<()> {
    word(out, u32::try_from(text.len()).ok()?);
    out.extend(text.bytes());
    out.resize(out.len().next_multiple_of(4), 0);
    Some(())
}

/// Version, flags (names are unique), pairs, and two zeroes.
fn encode_list(list: &NvList, out: &mut Vec<u8>) -> Option<()> {
    word(out, 0);
    word(out, 1);
    for (name, value) in &list.pairs {
        encode_pair(name, value, out)?;
    }
    out.extend([0; 8]);
    Some(())
}

fn encode_pair(name: &str, value: &NvValue, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    // The lengths are known at the end.
    out.extend([0; 8]);
    text(out, name)?;
    let decoded_bytes = match value {
        NvValue::Present => {
            kind(KIND_PRESENT, out, 0);
            0
        }
        NvValue::Number(number) => {
            kind(KIND_NUMBER, out, 1);
            out.extend(number.to_be_bytes());
            8
        }
        NvValue::Text(value) => {
            kind(KIND_TEXT, out, 1);
            text(out, value)?;
            value.len() + 1
        }
        NvValue::Numbers(numbers) => {
            let count = u32::try_from(numbers.len()).ok()?;
            kind(KIND_NUMBERS, out, count);
            word(out, count);
            numbers
                .iter()
                .for_each(|number| out.extend(number.to_be_bytes()));
            8 * numbers.len()
        }
        NvValue::List(list) => {
            kind(KIND_LIST, out, 1);
            encode_list(list, out)?;
            LIST_DECODED_BYTES
        }
        NvValue::Lists(lists) => {
            kind(KIND_LISTS, out, u32::try_from(lists.len()).ok()?);
            for list in lists {
                encode_list(list, out)?;
            }
            ELEMENT_DECODED_BYTES * lists.len()
        }
        _ => return None,
    };
    let decoded = (16 + name.len() + 1).next_multiple_of(8) + decoded_bytes.next_multiple_of(8);
    let encoded = u32::try_from(out.len() - start).ok()?;
    out[start..start + 4].copy_from_slice(&encoded.to_be_bytes());
    let decoded = u32::try_from(decoded).ok()?;
    out[start + 4..start + 8].copy_from_slice(&decoded.to_be_bytes());
    Some(())
}

fn kind(kind: u32, out: &mut Vec<u8>, count: u32) {
    word(out, kind);
    word(out, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_was_written_reads_back_as_it_was() {
        let mut child = NvList::default();
        child.put_text("type", "disk");
        child.put("whole_disk", NvValue::Present);
        let mut list = NvList::default();
        list.put_number("version", 5000);
        list.put_text("name", "tank");
        list.put("numbers", NvValue::Numbers(vec![1, u64::MAX]));
        list.put("tree", NvValue::List(child.clone()));
        list.put("children", NvValue::Lists(vec![child.clone(), child]));
        let bytes = list.encode().unwrap();
        assert_eq!(NvList::parse(&bytes).unwrap(), list);
        list.put_number("version", 28);
        list.remove("name");
        assert_eq!(list.pairs[0], ("version".into(), NvValue::Number(28)));
        assert_eq!(list.text("name"), None);
    }

    #[test]
    fn a_value_that_cannot_be_written_is_refused() {
        let mut list = NvList::default();
        list.put("odd", NvValue::Skipped(99));
        assert_eq!(list.encode(), None);
    }
}
