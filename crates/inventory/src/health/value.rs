//! Looking into a JSON document whose shape nobody promises.

use serde_json::Value;

use crate::roots::clean;

/// From here on a count is garbage: all bits set, or vendor bits in the upper half. No disk has as many sectors to
/// lose.
const COUNT_MAX: u64 = u32::MAX as u64;
/// Temperatures outside of these are sensors that are not there. Degrees Celsius.
const TEMPERATURES_C: std::ops::RangeInclusive<i64> = -40..=150;

/// The value at `path`, such as `temperature/current`.
pub(super) fn at<'a>(document: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/')
        .try_fold(document, |value, key| value.get(key))
}

/// A whole number; one that is larger than 64 bits is the largest.
pub(super) fn whole(document: &Value, path: &str) -> Option<u64> {
    let value = at(document, path)?;
    value
        .as_u64()
        .or_else(|| value.as_str()?.trim().parse().ok())
        .or_else(|| {
            value
                .as_f64()
                .filter(|float| *float >= 0.0)
                .map(|float| float as u64)
        })
}

/// A whole number that can be a count of events.
pub(super) fn count(document: &Value, path: &str) -> Option<u64> {
    whole(document, path).filter(|value| *value < COUNT_MAX)
}

/// A temperature that a disk can have.
pub(super) fn temperature(document: &Value, path: &str) -> Option<i64> {
    let value = at(document, path)?.as_i64()?;
    TEMPERATURES_C.contains(&value).then_some(value)
}

/// A limit of the temperature: zero means that there is none.
pub(super) fn temperature_limit(document: &Value, path: &str) -> Option<i64> {
    temperature(document, path).filter(|limit| *limit > 0)
}

pub(super) fn truth(document: &Value, path: &str) -> Option<bool> {
    at(document, path)?.as_bool()
}

/// Clean text, none if empty.
pub(super) fn text(document: &Value, path: &str) -> Option<String> {
    clean(at(document, path)?.as_str()?.as_bytes())
}

/// The elements of an array; none of what is no array.
pub(super) fn elements<'a>(document: &'a Value, path: &str) -> &'a [Value] {
    at(document, path)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}
