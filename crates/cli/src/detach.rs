//! `plexum detach`: undoes `attach`, also when the server or the process of the attachment has gone.

use std::path::Path;

use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::args::{Common, Detach};
use crate::attach_ublk;
use crate::attachment::{Attachment, all};
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Runs the command: returns when nothing of the attachment is left.
///
/// # Errors
/// `NoSuchVolume` when nothing is attached under that name, `Busy` when it is in use.
pub fn run(args: &Detach, common: &Common, screen: &Screen) -> Outcome {
    let attachment = match find(all(), args.volume.as_deref()) {
        Ok(attachment) => attachment,
        // A device that `serve --ublk` has made is no attachment, and may have outlived its server.
        Err(problem) => match args.volume.as_deref().filter(|name| is_left(name)) {
            Some(name) => return remove_left_device(name, common, screen),
            None => return Err(problem),
        },
    };
    let name = attachment.volume.clone();
    if common.dry_run {
        attachment.check_undo()?;
        screen.line(format!("would detach {name}"));
        let fields = json!({"command": "detach", "device": attachment.device});
        screen.object(&object("plan", Some(&name), fields));
        return Ok(0);
    }
    attachment.undo()?;
    screen.done(format!("{name} is detached"));
    screen.object(&object("detached", Some(&name), json!({})));
    Ok(0)
}

/// Whether the volume has a device of ublk.
fn is_left(volume: &str) -> bool {
    attach_ublk::find(volume).is_some()
}

/// Removes a device without an attachment.
fn remove_left_device(name: &str, common: &Common, screen: &Screen) -> Outcome {
    if common.dry_run {
        screen.line(format!("would detach {name}"));
        let fields = json!({"command": "detach", "device": attach_ublk::find(name)});
        screen.object(&object("plan", Some(name), fields));
        return Ok(0);
    }
    attach_ublk::remove(name)?;
    screen.done(format!("{name} is detached"));
    screen.object(&object("detached", Some(name), json!({})));
    Ok(0)
}

/// The attachment meant: by volume, device, file or mount point, or the only one.
fn find(all: Vec<Attachment>, word: Option<&str>) -> Result<Attachment, Problem> {
    let names: Vec<String> = all.iter().map(|one| one.volume.clone()).collect();
    let Some(word) = word else {
        let mut all = all;
        return match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (None, _) => Err(Problem::new(Code::NoSuchVolume, "no volume is attached")),
            (Some(_), more) => Err(Problem::new(
                Code::AmbiguousVolume,
                format!("{} volumes are attached, name one of them", more + 1),
            )
            .hint(format!("they are:   {}", names.join(" ")))),
        };
    };
    let path = std::fs::canonicalize(word).unwrap_or_else(|_| Path::new(word).to_owned());
    let is_meant = |one: &Attachment| {
        one.volume == word
            || one.device.as_ref() == Some(&path)
            || one.mountpoint.as_ref() == Some(&path)
            || one.file() == path
            || one.tree.as_ref() == Some(&path)
    };
    all.into_iter().find(is_meant).ok_or_else(|| {
        let problem = Problem::new(Code::NoSuchVolume, format!("no volume {word} is attached"));
        if names.is_empty() {
            problem
        } else {
            problem.hint(format!("these are:   {}", names.join(" ")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn attachment(volume: &str, device: &str) -> Attachment {
        Attachment {
            volume: volume.to_owned(),
            process: None,
            folder: PathBuf::from("/nowhere/attach").join(volume),
            device: Some(PathBuf::from(device)),
            mountpoint: None,
            is_read_only: false,
            tree: None,
            nbd: None,
            ublk: None,
        }
    }

    #[test]
    fn the_only_attachment_needs_no_name_and_several_do() {
        let a = || attachment("a", "/nowhere/loop1");
        let b = || attachment("b", "/nowhere/loop2");
        assert_eq!(find(vec![a()], None).unwrap().volume, "a");
        let problem = find(vec![a(), b()], None).unwrap_err();
        assert_eq!(problem.code, Code::AmbiguousVolume);
        assert!(problem.message.starts_with("2 volumes"));
        assert_eq!(find(vec![], None).unwrap_err().code, Code::NoSuchVolume);
        for word in ["b", "/nowhere/loop2", "/nowhere/attach/b/b"] {
            assert_eq!(find(vec![a(), b()], Some(word)).unwrap().volume, "b");
        }
        let problem = find(vec![a()], Some("c")).unwrap_err();
        assert_eq!(problem.code, Code::NoSuchVolume);
    }
}
