//! Balance policies: pure functions of (policy state, member statistics, request).
