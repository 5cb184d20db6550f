//! What the server says of its own work, for `leasehold bench`.

use std::time::Duration;

use redis::{Value, cmd};

use super::bare::Bare;
use super::errors;
use crate::store::yardstick::Load;
use crate::{ErrorKind, Result};

/// The commands that run scripts.
const RUN_SCRIPTS: [&str; 2] = ["cmdstat_eval", "cmdstat_evalsha"];

impl Bare {
    /// What the server has done so far. `None`: it does not tell us.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn load(&self) -> Result<Option<Load>> {
        let mut load = Load::default();
        // One section each: older servers answer only the first.
        for section in ["cpu", "commandstats"] {
            let text = match self.send(cmd("INFO").arg(section)).await? {
                Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
                Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Value::ServerError(error) => {
                    let error = errors::call(&error).0;
                    return match error.kind() {
                        ErrorKind::Unauthorized => Ok(None),
                        _ => Err(error),
                    };
                }
                _ => return Err(errors::strange_answer()),
            };
            text.lines().for_each(|line| load.read(line));
        }
        Ok(Some(load))
    }
}

impl Load {
    /// Adds what one line of `INFO` says. Lines of which we know nothing say nothing.
    fn read(&mut self, line: &str) {
        let Some((name, value)) = line.trim_end().split_once(':') else {
            return;
        };
        match name {
            "used_cpu_sys" | "used_cpu_user" => {
                let seconds = value.parse().unwrap_or(0.0);
                self.cpu += Duration::try_from_secs_f64(seconds).unwrap_or_default();
            }
            _ if RUN_SCRIPTS.contains(&name) => {
                let number = |wanted: &str| {
                    let mut fields = value.split(',').filter_map(|field| field.split_once('='));
                    let found = fields.find(|(name, _)| *name == wanted);
                    found.and_then(|(_, number)| number.parse().ok())
                };
                self.script_calls += number("calls").unwrap_or(0);
                self.script_time += Duration::from_micros(number("usec").unwrap_or(0));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::RedisServer;

    use crate::store::{OpenOptions, RedisStore};

    #[tokio::test(flavor = "multi_thread")]
    async fn the_load_grows_with_what_the_server_does() {
        let server = RedisServer::start();
        let options = OpenOptions::default();
        let store = RedisStore::open(&server.url(), &options).await.unwrap();
        let bare = store.bare().await.unwrap();
        let before = bare.load().await.unwrap().unwrap();
        for _ in 0..50 {
            bare.pair("app:{t:bare}", "me:1").await.unwrap();
        }
        let after = bare.load().await.unwrap().unwrap();
        assert_eq!(after.script_calls - before.script_calls, 100);
        assert!(after.script_time > before.script_time);
        assert!(after.cpu > before.cpu);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_may_keep_it_to_itself() {
        let server = RedisServer::options()
            .acl("app", "secret", "~* &* +@all -info")
            .start();
        let options = OpenOptions::default();
        let url = server.url_of("app", "secret");
        let store = RedisStore::open(&url, &options).await.unwrap();
        let bare = store.bare().await.unwrap();
        assert_eq!(bare.load().await.unwrap(), None);
    }
}
