//! Name-value lists in XDR: the configuration in labels and in the pool's own directory.
//!
//! Invariants:
//! - lists nest at most [`DEPTH_MAX`] deep and are read without recursion;
//! - every count is checked against the bytes that are left before anything is allocated.
//!
//! Source: zfs-raidz.md 2.1.

use super::bytes::nowhere;
use crate::error::{FormatError, Problem, escape_text};

/// Deepest nesting of lists.
pub const DEPTH_MAX: usize = 16;

/// A value of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NvValue {
    /// Present without a value.
    Present,
    /// An unsigned number of any width.
    Number(u64),
    /// A signed number of any width.
    Signed(i64),
    /// Text, made printable.
    Text(String),
    /// Unsigned numbers of any width.
    Numbers(Vec<u64>),
    /// Signed numbers of any width; truth values are 0 and 1.
    SignedNumbers(Vec<i64>),
    /// Texts, made printable.
    Texts(Vec<String>),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// A list.
    List(NvList),
    /// Lists.
    Lists(Vec<NvList>),
    /// Of a type that this program has no use for; its number.
    Skipped(u32),
}

/// A list: names and values in the order of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvList {
    /// The pairs.
    pub pairs: Vec<(String, NvValue)>,
}

impl NvList {
    /// The first value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&NvValue> {
        let pair = self.pairs.iter().find(|(found, _)| found == name)?;
        Some(&pair.1)
    }

    /// The number of this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            NvValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The unsigned numbers of this name; none when there are none.
    #[must_use]
    pub fn numbers(&self, name: &str) -> &[u64] {
        match self.get(name) {
            Some(NvValue::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// The text of this name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            NvValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The list of this name.
    #[must_use]
    pub fn list(&self, name: &str) -> Option<&NvList> {
        match self.get(name)? {
            NvValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// The lists of this name; none when there are none.
    #[must_use]
    pub fn lists(&self, name: &str) -> &[NvList] {
        match self.get(name) {
            Some(NvValue::Lists(lists)) => lists,
            _ => &[],
        }
    }

    /// Reads a list with its header of four bytes; bytes after its end are not looked at.
    ///
    /// # Errors
    /// [`Problem::Unsupported`] for the native encoding, [`Problem::TooShort`], [`Problem::Invalid`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader { bytes, at: 0 };
        let encoding = reader.take(4)?[0];
        if encoding != 1 {
            return Err(reader.error(Problem::Unsupported, "encoding", encoding, "1 (XDR)"));
        }
        parse_lists(&mut reader)
    }
}

/// A list that is being read, and where it goes.
struct Frame {
    list: NvList,
    /// Name of the pair in the list above.
    name: String,
    /// The array it is an element of: how many follow, and those before it.
    array: Option<(u32, Vec<NvList>)>,
}

impl Frame {
    fn new(name: String, array: Option<(u32, Vec<NvList>)>) -> Self {
        let list = NvList::default();
        Self { list, name, array }
    }
}

fn parse_lists(reader: &mut Reader<'_>) -> Result<NvList, FormatError> {
    let mut stack = vec![Frame::new(String::new(), None)];
    reader.list_header()?;
    loop {
        let start = reader.at;
        let (encoded_bytes, decoded_bytes) = (reader.u32()?, reader.u32()?);
        if encoded_bytes == 0 && decoded_bytes == 0 {
            let frame = stack.pop().expect("the outer list ends the loop");
            let Some(above) = stack.last_mut() else {
                return Ok(frame.list);
            };
            let value = match frame.array {
                None => NvValue::List(frame.list),
                Some((left, mut done)) => {
                    done.push(frame.list);
                    if left > 0 {
                        reader.list_header()?;
                        stack.push(Frame::new(frame.name, Some((left - 1, done))));
                        continue;
                    }
                    NvValue::Lists(done)
                }
            };
            above.list.pairs.push((frame.name, value));
            continue;
        }
        let name = reader.text()?;
        let (kind, count) = (reader.u32()?, reader.u32()?);
        let is_list = kind == 19 || (kind == 20 && count > 0);
        if is_list {
            if stack.len() >= DEPTH_MAX {
                let expected = "at most 16 lists";
                return Err(reader.error(Problem::Invalid, "depth", stack.len() + 1, expected));
            }
            reader.list_header()?;
            let array = (kind == 20).then(|| (count - 1, Vec::new()));
            stack.push(Frame::new(name, array));
            continue;
        }
        let value = reader.value(kind, count, start, encoded_bytes)?;
        let frame = stack.last_mut().expect("the outer list ends the loop");
        frame.list.pairs.push((name, value));
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn error(
        &self,
        problem: Problem,
        field: &'static str,
        found: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> FormatError {
        nowhere("name-value list").error(problem, self.at as u64, field, found, expected)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let end = self.at.checked_add(count);
        let part = end.and_then(|end| self.bytes.get(self.at..end));
        let Some(part) = part else {
            let left = format!("{} bytes", self.bytes.len().saturating_sub(self.at));
            let expected = format!("{count} more bytes");
            return Err(self.error(Problem::TooShort, "list", left, expected));
        };
        self.at += count;
        Ok(part)
    }

    fn u32(&mut self) -> Result<u32, FormatError> {
        let part = self.take(4)?;
        Ok(u32::from_be_bytes(part.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, FormatError> {
        let part = self.take(8)?;
        Ok(u64::from_be_bytes(part.try_into().expect("eight bytes")))
    }

    fn i32(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from(self.u32()?.cast_signed()))
    }

    /// Version and flags of a list.
    fn list_header(&mut self) -> Result<(), FormatError> {
        let version = self.u32()?;
        if version != 0 {
            return Err(self.error(Problem::Unsupported, "list version", version, 0));
        }
        self.u32().map(|_flags| ())
    }

    fn text(&mut self) -> Result<String, FormatError> {
        let length = self.u32()? as usize;
        let text = escape_text(self.take(length)?);
        self.take(length.wrapping_neg() % 4)?;
        Ok(text)
    }

    /// Whether `count` values of `each` bytes can be in what is left.
    fn check_count(&self, count: u32, each: usize) -> Result<(), FormatError> {
        let needed = (count as usize).checked_mul(each);
        let left = self.bytes.len() - self.at;
        if needed.is_some_and(|needed| needed <= left) {
            return Ok(());
        }
        let expected = format!("at most what {left} bytes hold");
        Err(self.error(Problem::Invalid, "count", count, expected))
    }

    /// The values of an array of numbers, each `each` bytes wide. In XDR such an array begins with a count of its own;
    /// the pair's says the same, or one of them is wrong.
    fn numbers<T>(
        &mut self,
        count: u32,
        each: usize,
        read: impl Fn(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let own_count = self.u32()?;
        if own_count != count {
            let expected = format!("{count}, as the pair says");
            return Err(self.error(Problem::Invalid, "array count", own_count, expected));
        }
        self.check_count(count, each)?;
        (0..count).map(|_| read(self)).collect()
    }

    /// The value of a pair. XDR knows no numbers of less than four bytes: narrow ones, alone and in arrays, take four.
    fn value(
        &mut self,
        kind: u32,
        count: u32,
        start: usize,
        encoded_bytes: u32,
    ) -> Result<NvValue, FormatError> {
        Ok(match kind {
            1 => NvValue::Present,
            // int16, int32, a truth value, int8
            3 | 5 | 21 | 22 => NvValue::Signed(self.i32()?),
            // byte, uint16, uint32, uint8
            2 | 4 | 6 | 23 => NvValue::Number(u64::from(self.u32()?)),
            // int64, a time
            7 | 18 => NvValue::Signed(self.u64()?.cast_signed()),
            8 => NvValue::Number(self.u64()?),
            9 => NvValue::Text(self.text()?),
            10 => {
                let length = count as usize;
                let bytes = self.take(length)?.to_vec();
                self.take(length.wrapping_neg() % 4)?;
                NvValue::Bytes(bytes)
            }
            // int16, int32, truth values, int8
            11 | 13 | 24 | 25 => NvValue::SignedNumbers(self.numbers(count, 4, Self::i32)?),
            // uint16, uint32, uint8
            12 | 14 | 26 => {
                let number = |reader: &mut Self| reader.u32().map(u64::from);
                NvValue::Numbers(self.numbers(count, 4, number)?)
            }
            15 => {
                let number = |reader: &mut Self| reader.u64().map(u64::cast_signed);
                NvValue::SignedNumbers(self.numbers(count, 8, number)?)
            }
            16 => NvValue::Numbers(self.numbers(count, 8, Self::u64)?),
            17 => {
                self.check_count(count, 4)?;
                NvValue::Texts((0..count).map(|_| self.text()).collect::<Result<_, _>>()?)
            }
            20 => NvValue::Lists(Vec::new()),
            other => {
                // The size of the whole pair leads to the next one.
                let end = start.saturating_add(encoded_bytes as usize);
                let skipped = end.checked_sub(self.at);
                let wrong = || self.error(Problem::Invalid, "pair size", encoded_bytes, "more");
                let skipped = skipped.ok_or_else(wrong)?;
                self.take(skipped)?;
                NvValue::Skipped(other)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend((text.len() as u32).to_be_bytes());
        out.extend(text.bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    }

    fn pair(out: &mut Vec<u8>, name: &str, kind: u32, count: u32) {
        out.extend([0, 0, 0, 99, 0, 0, 0, 99]);
        text(out, name);
        out.extend(kind.to_be_bytes());
        out.extend(count.to_be_bytes());
    }

    const HEADER: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 1];
    const END: [u8; 8] = [0; 8];

    #[test]
    fn nested_lists_and_arrays_of_lists_come_back() {
        let mut bytes = vec![1, 1, 0, 0];
        bytes.extend(HEADER);
        pair(&mut bytes, "name", 9, 1);
        text(&mut bytes, "tank\x07");
        pair(&mut bytes, "children", 20, 2);
        for n in 0..2_u64 {
            bytes.extend(HEADER);
            pair(&mut bytes, "id", 8, 1);
            bytes.extend(n.to_be_bytes());
            bytes.extend(END);
        }
        pair(&mut bytes, "empty", 20, 0);
        bytes.extend(END);
        let list = NvList::parse(&bytes).unwrap();
        assert_eq!(list.text("name"), Some("tank\\x07"));
        let ids: Vec<_> = list
            .lists("children")
            .iter()
            .map(|one| one.number("id"))
            .collect();
        assert_eq!(ids, [Some(0), Some(1)]);
        assert_eq!(list.get("empty"), Some(&NvValue::Lists(Vec::new())));
        for length in 0..bytes.len() {
            assert!(NvList::parse(&bytes[..length]).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn lists_that_nest_too_deep_are_refused() {
        let mut bytes = vec![1, 1, 0, 0];
        bytes.extend(HEADER);
        for _ in 0..100_000 {
            pair(&mut bytes, "a", 19, 1);
            bytes.extend(HEADER);
        }
        let error = NvList::parse(&bytes).unwrap_err();
        assert_eq!((error.problem, error.field), (Problem::Invalid, "depth"));
    }

    #[test]
    fn a_count_beyond_the_bytes_allocates_nothing() {
        for kind in (10..=17).chain(24..=26) {
            let mut bytes = vec![1, 1, 0, 0];
            bytes.extend(HEADER);
            pair(&mut bytes, "a", kind, u32::MAX);
            bytes.extend([0xFF; 4]);
            bytes.extend([0; 64]);
            let field = NvList::parse(&bytes).unwrap_err().field;
            assert_eq!(field, if kind == 10 { "list" } else { "count" }, "{kind}");
        }
    }

    /// The number types: their number in a pair, bytes of a value, whether it has a sign, and the type of their arrays.
    const NUMBER_KINDS: [(u32, usize, bool, u32); 9] = [
        (3, 4, true, 11),
        (4, 4, false, 12),
        (5, 4, true, 13),
        (6, 4, false, 14),
        (7, 8, true, 15),
        (8, 8, false, 16),
        (21, 4, true, 24),
        (22, 4, true, 25),
        (23, 4, false, 26),
    ];

    /// A list in a list, with one pair of a kind, and a text behind each, which is only found when the pair ended where
    /// it should.
    fn nested(kind: u32, count: u32, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![1, 1, 0, 0];
        bytes.extend(HEADER);
        pair(&mut bytes, "tree", 19, 1);
        bytes.extend(HEADER);
        pair(&mut bytes, "value", kind, count);
        bytes.extend(value);
        pair(&mut bytes, "after", 9, 1);
        text(&mut bytes, "seen");
        bytes.extend(END);
        pair(&mut bytes, "last", 9, 1);
        text(&mut bytes, "seen");
        bytes.extend(END);
        bytes
    }

    #[test]
    fn arrays_of_numbers_are_read_behind_a_count_of_their_own() {
        for (kind, width, is_signed, array_kind) in NUMBER_KINDS {
            for count in [0, 1, 3] {
                let mut value = u32::to_be_bytes(count).to_vec();
                value.extend(vec![0xFF; width * count as usize]);
                let bytes = nested(array_kind, count, &value);
                let list = NvList::parse(&bytes).unwrap();
                let tree = list.list("tree").unwrap();
                let largest = if width == 8 {
                    u64::MAX
                } else {
                    u64::from(u32::MAX)
                };
                let expected = match is_signed {
                    true => NvValue::SignedNumbers(vec![-1; count as usize]),
                    false => NvValue::Numbers(vec![largest; count as usize]),
                };
                assert_eq!(tree.get("value"), Some(&expected), "{array_kind}");
                let seen = (tree.text("after"), list.text("last"));
                assert_eq!(seen, (Some("seen"), Some("seen")), "{array_kind}");
                for length in 0..bytes.len() {
                    assert!(NvList::parse(&bytes[..length]).is_err(), "cut at {length}");
                }
                value[3] ^= 1;
                let error = NvList::parse(&nested(array_kind, count, &value)).unwrap_err();
                assert_eq!(error.field, "array count", "{array_kind}");
            }
            let list = NvList::parse(&nested(kind, 1, &vec![0xFF; width])).unwrap();
            let tree = list.list("tree").unwrap();
            assert_eq!(tree.text("after"), Some("seen"), "{kind}");
            let has_sign = matches!(tree.get("value"), Some(NvValue::Signed(-1)));
            assert_eq!(has_sign, is_signed, "{kind}");
        }
    }
}
