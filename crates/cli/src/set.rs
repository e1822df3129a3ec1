//! `plexum set`: settings of a running volume.

use std::collections::BTreeMap;

use plexum_daemon::control::Action;
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::args::{Common, Set};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Runs the command.
///
/// # Errors
/// `Usage` for a word that is no `NAME=VALUE`; of the server for a name or value it does not know.
pub fn run(args: &Set, common: &Common, screen: &Screen) -> Outcome {
    let (volume, settings) = split(&args.words)?;
    let client = Client::find(volume.as_deref())?;
    if common.dry_run {
        client.rehearse(&Action::Set {
            settings: settings.clone(),
        })?;
        screen.line(format!(
            "would change {}: {}",
            client.volume,
            words(&settings)
        ));
        screen.object(&object(
            "plan",
            Some(&client.volume),
            json!({"command": "set", "settings": settings}),
        ));
        return Ok(0);
    }
    let action = Action::Set {
        settings: settings.clone(),
    };
    let answer = client.act_because(&action, common.why.as_deref())?;
    screen.done(format!("{}: {}", client.volume, words(&settings)));
    screen.object(&object(
        "set",
        Some(&client.volume),
        json!({"settings": settings, "answer": answer}),
    ));
    Ok(0)
}

fn words(settings: &BTreeMap<String, String>) -> String {
    let words: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.join(" ")
}

/// The volume (a first word without `=`) and the settings.
fn split(words: &[String]) -> Result<(Option<String>, BTreeMap<String, String>), Problem> {
    let (volume, rest) = match words.split_first() {
        Some((first, rest)) if !first.contains('=') => (Some(first.clone()), rest),
        _ => (None, words),
    };
    let mut settings = BTreeMap::new();
    for word in rest {
        let Some((name, value)) = word.split_once('=') else {
            return Err(
                Problem::new(Code::Usage, format!("{word} is no NAME=VALUE"))
                    .hint("for example:   plexum set nas balance=load rebuild-max=100M"),
            );
        };
        if settings.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Problem::new(Code::Usage, format!("{name} is set twice")));
        }
    }
    if settings.is_empty() {
        return Err(Problem::new(Code::Usage, "nothing to set")
            .hint("for example:   plexum set nas balance=load rebuild-max=100M"));
    }
    Ok((volume, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_volume_may_be_left_out() {
        let (volume, settings) = split(&words("nas balance=load")).unwrap();
        assert_eq!(volume.as_deref(), Some("nas"));
        assert_eq!(settings["balance"], "load");
        assert_eq!(split(&words("balance=load a=b=c")).unwrap().1["a"], "b=c");
    }

    #[test]
    fn words_that_set_nothing_are_refused() {
        for text in ["nas", "nas balance", "a=1 a=2", "a=1 nas"] {
            assert_eq!(split(&words(text)).unwrap_err().code, Code::Usage);
        }
    }
}
