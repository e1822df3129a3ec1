//! Words of the configuration.

/// A word of the configuration that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {expected}")]
pub struct ConfigError {
    /// What was written.
    pub text: String,
    /// What can be written there.
    pub expected: &'static str,
}

/// Has a type read from and written as a word.
macro_rules! as_word {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = ConfigError;

            fn try_from(text: String) -> Result<Self, ConfigError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}
pub(crate) use as_word;
