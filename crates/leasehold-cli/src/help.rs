//! The texts after the options in help and manual pages.
//!
//! A line in capitals is a heading. A paragraph is one line, which the terminal breaks. An indented line is not broken.

/// The two forms of `run`.
pub(crate) const RUN_USAGE: &str = "leasehold run [OPTIONS] <NAME> <COMMAND>...
       leasehold run [OPTIONS] <NAME> -c <STRING>";

/// The two forms of `once`.
pub(crate) const ONCE_USAGE: &str = "leasehold once [OPTIONS] <NAME> --key <KEY> <COMMAND>...
       leasehold once [OPTIONS] <NAME> --key <KEY> -c <STRING>";

/// The two forms of `elect`.
pub(crate) const ELECT_USAGE: &str = "leasehold elect [OPTIONS] <NAME> --value <TEXT> <COMMAND>...
       leasehold elect [OPTIONS] <NAME> --value <TEXT> -c <STRING>";

/// The variables are those of all commands, and every manual page has them.
pub(crate) const LEASEHOLD: &str = "\
EXIT STATUS
Each command describes its own. 125 is a failure of leasehold itself, or an error in its arguments.

ENVIRONMENT
  LEASEHOLD_STORE                the store, as --store; may contain a password
  LEASEHOLD_PASSWORD             the store's password
  LEASEHOLD_PASSWORD_FILE        a file with it, as --password-file
  LEASEHOLD_PASSWORD_STORE       the only store that the password is sent to
  LEASEHOLD_SENTINEL_PASSWORD    the password of the sentinels
  LEASEHOLD_NAMESPACE            as --namespace
  LEASEHOLD_TENANT               as --tenant
  LEASEHOLD_WATCHDOG             the watchdog, as --watchdog of run and hold
  LEASEHOLD_WATCHDOG_STORE       as --watchdog-store of run
  LEASEHOLD_WATCHDOG_TOKEN_FILE  as --watchdog-token-file of run
  LEASEHOLD_WATCHDOG_CA_FILE     as --watchdog-ca-file of run
  LEASEHOLD_WATCHDOG_LISTEN      as --listen of watchdog
  LEASEHOLD_LOG                  the log filter, such as leasehold=debug
  XDG_STATE_HOME                 the state directory; default ~/.local/state
  XDG_RUNTIME_DIR                directory of the watchdog socket; root: /run

FILES
  /etc/leasehold/store  the URL of the store for all users, if nothing else
                        names one; a line of comment begins with #

EXAMPLES
  leasehold run deploy ./deploy.sh production
  leasehold run --every 1d nightly-report ./report.sh
  leasehold once migrate --key \"$RELEASE\" -- ./migrate.sh
  leasehold show deploy
  leasehold doctor --store redis://db";

pub(crate) const RUN: &str = "\
EXIT STATUS
  the command's own, or 128+n if signal n ended it
  75   another client holds the lock (-n)
  122  the lock was lost while the command ran (--lost-exit-code)
  124  the wait timed out (-w)
  125  leasehold failed, wrong arguments, or a name of another kind of lock
  126  the command cannot be executed
  127  the command was not found
It is never 0 if the command did not run, except with --skip-ok, or if a run with --every was complete already \
(--done-exit-code). A run with --every whose lock was lost never exits with 0.

JOBS
With --every the command runs once in each period, on one of the machines that start it. The others wait, and exit with \
0 as soon as the run is complete: its command has ended with 0. A run that fails, loses its lock or is killed leaves \
no record, and a waiting machine takes over. With -n or --skip-ok a machine does not wait, and does not take over. A \
start belongs to the run whose time is nearest, by the clock of the store. So starts for one run may differ by less \
than half a period, lateness included. The times start with the first completed run, and are forgotten after two \
periods without one. With --anchor a start belongs to a run from 3h 15m (at most half a period) before its time, until \
as long before the next one. If a machine dies between the end of the command and its record, another one repeats the run.

TRIAL
A run by hand counts like a run by a timer, so the next night may be skipped. --no-record runs the job without a \
record.

SHARING
--shared runs of a name run at the same time, and an --exclusive one runs alone: a read-write lock. With --permits 5 at most \
five runs of a name run at the same time: a semaphore. All runs of a name give the same number. --weight takes several \
permits, and --numbered gives each run a number that no other has, from 0 on. Runs are served in their order, so a run \
that waits for others is not overtaken. A name is used as one kind of lock at a time. A run inside another run \
cannot have its names, not even with --shared or --permits: it could wait for itself.

SEVERAL LOCKS
With --and NAME the run holds the locks of all its names, or none. It waits for them in the order of their names, so runs \
never wait for each other in a circle. If one of them is lost, the command is stopped. The variables of the command are \
those of the first name.

ENVIRONMENT OF THE COMMAND
  LEASEHOLD_NAME      the name of the lock
  LEASEHOLD_TOKEN     the fencing token: larger than those of all earlier runs;
                      --shared runs between two --exclusive ones have the same
  LEASEHOLD_LEASE     the id of the lease
  LEASEHOLD_DEADLINE  the end of the lease in Unix milliseconds, unless renewed
  LEASEHOLD_SLOT      the number of the run (--numbered)
  LEASEHOLD_TOKENS    the tokens of all names, in their order (--and)
  LEASEHOLD_OUTER     the ids of the leases of the runs around this one
  LEASEHOLD_STORE     the store, without its password
The password of the store is passed on for nested runs, in LEASEHOLD_PASSWORD, LEASEHOLD_PASSWORD_FILE or \
LEASEHOLD_SENTINEL_PASSWORD. One from the URL or from --password-file is sent only to LEASEHOLD_PASSWORD_STORE.

SIGNALS
Signals are passed on to the command. At a terminal it is in the process group of leasehold and gets them directly; \
otherwise it has its own group. During the wait for the lock a signal ends leasehold with 128+n. Background processes \
that outlive the command go on without the lock, with a message. With --wait-all they keep the lock and get the signals.

LOSS OF THE LOCK
All processes of the command are stopped: TERM, and KILL after --kill-after. A lock that was revoked, deleted or \
taken over can have a new holder before the command has ended: for 500 ms, or for --kill-after if it is given. A process \
of another user (sudo) cannot be stopped. leasehold names it on stderr and exits with the code of a lost lock when the \
others have ended. If leasehold was killed, the lease ends by its ttl, although such a process goes on.

GUARDIAN
The guardian, a process between leasehold and the command, kills the command if leasehold is killed with -9. If \
leasehold is stopped, the guardian kills the command before the lease ends, unless a watchdog renews the lease. \
Without a guardian the command is not run. If the guardian is killed, the run ends with 125.

EXAMPLES
  leasehold run nightly-report ./report.sh
  leasehold run --every 1d --retry-after 5m nightly-report ./report.sh
  leasehold run -n --skip-ok cleanup find /tmp/cache -mtime +7 -delete
  leasehold run -w 2m --ttl 1m deploy ./deploy.sh production
  leasehold run -n --skip-ok --at-least 1m clean-up ./clean-up.sh
  leasehold run backup -c 'pg_dump shop > shop.tmp && mv shop.tmp shop.sql'
  leasehold run --permits 5 exports ./export.sh
  leasehold run --shared catalog ./read.sh
  leasehold run --watchdog backup ./backup.sh
  leasehold run import -c 'import --fence \"$LEASEHOLD_TOKEN\"'";

pub(crate) const ONCE: &str = "\
EXIT STATUS
  0    the run for this key was complete already (--done-exit-code)
Otherwise it is that of leasehold run, whose help describes all that is not about keys.

RUNS
A run is complete when its command has ended with 0. Then all waiting machines exit, and each later start for this key \
exits immediately, until the record is removed: after 3,650 days or --keep, or by leasehold jobs --reset. A run that \
fails, loses its lock or is killed leaves no record, and a waiting machine takes over. With -n or --skip-ok a machine does \
not wait, and does not take over. If a machine dies between the end of the command and its record, another one repeats \
the run.

EXAMPLES
  leasehold once migrate --key \"$RELEASE\" -- ./migrate.sh
  leasehold once -w 10m warm-up --key \"$RELEASE\" -c 'warm-up --all'
  leasehold jobs --reset migrate --key v1.2.3";

pub(crate) const JOBS: &str = "\
EXIT STATUS
  0    the runs were listed, perhaps none; or a record was removed
  1    no record to remove (--reset); a job is overdue or has none (--check)
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold jobs
  leasehold jobs --json
  leasehold jobs --check nightly-report
  leasehold jobs --prometheus > leasehold.prom
  leasehold jobs --reset nightly-report
  leasehold jobs --reset migrate --key v1.2.3";

pub(crate) const ELECT: &str = "\
EXIT STATUS
That of leasehold run, which has the details of all that is not about elections. With --again the last one before the \
signal that ended leasehold.

LEADERSHIP
The command runs when the store has granted the lock of this name: then this candidate leads. Its term is the fencing \
token, larger than those of all leaders before it. The value is written at the same time. Waiting candidates lead in \
the order of arrival, each in the same step in which the leader before it releases its leadership.

ENVIRONMENT OF THE COMMAND
  LEASEHOLD_TERM  the term, which is also LEASEHOLD_TOKEN
The others are those of leasehold run.

PROBES
With --health, /healthz replies 200 while this candidate leads or waits, and 500 if the leadership is lost but the \
command still runs: it could not be stopped, or --on-lost is ignore. A store that does not reply is not a reason to \
restart a candidate.

EXAMPLES
  leasehold elect scheduler --value \"$(hostname):8080\" ./scheduler
  leasehold elect --again --health 0.0.0.0:8081 web --value \"$POD_IP\" ./web";

pub(crate) const LEADER: &str = "\
EXIT STATUS
  0    there is a leader
  1    there is none, or it has not proclaimed its value yet
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  curl \"http://$(leasehold leader scheduler)/status\"
  leasehold leader --json scheduler";

pub(crate) const WATCH: &str = "\
EXIT STATUS
  0    the reader has closed the output
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold watch deploy
  leasehold watch migrate --key v1.2.3
  leasehold watch --json scheduler nightly-report | jq -c .leader";

pub(crate) const HOLD: &str = "\
LINES ON STDOUT
  granted   the lock is held
  jeopardy  a renewal failed or is overdue
  held      the jeopardy has ended
  lost      the lock is lost; leasehold exits
Each line is a JSON object with event, store, name, lease, token, slot, deadline, time_left_ms, lost_in_ms and cause. The \
token is the fencing token: larger than those of all earlier holders. With --and each lock has its lines, and all are \
released when one is lost. Messages for people are on stderr, as those of \
run.

RELEASE OF THE LOCK
The lock is released when stdin ends, or the reader of stdout has closed it. Text on stdin has no effect. A stdin that \
has already ended is an error. At a terminal Ctrl-D ends stdin.

SIGNALS
TERM, INT, HUP, QUIT and ALRM do not release the lock while stdin is open: a terminal or a supervisor also sends them to \
the program, which finishes its work and closes stdin. They end the wait for the lock. If stdin is a terminal, they \
release the lock. So does a second signal of the same kind if the program has ended, but another process keeps its pipe open.

LOSS OF THE LOCK
The program must stop its work at the line lost, and if stdout ends without it: then leasehold was killed, and the lock \
is free at the end of the lease, or immediately with a watchdog. leasehold stops neither the program nor its child \
processes: a program with child processes needs leasehold run. If leasehold alone is stopped (SIGSTOP), the lease ends \
without a line, and the program works on: --watchdog renews the lease meanwhile.

EXIT STATUS
  0    stdin ended; the lock was held to the end and is released
  128+n
       signal n released the lock or ended the wait; 141: no reader
  75   another client holds the lock (-n)
  122  the lock was lost
  124  the wait timed out (-w)
  125  leasehold failed, the release failed, or the arguments are wrong

EXAMPLES
  leasehold hold deploy
  leasehold hold --wait 60 --ttl 10s deploy < in > out
  leasehold hold --watchdog --label 'invoice run' invoices";

pub(crate) const LS: &str = "\
EXIT STATUS
  0    the locks were listed; the list may be empty
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold ls
  leasehold ls --store redis://db --filter 'deploy/*'
  leasehold ls --watch
  leasehold ls --json";

pub(crate) const SHOW: &str = "\
EXIT STATUS
  0    the lock is held
  1    the lock is free
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold show deploy
  leasehold show --json deploy";

pub(crate) const RELEASE: &str = "\
EXIT STATUS
  0    a holder was cut off
  1    the lock was free
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold release --force deploy";

pub(crate) const DOCTOR: &str = "\
EXIT STATUS
  0    no problem found in what was checked; there may be notes
  1    warnings: locks may be lost if something else also fails;
       or a part could not be checked: the server, the system or a missing
       right prevented it
  2    dangers: locks would be lost, or cannot be acquired
  125  the store is unreachable or refuses access, or the arguments are wrong

EXAMPLES
  leasehold doctor
  leasehold doctor --store redis+cluster://a,b,c --ttl 10s
  leasehold doctor --store redis://db --replicas 1 --json
  leasehold doctor --setup --role app | psql shop";

pub(crate) const COMPLETIONS: &str = "\
NAMES OF LOCKS
The scripts for bash, zsh and fish also complete the names of held locks that have only ASCII letters, digits \
and %+,-./:=@_. They query the store for at most 300 ms. The command of a run is completed as the shell completes commands.

EXIT STATUS
  0    the script was printed
  125  the arguments are wrong, or stdout cannot be written

EXAMPLES
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > /usr/local/share/zsh/site-functions/_leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

pub(crate) const MAN: &str = "\
EXIT STATUS
  0    the pages were written
  125  the arguments are wrong, or the output cannot be written

EXAMPLES
  leasehold man | man -l -
  leasehold man --dir /usr/local/share/man/man1";
