//! A history, put in order for the rules.

use std::collections::BTreeMap;

use super::verdict::Figures;
use crate::clock::{MILLI, Nanos};
use crate::history::{Event, Happened, History, Note, Seen, Write};

/// How far the time of a token may be from the instant of its grant: a token follows the last one
/// by one at least, and 257 of them are reserved at once, each for a microsecond.
const TOKEN_ERROR: Nanos = MILLI;

/// What happened in a world.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) processes: Vec<Process>,
    /// In the order of their questions.
    pub(super) holds: Vec<Hold>,
    pub(super) faults: Vec<Happened>,
    pub(super) samples: Vec<Sample>,
    pub(super) writes: Vec<Written>,
    pub(super) failures: Vec<String>,
    pub(super) left_behind: Vec<(String, i64)>,
    pub(super) at_the_end: Vec<(String, String)>,
    /// Whether there were many masters, of which fewer than a majority forgot at a time.
    pub(super) many: bool,
    /// The smallest token seen of each lease: the one of its grant, or close to it.
    first_tokens: BTreeMap<String, u64>,
    /// What to take from the time of a token to have an instant, if that means anything.
    wall: Option<Nanos>,
}

/// A holder process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) ttl: Nanos,
    pub(super) handoff: bool,
    /// When no thread of it ran.
    pub(super) stalls: Vec<(Nanos, Nanos)>,
    /// When none of its tasks ran, though there was a processor for them.
    pub(super) blocked: Vec<(Nanos, Nanos)>,
    /// When it ended in peace, with everything released.
    pub(super) released: Option<Nanos>,
    pub(super) complaint: String,
}

/// An acquisition, from the question to the release.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pub(super) process: usize,
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) asked: Nanos,
    pub(super) fixed: bool,
    /// The hold of the same process whose lease it enters again.
    pub(super) inside: Option<u64>,
    pub(super) grant: Option<Grant>,
    pub(super) looks: Vec<Look>,
    pub(super) counts: Vec<Count>,
    pub(super) leaving: Option<Nanos>,
    pub(super) left: Option<(Nanos, String)>,
}

#[derive(Debug)]
pub(super) struct Grant {
    pub(super) at: Nanos,
    pub(super) lease: String,
    pub(super) token: u64,
    pub(super) ttl: Nanos,
}

/// What a holder was told of its state, at some instant between `before` and `at`.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) before: Nanos,
    pub(super) at: Nanos,
    pub(super) state: Seen,
    pub(super) kind: LookKind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LookKind {
    /// It asked.
    Check,
    /// It asked, and began a critical step; with its end, and the answer of the fenced resource.
    Step(Option<(Nanos, Write)>),
    /// The stream told.
    Told,
}

/// What the store said of the hold count, and the state after its answer.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) at: Nanos,
    pub(super) expected: u32,
    pub(super) seen: Option<(String, u32)>,
    pub(super) held: bool,
}

/// What a record was at some instant between `from` and `at`.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) from: Nanos,
    pub(super) at: Nanos,
    pub(super) holds: Vec<(String, u32)>,
    pub(super) left_ms: i64,
}

/// A decision of the fenced resource.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) at: Nanos,
    pub(super) process: String,
    pub(super) hold: u64,
    pub(super) name: String,
    pub(super) token: u64,
    pub(super) accepted: bool,
}

impl Facts {
    pub(super) fn of(history: &History) -> Self {
        let mut facts = Self::default();
        let mut moved = false;
        for (at, note) in &history.notes {
            facts.note(*at, note, &mut moved);
        }
        if moved {
            facts.wall = None;
        }
        for process in &history.processes {
            facts.process(process);
        }
        facts.holds.sort_by_key(|hold| hold.asked);
        for grant in facts.holds.iter().filter_map(|hold| hold.grant.as_ref()) {
            let lease = grant.lease.clone();
            let first = facts.first_tokens.entry(lease).or_insert(grant.token);
            *first = grant.token.min(*first);
        }
        facts
    }

    fn note(&mut self, at: Nanos, note: &Note, moved: &mut bool) {
        match note.clone() {
            Note::World { wall, servers, .. } => {
                self.wall = wall;
                self.many = servers > 1;
            }
            Note::WallMoved => *moved = true,
            Note::Fault(happened) => self.faults.push(happened),
            Note::Sampled {
                name,
                from,
                holds,
                left_ms,
            } => self.samples.push(Sample {
                name,
                from,
                at,
                holds,
                left_ms,
            }),
            Note::Wrote {
                process,
                hold,
                name,
                token,
                accepted,
            } => self.writes.push(Written {
                at,
                process,
                hold,
                name,
                token,
                accepted,
            }),
            Note::Failed { process, why } => self.failures.push(format!("{process}: {why}")),
            Note::LeftBehind { key, left_ms } => self.left_behind.push((key, left_ms)),
            Note::AtTheEnd { name, lease } => self.at_the_end.push((name, lease)),
        }
    }

    fn process(&mut self, history: &crate::history::Process) {
        let mut process = Process {
            name: history.name.clone(),
            complaint: history.complaint.clone(),
            ..Process::default()
        };
        let mut holds = BTreeMap::<u64, Hold>::new();
        for (at, event) in &history.events {
            match event {
                Event::Started {
                    ttl_ms, handoff, ..
                } => {
                    process.ttl = ttl_ms * MILLI;
                    process.handoff = *handoff;
                }
                Event::Stalled { since } => process.stalls.push((*since, *at)),
                Event::Blocked { since } => process.blocked.push((*since, *at)),
                Event::Ended { released } => process.released = released.then_some(*at),
                Event::Asked {
                    hold,
                    name,
                    fixed,
                    inside,
                } => {
                    let asked = Hold {
                        process: self.processes.len(),
                        number: *hold,
                        name: name.clone(),
                        asked: *at,
                        fixed: *fixed,
                        inside: *inside,
                        ..Hold::default()
                    };
                    holds.insert(*hold, asked);
                }
                of_a_hold => {
                    let hold = of_a_hold.hold().and_then(|hold| holds.get_mut(&hold));
                    if let Some(hold) = hold {
                        hold.event(*at, of_a_hold);
                    }
                }
            }
        }
        self.processes.push(process);
        self.holds.extend(holds.into_values());
    }

    /// The holds that were granted, with their grants.
    pub(super) fn granted(&self) -> impl Iterator<Item = (&Hold, &Grant)> {
        let granted = |hold| Some((hold, Hold::grant(hold)?));
        self.holds.iter().filter_map(granted)
    }

    /// When the store granted a lease, read off its first token, where that can be done.
    pub(super) fn granted_at(&self, lease: &str) -> Option<Nanos> {
        let token = self.first_tokens.get(lease)?;
        (token * 1000).checked_sub(self.wall?)
    }

    /// An instant before the store granted the lease of a hold.
    pub(super) fn before_grant(&self, hold: &Hold) -> Nanos {
        let grant = hold.grant.as_ref();
        match grant.and_then(|grant| self.granted_at(&grant.lease)) {
            Some(at) => at.saturating_sub(TOKEN_ERROR),
            None => self.asked_first(hold),
        }
    }

    /// When the first hold of the lease was asked for.
    fn asked_first(&self, hold: &Hold) -> Nanos {
        let same = |other: &&Hold| other.process == hold.process && other.lease() == hold.lease();
        let first = self.holds.iter().find(same);
        first.map_or(hold.asked, |first| first.asked.min(hold.asked))
    }

    /// Whether the store may have lost a grant of this name, or ended it early, in this time.
    pub(super) fn forgot(&self, name: &str, from: Nanos, to: Nanos) -> bool {
        self.happened(from, to, |happened| {
            happened.fault.forgets_grants() && happened.hits(name)
        })
    }

    /// Whether the store may have granted a name to another during a hold. Many masters may not, whatever
    /// fewer than a majority of them forgot.
    pub(super) fn granted_twice(&self, hold: &Hold, from: Nanos, to: Nanos) -> bool {
        !self.many && self.forgot_hold(hold, from, to)
    }

    /// The same as [`Facts::forgot`] for one hold. Who enters its lease again after the counter was lost is
    /// answered with another token, has to take it for another grant, and gives the lease up.
    pub(super) fn forgot_hold(&self, hold: &Hold, from: Nanos, to: Nanos) -> bool {
        let entered = |other: &Hold| {
            let inside = other.process == hold.process && other.inside == Some(hold.number);
            inside && other.asked <= to
        };
        let counter =
            |happened: &Happened| happened.fault.forgets_counters() && happened.hits(&hold.name);
        self.forgot(&hold.name, from, to)
            || (self.happened(from, to, counter) && self.holds.iter().any(entered))
    }

    /// Whether a fault of some kind overlaps a time.
    pub(super) fn happened(
        &self,
        from: Nanos,
        to: Nanos,
        kind: impl Fn(&Happened) -> bool,
    ) -> bool {
        let overlaps = |(begin, end): (Nanos, Nanos)| begin <= to && end >= from;
        let mut faults = self.faults.iter();
        faults.any(|happened| overlaps(happened.outer) && kind(happened))
    }

    /// Words for a hold in a violation.
    pub(super) fn describe(&self, hold: &Hold) -> String {
        let process = &self.processes[hold.process].name;
        let lease = hold.lease().unwrap_or("no lease");
        let number = hold.number;
        format!("hold {number} of process {process} ({lease})")
    }

    pub(super) fn count(&self, figures: &mut Figures) {
        for happened in &self.faults {
            *figures.faults.entry(happened.fault).or_default() += 1;
        }
        figures.processes += self.processes.len() as u64;
        figures.asked += self.holds.len() as u64;
        for process in &self.processes {
            let stood = |(from, to): (Nanos, Nanos)| {
                let mut stalls = process.stalls.iter();
                stalls.any(|(begin, end)| *begin <= to && *end >= from)
            };
            for (from, to) in process.blocked.iter().filter(|span| !stood(**span)) {
                figures.longest_block = figures.longest_block.max(to - from);
            }
        }
        for (hold, grant) in self.granted() {
            figures.granted += 1;
            figures.longest_wait = figures.longest_wait.max(grant.at - hold.asked);
            figures.lost += u64::from(hold.lost().is_some());
            for look in &hold.looks {
                let LookKind::Step(ended) = &look.kind else {
                    continue;
                };
                figures.steps += 1;
                let until = look.until().unwrap_or(0);
                let late = ended.as_ref().is_some_and(|(at, _)| *at > until);
                figures.steps_late += u64::from(late);
            }
        }
    }
}

impl Hold {
    fn event(&mut self, at: Nanos, event: &Event) {
        match event.clone() {
            Event::Granted {
                lease,
                token,
                ttl_ms,
                ..
            } => {
                self.grant = Some(Grant {
                    at,
                    lease,
                    token,
                    ttl: ttl_ms * MILLI,
                });
            }
            Event::Checked {
                before,
                state,
                step,
                ..
            } => {
                let step = step && !matches!(state, Seen::Lost(_));
                let kind = if step {
                    LookKind::Step(None)
                } else {
                    LookKind::Check
                };
                self.look(before, at, state, kind);
            }
            Event::Told { state, .. } => self.look(at, at, state, LookKind::Told),
            Event::Stepped { write, .. } => {
                let steps = self.looks.iter_mut().rev();
                let mut open = steps.filter(|look| look.kind == LookKind::Step(None));
                if let Some(step) = open.next() {
                    step.kind = LookKind::Step(Some((at, write)));
                }
            }
            Event::Counted {
                before,
                expected,
                seen,
                state,
                ..
            } => {
                let held = !matches!(state, Seen::Lost(_));
                self.counts.push(Count {
                    at,
                    expected,
                    seen,
                    held,
                });
                self.look(before, at, state, LookKind::Check);
            }
            Event::Leaving { .. } => self.leaving = self.leaving.or(Some(at)),
            Event::Left { how, .. } => self.left = Some((at, how)),
            Event::NotGranted { .. }
            | Event::Started { .. }
            | Event::Asked { .. }
            | Event::Stalled { .. }
            | Event::Blocked { .. }
            | Event::Ended { .. } => {}
        }
    }

    fn look(&mut self, before: Nanos, at: Nanos, state: Seen, kind: LookKind) {
        self.looks.push(Look {
            before,
            at,
            state,
            kind,
        });
    }

    fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    pub(super) fn lease(&self) -> Option<&str> {
        Some(&self.grant()?.lease)
    }

    /// The times in which it believes: from each look to the end that it was promised, unless it
    /// leaves before. In order, and apart from each other.
    pub(super) fn beliefs(&self) -> Vec<(Nanos, Nanos)> {
        let end = self.leaving.unwrap_or(Nanos::MAX);
        let mut beliefs: Vec<(Nanos, Nanos)> = Vec::new();
        for look in &self.looks {
            let Some(until) = look.until() else {
                continue;
            };
            let until = until.min(end);
            if look.at >= until {
                continue;
            }
            match beliefs.last_mut() {
                Some(last) if look.at <= last.1 => last.1 = last.1.max(until),
                _ => beliefs.push((look.at, until)),
            }
        }
        beliefs
    }

    /// The latest end that it was promised.
    pub(super) fn promised(&self) -> Option<Nanos> {
        self.looks.iter().filter_map(Look::until).max()
    }

    /// The first look that said lost.
    pub(super) fn lost(&self) -> Option<&Look> {
        self.looks.iter().find(|look| look.until().is_none())
    }
}

impl Look {
    /// The end that was promised. `None`: it is lost.
    pub(super) fn until(&self) -> Option<Nanos> {
        match self.state {
            Seen::Held(until) | Seen::Jeopardy(until, _) => Some(until),
            Seen::Lost(_) => None,
        }
    }
}
