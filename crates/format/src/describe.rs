//! Decoded metadata as ordered lists of names and values, for `examine` and its JSON twin.
//!
//! Invariants:
//! - names are the glossary's, with their unit last, and are never changed, only added to;
//! - texts are printable.

use std::fmt;

/// A value of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Does not apply or is not recorded (JSON: null).
    None,
    /// A fact.
    Flag(bool),
    /// A number.
    Number(u64),
    /// A number that may be negative.
    Signed(i64),
    /// Text, printable.
    Text(String),
    /// Several values.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Number(number) => number.fmt(f),
            Self::Signed(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(values) => {
                for (index, value) in values.iter().enumerate() {
                    let separator = if index == 0 { "" } else { " " };
                    write!(f, "{separator}{value}")?;
                }
                Ok(())
            }
        }
    }
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}
value_from!(bool => Flag, u64 => Number, u32 => Number, u16 => Number, u8 => Number);
value_from!(i64 => Signed, i32 => Signed, i16 => Signed, String => Text, &str => Text);

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// A decoded field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name, lower case with underscores, unit last.
    pub name: &'static str,
    /// Value.
    pub value: Value,
}

/// Collects fields in order.
pub(crate) struct List(pub(crate) Vec<Field>);

impl List {
    pub(crate) fn new(format: &'static str) -> Self {
        let mut list = Self(Vec::new());
        list.add("format", format);
        list
    }

    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        let value = value.into();
        self.0.push(Field { name, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_people_read_them() {
        let list = Value::List(vec![Value::Number(1), Value::Flag(true), Value::None]);
        assert_eq!(list.to_string(), "1 yes -");
        assert_eq!(Value::from(Some(-8_i32)).to_string(), "-8");
    }
}
