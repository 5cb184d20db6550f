//! The store if neither option nor variable names one: that of the machine, or a file of this user.

use std::env;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use clap::Command;
use rustix::process::geteuid;

use crate::args::{MACHINE_FILE, Origin, StoreArgs};
use crate::exit::Failure;
use crate::variables::{
    self, Intended, NAMESPACE, PASSWORD, PASSWORD_FILE, SENTINEL_PASSWORD, STORE, TENANT,
};
use crate::{output, secret, shell};

const DEFAULT_NAMESPACE: &str = "leasehold";
const DEFAULT_TENANT: &str = "default";

/// How large the file may be.
const MACHINE_FILE_BYTES_MAX: u64 = 64 * 1024;

/// The fix where the default store has no directory: for a service, for example.
const NAME_A_STORE: &str = "name a file that this user can write, such as --store sqlite:/var/lib/leasehold/locks.db, \
                            or set LEASEHOLD_STORE";

impl StoreArgs {
    /// These arguments with the store of the machine, if nothing else names one.
    pub(crate) fn resolved(mut self) -> Result<Self, Failure> {
        self.origin = match &self.store {
            Some(url) if env::var(STORE).is_ok_and(|variable| variable == *url) => Origin::Variable,
            Some(_) => Origin::Option,
            None => {
                self.store = machine_store(Path::new(MACHINE_FILE))?;
                match self.store {
                    Some(_) => Origin::Machine,
                    None => self.refuse_password().map(|()| Origin::Default)?,
                }
            }
        };
        let is_named = matches!(self.origin, Origin::Option | Origin::Variable);
        if is_named && self.store.as_deref().is_some_and(is_relative) {
            note!(
                "leasehold: the path in {} is relative, so it names another store in each directory; write an \
                 absolute path",
                self.origin
            );
        }
        Ok(self)
    }

    /// Refuses a password for the default store, a file: it was meant for a server, which nothing names.
    fn refuse_password(&self) -> Result<(), Failure> {
        let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let variables = [PASSWORD, PASSWORD_FILE, SENTINEL_PASSWORD];
        let option = self.password_file.as_ref().map(|_| "--password-file");
        match variables.into_iter().find(is_set).or(option) {
            Some(setting) => Err(Failure::usage(format!(
                "{setting} has no effect: no server is named, and the default store is a file; set {STORE}, or leave \
                 {setting} out"
            ))),
            None => Ok(()),
        }
    }

    /// The store in a message, with the namespace and the tenant if they are not the default ones.
    pub(crate) fn place(&self, store: &dyn fmt::Display) -> String {
        let namespace = Some(&self.namespace).filter(|it| *it != DEFAULT_NAMESPACE);
        let namespace = output::optional(", namespace ", namespace);
        let tenant = Some(&self.tenant).filter(|it| *it != DEFAULT_TENANT);
        let tenant = output::optional(", tenant ", tenant);
        format!("{store}{namespace}{tenant}")
    }

    /// The namespace, the tenant and the store in a message.
    pub(crate) fn full_place(&self, store: &dyn fmt::Display) -> String {
        let (namespace, tenant) = (&self.namespace, &self.tenant);
        format!("namespace {namespace}, tenant {tenant}, at {store}")
    }

    /// Prints which variables have no effect, also with `--quiet`. A misspelt one that would have named the store is an
    /// error if nothing else names it: a lock in another store excludes nobody.
    pub(crate) fn check_variables(&self, served: &[String], cli: &Command) -> Result<(), Failure> {
        for (name, intended) in variables::without_effect(served, cli) {
            let message = format!("the variable {name} has no effect: {intended}");
            let is_unset = match intended {
                Intended::Variable(STORE) => self.store.is_none(),
                Intended::Variable(NAMESPACE) => self.namespace == DEFAULT_NAMESPACE,
                Intended::Variable(TENANT) => self.tenant == DEFAULT_TENANT,
                _ => false,
            };
            if is_unset {
                return Err(Failure::usage(format!("{message} correct or unset it")));
            }
            note!("leasehold: {message}");
        }
        Ok(())
    }

    /// The options that name this store again in another command.
    pub(crate) fn options(&self) -> String {
        let is_option = self.origin == Origin::Option;
        let store = self.store.as_deref().filter(|_| is_option);
        let unusual = |variable: &str, value: &str, default: &str| {
            let usual = env::var(variable).unwrap_or_else(|_| default.to_owned());
            (value != usual).then(|| shell::quote(value))
        };
        let namespace = unusual(NAMESPACE, &self.namespace, DEFAULT_NAMESPACE);
        let tenant = unusual(TENANT, &self.tenant, DEFAULT_TENANT);
        output::optional(" --store ", store.map(shell::quote))
            + &output::optional(" --namespace ", namespace)
            + &output::optional(" --tenant ", tenant)
    }

    /// The clients that the locks exclude.
    pub(crate) fn scope(&self) -> &'static str {
        match &self.store {
            None => "for this user on this machine",
            Some(url) if url.starts_with("sqlite:") => {
                "for the programs on this machine that use this file"
            }
            Some(_) => "for all its clients",
        }
    }
}

/// The URL in a file: one line, beside comments. `None`: there is no such file. A file that is not understood is an
/// error, because a lock in another store would exclude nobody.
fn machine_store(path: &Path) -> Result<Option<String>, Failure> {
    let file = path.display();
    let read = fs::metadata(path).and_then(|metadata| match metadata.is_file() {
        true if metadata.len() <= MACHINE_FILE_BYTES_MAX => {
            Ok((metadata, fs::read_to_string(path)?))
        }
        _ => Err(io::Error::other("it is not a file with one URL")),
    });
    // The file or its directory names something that is missing.
    let is_link = || path.ancestors().take(2).any(Path::is_symlink);
    let (metadata, text) = match read {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_link() => return Ok(None),
        Err(error) => {
            let message = format!("{file}, which names the store of this machine, cannot be read");
            return Err(
                Failure::own(message, error).with_detail("correct it, or set LEASEHOLD_STORE")
            );
        }
    };
    let lines = text.lines().map(str::trim);
    let urls: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let wrong = |why: &str| {
        Err(Failure::usage(format!(
            "{file}, which names the store of this machine, {why}"
        )))
    };
    let [url] = urls[..] else {
        return wrong("must have the URL of one store in one line, beside comments");
    };
    if url.contains(" #") {
        return wrong("must have its comments in lines of their own");
    }
    if is_relative(url) {
        return wrong("must have an absolute path behind sqlite:");
    }
    let is_world_readable = metadata.mode() & 0o004 != 0;
    if secret::password_in(url).is_some() && is_world_readable {
        return wrong(
            "has a password, and all users can read it: give it to a group with chmod 640, or leave the password out \
             and set LEASEHOLD_PASSWORD_FILE",
        );
    }
    Ok(Some(url.to_owned()))
}

fn is_relative(url: &str) -> bool {
    let path = url.strip_prefix("sqlite:");
    path.is_some_and(|path| !path.is_empty() && !path.starts_with('/'))
}

/// The file of this user.
pub(crate) fn file() -> Result<String, Failure> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The specification says to ignore relative ones.
        .filter(|directory| directory.is_absolute())
        .or_else(|| Some(env::home_dir()?.join(".local/state")))
        .filter(|directory| directory.is_absolute());
    let wrong = |what: &str| Failure::usage(format!("{what}; {NAME_A_STORE}"));
    let state = state.ok_or_else(|| wrong("this user has no home directory for the locks"))?;
    let directory = state.join("leasehold");
    refuse_other_user(&directory)?;
    let file = directory.join("locks.db").into_os_string().into_string();
    file.map_err(|_| wrong("the path of the state directory is not UTF-8"))
}

/// Refuses a directory of another user, as `sudo -E` leads to: what this user creates there, its owner cannot write.
/// Directories of root, such as /tmp, are for all.
fn refuse_other_user(directory: &Path) -> Result<(), Failure> {
    let existing = directory
        .ancestors()
        .find_map(|path| Some((path, fs::metadata(path).ok()?.uid())));
    match existing {
        Some((path, owner)) if owner != 0 && owner != geteuid().as_raw() => {
            Err(Failure::usage(format!(
                "the state directory {} is in {}, which belongs to another user (uid {owner}): set HOME to your own and \
                 unset XDG_STATE_HOME, as sudo -H does, or name the store by --store or LEASEHOLD_STORE",
                directory.display(),
                path.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Creates the directory of the file of this user.
pub(crate) fn create_directory() -> Result<(), Failure> {
    let file = file()?;
    let directory = Path::new(&file).parent().unwrap_or(Path::new("/"));
    let created = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    created.map_err(|error| {
        let directory = directory.display();
        let message = format!("the state directory {directory} cannot be created");
        Failure::own(message, error).with_detail(NAME_A_STORE)
    })
}
