//! What commands are answered with.
//!
//! Source: Base Specification, "Status Field Definition"; NVMe over Fabrics, "Fabrics Command Specific Status Values".

/// The status of a completion, without the phase bit: code, type of code, and whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u16);

/// Do Not Retry: the same command would get the same answer.
const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    /// It is done.
    pub const SUCCESS: Self = Self(0);
    /// An opcode that is not known here.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// A field that has a value that is not known here.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// It could not be done, for a reason of the controller's own.
    pub const INTERNAL: Self = Self::generic(0x06);
    /// No such namespace.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// Not now: another command comes first.
    pub const COMMAND_SEQUENCE: Self = Self::generic(0x0c);
    /// The length that the command needs is not that of its data.
    pub const DATA_LENGTH: Self = Self::generic(0x0f);
    /// A description of memory of a type that is not known here.
    pub const SGL_TYPE: Self = Self::generic(0x11);
    /// The namespace may only be read.
    pub const WRITE_PROTECTED: Self = Self::generic(0x20);
    /// Data were damaged on their way: to be sent again.
    pub const TRANSIENT_TRANSPORT: Self = Self(0x22);
    /// Behind the end of the namespace.
    pub const LBA_RANGE: Self = Self::generic(0x80);
    /// No space is left.
    pub const CAPACITY: Self = Self::generic(0x81);
    /// A log page that is not known here.
    pub const INVALID_LOG_PAGE: Self = Self::specific(0x09);
    /// A feature whose value cannot be saved or changed.
    pub const NOT_CHANGEABLE: Self = Self::specific(0x0e);
    /// More Asynchronous Event Requests than there may be.
    pub const TOO_MANY_EVENT_REQUESTS: Self = Self::specific(0x05);
    /// Connect: a record format that is not known here.
    pub const CONNECT_FORMAT: Self = Self::specific(0x80);
    /// Connect: the controller, or the queue, is in use.
    pub const CONNECT_BUSY: Self = Self(0x0181);
    /// Connect: a parameter that fits nothing here; the result says which.
    pub const CONNECT_PARAMETERS: Self = Self::specific(0x82);
    /// Connect: no such subsystem at the moment. Without Do Not Retry: a volume whose server starts again is there
    /// soon.
    pub const CONNECT_NO_SUBSYSTEM: Self = Self(0x0182);
    /// Connect: this host may not.
    pub const CONNECT_HOST: Self = Self::specific(0x84);
    /// Data could not be written.
    pub const WRITE_FAULT: Self = Self::media(0x80);
    /// Data could not be read.
    pub const READ_ERROR: Self = Self::media(0x81);

    const fn generic(code: u16) -> Self {
        Self(code | DO_NOT_RETRY)
    }

    const fn specific(code: u16) -> Self {
        Self(code | 1 << 8 | DO_NOT_RETRY)
    }

    const fn media(code: u16) -> Self {
        Self(code | 2 << 8 | DO_NOT_RETRY)
    }

    /// From the field of a completion.
    #[must_use]
    pub fn decode(field: u16) -> Self {
        Self(field >> 1)
    }

    /// As the field of a completion: the phase bit means nothing here, and is 0.
    #[must_use]
    pub fn encode(self) -> u16 {
        self.0 << 1
    }

    /// Whether the command was done.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::SUCCESS
    }

    /// Whether the same command would get the same answer.
    #[must_use]
    pub fn is_final(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }
}
