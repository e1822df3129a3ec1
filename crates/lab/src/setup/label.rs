//! What an arrangement is called, in tables and reports.

use plexum_layout::Level;

use super::{KERNEL_NBD, Setup};

/// A level in tables.
fn level_word(level: &str) -> String {
    match level {
        "linear" => "linear".to_owned(),
        level => format!("RAID-{}", level.trim_start_matches("raid")),
    }
}

impl Setup {
    /// A short name for tables.
    #[must_use]
    pub fn label(&self) -> String {
        if !self.on.is_empty() {
            return self.on.clone();
        }
        if !self.system.is_empty() {
            return self.built_label();
        }
        let mut label = match self.volumes.len() {
            0 => self.volume_label(),
            _ => self.beside_label(),
        };
        if self.level == "single" && self.volumes.is_empty() {
            return label;
        }
        if self.queue_depth > 0 {
            label += &format!(" queue {}", self.queue_depth);
        }
        match self.buses.len() {
            0 => {}
            1 => label += " on one bus",
            count => label += &format!(" on {count} buses"),
        }
        if !self.change.is_empty() {
            label += &format!(" when {}", self.change);
        }
        if self.inner_volumes > 0 {
            let level = level_word(&self.inner_level);
            let strips = self.inner_strip_bytes.iter();
            let strips: Vec<String> = strips.map(|bytes| format!("{}K", bytes >> 10)).collect();
            label += &format!(
                " over {} {level} ({})",
                self.inner_volumes,
                strips.join(", ")
            );
        }
        label
    }

    /// The volume alone, without what its disks hang on.
    fn volume_label(&self) -> String {
        if self.level == "single" {
            return format!("single disk {}", self.consistency)
                .trim_end()
                .to_owned();
        }
        let mut label = format!("{} of {}", level_word(&self.level), self.members);
        if !self.layout.is_empty() {
            label += &format!(" {}", self.layout);
        }
        let has_strips = !matches!(self.level.as_str(), "1" | "raid1" | "mirror" | "linear");
        if has_strips {
            label += &format!(" strip {}K", self.strip_bytes >> 10);
        }
        if matches!(
            self.level.as_str(),
            "1" | "raid1" | "mirror" | "10" | "raid10"
        ) {
            label += &format!(" {}", self.balance);
        }
        if !self.consistency.is_empty() {
            label += &format!(" {}", self.consistency);
        }
        if self.lacks_bitmap() {
            label += " no bitmap";
        }
        label
    }

    /// The volumes that are side by side: name, what it is, its disks, and what it carries.
    fn beside_label(&self) -> String {
        let each = self.volumes.iter().map(|volume| {
            let disks: Vec<String> = volume.disks.iter().map(ToString::to_string).collect();
            let (what, disks) = (self.alone(volume).volume_label(), disks.join(" "));
            let jobs = volume.jobs.join(", ");
            format!("{}: {what} (disks {disks}; {jobs})", volume.name)
        });
        each.collect::<Vec<_>>().join(" + ")
    }

    /// What it is, in few words: its level and its disks.
    pub(crate) fn short_words(&self) -> String {
        match self.level.as_str() {
            "single" => "single disk".to_owned(),
            level => format!("{} of {}", level_word(level), self.members),
        }
    }

    /// What the level is called in a table: of several volumes that of each.
    #[must_use]
    pub fn level_words(&self) -> String {
        if self.volumes.is_empty() {
            return self.level.clone();
        }
        let levels = self.volumes.iter().map(|volume| self.alone(volume).level);
        levels.collect::<Vec<_>>().join(" + ")
    }

    /// The label with the disks, as a report names an arrangement.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.is_simulated() {
            format!("{} ({})", self.label(), self.disks.join(", "))
        } else {
            self.label()
        }
    }

    /// What a volume that is built is called.
    fn built_label(&self) -> String {
        let plain = Setup {
            system: String::new(),
            consistency: String::new(),
            has_bitmap: true,
            queue_depth: 0,
            ..self.clone()
        };
        let level = self.level.parse::<Level>().ok();
        let has_copies = matches!(level, Some(Level::Raid1 | Level::Raid10));
        let mut label = format!("{} {}", self.system, plain.label());
        if !matches!(self.system.as_str(), "plexum") && has_copies {
            label = label.trim_end_matches(&self.balance).trim_end().to_owned();
        }
        if matches!(self.system.as_str(), "btrfs" | "zfs" | "gmirror") {
            // Strips and layouts are their own.
            let level = plain.label();
            let words: Vec<&str> = level.split(' ').take(3).collect();
            return format!("{} {}", self.system, words.join(" "));
        }
        let is_redundant = level.is_some_and(|level| level.has_redundancy());
        if is_redundant && !self.consistency.is_empty() {
            label += &format!(" {}", self.consistency);
        }
        if is_redundant && self.lacks_bitmap() {
            label += " no bitmap";
        }
        if !self.file_system.is_empty() {
            label += &format!(", {}", self.file_system);
        }
        match (self.system.as_str(), self.through.as_str()) {
            ("plexum", KERNEL_NBD) => label + ", kernel NBD",
            ("plexum", "device") if self.file_system.is_empty() => label + ", device",
            _ => label,
        }
    }

    /// Whether the bitmap is left out by its own word; `consistency` may decide about it.
    pub(crate) fn lacks_bitmap(&self) -> bool {
        !self.has_bitmap && matches!(self.consistency.as_str(), "" | "log" | "write-back")
    }
}
