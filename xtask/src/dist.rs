//! What a release consists of: the program, its manual pages and its completions, in an archive and a Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::{cargo, cargo_line, find, output, root, run, target};

/// The version of cargo-deb that is installed if there is none.
const CARGO_DEB_VERSION: &str = "3.8.0";

/// Files of the repository in the archive.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Its systemd units.
const UNITS: [&str; 2] = ["leasehold-watchdog.service", "leasehold-watchdog.socket"];

/// The shells of the completions, with the file names that they search for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "leasehold"),
    ("zsh", "_leasehold"),
    ("fish", "leasehold.fish"),
];

/// A compiled program, with the pages and scripts that it has written.
struct Build {
    program: PathBuf,
    man: PathBuf,
    completions: PathBuf,
}

/// Compiles the program, and lets it write its manual pages and completions beside it. So it must run on this machine.
fn build(triple: Option<&str>) -> Result<Build, String> {
    let mut build = cargo_line("build --release --locked --package leasehold-cli");
    let release = match triple {
        Some(triple) => {
            build.args(["--target", triple]);
            target().join(triple).join("release")
        }
        None => target().join("release"),
    };
    run(&mut build)?;
    let share = release.join("share");
    let build = Build {
        program: release.join("leasehold"),
        man: share.join("man"),
        completions: share.join("completions"),
    };
    remove(&share)?;
    create(&build.completions)?;
    run(Command::new(&build.program)
        .args(["man", "--dir"])
        .arg(&build.man))?;
    for (shell, file) in COMPLETIONS {
        let script = output(Command::new(&build.program).args(["completions", shell]))?;
        write(&build.completions.join(file), &script)?;
    }
    Ok(build)
}

/// Packs the archive for a target, by default for this machine, and prints its path.
pub(crate) fn archive(triple: Option<&str>) -> Result<(), String> {
    let build = build(triple)?;
    let host = || output(Command::new("rustc").args(["--print", "host-tuple"]));
    let triple = triple.map_or_else(host, |triple| Ok(triple.to_owned()))?;
    let name = archive_name(env!("CARGO_PKG_VERSION"), triple.trim());
    let dist = target().join("dist");
    let directory = dist.join(&name);
    remove(&directory)?;
    create(&directory)?;
    copy(&build.program, &directory)?;
    for document in DOCUMENTS {
        copy(&root().join(document), &directory)?;
    }
    for (from, to) in [(build.man, "man"), (build.completions, "completions")] {
        copy_all(&from, &directory.join(to))?;
    }
    let units = directory.join("systemd");
    create(&units)?;
    for unit in UNITS {
        copy(&root().join("packaging").join(unit), &units)?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    let owner = "--owner=0 --group=0 --numeric-owner --sort=name";
    run(Command::new("tar")
        .current_dir(&dist)
        .args(owner.split(' '))
        .arg("-czf")
        .args([&archive, Path::new(&name)]))?;
    println!("{}", archive.display());
    Ok(())
}

/// The name of an archive without its ending. `package.metadata.binstall` of the command states it, too.
fn archive_name(version: &str, triple: &str) -> String {
    format!("leasehold-{version}-{triple}")
}

/// Builds the Debian package, and prints its path.
pub(crate) fn deb() -> Result<(), String> {
    build(None)?;
    let tools = root().join("target/tools");
    let program = find("cargo-deb").unwrap_or_else(|| tools.join("bin/cargo-deb"));
    if !program.is_file() {
        // The system's xz compresses; the library for it would have to be compiled.
        let mut install = cargo_line("install cargo-deb --locked --debug --no-default-features");
        install.env_remove("CARGO_TARGET_DIR");
        install.args(["--version", CARGO_DEB_VERSION, "--root"]);
        run(install.arg(&tools))?;
    }
    let package = target().join("dist/leasehold.deb");
    create(&target().join("dist"))?;
    let mut deb = Command::new(program);
    deb.current_dir(root())
        .env("CARGO", cargo().get_program())
        .args(["--package", "leasehold-cli", "--no-build", "--locked"])
        .arg("--output")
        .arg(&package);
    run(&mut deb)?;
    println!("{}", package.display());
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> Result<(), String> {
    let name = file.file_name().unwrap_or_default();
    match fs::copy(file, directory.join(name)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{}: {error}", file.display())),
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    create(to)?;
    let entries = fs::read_dir(from).map_err(|error| format!("{}: {error}", from.display()))?;
    entries
        .flatten()
        .try_for_each(|file| copy(&file.path(), to))
}

fn create(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

fn remove(directory: &Path) -> Result<(), String> {
    match directory.exists() {
        true => fs::remove_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display())),
        false => Ok(()),
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value of `[package.metadata.binstall]`, with its variables replaced.
    fn binstall(key: &str) -> String {
        let metadata = output(&mut cargo_line(
            "metadata --no-deps --locked --format-version 1",
        ));
        let metadata: serde_json::Value = serde_json::from_str(&metadata.unwrap()).unwrap();
        let mut packages = metadata["packages"].as_array().unwrap().iter();
        let package = packages.find(|it| it["name"] == "leasehold-cli").unwrap();
        let template = package["metadata"]["binstall"][key].as_str().unwrap();
        [
            ("repo", package["repository"].as_str().unwrap()),
            ("version", package["version"].as_str().unwrap()),
            ("target", "x86_64-unknown-linux-musl"),
            ("bin", "leasehold"),
            ("binary-ext", ""),
        ]
        .into_iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("{{ {name} }}"), value)
        })
    }

    #[test]
    fn binstall_finds_the_archive_and_the_program_in_it() {
        let version = env!("CARGO_PKG_VERSION");
        let name = archive_name(version, "x86_64-unknown-linux-musl");
        let release = format!("/releases/download/v{version}/{name}.tar.gz");
        assert!(binstall("pkg-url").ends_with(&release), "{release}");
        assert_eq!(binstall("bin-dir"), format!("{name}/leasehold"));
    }
}
