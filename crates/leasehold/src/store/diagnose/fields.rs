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
        lines.map(|(name, value)| (name, value.trim())).collect()
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

impl<'a> FromIterator<(&'a str, &'a str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self(pairs.into_iter().map(owned).collect())
    }
}
