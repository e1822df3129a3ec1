//! Metadata that never change while a volume runs: gstripe, gconcat, and plexes without redundancy.

use crate::meta::adapter::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use crate::state::MemberId;
use plexum_block::device::DeviceInfo;
use plexum_block::ranges::RangeSet;

/// Writes nothing, ever.
pub struct PlainMetadata {
    format_name: String,
}

impl PlainMetadata {
    /// Metadata of a format that is called `format_name` in messages.
    #[must_use]
    pub fn new(format_name: &str) -> Self {
        Self {
            format_name: format_name.to_owned(),
        }
    }
}

impl Metadata for PlainMetadata {
    fn format_name(&self) -> String {
        self.format_name.clone()
    }

    fn superblock(
        &mut self,
        _member: MemberId,
        _view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        Vec::new()
    }

    fn has_commits(&self) -> bool {
        false
    }

    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Err(format!(
            "a {} volume takes no other members",
            self.format_name
        ))
    }
}
