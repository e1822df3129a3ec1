//! The tables `[roles]` and `[page]`: who may do what, and where the page is.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigProblem, Source};
use crate::control::access::{Access, Role, Token, group_number};
use crate::control::network::{Encryption, check_address};
use crate::control::tls::TlsFiles;

/// Where the numbers of groups are.
const GROUP_FILE: &str = "/etc/group";
/// Largest file of a token that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;

/// What is configured of roles and of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageConfig {
    /// The address at which the page is served; none: nowhere.
    pub listen: Option<SocketAddr>,
    /// What it shows there; none: it is served in the clear, to this machine alone.
    pub tls: Option<TlsFiles>,
    /// Who has which role.
    pub access: Access,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRoles {
    view: Option<Spanned<Vec<String>>>,
    operate: Option<Spanned<Vec<String>>>,
    administer: Option<Spanned<Vec<String>>>,
    others: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPage {
    listen: Option<Spanned<String>>,
    without_token: Option<Spanned<String>>,
    tls_cert: Option<Spanned<PathBuf>>,
    tls_key: Option<Spanned<PathBuf>>,
    #[serde(default)]
    token: Vec<RawToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawToken {
    name: Spanned<String>,
    role: Spanned<String>,
    file: Spanned<PathBuf>,
}

/// What the files have said so far; what they say together is looked at when all were read.
#[derive(Default)]
pub(super) struct PagePart {
    access: Access,
    listen: Option<(SocketAddr, ConfigProblem)>,
    chain: Option<(PathBuf, ConfigProblem)>,
    key: Option<(PathBuf, ConfigProblem)>,
}

impl PagePart {
    /// Adds what a later file says of roles: a role that it names anew has those groups alone.
    pub(super) fn add_roles(
        &mut self,
        raw: &RawRoles,
        source: &Source<'_>,
    ) -> Result<(), ConfigProblem> {
        let mut access = self.access.clone();
        for (key, role, groups) in [
            ("view", Role::View, &raw.view),
            ("operate", Role::Operate, &raw.operate),
            ("administer", Role::Administer, &raw.administer),
        ] {
            let Some(groups) = groups else {
                continue;
            };
            access.groups.retain(|(_, given)| *given != role);
            for name in groups.get_ref() {
                let number = group_number(name, Path::new(GROUP_FILE)).ok_or_else(|| {
                    source.problem(key, groups, &format!("there is no group {name:?}"))
                })?;
                access.groups.push((number, role));
            }
        }
        if let Some(word) = &raw.others {
            access.others = view_or_nothing(word, "others", source)?;
        }
        self.access = access;
        Ok(())
    }

    /// Adds what a later file says of the page.
    pub(super) fn add_page(
        &mut self,
        raw: &RawPage,
        source: &Source<'_>,
    ) -> Result<(), ConfigProblem> {
        if let Some(text) = &raw.listen {
            let address: SocketAddr = text.get_ref().parse().map_err(|_| {
                let reason = "an address with a port is needed, such as \"127.0.0.1:9838\"";
                source.problem("listen", text, reason)
            })?;
            self.listen = Some((address, source.problem("listen", text, "")));
        }
        let placed =
            |key, file: &Spanned<PathBuf>| (file.get_ref().clone(), source.problem(key, file, ""));
        if let Some(file) = &raw.tls_cert {
            self.chain = Some(placed("tls-cert", file));
        }
        if let Some(file) = &raw.tls_key {
            self.key = Some(placed("tls-key", file));
        }
        if let Some(word) = &raw.without_token {
            self.access.without_token = view_or_nothing(word, "without-token", source)?;
        }
        for raw in &raw.token {
            let token = raw.token(source)?;
            self.access.tokens.retain(|known| known.name != token.name);
            self.access.tokens.push(token);
        }
        Ok(())
    }

    /// What counts. Where TLS is wanted and cannot be, or lacks where it is needed, the page is nowhere: what was meant
    /// to be hidden is never told in the clear.
    pub(super) fn config(self) -> (PageConfig, Option<ConfigProblem>) {
        let mut config = PageConfig {
            access: self.access,
            ..PageConfig::default()
        };
        config.tls = match tls_of(self.chain, self.key) {
            Ok(tls) => tls,
            Err(problem) => return (config, Some(problem)),
        };
        let Some((address, place)) = self.listen else {
            return (config, None);
        };
        let encryption = match config.tls {
            Some(_) => Encryption::Tls,
            None => Encryption::None,
        };
        match check_address(address, encryption, &config.access) {
            Ok(()) => config.listen = Some(address),
            Err(problem) => return (config, Some(place.with(&problem.message))),
        }
        (config, None)
    }
}

/// Where certificate and key are, when they can be used.
fn tls_of(
    chain: Option<(PathBuf, ConfigProblem)>,
    key: Option<(PathBuf, ConfigProblem)>,
) -> Result<Option<TlsFiles>, ConfigProblem> {
    let ((chain, place), key) = match (chain, key) {
        (None, None) => return Ok(None),
        (Some(chain), Some((key, _))) => (chain, key),
        (Some((_, place)), None) => return Err(place.with("without tls-key there is no TLS")),
        (None, Some((_, place))) => return Err(place.with("without tls-cert there is no TLS")),
    };
    let files = TlsFiles { chain, key };
    match files.load() {
        Ok(_) => Ok(Some(files)),
        Err(error) => Err(place.with(&error.to_string())),
    }
}

fn view_or_nothing(
    word: &Spanned<String>,
    key: &str,
    source: &Source<'_>,
) -> Result<Option<Role>, ConfigProblem> {
    match word.get_ref().as_str() {
        "view" => Ok(Some(Role::View)),
        "nothing" => Ok(None),
        _ => Err(source.problem(key, word, "it is \"view\" or \"nothing\"")),
    }
}

impl RawToken {
    fn token(&self, source: &Source<'_>) -> Result<Token, ConfigProblem> {
        let role = Role::of_word(self.role.get_ref()).ok_or_else(|| {
            source.problem("role", &self.role, "it is view, operate or administer")
        })?;
        let secret = secret(self.file.get_ref())
            .map_err(|reason| source.problem("file", &self.file, &reason))?;
        Token::new(self.name.get_ref(), role, &secret)
            .map_err(|reason| source.problem("file", &self.file, &reason))
    }
}

/// What is in the file of a token.
fn secret(file: &Path) -> Result<String, String> {
    let shown = file.display();
    let tell = |error: std::io::Error| format!("{shown}: {}", crate::problem::words_of(&error));
    let meta = std::fs::metadata(file).map_err(tell)?;
    if !meta.is_file() || meta.len() > TOKEN_BYTES_MAX {
        return Err(format!("{shown} is no file with one word in it"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!("others may read {shown}: chmod 600 {shown}"));
    }
    std::fs::read_to_string(file).map_err(tell)
}
