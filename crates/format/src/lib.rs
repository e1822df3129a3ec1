//! On-disk formats: bytes to checked metadata and back, no I/O
#![forbid(unsafe_code)]
