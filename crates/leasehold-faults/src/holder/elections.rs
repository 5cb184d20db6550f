//! Observers of elections, and candidates that lead, write and resign.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use leasehold::{Client, Durability, Election, Leader, Leadership, LeaseOptions, ReplicaCount};
use leasehold_testkit::helper::Commands;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::fence::Fence;
use super::hold::{LiveHold, sleep_up_to};
use super::{SHUTDOWN_TIMEOUT, Shared, stalls};
use crate::history::{Event, HoldEvent, ObservedLeader};

/// How long replicas may take to acknowledge a grant.
const REPLICAS_TIMEOUT: Duration = Duration::from_millis(500);

/// A leader makes critical steps until it is requested to resign.
const LEADERSHIP_MAX: Duration = Duration::from_secs(3600);

/// The elections of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ElectionsConfig {
    pub(crate) names: Vec<String>,
    /// Whether all replicas acknowledge each grant.
    pub(crate) replicated: bool,
    /// `None`: the process only observes.
    pub(crate) candidate: Option<CandidateConfig>,
}

/// What the candidates of a process do. The command `resign NAME` ends a leadership.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CandidateConfig {
    /// The port of the fenced resource on 127.0.0.1.
    pub(crate) fence: u16,
    pub(crate) seed: u64,
}

/// What ends the leadership of each election that this process leads.
type Resignations = Mutex<BTreeMap<String, CancellationToken>>;

/// A candidate in one election.
struct Candidate {
    shared: Arc<Shared>,
    election: Election,
    resignations: Arc<Resignations>,
    stop: CancellationToken,
    fence: Fence,
    rng: Rng,
}

/// Observes and campaigns until the commands end, and then resigns.
pub(super) async fn run(shared: &Arc<Shared>, config: ElectionsConfig, commands: Commands) {
    let resignations = Arc::<Resignations>::default();
    let resigning = Arc::clone(&resignations);
    let handle = move |command: &str| {
        let election = command.strip_prefix("resign ").unwrap();
        if let Some(resign) = resigning.lock().unwrap().get(election) {
            resign.cancel();
        }
    };
    let Some((client, stop)) = shared.begin(commands, handle).await else {
        return;
    };
    stalls::detect(shared);
    let run = async |part: CancellationToken| {
        shared.journal.record(&Event::Observing {
            elections: config.names.clone(),
        });
        let mut tasks = Vec::new();
        for (number, name) in (0..).zip(&config.names) {
            let election = election(&client, name, config.replicated);
            let observe = observe(Arc::clone(shared), election.clone());
            let stopped = part.clone();
            tasks.push(tokio::spawn(async move {
                let _ = stopped.run_until_cancelled(observe).await;
            }));
            if let Some(candidate) = &config.candidate {
                let candidate = Candidate {
                    shared: Arc::clone(shared),
                    election,
                    resignations: Arc::clone(&resignations),
                    stop: part.clone(),
                    fence: Fence::new(candidate.fence, &shared.config.process),
                    rng: Rng::with_seed(candidate.seed ^ number),
                };
                tasks.push(tokio::spawn(candidate.run()));
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    };
    shared.run_in_parts(&stop, run).await;
    let released = client.shutdown(SHUTDOWN_TIMEOUT).await.is_ok();
    shared.journal.record(&Event::Ended { released });
}

fn election(client: &Client, name: &str, replicated: bool) -> Election {
    let election = client.election(name).unwrap();
    if !replicated {
        return election;
    }
    let durability = Durability::Replicas {
        count: ReplicaCount::All,
        timeout: REPLICAS_TIMEOUT,
    };
    let durable = LeaseOptions::new().durability(durability);
    election.with(durable).unwrap()
}

/// Records what an observer is told.
async fn observe(shared: Arc<Shared>, election: Election) {
    let mut leaders = election.observe();
    loop {
        let election = election.mutex().name().to_owned();
        let event = match leaders.next().await {
            Ok(leader) => Event::LeaderObserved {
                election,
                leader: leader.as_ref().map(observed),
            },
            Err(error) => {
                let reason = error.to_string();
                shared
                    .journal
                    .record(&Event::ObserverFailed { election, reason });
                return;
            }
        };
        shared.journal.record(&event);
    }
}

/// A leader whose value is that of [`Candidate::value`].
fn observed(leader: &Leader) -> ObservedLeader {
    let mut words = leader.value.split(' ');
    let mut word = || words.next().unwrap_or_default();
    ObservedLeader {
        lease: leader.lease.to_string(),
        term: leader.term.get(),
        process: word().to_owned(),
        hold: word().parse().unwrap_or(u64::MAX),
    }
}

impl Candidate {
    async fn run(mut self) {
        while !self.stop.is_cancelled() {
            if !self.campaign().await {
                // The server may be away: use no processor time meanwhile.
                sleep_up_to(&mut self.rng, 20).await;
            }
        }
    }

    /// Campaigns, and leads until a loss or a resignation. Returns whether it has led.
    async fn campaign(&mut self) -> bool {
        let name = self.election.mutex().name();
        let hold = self.shared.request(name, false, None);
        let value = self.value(hold);
        let campaign = self.election.campaign(&value);
        let reason = match self.stop.run_until_cancelled(campaign).await {
            Some(Ok(leadership)) => {
                self.lead(hold, leadership).await;
                return true;
            }
            Some(Err(error)) => format!("{:?}", error.kind()),
            None => "cancelled".to_owned(),
        };
        self.shared.record(hold, HoldEvent::NotGranted { reason });
        false
    }

    async fn lead(&mut self, hold: u64, leadership: Leadership) {
        let resign = self.stop.child_token();
        let name = self.election.mutex().name().to_owned();
        self.resignations
            .lock()
            .unwrap()
            .insert(name, resign.clone());
        let ttl_ms = self.shared.config.ttl_ms;
        let lead = LiveHold::begin(&self.shared, &resign, hold, &leadership, ttl_ms);
        if self.rng.u8(..4) == 0 {
            let value = self.value(hold) + " again";
            let proclaim = resign.run_until_cancelled(leadership.proclaim(value));
            let _ = lead.observe_while(proclaim).await;
        }
        lead.work(&mut self.fence, &mut self.rng, LEADERSHIP_MAX)
            .await;
        lead.leave_to_store(&mut self.rng).await;
        self.shared.release(hold, leadership.release()).await;
    }

    fn value(&self, hold: u64) -> String {
        format!("{} {hold}", self.shared.config.process)
    }
}
