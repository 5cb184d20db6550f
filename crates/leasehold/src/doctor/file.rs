//! Checks of a file of the SQLite store.

use super::Finding;
use crate::store::diagnose::{FileFacts, FileSystem, LOG_MAX};

/// The free space in bytes below which a file and its log have too little.
const ROOM_MIN: u64 = 64 * 1024 * 1024;

/// The permission bit that lets all users write.
const OTHERS_WRITE: u32 = 0o002;

pub(super) fn check(facts: &FileFacts) -> Vec<Finding> {
    let missing = Finding::incomplete(
        &facts.missing,
        "properties of the file system under which locks are lost would not be found",
        "run doctor as the user of the locks, and outside of a sandbox",
    );
    let mut findings: Vec<_> = missing.into_iter().collect();
    findings.extend(facts.file_system.as_ref().map(file_system));
    findings.extend(file(facts));
    findings.extend(directory(facts));
    if facts.other_boot_id {
        findings.push(
            Finding::note(
                "kernel",
                "the file is in use under another boot id than this one",
            )
            .because(
                "some containers have boot ids of their own; they share the locks, because a \
                     kernel lock shows that they run on this machine",
            )
            .fix("none is needed"),
        );
    }
    findings.push(rights(facts));
    if let Some(log) = facts.log.filter(|log| *log > LOG_MAX) {
        let path = facts.path.display();
        findings.push(
            Finding::warning("log", format!("the log has {} MiB", log / (1024 * 1024)))
                .because(
                    "a reader that keeps a transaction open lets it grow until the disk is full",
                )
                .fix(format!(
                    "end the program that reads the file: `fuser {path}` shows who has it open"
                )),
        );
    }
    if let Some(free) = facts.free {
        let observed = format!("{} MiB are free", free / (1024 * 1024));
        findings.push(match free < ROOM_MIN {
            true => Finding::warning("room", observed)
                .because("on a full disk no lock is granted")
                .fix("make room, or choose another disk"),
            false => Finding::ok("room", observed),
        });
    }
    findings
}

fn file(facts: &FileFacts) -> Option<Finding> {
    let is_refused = matches!(facts.file_system, Some(FileSystem::Network(_)));
    match &facts.fault {
        Some(fault) => Some(
            Finding::danger("file", fault.to_string())
                .because("no lock can be acquired")
                .fix("remove the cause that is named, or choose another path"),
        ),
        // It was not opened: see `file_system`.
        None if is_refused => None,
        None if facts.exists => Some(Finding::ok("file", "it can be read and written")),
        None => Some(Finding::ok(
            "file",
            match facts.directory_exists {
                true => "it does not exist yet; the first lock creates it",
                false => "it does not exist yet",
            },
        )),
    }
}

fn directory(facts: &FileFacts) -> Option<Finding> {
    let directory = facts.path.parent()?.display();
    let finding = Finding::danger("directory", format!("{directory} does not exist"))
        .because(
            "no lock can be acquired: the directory of a path that may be misspelt is not created",
        )
        .fix("correct the path, or create the directory");
    (facts.fault.is_none() && !facts.directory_exists).then_some(finding)
}

fn file_system(file_system: &FileSystem) -> Finding {
    match file_system {
        FileSystem::Network(name) => {
            Finding::danger("file-system", format!("a network disk ({name})"))
                .because("another machine could also write the file, so such a file is refused")
                .fix("choose a path on a local disk; for many machines use redis://HOST")
        }
        FileSystem::Foreign(name) => Finding::note(
            "file-system",
            format!("a file system through {name}"),
        )
        .because(
            "if other machines can also mount it, their locks do not exclude those of this one",
        )
        .fix("make sure that it is a disk of this machine"),
        FileSystem::Memory => Finding::note("file-system", "in memory (tmpfs)")
            .because("it is lost when the machine restarts; tokens then continue by the clock")
            .fix("choose a path on a disk, if tokens must grow even if the clock is set back"),
        FileSystem::Local => Finding::ok("file-system", "a disk of this machine"),
    }
}

fn rights(facts: &FileFacts) -> Finding {
    let path = facts.path.display();
    if !facts.directory_writable {
        return Finding::danger(
            "rights",
            format!("no files can be created in the directory of {path}"),
        )
        .because("SQLite keeps its log beside the file: no lock can be acquired")
        .fix("make the directory writable for this user, or choose another");
    }
    match facts.mode {
        Some(mode) if mode & OTHERS_WRITE != 0 => {
            Finding::warning("rights", format!("the file has mode {mode:03o}"))
                .because("every user of this machine can acquire, release and destroy these locks")
                .fix(format!("chmod o-w {path}"))
        }
        Some(mode) => Finding::ok("rights", format!("the file has mode {mode:03o}")),
        None => Finding::ok("rights", "its directory is writable"),
    }
}

#[cfg(test)]
mod tests {
    use super::FileSystem::{Foreign, Network};
    use super::*;
    use crate::doctor::Severity::{Danger, Note, Ok, Unknown, Warning};
    use crate::doctor::finding::{ChangeOf, assert_severities};

    fn healthy() -> FileFacts {
        FileFacts {
            path: "/var/lib/app/locks.db".into(),
            exists: true,
            directory_exists: true,
            file_system: Some(FileSystem::Local),
            mode: Some(0o600),
            directory_writable: true,
            free: Some(1 << 40),
            log: Some(16 * 1024 * 1024),
            other_boot_id: false,
            missing: Vec::new(),
            fault: None,
        }
    }

    /// Those that `it::doctor::files` cannot bring about.
    const CHANGES: [ChangeOf<FileFacts>; 8] = [
        (Ok, "", |_| {}),
        (Danger, "file-system", |it| {
            it.file_system = Some(Network("NFS"));
        }),
        (Note, "file-system", |it| {
            it.file_system = Some(Foreign("FUSE"));
        }),
        (Danger, "rights", |it| it.directory_writable = false),
        (Danger, "directory", |it| {
            it.exists = false;
            it.directory_exists = false;
        }),
        (Warning, "room", |it| it.free = Some(1024)),
        (Note, "kernel", |it| it.other_boot_id = true),
        (Unknown, Finding::INCOMPLETE, |it| {
            it.missing.push("the file system (statfs: denied)".into());
            it.file_system = None;
        }),
    ];

    #[test]
    fn each_fact_of_a_file_has_its_severity() {
        assert_severities(healthy, check, &CHANGES);
    }
}
