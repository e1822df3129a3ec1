//! `plexum top`: volumes, members, jobs and incidents on a terminal, again each second.

mod ask;
mod draw;
mod model;

use std::time::{Duration, Instant};

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::VolumeStatus;
use plexum_daemon::web::state::State;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::{Value, json};

use crate::args::Top;
use crate::client::{Client, running_volumes};
use crate::daemon_client::Daemon;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use ask::{Command, Question, command};
use draw::draw;
use model::{Look, Model};

/// Columns and lines of a frame that is printed.
const ONCE: (u16, u16) = (110, 40);

/// Runs `plexum top`.
///
/// # Errors
/// `Usage` without a terminal; what the terminal says.
pub fn run(args: &Top, screen: &Screen) -> Outcome {
    if args.once {
        once(screen);
        return Ok(0);
    }
    if !screen.is_terminal || screen.is_json {
        let problem = Problem::new(Code::Usage, "top draws on a terminal, and this is none");
        return Err(problem
            .hint("one frame as text:   plexum top --once")
            .hint("for programs:   plexum status --json"));
    }
    let mut terminal = ratatui::try_init().map_err(|error| of_terminal(&error))?;
    let result = watch(&mut terminal, Duration::from_secs(args.interval_s));
    ratatui::restore();
    result.map(|()| 0).map_err(|error| of_terminal(&error))
}

fn of_terminal(error: &std::io::Error) -> Problem {
    Problem::from_io(error, "drawing on", "the terminal")
}

/// One look at all servers of this user, or of the machine's daemon.
fn look() -> (Look, Vec<Client>) {
    let mut state = State::now();
    let running = running_volumes();
    if let Some(daemon) = Daemon::find_or_machines() {
        state.waiting = daemon
            .volumes()
            .map(|(_, waiting)| waiting)
            .unwrap_or_default();
        state.alarms = daemon.incidents().ok().and_then(State::alarms_of);
    }
    let mut look = Look::default();
    let mut clients = Vec::new();
    for (client, status) in running {
        if let Ok(stats) = client.stats() {
            look.stats.insert(status.volume.clone(), stats);
        }
        state.volumes.push(status);
        clients.push(client);
    }
    look.state = state;
    (look, clients)
}

fn once(screen: &Screen) {
    let (look, _) = look();
    let names = look
        .state
        .volumes
        .iter()
        .map(|status: &VolumeStatus| &status.volume);
    screen.object(&object(
        "top",
        None,
        json!({"volumes": names.collect::<Vec<_>>(), "statuses": look.state.volumes}),
    ));
    let model = Model::of(&look, None, 0);
    for line in frame_of(&model, None, ONCE) {
        screen.line(line);
    }
}

/// A frame as text, without what is empty at the ends.
fn frame_of(model: &Model, question: Option<&Question>, size: (u16, u16)) -> Vec<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(size.0, size.1));
    let Ok(_) = terminal.draw(|frame| draw(frame, model, question));
    let buffer = terminal.backend().buffer();
    let width = usize::from(size.0);
    let mut lines: Vec<String> = buffer
        .content()
        .chunks(width)
        .map(|cells| {
            let line: String = cells.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect();
    lines.dedup_by(|one, before| one.is_empty() && before.is_empty());
    lines
}

fn watch(terminal: &mut ratatui::DefaultTerminal, every: Duration) -> std::io::Result<()> {
    let (mut now, mut clients) = look();
    let mut before = None;
    let mut selected = 0;
    let mut question: Option<Question> = None;
    let mut next = Instant::now() + every;
    loop {
        let model = Model::of(&now, before.as_ref(), selected);
        selected = model.selected;
        terminal.draw(|frame| draw(frame, &model, question.as_ref()))?;
        if !event::poll(next.saturating_duration_since(Instant::now()))? {
            next = Instant::now() + every;
            let (seen, reached) = look();
            before = Some(std::mem::replace(&mut now, seen));
            clients = reached;
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue; // drawn anew, in its new size
        };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match command(key, &model, question.as_ref()) {
            Command::None => {}
            Command::Quit => return Ok(()),
            Command::Select(at) => selected = at,
            Command::Show(shown) => question = shown,
            Command::Plan { volume, wish } => {
                let plan = page(&clients, &volume, "plan", &wish);
                question = Some(match plan {
                    Ok(plan) => Question::of_plan(&wish, &plan),
                    Err(problem) => told(&problem),
                });
            }
            Command::Do { wish } => {
                let volume = wish["volume"].as_str().unwrap_or_default().to_owned();
                let done = page(&clients, &volume, "do", &wish);
                question = Some(match done {
                    Ok(done) => {
                        let message = done["message"].as_str().unwrap_or("it is done");
                        Question::Told(vec![message.to_owned()])
                    }
                    Err(problem) => told(&problem),
                });
            }
        }
    }
}

/// A plan, or its carrying out, by the server of a volume, or by the daemon where none is meant.
fn page(clients: &[Client], volume: &str, route: &str, wish: &Value) -> Result<Value, Problem> {
    let route = format!("/page/{route}");
    match clients.iter().find(|client| client.volume == volume) {
        Some(client) => client.post(&route, wish),
        None => {
            let daemon = Daemon::find_or_machines()
                .ok_or_else(|| Problem::new(Code::NoServer, "no daemon runs"))?;
            Client::at(daemon.socket(), "").post(&route, wish)
        }
    }
}

fn told(problem: &Problem) -> Question {
    let mut lines = vec![problem.message.clone()];
    lines.extend(problem.hints.iter().cloned());
    Question::Told(lines)
}

#[cfg(test)]
mod tests;
