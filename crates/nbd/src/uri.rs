//! NBD URIs: where a server is and which export is meant.
//!
//! Invariants: what is not understood is refused, never guessed; `Display` gives a URI that parses to the same value,
//! with every byte outside of the unreserved ones percent-encoded, so that it is safe in logs.
//!
//! Source: nbd.md section 10.

use std::fmt;
use std::str::FromStr;

/// TCP port when a URI has none.
pub const PORT: u16 = 10809;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(String),
    /// Host name or address (IPv6 without brackets), and port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

/// Options of a TLS connection; all of them may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// User name for PSK.
    pub user: Option<String>,
    /// `anon`, `x509` or `psk`.
    pub kind: Option<String>,
    /// Name that the server's certificate must have, if it is not the host.
    pub hostname: Option<String>,
    /// Whether the server's certificate is verified.
    pub verifies_peer: Option<bool>,
    /// Folder with `ca-cert.pem` and the client's certificate and key.
    pub certificates: Option<String>,
    /// File with the pre-shared key.
    pub psk_file: Option<String>,
}

/// A parsed NBD URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    /// Where the server listens.
    pub address: Address,
    /// The export, "" for the server's default.
    pub export: String,
    /// TLS is used, or the connection fails.
    pub has_tls: bool,
    /// How.
    pub tls: TlsOptions,
}

/// Why a text is no NBD URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// Neither `nbd://`, `nbds://`, `nbd+unix://` nor `nbds+unix://`.
    #[error("an NBD URI starts with nbd://, nbds://, nbd+unix:// or nbds+unix://")]
    Scheme,
    /// The part between `//` and the path.
    #[error("the server in the URI is not understood: {0}")]
    Server(&'static str),
    /// A `%` without two hexadecimal digits, or text that is not UTF-8.
    #[error("the URI has a wrong percent-encoding in its {0}")]
    Encoding(&'static str),
    /// A key that is not known here.
    #[error("the URI has the key {0}, which is not known or not allowed here; remove it")]
    Key(String),
    /// A known key with a wrong value.
    #[error("the URI's key {0} has a wrong value")]
    Value(String),
    /// A `#`.
    #[error("the URI has a fragment (#), which NBD does not know; write %23 for the character")]
    Fragment,
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        let (scheme, rest) = uri.split_once("://").ok_or(UriError::Scheme)?;
        let (has_tls, is_unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(UriError::Scheme),
        };
        if rest.contains('#') {
            return Err(UriError::Fragment);
        }
        let (front, query) = match rest.split_once('?') {
            Some((front, query)) => (front, query),
            None => (rest, ""),
        };
        let (server, path) = front.split_once('/').unwrap_or((front, ""));
        let export = decode(path, "export name")?;
        let mut tls = TlsOptions::default();
        let mut socket = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            take_key(pair, is_unix, &mut socket, &mut tls)?;
        }
        let host = match server.rsplit_once('@') {
            Some((user, host)) => {
                tls.user = Some(decode(user, "user")?);
                host
            }
            None => server,
        };
        let address = match (is_unix, socket) {
            (false, _) => tcp(host)?,
            (true, _) if !host.is_empty() => {
                return Err(UriError::Server("a Unix socket has no host"));
            }
            (true, Some(path)) => Address::Unix(path),
            (true, None) => return Err(UriError::Server("socket=PATH is missing")),
        };
        Ok(Self {
            address,
            export,
            has_tls,
            tls,
        })
    }
}

fn take_key(
    pair: &str,
    is_unix: bool,
    socket: &mut Option<String>,
    tls: &mut TlsOptions,
) -> Result<(), UriError> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let value = decode(value, "query")?;
    let wrong = || Err(UriError::Value(key.to_owned()));
    let place = match key {
        "socket" if is_unix => socket,
        "tls-type" if !matches!(value.as_str(), "anon" | "x509" | "psk") => return wrong(),
        "tls-type" => &mut tls.kind,
        "tls-hostname" => &mut tls.hostname,
        "tls-certificates" => &mut tls.certificates,
        "tls-psk-file" => &mut tls.psk_file,
        "tls-verify-peer" => {
            let verifies = match value.as_str() {
                "0" => false,
                "1" => true,
                _ => return wrong(),
            };
            if tls.verifies_peer.replace(verifies).is_some() {
                return wrong();
            }
            return Ok(());
        }
        _ => return Err(UriError::Key(crate::wire::escaped(key))),
    };
    if value.is_empty() || place.replace(value).is_some() {
        return wrong(); // empty, or given twice
    }
    Ok(())
}

fn tcp(server: &str) -> Result<Address, UriError> {
    let (host, port) = if let Some(rest) = server.strip_prefix('[') {
        let (host, behind) = rest
            .split_once(']')
            .ok_or(UriError::Server("a bracket is not closed"))?;
        let port = match behind.strip_prefix(':') {
            Some(port) => Some(port),
            None if behind.is_empty() => None,
            None => return Err(UriError::Server("something follows the bracket")),
        };
        (host.to_owned(), port)
    } else {
        let (host, port) = match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        };
        (decode(host, "host")?, port)
    };
    let port = match port {
        None | Some("") => PORT,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
            .parse()
            .map_err(|_| UriError::Server("the port is above 65535"))?,
        Some(_) => {
            return Err(UriError::Server(
                "the port is no number (IPv6 addresses need brackets)",
            ));
        }
    };
    if host.is_empty() {
        return Err(UriError::Server("the host is missing"));
    }
    Ok(Address::Tcp { host, port })
}

/// Undoes percent-encoding; the result is text without NUL.
fn decode(encoded: &str, place: &'static str) -> Result<String, UriError> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(UriError::Encoding(place));
        };
        bytes.push(u8::try_from(high << 4 | low).expect("two hexadecimal digits"));
    }
    let text = String::from_utf8(bytes).map_err(|_| UriError::Encoding(place))?;
    if text.contains('\0') {
        return Err(UriError::Encoding(place));
    }
    Ok(text)
}

/// Percent-encodes everything but unreserved characters and those in `keep`.
fn encode(text: &str, keep: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let letter = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(letter) || keep.contains(letter) {
            encoded.push(letter);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_tls { "nbds" } else { "nbd" })?;
        if matches!(self.address, Address::Unix(_)) {
            f.write_str("+unix")?;
        }
        f.write_str("://")?;
        if let Some(user) = &self.tls.user {
            write!(f, "{}@", encode(user, ""))?;
        }
        let mut pairs: Vec<(&str, String)> = Vec::new();
        match &self.address {
            Address::Unix(path) => pairs.push(("socket", encode(path, "/"))),
            Address::Tcp { host, port } => {
                if host.contains(':') {
                    write!(f, "[{}]", host.escape_debug())?;
                } else {
                    f.write_str(&encode(host, ""))?;
                }
                if *port != PORT {
                    write!(f, ":{port}")?;
                }
            }
        }
        write!(f, "/{}", encode(&self.export, "/"))?;
        let texts = [
            ("tls-type", &self.tls.kind),
            ("tls-hostname", &self.tls.hostname),
            ("tls-certificates", &self.tls.certificates),
            ("tls-psk-file", &self.tls.psk_file),
        ];
        for (key, value) in texts {
            pairs.extend(value.as_ref().map(|value| (key, encode(value, "/"))));
        }
        let verifies = self.tls.verifies_peer.map(u8::from);
        pairs.extend(verifies.map(|verifies| ("tls-verify-peer", verifies.to_string())));
        for (at, (key, value)) in pairs.iter().enumerate() {
            write!(f, "{}{key}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn tcp_uri(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri {
            address: Address::Tcp {
                host: host.into(),
                port,
            },
            export: export.into(),
            has_tls: false,
            tls: TlsOptions::default(),
        }
    }

    #[test]
    fn the_forms_of_the_reference_are_understood() {
        let cases = [
            ("nbd://host", tcp_uri("host", PORT, "")),
            ("nbd://host/", tcp_uri("host", PORT, "")),
            ("NBD://host:/vol0", tcp_uri("host", PORT, "vol0")),
            ("nbd://host:5//d", tcp_uri("host", 5, "/d")),
            ("nbd://[::1]:5/a%20b%23", tcp_uri("::1", 5, "a b#")),
            ("nbd://[fe80::1]/", tcp_uri("fe80::1", PORT, "")),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        let unix: NbdUri = "nbds+unix:///vol0?socket=/run/a%26b&tls-type=psk&tls-verify-peer=0"
            .parse()
            .unwrap();
        assert_eq!(unix.address, Address::Unix("/run/a&b".into()));
        assert_eq!((unix.export.as_str(), unix.has_tls), ("vol0", true));
        assert_eq!(unix.tls.kind.as_deref(), Some("psk"));
        assert_eq!(unix.tls.verifies_peer, Some(false));
        let user: NbdUri = "nbds://alice@host".parse().unwrap();
        assert_eq!(user.tls.user.as_deref(), Some("alice"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, part) in [
            ("http://localhost", "starts with"),
            ("nbd:unix:/path", "starts with"),
            ("nbd://", "host is missing"),
            ("nbd:///vol0", "host is missing"),
            ("nbd://host:x", "no number"),
            ("nbd://host:+5", "no number"),
            ("nbd://host:70000", "65535"),
            ("nbd://::1/", "no number"),
            ("nbd://[::1", "bracket"),
            ("nbd://[::1]5", "bracket"),
            ("nbd://host/%4", "percent"),
            ("nbd://host/%zz", "percent"),
            ("nbd://host/%ff", "percent"),
            ("nbd://host/%00", "percent"),
            ("nbd://host/#x", "fragment"),
            ("nbd://host/?socket=/x", "socket"),
            ("nbd://host/?x-other=1", "x-other"),
            ("nbd+unix:///vol0", "socket=PATH"),
            ("nbd+unix:///vol0?socket=", "wrong value"),
            ("nbd+unix:///vol0?socket=/a&socket=/b", "wrong value"),
            ("nbd+unix://host/vol0?socket=/a", "no host"),
            ("nbds://host?tls-type=best", "wrong value"),
            ("nbds://host?tls-verify-peer=yes", "wrong value"),
        ] {
            let error = text.parse::<NbdUri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn texts() -> impl Strategy<Value = Option<String>> {
        prop::option::of("[^\0]{1,9}")
    }

    proptest! {
        #[test]
        fn a_shown_uri_parses_to_the_same(
            export in "[^\0]{0,20}", path in "[^\0]{1,20}", host in "[a-z0-9.]{1,12}|[0-9a-f]{1,4}::[0-9]",
            port: u16, is_unix: bool, has_tls: bool, user in texts(), hostname in texts(),
            certificates in texts(), psk_file in texts(), verifies_peer: Option<bool>,
        ) {
            let address = if is_unix { Address::Unix(path) } else { Address::Tcp { host, port } };
            let kind = has_tls.then(|| "x509".to_owned());
            let tls = TlsOptions { user, kind, hostname, verifies_peer, certificates, psk_file };
            let uri = NbdUri { address, export, has_tls, tls };
            let shown = uri.to_string();
            prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic()), "{}", shown);
            prop_assert_eq!(shown.parse::<NbdUri>(), Ok(uri));
        }

        #[test]
        fn parsing_survives_any_text(text in ".{0,60}", rest in ".{0,60}") {
            let _ = text.parse::<NbdUri>();
            let _ = format!("nbd://{rest}").parse::<NbdUri>();
            let _ = format!("nbd+unix://{rest}").parse::<NbdUri>();
        }
    }
}
