//! What stands in a window over `plexum top`, and what a key does. Pure.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::model::Model;

/// What is asked or told in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Which keys there are.
    Help,
    /// A plan, to be done or left.
    Plan {
        /// The wish, as the daemon takes it.
        wish: String,
        /// What it is.
        title: String,
        /// What it does.
        lines: Vec<String>,
        /// The field of the wish that is typed, with what is said before it; none where nothing is.
        field: Option<String>,
        /// What is said before it.
        what: Option<String>,
        /// What was typed so far.
        typed: String,
    },
    /// What became of it.
    Told(Vec<String>),
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing.
    None,
    /// End.
    Quit,
    /// Look at another volume.
    Select(usize),
    /// Show this, or nothing.
    Show(Option<Question>),
    /// Have a plan made of a wish of this volume.
    Plan {
        /// Name of the volume.
        volume: String,
        /// The wish.
        wish: Value,
    },
    /// Do what was planned.
    Do {
        /// The wish, with what was typed.
        wish: Value,
    },
}

impl Question {
    /// The question of a plan, as the daemon tells it.
    #[must_use]
    pub fn of_plan(wish: &Value, plan: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let lines = plan["lines"].as_array().into_iter().flatten();
        let mut lines: Vec<String> = lines.map(text).collect();
        lines.push(format!("as a command: {}", text(&plan["command"])));
        let confirm = &plan["confirm"];
        let (field, what) = match (confirm.is_object(), wish["action"].as_str()) {
            (true, _) => {
                let (what, word) = (text(&confirm["what"]), text(&confirm["word"]));
                ("typed", format!("to make sure, type {what} ({word})"))
            }
            (false, Some("acknowledge")) => ("why", "why that is enough".to_owned()),
            (false, _) => ("", String::new()),
        };
        let is_typed = !field.is_empty();
        Question::Plan {
            wish: wish.to_string(),
            title: text(&plan["title"]),
            lines,
            field: is_typed.then(|| field.to_owned()),
            what: is_typed.then_some(what),
            typed: String::new(),
        }
    }
}

/// What a key asks for.
#[must_use]
pub fn command(key: KeyEvent, model: &Model, question: Option<&Question>) -> Command {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return Command::Quit;
    }
    // A terminal sends Escape and Alt as the same byte: Escape and a quick key after it arrive as that key with Alt.
    // Escape is what was meant where a window is open: nothing is typed or done by the key behind it.
    let code = match key.modifiers.contains(KeyModifiers::ALT) {
        true => KeyCode::Esc,
        false => key.code,
    };
    if let Some(question) = question {
        return in_window(code, question);
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Command::Quit,
        KeyCode::Char('j') | KeyCode::Down => Command::Select(model.selected + 1),
        KeyCode::Char('k') | KeyCode::Up => Command::Select(model.selected.saturating_sub(1)),
        KeyCode::Char('?') => Command::Show(Some(Question::Help)),
        KeyCode::Char('s') => scrub(model),
        KeyCode::Char('a') => acknowledge(model),
        _ => Command::None,
    }
}

fn scrub(model: &Model) -> Command {
    let Some(volume) = model.volumes.get(model.selected) else {
        return Command::None;
    };
    let is_checked =
        |job: &super::model::Job| job.text.starts_with("scrub ") || job.text.starts_with("repair ");
    let stop = model.jobs.iter().any(is_checked);
    Command::Plan {
        volume: volume.name.clone(),
        wish: json!({"action": "scrub", "volume": volume.name, "stop": stop}),
    }
}

fn acknowledge(model: &Model) -> Command {
    let unknown = model.incidents.iter().find(|one| !one.is_known);
    match unknown {
        Some(one) => Command::Plan {
            volume: String::new(),
            wish: json!({"action": "acknowledge", "id": one.id}),
        },
        None => {
            let line = "there is no incident that nobody knows of".to_owned();
            Command::Show(Some(Question::Told(vec![line])))
        }
    }
}

fn in_window(key: KeyCode, question: &Question) -> Command {
    let Question::Plan {
        wish, field, typed, ..
    } = question
    else {
        return match key {
            KeyCode::Enter | KeyCode::Esc | KeyCode::Char('q' | '?') => Command::Show(None),
            _ => Command::None,
        };
    };
    let with = |typed: String| {
        let mut changed = question.clone();
        if let Question::Plan { typed: text, .. } = &mut changed {
            *text = typed;
        }
        Command::Show(Some(changed))
    };
    match key {
        KeyCode::Esc => Command::Show(None),
        KeyCode::Enter => {
            let mut wish: Value = serde_json::from_str(wish).unwrap_or_default();
            if let Some(field) = field {
                wish[field.as_str()] = typed.clone().into();
            }
            Command::Do { wish }
        }
        KeyCode::Backspace if field.is_some() => {
            let mut typed = typed.clone();
            typed.pop();
            with(typed)
        }
        KeyCode::Char(letter) if field.is_some() => with(format!("{typed}{letter}")),
        _ => Command::None,
    }
}
