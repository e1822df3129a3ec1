//! The command line of smartctl, as a pure function.

/// How smartctl is to speak to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceType {
    /// It finds out itself, by its own list of bridges.
    #[default]
    Detected,
    /// ATA commands inside SCSI ones, for a bridge that is not in its list.
    Sat,
    /// An NVMe disk behind a USB bridge by JMicron.
    NvmeJmicron,
    /// An NVMe disk behind a USB bridge by ASMedia.
    NvmeAsmedia,
    /// An NVMe disk behind a USB bridge by Realtek.
    NvmeRealtek,
}

impl DeviceType {
    /// All of them.
    pub const ALL: [DeviceType; 5] = [
        DeviceType::Detected,
        DeviceType::Sat,
        DeviceType::NvmeJmicron,
        DeviceType::NvmeAsmedia,
        DeviceType::NvmeRealtek,
    ];

    fn argument(self) -> Option<&'static str> {
        match self {
            DeviceType::Detected => None,
            DeviceType::Sat => Some("sat"),
            DeviceType::NvmeJmicron => Some("sntjmicron"),
            DeviceType::NvmeAsmedia => Some("sntasmedia"),
            DeviceType::NvmeRealtek => Some("sntrealtek"),
        }
    }
}

/// A device that smartctl must not be given: it could be taken for an option, or is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{device}` is no device that can be asked for its health; give a path below /dev, such as /dev/sda"
)]
pub struct BadDevice {
    /// What was given.
    pub device: String,
}

/// Program and arguments that read the health of `device` and never wake it: `smartctl -j -n standby -x DEVICE`.
///
/// # Errors
/// `BadDevice` for everything that is not a plain path below `/dev`.
pub fn command_line(device: &str, kind: DeviceType) -> Result<Vec<String>, BadDevice> {
    let is_plain = device.strip_prefix("/dev/").is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .split('/')
                .all(|part| !part.is_empty() && part != "." && part != "..")
            && !rest.chars().any(|c| c.is_control() || c.is_whitespace())
    });
    if !is_plain {
        return Err(BadDevice {
            device: device.to_owned(),
        });
    }
    let mut line = vec!["smartctl", "-j", "-n", "standby", "-x"];
    if let Some(kind) = kind.argument() {
        line.extend(["-d", kind]);
    }
    line.push(device);
    Ok(line.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_line_can_wake_a_disk() {
        for kind in DeviceType::ALL {
            for device in [
                "/dev/sda",
                "/dev/nvme0n1",
                "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4",
            ] {
                let line = command_line(device, kind).unwrap();
                let at = line
                    .iter()
                    .position(|word| word == "-n")
                    .expect("it says when not to ask");
                assert_eq!(line.get(at + 1).map(String::as_str), Some("standby"));
                assert_eq!(
                    line.iter().filter(|word| *word == "-n").count(),
                    1,
                    "the last one would count"
                );
                // Tests and settings would wake it whatever -n says.
                for forbidden in [
                    "-t",
                    "-X",
                    "-s",
                    "-S",
                    "-o",
                    "never",
                    "idle",
                    "--nocheck=never",
                ] {
                    assert!(!line.iter().any(|word| word == forbidden), "{forbidden}");
                }
            }
        }
        let line = command_line("/dev/sda", DeviceType::Detected).unwrap();
        assert_eq!(line, ["smartctl", "-j", "-n", "standby", "-x", "/dev/sda"]);
    }

    #[test]
    fn what_is_no_device_is_not_handed_on() {
        for bad in [
            "",
            "sda",
            "-n",
            "/dev/",
            "/dev/../etc/passwd",
            "/dev//sda",
            "/dev/sd a",
            "/dev/s\nda",
            "/etc/passwd",
        ] {
            assert!(command_line(bad, DeviceType::Detected).is_err(), "{bad}");
        }
    }
}
