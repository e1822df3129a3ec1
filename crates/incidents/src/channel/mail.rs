//! A mail, as `sendmail -i -t` takes it on standard input. All messages of an incident are one thread.

use crate::message::{Message, plain};

/// Bytes of a word in a header: longer ones have to be cut.
const ENCODED_BYTES_MAX: usize = 45;

/// Who sends to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Who gets it.
    pub to: String,
    /// Who sends it; none lets the mail system say.
    pub from: Option<String>,
}

/// The whole mail, lines ended by a line feed.
///
/// Source: RFC 5322; RFC 2047 for a subject that is not ASCII.
#[must_use]
pub fn mail(message: &Message, addresses: &Addresses) -> String {
    let domain = host_of(&message.host);
    let number = |id: &str| format!("<{id}@{domain}.plexum>");
    // Nobody has to have got the first one: a common ancestor is enough to make a thread.
    let thread = number(&format!("{}-{:x}", message.incident, message.opened.0));
    let mut text = String::new();
    let mut header = |name: &str, value: &str| {
        text.push_str(&format!("{name}: {}\n", plain(value)));
    };
    header("To", &addresses.to);
    if let Some(from) = &addresses.from {
        header("From", from);
    }
    header("Date", &message.decided.mail_date());
    header("Message-ID", &number(&message.id));
    header("References", &thread);
    header("In-Reply-To", &thread);
    header("Auto-Submitted", "auto-generated");
    header("MIME-Version", "1.0");
    header("Content-Type", "text/plain; charset=utf-8");
    header("Content-Transfer-Encoding", "8bit");
    text.push_str(&format!("Subject: {}\n\n", subject(&message.first_line())));
    text.push_str(&message.text());
    text
}

/// The host's name with nothing in it that a message number or an address may not have.
pub(super) fn host_of(host: &str) -> String {
    let allowed = host
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-');
    let domain: String = allowed.take(63).collect();
    match domain.is_empty() {
        true => "localhost".to_owned(),
        false => domain,
    }
}

/// ASCII as it is, everything else in encoded words, each on a line of its own.
fn subject(line: &str) -> String {
    if line.is_ascii() {
        return line.to_owned();
    }
    let mut words = vec![Vec::new()];
    for c in line.chars() {
        let mut bytes = [0; 4];
        let bytes = c.encode_utf8(&mut bytes).as_bytes();
        let last = words.last_mut().expect("there is one from the start");
        if last.len() + bytes.len() > ENCODED_BYTES_MAX {
            words.push(bytes.to_vec());
        } else {
            last.extend_from_slice(bytes);
        }
    }
    let words = words
        .iter()
        .map(|word| format!("=?utf-8?B?{}?=", base64(word)));
    words.collect::<Vec<_>>().join("\n ")
}

/// Source: RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= group.len() {
                letter.into()
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn a_subject_that_is_not_ascii_is_cut_between_characters() {
        let encoded = subject(&"ä".repeat(30));
        assert_eq!(encoded.lines().count(), 2);
        assert!(encoded.lines().all(|line| line.len() <= 76), "{encoded}");
        assert_eq!(subject("[nas] home: x"), "[nas] home: x");
    }
}
