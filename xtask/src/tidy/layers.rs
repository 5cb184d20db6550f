//! What only some layers of the library do: wait, start tasks, and name operations of a store.

use std::collections::BTreeMap;

use super::imports::without_tests;

const LIBRARY: &str = "crates/leasehold/src/";

/// Words that the code of some files does not contain.
struct Rule {
    words: &'static [&'static str],
    /// The files, by the begin of their paths.
    files: &'static str,
    exceptions: &'static [&'static str],
    reason: &'static str,
}

const RULES: [Rule; 2] = [
    Rule {
        words: &["sleep", "sleep_until", "spawn", "time"],
        files: "",
        exceptions: &["clock.rs", "driver/", "store/", "blocking/runtime.rs"],
        reason: "only the driver and the connections of stores wait and start tasks",
    },
    Rule {
        words: &["Op"],
        files: "sync/",
        exceptions: &[],
        reason: "protocols belong into the core and the driver",
    },
];

/// The code that belongs into another layer.
pub(super) fn faults(sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in sources {
        let Some(file) = path.strip_prefix(LIBRARY) else {
            continue;
        };
        let is_in = |directory: &&str| file.starts_with(directory);
        for rule in RULES.iter().filter(|rule| is_in(&rule.files)) {
            if rule.exceptions.iter().any(is_in) || file.contains("tests") {
                continue;
            }
            let words = without_tests(text).lines().flat_map(words);
            for word in words.filter(|word| rule.words.contains(word)) {
                faults.push(format!("{path}: {word}; {}", rule.reason));
            }
        }
    }
    faults
}

/// The words of a line of code that are called, named as types, or modules of Tokio.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(move |word| *word != "time" || code.contains("tokio::time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(file: &str, text: &str) -> usize {
        let source = (format!("{LIBRARY}{file}"), text.to_owned());
        faults(&BTreeMap::from([source])).len()
    }

    #[test]
    fn only_the_driver_and_stores_wait_and_start_tasks() {
        for text in [
            "clock.sleep_until(end).await;\n",
            "use tokio::time::timeout;\n",
            "context.runtime.spawn(task);\n",
        ] {
            assert_eq!(count("sync/latch.rs", text), 1, "{text}");
            for file in ["driver/read.rs", "store/redis/mod.rs", "client/tests.rs"] {
                assert_eq!(count(file, text), 0);
            }
            let tests = format!("#[cfg(test)]\nmod tests {{\n    {text}}}\n");
            assert_eq!(count("client.rs", &tests), 0);
            assert_eq!(count("client.rs", &format!("/// {text}")), 0);
        }
        assert_eq!(count("sync/latch.rs", "use std::time::Duration;\n"), 0);
    }

    #[test]
    fn the_api_names_no_operation() {
        let text = "request(Op::Remove(removal))\n";
        assert_eq!(count("sync/latch.rs", text), 1);
        assert_eq!(count("driver/request.rs", text), 0);
        assert_eq!(count("sync/latch.rs", "OpenOptions::new()\n"), 0);
    }
}
