//! One finding.

use std::fmt;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; no lock is lost by it.
    Note,
    /// Locks may be lost when something else fails, too, or not all works as well as it could.
    Warning,
    /// Locks are lost in the ordinary run of things, or cannot be had at all.
    Danger,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How grave it is.
    pub severity: Severity,
    /// What was looked at, in one word that stays the same.
    pub check: &'static str,
    /// Which server it is about, if there are several.
    pub node: Option<String>,
    /// What was seen.
    pub seen: String,
    /// What follows of it.
    pub consequence: Option<String>,
    /// What fixes it: the exact setting, where there is one.
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

/// The gravest severity.
#[cfg(test)]
pub(super) fn worst(findings: &[Finding]) -> Severity {
    let all = findings.iter().map(|finding| finding.severity);
    all.max().unwrap_or(Severity::Ok)
}
