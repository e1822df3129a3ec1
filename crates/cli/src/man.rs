//! `plexum man`: the manual pages, made from the same declaration as the command line.

use std::path::Path;

use plexum_daemon::problem::Problem;

use crate::args::{Cli, Man};
use crate::errors::Outcome;
use crate::output::Screen;

/// Runs the command.
///
/// # Errors
/// `IoError` and its kind when a page cannot be written.
pub fn run(args: &Man, screen: &Screen) -> Outcome {
    let command = <Cli as clap::CommandFactory>::command();
    let Some(folder) = &args.out else {
        let page = render(command, "plexum")?;
        crate::output::write_raw(&page);
        return Ok(0);
    };
    std::fs::create_dir_all(folder).map_err(|error| tell(&error, folder))?;
    let mut pages = vec![("plexum".to_owned(), command.clone())];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages.push((format!("plexum-{}", sub.get_name()), sub.clone()));
    }
    for (name, command) in pages {
        let path = folder.join(format!("{name}.1"));
        let page = render(command, &name)?;
        std::fs::write(&path, page).map_err(|error| tell(&error, &path))?;
        screen.done(path.display().to_string());
    }
    Ok(0)
}

fn tell(error: &std::io::Error, path: &Path) -> Problem {
    Problem::from_io(error, "writing", &path.display().to_string())
}

fn render(command: clap::Command, name: &str) -> Result<Vec<u8>, Problem> {
    let mut page = Vec::new();
    let command = command.bin_name(name.replacen('-', " ", 1));
    clap_mangen::Man::new(command)
        .title(name)
        .render(&mut page)
        .map_err(|error| Problem::from_io(&error, "making", name))?;
    Ok(page)
}
