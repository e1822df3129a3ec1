//! `plexum man`: the manual pages, made from the same declaration as the command line.

use std::io::ErrorKind;
use std::path::Path;

use plexum_daemon::problem::Problem;
use rustix::io::Errno;

use crate::args::{Cli, Common, Man};
use crate::errors::Outcome;
use crate::output::Screen;

/// Runs the command.
///
/// # Errors
/// `IoError` and its kind when a page cannot be written.
pub fn run(args: &Man, common: &Common, screen: &Screen) -> Outcome {
    let command = <Cli as clap::CommandFactory>::command();
    let Some(folder) = &args.out else {
        let page = render(command, "plexum")?;
        crate::output::write_raw(&page);
        return Ok(0);
    };
    if common.dry_run {
        check_folder(folder)?;
    } else {
        std::fs::create_dir_all(folder).map_err(|error| tell(&error, folder))?;
    }
    let mut pages = vec![("plexum".to_owned(), command.clone())];
    add_pages("plexum", &command, &mut pages);
    for (name, command) in pages {
        let path = folder.join(format!("{name}.1"));
        let page = render(command, &name)?;
        if common.dry_run {
            screen.line(format!("would write {}", path.display()));
            continue;
        }
        std::fs::write(&path, page).map_err(|error| tell(&error, &path))?;
        screen.done(path.display().to_string());
    }
    Ok(0)
}

/// A page for each command below `command`, and for the commands below these.
fn add_pages(name: &str, command: &clap::Command, pages: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("{name}-{}", sub.get_name());
        pages.push((name.clone(), sub.clone()));
        add_pages(&name, sub, pages);
    }
}

/// What every page ends with.
const TAIL: &str = r#".SH "EXIT STATUS"
.TP
.B 0
done; of \fBstatus\fR: all volumes are healthy
.TP
.B 1
done, and the answer is bad news: degraded, damaged, full, differences
.TP
.B 2
the command line is not understood
.TP
.B 3
refused to protect data; the message names the option that overrides
.TP
.B 4
the members do not make a volume
.TP
.B 5
an error of input or output, or no space
.TP
.B 6
in use by another process
.TP
.B 7
no such volume, or no server answers
.TP
.B 8
a volume has failed
.TP
.B 70
a bug in plexum
.SH FILES
The runtime folder is \fI$XDG_RUNTIME_DIR/plexum\fR, for root without that variable \fI/run/plexum\fR, else \fI/tmp/plexum\-UID\fR.
.TP
.I NAME.nbd
the socket for NBD clients
.TP
.I NAME.control
the control socket
.TP
.I attach/NAME.json
what \fBplexum attach\fR has set up
.TP
.I attach/NAME.log
what the process beside an attachment has said
.TP
.I device/NAME
the device of an attached volume, whatever its number: for \fI/etc/fstab\fR
.TP
.I NAME.command
how the server was started
.TP
.I NAME.log
what a server in the background has said; what earlier ones did: \fINAME.log.1\fR
.PP
What outlives a server is in \fI$XDG_STATE_HOME/plexum\fR, for root without that variable \fI/var/lib/plexum\fR, else
\fI~/.local/state/plexum\fR.
.TP
.I sets/*.json
the last scrub, settings, and why members failed
.TP
.I history/*.jsonl
events
"#;

/// Whether the folder is there, or could be made: what its path begins with is a folder.
fn check_folder(folder: &Path) -> Result<(), Problem> {
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(tell(&Errno::EXIST.into(), folder)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(tell(&error, folder)),
    }
}

fn tell(error: &std::io::Error, path: &Path) -> Problem {
    Problem::from_io(error, "writing", &path.display().to_string())
}

fn render(command: clap::Command, name: &str) -> Result<Vec<u8>, Problem> {
    let mut page = Vec::new();
    let mut words = name.replacen('-', " ", 1);
    if let Some(rest) = words.strip_prefix("plexum lab-") {
        words = format!("plexum lab {rest}");
    } else if let Some(rest) = words.strip_prefix("plexum pool-") {
        words = format!("plexum pool {rest}");
    }
    let command = command.bin_name(words).display_name(name.to_owned());
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut page)
        .map_err(|error| Problem::from_io(&error, "making", name))?;
    page.extend_from_slice(TAIL.as_bytes());
    Ok(page)
}
