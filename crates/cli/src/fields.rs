//! Decoded fields of metadata, as lines and for programs.

use plexum_format::md::{Field, Value as FieldValue};
use serde_json::{Map, Value};

use crate::output::{Screen, table};

/// A title, and a line for each field; nothing when there are none.
pub fn show_fields(title: &str, fields: &[Field], screen: &Screen) {
    if fields.is_empty() {
        return;
    }
    screen.line(format!("  {title}"));
    let rows: Vec<Vec<String>> = fields
        .iter()
        .map(|field| vec![field.name.to_owned(), field.value.to_string()])
        .collect();
    for line in table(&rows) {
        screen.line(format!("    {line}"));
    }
}

/// An object with each field; `null` when there are none.
pub fn fields_json(fields: &[Field]) -> Value {
    if fields.is_empty() {
        return Value::Null;
    }
    let entries = fields
        .iter()
        .map(|field| (field.name.to_owned(), value_json(&field.value)));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn value_json(value: &FieldValue) -> Value {
    match value {
        FieldValue::None => Value::Null,
        FieldValue::Flag(flag) => (*flag).into(),
        FieldValue::Number(number) => (*number).into(),
        FieldValue::Signed(number) => (*number).into(),
        FieldValue::List(values) => values.iter().map(value_json).collect(),
        other => other.to_string().into(),
    }
}
