//! Installs the Debian package into a fresh root, as a user would, and uses it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::dist::COMPLETIONS;
use crate::servers::ensure;
use crate::steps::Steps;
use crate::tools::{find, run, target};

/// The oldest Debian for which the package is built.
const SUITE: &str = "bookworm";

/// The time from a fresh root to the end of the first lock.
const FIRST_LOCK_MAX: Duration = Duration::from_secs(10);

/// The package, without further ones, and the first lock.
const INSTALL: &str = "dpkg --install /leasehold.deb && leasehold run demo -- true";

/// One lock that is held excludes another and is listed; the package has created its group; bash completes; the links of
/// the README to documents lead to files.
const USE: &str = r#"
set -eu
mkfifo /tmp/held /tmp/end
leasehold run demo -- sh -c 'echo "$LEASEHOLD_TOKEN" > /tmp/held; read -r _ < /tmp/end' &
read -r token < /tmp/held
code=0; leasehold run --no-wait demo -- echo 'two holders' || code=$?
test "$code" -eq 75
leasehold show demo
echo > /tmp/end
wait
test "$(leasehold run demo -- printenv LEASEHOLD_TOKEN)" -gt "$token"
leasehold doctor
getent group leasehold
bash -c '. /usr/share/bash-completion/completions/leasehold && complete -p leasehold'
test ! -e /etc/systemd/system/multi-user.target.wants/leasehold-watchdog.service
cd /usr/share/doc/leasehold
grep -o '](docs/[^)#]*' README.md | cut -c3- | xargs ls
ls examples/prometheus/alerts.yml examples/grafana/leasehold.json examples/cron/* examples/systemd/* examples/kubernetes/*
"#;

/// The units are valid beside those of systemd, which a fresh root does not have.
const UNITS: &str = "apt-get -q update && apt-get -q install --yes --no-install-recommends systemd && \
                     systemd-analyze verify --man=no leasehold-watchdog.service leasehold-watchdog.socket";

/// A purged package leaves nothing but the files of its user, and a group that it has not made.
const PURGE: &str = r#"
set -eu
dpkg --purge leasehold
test -z "$(find /usr /etc /lib/systemd /var/lib -name '*leasehold*' -not -path '/var/lib/dpkg/*')"
if getent group leasehold; then exit 1; fi
groupadd leasehold
dpkg --install /leasehold.deb
dpkg --purge leasehold
getent group leasehold
"#;

/// A root directory, which is removed when this is dropped.
struct FreshRoot(PathBuf);

impl Drop for FreshRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Installs the package into a root made by debootstrap, and checks what it has installed. Needs root.
pub(crate) fn check(steps: &mut Steps, package: &Path) {
    let root = FreshRoot(target().join("fresh-root"));
    steps.run("a fresh root", || root.create(package));
    if steps.failed() {
        return;
    }
    steps.run("from a fresh root to the first lock", || root.install());
    steps.run("locks, group and completions", || root.sh(USE));
    steps.run("manual pages", || root.check_pages());
    steps.run("completions", || root.check_completions());
    steps.run("systemd units", || root.sh(UNITS));
    steps.run("removal", || root.sh(PURGE));
}

/// Runs a command in a mount namespace of its own. No mount there reaches the one of this process.
fn unshare() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation=private"]);
    unshare
}

impl FreshRoot {
    fn create(&self, package: &Path) -> Result<(), String> {
        if !geteuid().is_root() {
            return Err("debootstrap and chroot need root".into());
        }
        ensure("debootstrap", || find("debootstrap"))?;
        ensure("man-db", || find("man"))?;
        if self.0.exists() {
            fs::remove_dir_all(&self.0).map_err(|error| error.to_string())?;
        }
        // What it mounts into the root ends with its namespace, also if it fails.
        let mut debootstrap = unshare();
        debootstrap.args(["debootstrap", "--variant=minbase", SUITE]);
        run(debootstrap.arg(&self.0))?;
        fs::copy(package, self.0.join("leasehold.deb"))
            .map(drop)
            .map_err(|error| format!("{}: {error}", package.display()))
    }

    /// Runs a script in the root, with a `/proc` and a pid namespace of its own, so that no process outlives it.
    fn sh(&self, script: &str) -> Result<(), String> {
        let mut unshare = unshare();
        unshare
            .args(["--pid", "--fork", "--kill-child"])
            .arg(format!("--root={}", self.0.display()))
            .args(["--mount-proc", "/bin/sh", "-c", script])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root");
        run(&mut unshare)
    }

    fn install(&self) -> Result<(), String> {
        let start = Instant::now();
        self.sh(INSTALL)?;
        let elapsed = start.elapsed();
        println!("{:.1} s to the first lock", elapsed.as_secs_f64());
        match elapsed < FIRST_LOCK_MAX {
            true => Ok(()),
            false => Err(format!("{elapsed:?}, at most {FIRST_LOCK_MAX:?}")),
        }
    }

    /// Renders every page without a warning.
    fn check_pages(&self) -> Result<(), String> {
        let directory = self.0.join("usr/share/man/man1");
        let entries = fs::read_dir(&directory).map_err(|error| error.to_string())?;
        let mut pages = Vec::new();
        let is_ours =
            |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with("leasehold");
        for page in entries.flatten().filter(is_ours) {
            let mut man = Command::new("man");
            man.args(["--warnings", "--local-file"]).arg(page.path());
            let rendered = man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80").output();
            let rendered = rendered.map_err(|error| error.to_string())?;
            let name = page.file_name().to_string_lossy().into_owned();
            if !rendered.status.success() || !rendered.stderr.is_empty() {
                let stderr = String::from_utf8_lossy(&rendered.stderr);
                return Err(format!("{name}: {}", stderr.trim()));
            }
            pages.push(name);
        }
        pages.sort();
        println!("{}", pages.join(", "));
        match pages.iter().any(|page| page.starts_with("leasehold-run.1")) {
            true => Ok(()),
            false => Err("there is no page of leasehold run".into()),
        }
    }

    /// Checks that each shell finds its completions.
    fn check_completions(&self) -> Result<(), String> {
        for (shell, file) in COMPLETIONS {
            let directory = match shell {
                "bash" => "usr/share/bash-completion/completions",
                "zsh" => "usr/share/zsh/vendor-completions",
                _ => "usr/share/fish/vendor_completions.d",
            };
            let path = self.0.join(directory).join(file);
            let script = fs::read_to_string(&path);
            let script = script.map_err(|error| format!("{}: {error}", path.display()))?;
            if !script.contains("lost-exit-code") {
                return Err(format!("{} completes no option of run", path.display()));
            }
        }
        Ok(())
    }
}
