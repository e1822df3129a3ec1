//! How a problem is printed: three parts for people, one object on standard error for programs.
//!
//! Invariants: the first line begins with `error: `, the lines after it are indented; nothing goes to standard output.

use plexum_daemon::problem::Problem;

use crate::output::Screen;

/// What a command ends with: an exit code (0, or 1 for bad news), or a problem.
pub type Outcome = Result<u8, Problem>;

/// The text of a problem for people, with a newline at the end.
#[must_use]
pub fn render(problem: &Problem) -> String {
    let mut text = format!("error: {}\n", problem.message);
    for line in problem.why.iter().chain(&problem.hints) {
        for part in line.lines() {
            text.push_str("  ");
            text.push_str(part);
            text.push('\n');
        }
    }
    text
}

/// Prints a problem on standard error, for people, and gives its exit code.
pub fn report(problem: &Problem) -> u8 {
    crate::output::tell_part!("{}", render(problem));
    problem.code.exit()
}

/// The same for programs: one object.
pub fn report_json(problem: &Problem) -> u8 {
    crate::output::tell_line!("{}", problem.to_json());
    problem.code.exit()
}

/// The same in the form that standard output has.
pub fn report_beside(problem: &Problem, screen: &Screen) -> u8 {
    match screen.is_json {
        true => report_json(problem),
        false => report(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_daemon::problem::Code;

    #[test]
    fn a_message_has_what_then_why_then_the_way_out() {
        let problem = Problem::new(
            Code::StaleMember,
            "member 2 (disks/c.img) is stale: event count 41, newest is 57",
        )
        .hint("to bring it up to date:   plexum re-add pool1 disks/c.img")
        .why("it missed writes since 2026-11-20 14:03; using it would bring back old data");
        assert_eq!(
            render(&problem),
            "error: member 2 (disks/c.img) is stale: event count 41, newest is 57\n  \
             it missed writes since 2026-11-20 14:03; using it would bring back old data\n  \
             to bring it up to date:   plexum re-add pool1 disks/c.img\n"
        );
    }
}
