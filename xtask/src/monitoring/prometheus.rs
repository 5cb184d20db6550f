//! A running Prometheus, and its HTTP API.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::files::{PROMETHEUS, text};
use super::programs::start;
use crate::tools::{OwnedChild, free_port, root};

/// A server that evaluates every second. It scrapes less often: a node takes 2 s for a page if a store does not reply.
#[derive(Debug)]
pub(super) struct Prometheus {
    port: u16,
    _process: OwnedChild,
}

/// An alert, and whether its expression is true.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) active: bool,
}

impl Prometheus {
    /// Starts it, to scrape a node and services.
    pub(super) fn start(directory: &Path, node: &str, services: &[String]) -> Result<Self, String> {
        // JSON is YAML, too.
        let config = json!({
            "global": {"scrape_interval": "3s", "evaluation_interval": "1s"},
            "rule_files": [root().join(PROMETHEUS).join("alerts.yml")],
            "scrape_configs": [
                {"job_name": "leasehold-watchdog", "static_configs": [{"targets": [node]}]},
                {"job_name": "service", "static_configs": [{"targets": services}]},
            ],
        });
        let file = directory.join("prometheus.json");
        fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
        let port = free_port()?;
        let mut prometheus = Command::new("prometheus");
        prometheus
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let ready = || get(port, "/-/ready").is_ok();
        Ok(Self {
            port,
            _process: start(&mut prometheus, directory, "prometheus", ready)?,
        })
    }

    /// The values of an expression, now.
    pub(super) fn query(&self, expr: &str) -> Result<Vec<f64>, String> {
        let response = self.json(&format!("/api/v1/query?query={}", encoded(expr)))?;
        let result = response["data"]["result"].as_array();
        let values = result.into_iter().flatten().map(|series| {
            let value = text(&series["value"][1]);
            value.parse().map_err(|_| format!("{expr}: {value}"))
        });
        values.collect()
    }

    /// The state of all alerts.
    pub(super) fn rules(&self) -> Result<Vec<Rule>, String> {
        let response = self.json("/api/v1/rules?type=alert")?;
        let groups = response["data"]["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let rules = rules.map(|rule| {
            let name = text(&rule["name"]);
            match rule["health"].as_str() {
                Some("ok" | "unknown") => Ok(Rule {
                    name,
                    active: rule["state"] != "inactive",
                }),
                _ => Err(format!("{name}: {}", rule["lastError"])),
            }
        });
        rules.collect()
    }

    fn json(&self, path: &str) -> Result<Value, String> {
        let body = get(self.port, path)?;
        let response: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        match response["status"].as_str() {
            Some("success") => Ok(response),
            _ => Err(format!("{path}: {}", response["error"])),
        }
    }
}

/// The body of a response. HTTP 1.0 has no chunks.
fn get(port: u16, path: &str) -> Result<String, String> {
    let request = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = request().map_err(|error: std::io::Error| error.to_string())?;
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
    // The body of an error of the API has its reason.
    match head.split(' ').nth(1) {
        Some("503") | None => Err(format!("{path}: not ready")),
        _ => Ok(body.to_owned()),
    }
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
