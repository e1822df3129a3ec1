//! What a browser keeps of a token, as text: a cookie. Pure.
//!
//! It goes to this address alone, by TLS alone, with requests of this page alone, and no script reads it. It is the
//! token itself: whoever takes a token out of the configuration has taken it out of every browser.

/// Where the form goes that gives a browser its token.
pub(crate) const PATH: &str = "/page/token";

/// What the browser calls it. Such a name is taken by TLS from this host alone.
///
/// Source: RFC 6265bis, section 4.1.3.2.
const NAME: &str = "__Host-plexum";

/// Says to a browser that it keeps a token from now on, or none any more.
pub(super) fn keeping(token: Option<&str>) -> String {
    let (value, end) = match token {
        Some(token) => (hex(token.trim()), ""),
        None => (String::new(), "; Max-Age=0"),
    };
    format!("{NAME}={value}; Path=/; Secure; HttpOnly; SameSite=Strict{end}")
}

/// The token among what a browser keeps; none where it keeps none.
pub(super) fn token_of(cookies: &str) -> Option<String> {
    let mut cookies = cookies.split(';').map(str::trim);
    let value = cookies.find_map(|one| one.strip_prefix(NAME)?.strip_prefix('='))?;
    // Whatever else stands there is no token that anybody knows.
    Some(unhex(value).unwrap_or_default())
}

/// As what a browser keeps may be written: half of what a token may have means something there.
fn hex(token: &str) -> String {
    token.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<String> {
    let digits: Option<Vec<u8>> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect();
    String::from_utf8(digits?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_comes_back_as_it_was_kept() {
        let token: String = (b'!'..=b'~').map(char::from).collect();
        let said = keeping(Some(&token));
        let kept = said.split(';').next().unwrap();
        assert_eq!(token_of(&format!("a=b; {kept}; c=d")).unwrap(), token);
        assert!(keeping(None).contains("__Host-plexum=; "));
    }

    #[test]
    fn what_is_no_token_is_one_that_nobody_knows() {
        assert_eq!(token_of("a=b"), None);
        for bad in ["zz", "0", "é", "ff", ""] {
            let kept = token_of(&format!("{NAME}={bad}")).unwrap();
            let least = crate::control::access::SECRET_BYTES_MIN;
            assert!(kept.len() < least, "{kept}");
        }
    }
}
