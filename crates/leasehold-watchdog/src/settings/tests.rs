use super::*;

#[test]
fn addresses_are_parsed_and_shown() {
    for text in [
        "unix:/run/leasehold.sock",
        "tcp://node-1:7379",
        "tcp://10.0.0.1:0",
        "tcp://[::1]:7379",
        "systemd:",
    ] {
        assert_eq!(Listen::parse(text).unwrap().to_string(), text);
    }
    for text in [
        "",
        "unix:",
        "/run/leasehold.sock",
        "tcp:node:1",
        "tcp://node",
        "tcp://:1",
        "tcp://::1:1",
        "tcp://node:65536",
        "systemd:x",
        "http://node:1",
    ] {
        let error = Listen::parse(text).unwrap_err().to_string();
        assert!(error.contains("unix:PATH"), "{error}");
    }
}

#[test]
fn tokens_stand_one_in_a_line() {
    let text = "\n# the clients of team A\n0123456789abcdef clients=2 leases=30 name=team-a namespaces=ci,web\n fedcba9876543210 \n";
    let tokens = Token::parse_file(text).unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0].secret, Secret::from("0123456789abcdef"));
    assert_eq!((tokens[0].clients, tokens[0].leases), (2, 30));
    assert_eq!(tokens[0].name, "team-a");
    assert!(tokens[0].namespaces.contains("web"));
    assert!(!tokens[0].namespaces.contains("jobs"));
    assert!(tokens[1].namespaces.contains("jobs"));
    assert_eq!(
        (tokens[1].clients, &*tokens[1].name),
        (usize::MAX, "line-4")
    );
}

#[test]
fn a_wrong_token_file_is_refused_and_not_quoted() {
    let token = "0123456789abcdef";
    for (text, why) in [
        ("short".to_owned(), "at least 16 bytes"),
        (format!("{token} clients=many"), "whole number"),
        (format!("{token} locks=3"), "may stand behind"),
        (format!("{token} name="), "may stand behind"),
        (format!("{token} namespaces="), "commas between"),
        (format!("{token} namespaces=a,b:c"), "commas between"),
        (format!("{token}\n{token}"), "line 2"),
    ] {
        let error = Token::parse_file(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(
            !error.contains(token) && !error.contains("short"),
            "{error}"
        );
    }
}

#[test]
fn no_secret_is_shown() {
    let mut store = StoreSettings::new("redis://user:open-sesame@host");
    store.password = Some("open-sesame".into());
    let mut settings = Settings::new(vec![], vec![store]);
    settings.tokens = Token::parse_file("open-sesame-open-sesame").unwrap();
    assert!(!format!("{settings:?}").contains("sesame"));
    assert!(!settings.name.is_empty());
}
