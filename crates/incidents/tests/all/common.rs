//! What the tests share.

use plexum_incidents::time::UnixTime;

/// Some morning.
pub const START: UnixTime = UnixTime(1_795_658_520);
