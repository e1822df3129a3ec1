//! Channels of the kind `smtp`.

use std::ops::Range;

use toml::Spanned;

use super::{ConfigError, RawChannel, Source, Transport};
use crate::channel::smtp::{MailServer, MailTls};

/// The keys that such a channel has.
pub(super) const KEYS: [&str; 6] = ["url", "to", "from", "login-file", "ca-file", "tls"];

/// What is configured of one.
pub(super) fn transport(
    source: &Source<'_>,
    spot: &Range<usize>,
    raw: &RawChannel,
) -> Result<Transport, ConfigError> {
    let url = source.needed(spot, "url", "smtp", raw.url.as_ref())?;
    let to = source.needed(spot, "to", "smtp", raw.to.as_ref())?;
    let from = source.needed(spot, "from", "smtp", raw.from.as_ref())?;
    let tls = match &raw.tls {
        None => MailTls::Required,
        Some(word) => match word.get_ref().as_str() {
            "required" => MailTls::Required,
            "none" => MailTls::None,
            _ => return Err(source.error(word.span(), "tls", "it is \"required\" or \"none\"")),
        },
    };
    if let (MailTls::None, Some(file)) = (tls, &raw.login_file) {
        let reason = "a password is not sent without TLS: leave out tls = \"none\"";
        return Err(source.error(file.span(), "login-file", reason));
    }
    let text = |value: &Option<Spanned<String>>| value.as_ref().map(|one| one.get_ref().clone());
    let addresses = to.get_ref().split(',').map(str::trim);
    let server = MailServer {
        url: address_of(source, url)?,
        to: addresses.map(str::to_owned).collect(),
        from: from.get_ref().trim().to_owned(),
        login_file: text(&raw.login_file),
        ca_file: text(&raw.ca_file),
        tls,
    };
    for (key, place, list) in [
        ("to", to, server.to.as_slice()),
        ("from", from, std::slice::from_ref(&server.from)),
    ] {
        if !list.iter().all(|address| is_bare(address)) {
            let reason = "a bare address is needed, such as \"ute@example.com\"";
            return Err(source.error(place.span(), key, reason));
        }
    }
    Ok(Transport::Smtp(server))
}

/// `NAME@HOST`, without anything that has a meaning of its own in a command or a header.
fn is_bare(address: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>()[],;:\\\"".contains(c);
    let parts = address.split_once('@');
    !address.starts_with('-')
        && address.chars().all(is_plain)
        && parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
}

fn address_of(source: &Source<'_>, raw: &Spanned<String>) -> Result<String, ConfigError> {
    let url = raw.get_ref().trim_end_matches('/');
    let rest = url
        .strip_prefix("smtp://")
        .or_else(|| url.strip_prefix("smtps://"));
    let is_fine = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && rest.chars().all(is_fine) => Ok(url.to_owned()),
        _ => {
            let reason =
                "an address is needed such as smtp://mail.example.com or smtps://HOST:PORT";
            Err(source.error(raw.span(), "url", reason))
        }
    }
}
