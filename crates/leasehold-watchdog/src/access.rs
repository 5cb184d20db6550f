//! Which users and groups of this machine may register locks of which namespaces.

use std::cell::LazyCell;

use leasehold_core::Namespace;
use nix::unistd::{Group, User};

use crate::Error;

/// The namespaces that a permission or a token allows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Namespaces {
    /// `*`: all namespaces.
    All,
    /// The namespaces in this list.
    Listed(Vec<Namespace>),
}

impl Namespaces {
    /// Parses `*`, or names with commas between them.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let listed = text.split(',').map(|text| Namespace::parse(text).ok());
        listed.collect::<Option<_>>().map(Self::Listed)
    }

    pub(crate) fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(listed) => listed.iter().any(|it| it.as_str() == namespace),
        }
    }
}

/// Allows a user or a group of this machine to register locks of some namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    principal: Principal,
    namespaces: Namespaces,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Principal {
    User(u32),
    Group(u32),
}

impl Permission {
    /// Parses `user:NAME=NAMESPACE,...` or `group:NAME=NAMESPACE,...`. A number may stand for the name, and `*`
    /// for all namespaces.
    ///
    /// # Errors
    ///
    /// If the text has neither form, or if this machine has no such user or group.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(format!(
                "the permission {text:?} is neither user:NAME=NAMESPACE,... nor group:NAME=NAMESPACE,..."
            ))
        };
        let (principal, namespaces) = text.split_once('=').ok_or_else(wrong)?;
        let namespaces = Namespaces::parse(namespaces).ok_or_else(wrong)?;
        let (kind, name) = principal.split_once(':').ok_or_else(wrong)?;
        let number = name.parse().ok();
        let found = match kind {
            "user" => {
                let known = || Some(User::from_name(name).ok()??.uid.as_raw());
                number.or_else(known).map(Principal::User)
            }
            "group" => {
                let known = || Some(Group::from_name(name).ok()??.gid.as_raw());
                number.or_else(known).map(Principal::Group)
            }
            _ => return Err(wrong()),
        };
        let unknown = || Error::new(format!("this machine knows no {kind} {name:?}"));
        Ok(Self {
            principal: found.ok_or_else(unknown)?,
            namespaces,
        })
    }
}

/// Whether a process of a user, in these groups, may register locks of a namespace. Without any permission in
/// the settings, every user who can connect may register.
pub(crate) fn is_allowed(
    permissions: &[Permission],
    namespace: &str,
    user: u32,
    groups: impl FnOnce() -> Vec<u32>,
) -> bool {
    // Read from `/proc`, and only if a group has a permission.
    let groups = LazyCell::new(groups);
    let mut allowing = permissions
        .iter()
        .filter(|it| it.namespaces.contains(namespace));
    permissions.is_empty()
        || allowing.any(|it| match it.principal {
            Principal::User(allowed) => allowed == user,
            Principal::Group(group) => groups.contains(&group),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_allowed_what_the_settings_name() {
        let parse = |text| Permission::parse(text).unwrap();
        let permissions = [
            parse("user:1000=ci,jobs@64"),
            parse("group:20=web"),
            parse("user:root=*"),
        ];
        let allowed = |namespace, user, groups: &[u32]| {
            is_allowed(&permissions, namespace, user, || groups.to_vec())
        };
        assert!(allowed("ci", 1000, &[]));
        assert!(allowed("jobs@64", 1000, &[5]));
        assert!(!allowed("jobs", 1000, &[5]));
        assert!(!allowed("web", 1000, &[5]));
        assert!(allowed("web", 1000, &[5, 20]));
        assert!(allowed("web", 7, &[20]));
        assert!(!allowed("ci", 7, &[20]));
        assert!(allowed("anything", 0, &[]));
        // Without a permission the mode of the socket decides.
        assert!(is_allowed(&[], "ci", 7, Vec::new));
    }

    #[test]
    fn a_permission_that_makes_no_sense_is_refused() {
        for text in [
            "",
            "ci",
            "user:root",
            "user:root=",
            "user:root=a,,b",
            "user:root=a:b",
            "root=ci",
            "uid:0=ci",
        ] {
            let error = Permission::parse(text).unwrap_err().to_string();
            assert!(error.contains("user:NAME=NAMESPACE"), "{error}");
        }
        let error = Permission::parse("user:nobody-has-this-name=ci").unwrap_err();
        assert_eq!(
            error.to_string(),
            "this machine knows no user \"nobody-has-this-name\""
        );
    }
}
