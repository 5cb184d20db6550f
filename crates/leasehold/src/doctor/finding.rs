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
    /// A part of the store could not be checked, so it is not known whether locks can be lost there.
    Unknown,
    /// Locks may be lost if something else also fails, or some features are degraded.
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
    pub observed: String,
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
    /// The check that reports the facts that the others lack.
    pub(super) const INCOMPLETE: &'static str = "diagnosis";

    /// The finding that the other checks lack facts. `None`: they lack none.
    pub(super) fn incomplete(
        missing: &[String],
        consequence: &str,
        fix: impl Into<String>,
    ) -> Option<Self> {
        let observed = format!("not checked: {}", missing.join(", "));
        let finding = Self::unknown(Self::INCOMPLETE, observed);
        (!missing.is_empty()).then(|| finding.because(consequence).fix(fix))
    }

    pub(super) fn new(
        severity: Severity,
        check: &'static str,
        observed: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            check,
            node: None,
            observed: observed.into(),
            consequence: None,
            fix: None,
        }
    }

    pub(super) fn ok(check: &'static str, observed: impl Into<String>) -> Self {
        Self::new(Severity::Ok, check, observed)
    }

    pub(super) fn note(check: &'static str, observed: impl Into<String>) -> Self {
        Self::new(Severity::Note, check, observed)
    }

    pub(super) fn unknown(check: &'static str, observed: impl Into<String>) -> Self {
        Self::new(Severity::Unknown, check, observed)
    }

    pub(super) fn warning(check: &'static str, observed: impl Into<String>) -> Self {
        Self::new(Severity::Warning, check, observed)
    }

    pub(super) fn danger(check: &'static str, observed: impl Into<String>) -> Self {
        Self::new(Severity::Danger, check, observed)
    }

    pub(super) fn because(mut self, consequence: impl Into<String>) -> Self {
        self.consequence = Some(consequence.into());
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    pub(super) fn at(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }
}

impl Severity {
    /// As one word.
    pub(crate) const fn as_str(self) -> &'static str {
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

/// A number of things, such as `1 replica` or `2 replicas`.
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(super) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// The highest severity.
pub(super) fn worst(findings: &[Finding]) -> Severity {
    let all = findings.iter().map(|finding| finding.severity);
    all.max().unwrap_or(Severity::Ok)
}

/// A change of healthy facts, the severity that follows from it, and the check.
#[cfg(test)]
pub(super) type ChangeOf<F> = (Severity, &'static str, fn(&mut F));

/// Checks that each change of healthy facts has its severity, and findings of its check with a consequence and a fix.
#[cfg(test)]
pub(super) fn assert_severities<F>(
    healthy: impl Fn() -> F,
    check: impl Fn(&F) -> Vec<Finding>,
    changes: &[ChangeOf<F>],
) {
    for (number, (severity, name, change)) in changes.iter().enumerate() {
        let mut facts = healthy();
        change(&mut facts);
        let mut findings = check(&facts);
        findings.retain(|finding| finding.severity > Severity::Ok);
        assert_eq!(worst(&findings), *severity, "{number}: {findings:#?}");
        for finding in &findings {
            assert_eq!(finding.check, *name, "{number}");
            assert!(finding.consequence.is_some() && finding.fix.is_some());
        }
    }
}
