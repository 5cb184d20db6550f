use leasehold::__private::wire::{Changes, ClientSecret, Hello, Introduction, Registration, Role};

use super::*;

fn hello(random: &mut fastrand::Rng) -> ToNode {
    let role = match random.u8(0..4) {
        0 => Role::Observer,
        _ => {
            let secret = ClientSecret::from_random([random.u8(0..6); 32]);
            Role::Client(
                secret,
                Introduction {
                    process_nonce: [random.u8(0..2); 16],
                    store: STORE.into(),
                    namespace: "test".into(),
                    tenant: "default".into(),
                    host: "host".into(),
                    pid: 1,
                    program: "program".into(),
                    label: String::new(),
                },
            )
        }
    };
    let token = Some(Secret::new(TOKEN));
    ToNode::Hello(Hello { token, role })
}

fn word(random: &mut fastrand::Rng) -> ToNode {
    let registration = |number| Registration {
        number,
        name: "lock".into(),
        ttl_ms: 30_000,
        patience_ms: 9_000,
        keep_ms: None,
    };
    match random.u8(0..12) {
        0 => ToNode::Heartbeat,
        1 => ToNode::Disconnect,
        2 => ToNode::Status,
        3 => ToNode::Process,
        4 => hello(random),
        _ => ToNode::Changes(Changes {
            batch: random.u64(0..30),
            register: (0..random.u64(0..6)).map(registration).collect(),
            unregister: (0..random.u64(0..4)).collect(),
        }),
    }
}

/// What several connections say in turn.
fn story(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut story = Vec::new();
    for _ in 0..random.usize(1..40) {
        let mut said = encode(&match random.bool() {
            true => hello(random),
            false => word(random),
        })
        .unwrap();
        if random.u8(0..8) == 0 {
            let place = random.usize(0..said.len());
            said[place] = random.u8(..);
        }
        let which = random.u8(..);
        for part in said.chunks(200) {
            story.extend([which, u8::try_from(part.len()).unwrap()]);
            story.extend(part);
        }
    }
    story
}

#[test]
fn whatever_is_said_in_turn_the_books_are_right() {
    let mut random = fastrand::Rng::with_seed(6);
    let stories = (0..3_000).map(|_| listen(&story(&mut random)));
    // Some of them make sense.
    assert_eq!(stories.max(), Some(LEASES_MAX));
}

#[test]
fn bytes_are_survived() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3_000 {
        let length = random.usize(0..400);
        let bytes: Vec<_> = (0..length).map(|_| random.u8(..)).collect();
        node(&bytes);
    }
}
