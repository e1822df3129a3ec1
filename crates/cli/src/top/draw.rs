//! Draws a model: text alone says everything, letters are only made bold. Pure.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, Wrap};

use super::ask::Question;
use super::model::{MemberRow, Model, VolumeRow};

/// The line of keys.
const KEYS: &str = "[j/k] volume  [s] scrub or stop it  [a] acknowledge  [?] help  [q] quit";

/// What `?` says.
const HELP: &[&str] = &[
    "j, down     next volume",
    "k, up       volume before",
    "s           check every byte of it, or stop that: shows the plan first",
    "a           acknowledge the first incident that nobody knows of: asks why",
    "enter       does what a plan says; escape leaves it",
    "?           this",
    "q           quit",
    "",
    "SURVIVES    losses that are survived now, of those by design",
    "r/s w/s     requests in a second; r ms, w ms: how long one took",
    "PEERS       how long it takes beside its peers; ! is slow",
    "Q           requests under way; ERR: reads, writes, mended",
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, model: &Model, question: Option<&Question>) {
    let area = frame.area();
    let rows = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let jobs = rows(model.jobs.len());
    let volumes = rows(model.volumes.len().clamp(1, 8)) + 1;
    let incidents = rows(model.incidents.len().clamp(1, 6)) + 1;
    let parts = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(volumes),
        Constraint::Length(jobs),
        Constraint::Min(3),
        Constraint::Length(incidents),
        Constraint::Length(1),
    ])
    .split(area);
    head(frame, parts[0], model);
    draw_volumes(frame, parts[1], model);
    let lines = model.jobs.iter().map(|job| {
        let filled = usize::from(job.percent / 5).min(20);
        let bar = format!("[{}{}]", "#".repeat(filled), "-".repeat(20 - filled));
        Line::from(format!(" {bar} {}", job.text))
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), parts[2]);
    draw_members(frame, parts[3], model);
    draw_incidents(frame, parts[4], model);
    frame.render_widget(Paragraph::new(KEYS), parts[5]);
    if let Some(question) = question {
        ask(frame, area, question);
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn head(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let line = &model.headline;
    let first = Line::from(vec![
        Span::raw(format!("{}  ", model.machine)),
        Span::styled(
            format!("{} {}", line.badness.word().to_uppercase(), line.text),
            bold(),
        ),
    ]);
    let mut second = format!("{} open, {}, {}", model.open, model.judged, model.span);
    if !line.more.is_empty() {
        second = format!("{}; {second}", line.more.join("; "));
    }
    frame.render_widget(Paragraph::new(vec![first, Line::from(second)]), area);
}

fn draw_volumes(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let head = [
        " VOLUME", "VERDICT", "SURVIVES", "r/s", "w/s", "rB/s", "wB/s", "r ms", "w ms", "JOB",
    ];
    let widths = [
        Constraint::Min(10),
        Constraint::Length(10),
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Percentage(25),
    ];
    let rows = model.volumes.iter().enumerate().map(|(at, volume)| {
        let VolumeRow {
            name,
            verdict,
            is_ill,
            survives,
            rates,
            job,
        } = volume;
        let mark = if at == model.selected { '>' } else { ' ' };
        let first = [format!("{mark}{name}"), verdict.clone(), survives.clone()];
        let cells = first.into_iter().chain(rates.iter().cloned());
        let cells = cells.chain([job.clone()]).map(Cell::from);
        let style = if *is_ill { bold() } else { Style::new() };
        Row::new(cells).style(style)
    });
    let mut rows: Vec<Row<'_>> = rows.collect();
    if rows.is_empty() {
        rows.push(Row::new(["no volume is served"]));
    }
    // The one that is looked at stays in sight.
    let shown = usize::from(area.height.saturating_sub(1)).max(1);
    let skipped = (model.selected + 1).saturating_sub(shown);
    let rows = rows.into_iter().skip(skipped);
    let table = Table::new(rows, widths).header(Row::new(head));
    frame.render_widget(table, area);
}

fn draw_members(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let name = model.volumes.get(model.selected);
    let title = name.map_or(String::new(), |volume| {
        format!("- {}, members -", volume.name)
    });
    let head = [
        " SLOT", "BAY", "DISK", "STATE", "r/s", "w/s", "p50", "p99", "PEERS", "Q", "ERR",
    ];
    let widths = [
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Min(12),
        Constraint::Length(10),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(4),
        Constraint::Length(9),
    ];
    let rows = model.members.iter().map(|member| {
        let MemberRow { who, is_ill, rates } = member;
        let mut cells: Vec<String> = who.iter().chain(rates).cloned().collect();
        cells[0] = format!(" {}", cells[0]);
        let style = if *is_ill { bold() } else { Style::new() };
        Row::new(cells.into_iter().map(Cell::from)).style(style)
    });
    let table = Table::new(rows, widths)
        .header(Row::new(head))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(table, area);
}

fn draw_incidents(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let mut lines: Vec<Line<'_>> = model
        .incidents
        .iter()
        .map(|one| Line::from(format!(" {} {}", one.id, one.text)))
        .collect();
    if lines.is_empty() {
        lines.push(Line::from(" no incident is open"));
    }
    let block = Block::new().borders(Borders::TOP).title("- incidents -");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn ask(frame: &mut Frame<'_>, area: Rect, question: &Question) {
    let (title, lines) = match question {
        Question::Help => ("keys", HELP.iter().map(|line| (*line).to_owned()).collect()),
        Question::Plan {
            title,
            lines,
            typed,
            what,
            ..
        } => {
            let mut lines = lines.clone();
            if let Some(what) = what {
                lines.push(format!("{what}: {typed}_"));
            }
            lines.push("[enter] do it   [esc] leave it".to_owned());
            (title.as_str(), lines)
        }
        Question::Told(lines) => {
            let mut lines = lines.clone();
            lines.push("[enter] go on".to_owned());
            ("plexum", lines)
        }
    };
    let lines: Vec<String> = lines;
    let height = u16::try_from(lines.len() + 4)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let width = area.width.saturating_sub(4).min(90);
    let window = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, window);
    let text: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    let block = Block::bordered().title(title.to_owned());
    let window_text = Paragraph::new(text).wrap(Wrap { trim: false }).block(block);
    frame.render_widget(window_text, window);
}
