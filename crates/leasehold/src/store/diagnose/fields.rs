//! Names and values, as servers report them.

use std::collections::BTreeMap;

/// Names and values, as servers report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) BTreeMap<String, String>);

impl Fields {
    /// From lines with a colon between name and value.
    #[cfg(feature = "redis")]
    pub(crate) fn of_lines(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Self(
            lines
                .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    #[cfg(feature = "doctor")]
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }
}
