//! Members that carry the metadata of several formats: which one was taken, as an option for the next command.

use plexum_daemon::examine::Examination;

/// The option that says which set is meant, where several claim the same bytes.
pub(crate) fn format_option(examinations: &[Examination]) -> String {
    let disputed = examinations.iter().find(|one| !one.rivals().is_empty());
    let format = disputed.map(|one| match &one.foreign {
        Some(foreign) => foreign.kind().name().to_owned(),
        None => one.format_word(),
    });
    format.map_or(String::new(), |format| format!(" --format {format}"))
}
