//! One finding.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// Nothing is wrong.
    Ok,
    /// Worth knowing; it loses no lock.
    Note,
    /// A part of the store could not be looked at, so it is not known whether locks can be lost there.
    Unknown,
    /// Locks may be lost if something else fails, too, or some features are degraded.
    Warning,
    /// Locks are lost in normal operation, or cannot be acquired at all.
    Danger,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// The name of the check, in one word that is stable.
    pub check: &'static str,
    /// The server that it concerns, if there are several.
    pub node: Option<String>,
    /// What was observed.
    pub seen: String,
    /// The consequence.
    pub consequence: Option<String>,
    /// The fix: the exact setting, where there is one.
    pub fix: Option<String>,
}

#[cfg_attr(
    not(all(feature = "sqlite", feature = "redis")),
    allow(dead_code, reason = "the memory store has one finding only")
)]
impl Finding {
    pub(super) fn new(severity: Severity, check: &'static str, seen: impl Into<String>) -> Self {
        Self {
            severity,
            check,
            node: None,
            seen: seen.into(),
            consequence: None,
            fix: None,
        }
    }

    pub(super) fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, seen)
    }

    pub(super) fn note(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, seen)
    }

    pub(super) fn unknown(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Unknown, check, seen)
    }

    pub(super) fn warning(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, seen)
    }

    pub(super) fn danger(check: &'static str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Danger, check, seen)
    }

    pub(super) fn because(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = Some(consequence.into());
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

impl Severity {
    /// As one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Danger => "danger",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The highest severity.
pub(super) fn worst(findings: &[Finding]) -> Severity {
    let all = findings.iter().map(|finding| finding.severity);
    all.max().unwrap_or(Severity::Ok)
}
