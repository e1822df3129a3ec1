//! The file that a server in the background writes to, and those of earlier servers beside it.

use std::io::{Seek, Write};
use std::path::Path;

use plexum_daemon::problem::Problem;

/// Space for messages of a server in the background without which it is not started.
const LOG_BYTES_MIN: usize = 4096;
/// What earlier servers said is kept up to about so much.
const EARLIER_LOG_BYTES_MAX: u64 = 1 << 20;

/// The file that takes what the server says, with space for a message: without it nobody would hear why it does not
/// start.
///
/// # Errors
/// It cannot be written.
pub fn log_file(log: &Path) -> Result<std::fs::File, Problem> {
    let shown = log.display().to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "writing", &shown);
    let mut file = std::fs::File::create(log).map_err(tell)?;
    let probed = file.write_all(&[b'\n'; LOG_BYTES_MIN]);
    if let Err(error) = probed
        .and_then(|()| file.set_len(0))
        .and_then(|()| file.rewind())
    {
        let _ = std::fs::remove_file(log);
        return Err(tell(error));
    }
    Ok(file)
}

/// Puts what an earlier server said behind what those before it did, in `NAME.log.1`; too long a one begins anew.
pub fn keep_earlier_log(log: &Path) {
    let earlier = log.with_extension("log.1");
    let Ok(text) = std::fs::read(log) else {
        return; // there was none
    };
    let length = std::fs::metadata(&earlier).map_or(0, |meta| meta.len());
    let mut options = std::fs::File::options();
    options.create(true).write(true);
    match length > EARLIER_LOG_BYTES_MAX {
        true => options.truncate(true),
        false => options.append(true),
    };
    // The server runs already: what cannot be kept does not keep it from that.
    let _ = options
        .open(earlier)
        .and_then(|mut file| file.write_all(&text));
}
