//! A service that exports the metrics of its locks to Prometheus.
//!
//! ```text
//! cargo run -p leasehold --example metrics -- redis://127.0.0.1:6379
//! curl http://127.0.0.1:9421/metrics
//! ```
//!
//! The second argument is the address of the metrics, the third one the address of a watchdog: `unix:PATH`.
//! The dashboard and the alerts in `packaging` query these metrics.

use std::env;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use leasehold::watchdog::Watchdog;
use leasehold::{Client, Job, LeaseOptions, Mutex};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::time::sleep;

/// The upper bounds of the buckets, in seconds. Without buckets the exporter writes summaries, and quantiles of
/// several processes cannot be merged.
const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 600.0,
];

const TTL: Duration = Duration::from_secs(3);

const PARTITIONS: usize = 8;

/// The period of the clean-up.
const PERIOD: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut argument = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let store = argument("redis://127.0.0.1:6379");
    let address = argument("127.0.0.1:9421");
    let node = argument("");

    // Before the first client: it describes the metrics, and starts the counters at zero.
    let recorder = install_recorder()?;
    let mut builder = Client::builder().ttl(TTL);
    if !node.is_empty() {
        builder = builder.watchdog(Watchdog::at(&node)?);
    }
    let client = builder.connect(&store).await?;
    tokio::spawn(work_on_partitions(client.clone()));
    for _ in 0..2 {
        tokio::spawn(process_orders(client.mutex("metrics/orders")?));
    }
    let fixed = LeaseOptions::new().fixed(TTL);
    tokio::spawn(write_reports(client.mutex("metrics/report")?.with(fixed)?));
    tokio::spawn(clean_up(client.job("metrics/clean-up", PERIOD)?));

    let page = get(async move || {
        recorder.run_upkeep();
        let content_type = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
        (content_type, recorder.render())
    });
    let listener = TcpListener::bind(&address).await?;
    println!("metrics at http://{}/metrics", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/metrics", page)).await?;
    Ok(())
}

/// Installs the recorder of this process. The handle renders its metrics.
fn install_recorder() -> Result<PrometheusHandle, Box<dyn Error>> {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS)?;
    Ok(builder.install_recorder()?)
}

/// Each process works on the first free partition, as long as it holds the lock of it.
async fn work_on_partitions(client: Client) {
    loop {
        if let Err(error) = work_on_partition(&client).await {
            report(&error).await;
        }
        sleep(Duration::from_millis(500)).await;
    }
}

async fn work_on_partition(client: &Client) -> leasehold::Result<()> {
    for partition in 0..PARTITIONS {
        let mutex = client.mutex(format!("metrics/partition/{partition}"))?;
        if let Some(guard) = mutex.try_lock().await? {
            let cause = guard.lost().await;
            eprintln!("no longer at work on partition {partition}: {cause}");
        }
    }
    Ok(())
}

/// Two tasks and all other processes take turns.
async fn process_orders(mutex: Mutex) {
    loop {
        let processed = mutex.run(async |_| sleep(Duration::from_millis(50)).await);
        if let Err(error) = processed.await {
            report(&error).await;
        }
    }
}

/// One process writes the report. The others skip it.
async fn write_reports(mutex: Mutex) {
    loop {
        if let Err(error) = write_report(&mutex).await {
            report(&error).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn write_report(mutex: &Mutex) -> leasehold::Result<()> {
    match mutex.try_lock().await? {
        Some(guard) => {
            sleep(Duration::from_millis(500)).await;
            guard.release().await
        }
        None => Ok(()),
    }
}

/// One process cleans up in each period. The others learn that it is done.
async fn clean_up(job: Job) {
    loop {
        let cleaned = job.run(async |_| {
            sleep(Duration::from_millis(50)).await;
            Ok::<_, leasehold::Error>(())
        });
        if let Err(error) = cleaned.await {
            report(&error).await;
        }
        sleep(PERIOD).await;
    }
}

async fn report(error: &leasehold::Error) {
    eprintln!("{error}");
    sleep(Duration::from_millis(500)).await;
}
