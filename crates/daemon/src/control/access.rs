//! Who may do what: roles, and who has which.
//!
//! Invariants:
//! - root and the daemon's own user administer; everybody else has what is configured, and nothing without that;
//! - over a network nobody has more than looking without a token, and no token is ever told to anybody;
//! - a refusal says which role is missing, and how it is had.

use std::path::Path;

use plexum_runtime::socket::Peer;
use serde::{Deserialize, Serialize};

use crate::problem::{Code, Problem};

/// What somebody may do. Each may do what the one before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look.
    View,
    /// Do what loses nothing: scrub, take back a member, acknowledge.
    Operate,
    /// Everything.
    Administer,
}

impl Role {
    /// All, the least first.
    pub const ALL: [Role; 3] = [Role::View, Role::Operate, Role::Administer];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::View => "view",
            Role::Operate => "operate",
            Role::Administer => "administer",
        }
    }

    /// The role that a word means.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// The way somebody came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A Unix socket: the kernel says who it is.
    Socket,
    /// A network, in the clear: who it is says a token.
    Network,
    /// A network, by TLS: who it is says a token.
    Tls,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// In words: `user 1000`, `token ute`.
    pub who: String,
    /// What he may do; none: nothing at all.
    pub role: Option<Role>,
    /// How he came in.
    pub way: Way,
}

impl Caller {
    /// Whether he may.
    ///
    /// # Errors
    /// `RoleMissing`: which role, and how it is had.
    pub fn check(&self, needed: Role) -> Result<(), Problem> {
        if self.role.is_some_and(|role| role >= needed) {
            return Ok(());
        }
        let (who, word) = (&self.who, needed.word());
        let has = match self.role {
            Some(role) => format!("{who} may only {}", role.word()),
            None => format!("{who} has no role"),
        };
        let problem = Problem::new(
            Code::RoleMissing,
            format!("that needs the role {word}, and {has}"),
        );
        Err(problem.hint(match self.way {
            Way::Socket => format!(
                "to have it: be root or the daemon's user, or in a group that plexum.toml names:   [roles] {word} = [\"GROUP\"]"
            ),
            Way::Network | Way::Tls => format!(
                "to have it: show a token that plexum.toml gives that role:   [[page.token]] role = \"{word}\""
            ),
        }))
    }
}

/// A token, and what whoever shows it may do.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub name: String,
    /// What he may do.
    pub role: Role,
    secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token({}, {})", self.name, self.role.word())
    }
}

/// Shortest secret that is taken, in bytes: shorter ones can be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

impl Token {
    /// A token.
    ///
    /// # Errors
    /// Why the secret is none, in words.
    pub fn new(name: &str, role: Role, secret: &str) -> Result<Self, String> {
        let secret = secret.trim();
        let is_plain = secret.bytes().all(|byte| byte.is_ascii_graphic());
        if secret.len() < SECRET_BYTES_MIN || !is_plain {
            return Err(format!(
                "a token is one word of at least {SECRET_BYTES_MIN} letters and digits"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            role,
            secret: secret.to_owned(),
        })
    }

    /// Whether it is the one. Takes as long for a wrong one as for the right one.
    fn is(&self, shown: &str) -> bool {
        let (own, shown) = (self.secret.as_bytes(), shown.as_bytes());
        let differ = own.iter().enumerate().fold(0, |differ, (at, byte)| {
            differ | (byte ^ shown.get(at).copied().unwrap_or(0))
        });
        differ == 0 && own.len() == shown.len()
    }
}

/// Who has which role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Groups by their number, and what their members may do.
    pub groups: Vec<(u32, Role)>,
    /// What every other user of this machine may do.
    pub others: Option<Role>,
    /// What whoever comes over the network may do without a token; never more than look.
    pub without_token: Option<Role>,
    /// Tokens.
    pub tokens: Vec<Token>,
}

impl Access {
    /// Whether anybody but root and the daemon's user may come to the socket.
    #[must_use]
    pub fn admits_others(&self) -> bool {
        !self.groups.is_empty() || self.others.is_some()
    }

    /// Who comes by a Unix socket: the peer and his groups as the kernel tells them, `own` is the daemon's user.
    #[must_use]
    pub fn of_peer(&self, peer: &Peer, groups: &[u32], own: u32) -> Caller {
        let user = peer.uid;
        let role = match user == own || user == 0 {
            true => Some(Role::Administer),
            false => {
                let given = self.groups.iter().filter(|(gid, _)| groups.contains(gid));
                given.map(|(_, role)| *role).max().max(self.others)
            }
        };
        Caller {
            who: format!("user {user}"),
            role,
            way: Way::Socket,
        }
    }

    /// Who comes over a network without a token.
    #[must_use]
    pub fn without_token(&self, way: Way) -> Caller {
        Caller {
            who: "whoever shows no token".to_owned(),
            role: self.without_token.min(Some(Role::View)),
            way,
        }
    }

    /// Who comes over a network with a token.
    ///
    /// # Errors
    /// `UnknownToken` for one that nobody knows: it is told, instead of letting him look only.
    pub fn of_token(&self, shown: &str, way: Way) -> Result<Caller, Problem> {
        let shown = shown.trim();
        // All are compared, so that it takes as long for the first as for the last.
        let mut tokens = self.tokens.iter();
        let known = tokens
            .by_ref()
            .fold(None, |known, token| match token.is(shown) {
                true => Some(token),
                false => known,
            });
        let Some(token) = known else {
            let problem = Problem::new(Code::UnknownToken, "nobody knows this token");
            return Err(problem.hint(
                "tokens are in the files that plexum.toml names:   [[page.token]] file = \"...\"",
            ));
        };
        Ok(Caller {
            who: format!("token {}", token.name),
            role: Some(token.role),
            way,
        })
    }
}

/// The number of a group: of one that is given by number, or as `/etc/group` has it.
#[must_use]
pub fn group_number(name: &str, file: &Path) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        fields.nth(1)?.parse().ok().filter(|_| is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer {
            pid: 1,
            uid,
            gid: 0,
        }
    }

    fn token(role: Role) -> Token {
        Token::new("ute", role, "0123456789abcdef\n").unwrap()
    }

    #[test]
    fn root_and_the_own_user_administer_and_others_have_what_their_groups_give() {
        let access = Access {
            groups: vec![(50, Role::View), (60, Role::Operate)],
            ..Access::default()
        };
        let role = |user, groups: &[u32]| access.of_peer(&peer(user), groups, 1000).role;
        assert_eq!(role(0, &[]), Some(Role::Administer));
        assert_eq!(role(1000, &[]), Some(Role::Administer));
        assert_eq!(role(1001, &[50, 60, 7]), Some(Role::Operate));
        assert_eq!(role(1001, &[50]), Some(Role::View));
        assert_eq!(role(1001, &[7]), None);
        let open = Access {
            others: Some(Role::View),
            ..access
        };
        assert_eq!(open.of_peer(&peer(1001), &[7], 1000).role, Some(Role::View));
        assert_eq!(
            open.of_peer(&peer(1001), &[60], 1000).role,
            Some(Role::Operate)
        );
    }

    #[test]
    fn a_refusal_says_which_role_is_missing_and_how_it_is_had() {
        let access = Access::default();
        let problem = access
            .of_peer(&peer(7), &[], 0)
            .check(Role::View)
            .unwrap_err();
        assert_eq!(
            problem.message,
            "that needs the role view, and user 7 has no role"
        );
        assert!(problem.hints[0].contains("[roles] view = [\"GROUP\"]"));
        let access = Access {
            without_token: Some(Role::View),
            ..access
        };
        let caller = access.without_token(Way::Network);
        let problem = caller.check(Role::Administer).unwrap_err();
        assert!(problem.hints[0].contains("role = \"administer\""));
        assert!(caller.check(Role::View).is_ok());
    }

    #[test]
    fn a_token_gives_its_role_and_a_wrong_one_gives_nothing() {
        let access = Access {
            without_token: Some(Role::View),
            tokens: vec![token(Role::Operate)],
            ..Access::default()
        };
        let caller = access.of_token("0123456789abcdef", Way::Tls).unwrap();
        assert_eq!(
            (caller.who.as_str(), caller.role),
            ("token ute", Some(Role::Operate))
        );
        for wrong in [
            "0123456789abcdeg",
            "0123456789abcde",
            "0123456789abcdef0",
            "Bearer 0123456789abcdef",
            "",
        ] {
            let problem = access.of_token(wrong, Way::Network).unwrap_err();
            assert_eq!(problem.code, Code::UnknownToken, "{wrong}");
        }
        assert!(!format!("{access:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn without_a_token_nobody_does_more_than_look_whatever_is_configured() {
        let access = Access {
            without_token: Some(Role::Administer),
            ..Access::default()
        };
        assert_eq!(access.without_token(Way::Network).role, Some(Role::View));
    }

    #[test]
    fn short_tokens_and_such_with_blanks_are_refused() {
        for secret in ["", "0123456789abcde", "0123456789 abcdef"] {
            assert!(Token::new("ute", Role::View, secret).is_err(), "{secret}");
        }
    }

    #[test]
    fn a_group_is_found_by_name_and_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("group");
        std::fs::write(&file, "root:x:0:\nplexum:x:412:ute,max\nbad\n").unwrap();
        assert_eq!(group_number("plexum", &file), Some(412));
        assert_eq!(group_number("77", &file), Some(77));
        assert_eq!(group_number("nobody", &file), None);
        assert_eq!(group_number("bad", &file), None);
    }
}
