use leasehold::__private::wire::{Changes, ClientInfo, ClientSecret, Hello, Registration, Role};
use leasehold::Secret;

use super::*;

pub(crate) fn client_info() -> ClientInfo {
    ClientInfo {
        process_nonce: [0; 16],
        store: STORE.into(),
        namespace: "test".into(),
        tenant: "default".into(),
        host: "host".into(),
        pid: 1,
        program: "program".into(),
        label: String::new(),
    }
}

fn hello(random: &mut fastrand::Rng) -> ToNode {
    let role = match random.u8(0..4) {
        0 => Role::Observer,
        _ => {
            let secret = ClientSecret::from_random([random.u8(0..6); 32]);
            let client_info = ClientInfo {
                process_nonce: [random.u8(0..2); 16],
                ..client_info()
            };
            Role::Client(secret, client_info)
        }
    };
    let token = Some(Secret::from(TOKEN));
    ToNode::Hello(Hello { token, role })
}

fn message(random: &mut fastrand::Rng) -> ToNode {
    let registration = |number| Registration {
        number,
        name: "lock".into(),
        ttl_ms: 30_000,
        silence_timeout_ms: 9_000,
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

/// The input of several connections in turn.
fn input(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = Vec::new();
    for _ in 0..random.usize(1..40) {
        let mut frame = encode(&match random.bool() {
            true => hello(random),
            false => message(random),
        })
        .unwrap();
        if random.u8(0..8) == 0 {
            let damaged = random.usize(0..frame.len());
            frame[damaged] = random.u8(..);
        }
        let connection = random.u8(..);
        for part in frame.chunks(200) {
            input.extend([connection, u8::try_from(part.len()).unwrap()]);
            input.extend(part);
        }
    }
    input
}

#[test]
fn the_limits_hold_under_any_messages() {
    let mut random = fastrand::Rng::with_seed(6);
    let leases = (0..3_000).map(|_| run(&input(&mut random)));
    // Some inputs are valid.
    assert_eq!(leases.max(), Some(LEASES_MAX));
}
