//! Members of md that were named together: how they fit, and what they need to start.

use plexum_daemon::advice::shell_word;
use plexum_daemon::examine::{Examination, judge};
use plexum_daemon::problem::{Code, Problem};
use plexum_md::assemble::{AssembledStanding, Assembly, Doubt, Options};
use serde_json::{Value, json};

use crate::disputed::format_option;
use crate::output::{Screen, object, table};
use crate::units::show_bytes;
use crate::verdict::{SetVerdict, show_start};

/// Members of md, judged.
pub struct Together<'a> {
    examinations: &'a [Examination],
    name: String,
    judged: Result<Assembly, Problem>,
    /// What the members would be if one insisted.
    described: Option<Assembly>,
}

impl<'a> Together<'a> {
    /// Judges them; `None` when none of them has a superblock.
    pub fn of(examinations: &'a [Examination]) -> Option<Self> {
        let first = examinations.iter().find(|one| one.superblock.is_some())?;
        // A reshape that is under way goes on when it is served.
        let plain = Options {
            goes_on_reshaping: true,
            ..Options::default()
        };
        let judged = judge(examinations, &plain);
        // Refusals that an option overrides still have a judgement for each member.
        let insisted = Options {
            force: true,
            run_degraded: true,
            read_only: true,
            force_data: false,
            ..Options::default()
        };
        let described = match &judged {
            Ok(assembly) => Some(assembly.clone()),
            Err(_) => judge(examinations, &insisted).ok(),
        };
        Some(Self {
            name: first.volume_name(),
            examinations,
            judged,
            described,
        })
    }

    /// The set in one line.
    pub fn verdict(&self) -> SetVerdict {
        let first = self
            .examinations
            .iter()
            .find(|one| one.superblock.is_some());
        let format = first.map(Examination::format_word).unwrap_or_default();
        let what = match (&self.described, first) {
            (Some(assembly), _) => format!(
                "{}, {format}, {}, {}",
                assembly.geometry.organisation(),
                show_bytes(assembly.volume_bytes),
                state_words(assembly),
            ),
            (None, Some(first)) => format!("{}, {format}", first.level_word()),
            (None, None) => format,
        };
        let problem = self.judged.as_ref().err();
        let next = format!("to serve it:   {}", self.needs());
        SetVerdict::new(format!("{}: {what}", self.name), problem, next)
    }

    /// The command that serves it, or what speaks against that.
    fn needs(&self) -> String {
        match &self.judged {
            Ok(assembly) => format!(
                "plexum serve {}{}{}",
                words(assembly),
                if assembly.is_read_only {
                    " --read-only"
                } else {
                    ""
                },
                format_option(self.examinations),
            ),
            Err(problem) => problem.message.clone(),
        }
    }

    /// Shows it; the exit code.
    pub fn show(&self, screen: &Screen) -> u8 {
        screen.line("");
        if let Some(assembly) = &self.described {
            screen.line(format!(
                "{}: {}, {}, {}",
                self.name,
                assembly.geometry.organisation(),
                show_bytes(assembly.volume_bytes),
                state_words(assembly),
            ));
            for line in member_table(assembly, self.examinations) {
                screen.line(format!("  {line}"));
            }
        }
        let needs = self.needs();
        let problem = self.judged.as_ref().err();
        let set = set_json(&self.name, &needs, problem, self.described.as_ref());
        screen.object(&self.verdict().put_into(set));
        show_start(problem, &needs, screen);
        let is_mixed = problem.is_some_and(|p| {
            matches!(
                p.code,
                Code::ForeignMember | Code::DuplicateMember | Code::SplitBrain
            )
        });
        match is_mixed {
            true => Code::ForeignMember.exit(),
            false => 0,
        }
    }
}

/// The judgement for programs. `described`: what the members would be if one insisted.
fn set_json(
    name: &str,
    needs: &str,
    problem: Option<&Problem>,
    described: Option<&Assembly>,
) -> Value {
    object(
        "set",
        Some(name),
        json!({
            "can_start": problem.is_none(),
            "needs": needs,
            "problem": problem.map(|problem| problem.to_json()["error"].clone()),
            "size_bytes": described.map(|assembly| assembly.volume_bytes),
            "missing_slots": described.map(|assembly| assembly.missing_slots.clone()),
            "is_degraded": described.map(|assembly| assembly.is_degraded),
            "is_dirty": described.map(Assembly::is_dirty),
            "members": described.map(members_json),
        }),
    )
}

fn state_words(assembly: &Assembly) -> String {
    let mut words = vec![match (assembly.is_degraded, assembly.is_dirty()) {
        (false, false) => "clean".to_owned(),
        (false, true) => "not stopped cleanly, a resync follows".to_owned(),
        (true, false) => "degraded".to_owned(),
        (true, true) => "degraded and not stopped cleanly".to_owned(),
    }];
    if !assembly.missing_slots.is_empty() {
        let slots: Vec<String> = assembly
            .missing_slots
            .iter()
            .map(ToString::to_string)
            .collect();
        words.push(format!(
            "slots without a complete member: {}",
            slots.join(" ")
        ));
    }
    if assembly.reshape.is_some() {
        words.push("in the middle of a reshape".into());
    }
    if assembly.doubt != Doubt::None {
        words.push("some rows would be in doubt".into());
    }
    words.join(", ")
}

fn standing_word(standing: &AssembledStanding) -> &'static str {
    match standing {
        AssembledStanding::Active => "active",
        AssembledStanding::Rebuilding { .. } => "rebuilding",
        AssembledStanding::Spare => "spare",
        AssembledStanding::Journal => "journal",
        AssembledStanding::Stale { .. } => "stale",
        AssembledStanding::Faulty => "faulty",
        AssembledStanding::Unusable => "unusable",
    }
}

fn member_table(assembly: &Assembly, examinations: &[Examination]) -> Vec<String> {
    let mut rows = vec![
        ["SLOT", "MEMBER", "STATE", "EVENTS", "WHY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut members: Vec<_> = assembly.members.iter().collect();
    members.sort_by_key(|member| (member.slot.is_none(), member.slot));
    for member in members {
        rows.push(vec![
            member.slot.map_or("-".to_owned(), |slot| slot.to_string()),
            member.name.clone(),
            standing_word(&member.standing).to_owned(),
            member.events.0.to_string(),
            member.reason.clone().unwrap_or_default(),
        ]);
    }
    for one in examinations.iter().filter(|one| one.superblock.is_none()) {
        let why = "nothing usable was found on it".to_owned();
        rows.push(vec![
            "-".into(),
            one.member.clone(),
            "unusable".into(),
            "-".into(),
            why,
        ]);
    }
    table(&rows)
}

fn members_json(assembly: &Assembly) -> Value {
    let member = |member: &plexum_md::assemble::AssembledMember| {
        json!({"member": member.name, "slot": member.slot, "state": standing_word(&member.standing),
            "event_count": member.events.0, "reason": member.reason,
            "is_replacement": member.is_replacement, "is_write_mostly": member.is_write_mostly})
    };
    assembly.members.iter().map(member).collect()
}

/// Members worth naming to `serve`.
fn words(assembly: &Assembly) -> String {
    let used = assembly
        .members
        .iter()
        .filter(|member| member.standing.is_used());
    let names: Vec<String> = used.map(|member| shell_word(&member.name)).collect();
    names.join(" ")
}
