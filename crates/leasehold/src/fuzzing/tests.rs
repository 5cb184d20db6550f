//! The fuzz targets on inputs that were mutated from good ones: what every test run can afford.

use fastrand::Rng;
use leasehold_sim::seed;

use super::*;

/// The name of a fuzz target, its function, and inputs that get far.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

/// A reply begins with the byte that chooses its requests.
const TARGETS: [Target; 5] = [
    (
        "address",
        address,
        &[
            "redis://user:secret@localhost:6379/0",
            "rediss://[::1]:7/2?ca=/etc/ca.pem&cert=c.pem&key=k%20.pem",
            "redis+unix:/run/redis/redis.sock?db=3&user=me",
            "redis+unix:///run/redis.sock",
            "redis+sentinel://app@a,b:1,[::1]/my%20master/3?sentinel-user=eye",
            "rediss+cluster://a:1,b?ca=/ca.pem",
            "redlock://a,b:2,c/4?longest-ttl=90s",
            "user|%2F",
            "a@|@b:1/2?c#d",
        ],
    ),
    (
        "reply",
        reply,
        &[
            "\0*3\r\n:1700000000000000\r\n$7\r\ngranted\r\n:1700000000000001\r\n",
            "\0*3\r\n:1700000000000000\r\n$7\r\nrefused\r\n:-1\r\n",
            "@*3\r\n:1700000000000000\r\n$7\r\nrefused\r\n*2\r\n:5000\r\n:3\r\n",
            "\x03*9\r\n:1\r\n$7\r\ngranted\r\n:1\r\n$7\r\nrenewed\r\n:0\r\n$8\r\nreleased\r\n:0\r\n$7\r\nrevoked\r\n$-1\r\n",
            "\x04*3\r\n:1\r\n$6\r\nfailed\r\n*2\r\n$7\r\nPEXPIRE\r\n$9\r\nERR \r\n no\r\n",
            "\0*2\r\n$4\r\nTIME\r\n$14\r\nNOPERM no time\r\n",
            "\0-NOSCRIPT No matching script.\r\n",
            "\0-ERR a\tb\r\n",
            "\0*3\r\n*2\r\n$34\r\n0123456789abcdef0123456789abcdef:1\r\n$1\r\n2\r\n:500\r\n$3\r\n700\r\n",
            "\0%2\r\n+host\r\n+h\r\n+pid\r\n:1\r\n",
            "\0*3\r\n:1\r\n$7\r\nrefused\r\n*2\r\n~1\r\n,1.5\r\n%1\r\n#t\r\n*1\r\n_\r\n",
            "\0*1\r\n*4\r\n:0\r\n:8191\r\n*3\r\n+h\r\n:7000\r\n+a\r\n*3\r\n_\r\n:7003\r\n+d\r\n",
            "\0_\r\n",
            "\0$43\r\n00000000000000000000000000000000:7 17 0 a b\r\n",
            "\0$11\r\nlatch 7 100\r\n",
        ],
    ),
    (
        "key",
        key,
        &[
            "app:{t:orders/42}",
            "app:{t:a:token}",
            "app:{t:a}:token",
            "app:{u:a}",
            "app@64:{17}:{t:a}",
            "app:{t:a}:completion:{u:b}",
            "app@64:{17}:{t:a}:completion:a}:{b",
            "app:{t::value}:completion:}",
            "orders/42",
            "app:{t:",
            "app:{t:昼 [a-z]*?\\}",
        ],
    ),
    (
        "name",
        name,
        &[
            "orders/42",
            "team-a.prod_1",
            "a{b}",
            "昼 夜",
            "\u{7f}",
            "a\tb",
            "0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdef:42",
            "0123456789abcdef0123456789abcdef:007",
        ],
    ),
    (
        "push",
        push,
        &[
            ">3\r\n+message\r\n$43\r\napp:client:00000000000000000000000000000000\r\n$36\r\n1 1700000000000001 3000 17 app:{t:n}\r\n",
            ">2\r\n+invalidate\r\n*2\r\n$9\r\napp:{t:n}\r\n$15\r\napp:{t:n}:queue\r\n",
            ">2\r\n+invalidate\r\n_\r\n",
            ">3\r\n+subscribe\r\n$1\r\na\r\n:1\r\n",
            "1 1700000000000001 3000 17 app:{t:n}",
            "app:client:00000000000000000000000000000000|1 1 100 1 app:{t:n}",
        ],
    ),
];

/// How many inputs each target gets.
const INPUTS: u64 = 60_000;

/// How often an input is changed at most.
const CHANGES_MAX: usize = 6;

/// An input that is a little different from one or two good ones.
fn mutated(rng: &mut Rng, good: &[&str]) -> Vec<u8> {
    let any = |rng: &mut Rng| good[rng.usize(..good.len())].as_bytes();
    let mut input = any(rng).to_vec();
    for _ in 0..rng.usize(..=CHANGES_MAX) {
        let at = rng.usize(..=input.len());
        match rng.u8(..7) {
            0 => input.truncate(at),
            1 => input.insert(at, rng.u8(..)),
            // What separates the parts of these formats.
            2 => input.insert(at, *rng.choice(b":/@?#%&=|*$-+\r\n09[]{}\\ ").unwrap_or(&0)),
            3 if at < input.len() => drop(input.remove(at)),
            4 if at < input.len() => input[at] = rng.u8(..),
            5 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            6 => {
                let other = any(rng);
                input.splice(at.., other[rng.usize(..=other.len())..].iter().copied());
            }
            _ => {}
        }
    }
    input
}

#[test]
fn no_input_breaks_a_target() {
    let start = seed::from_environment();
    for (target, run, good) in TARGETS {
        for input in good {
            run(input.as_bytes());
        }
        for nth in 0..INPUTS {
            let mut rng = Rng::with_seed(start.wrapping_add(nth));
            let input = mutated(&mut rng, good);
            let result = std::panic::catch_unwind(|| run(&input));
            assert!(
                result.is_ok(),
                "{target} fails on \"{}\"",
                input.escape_ascii()
            );
        }
    }
}

/// Shows that the good inputs are good: they get behind the first check of each target.
#[test]
fn good_inputs_get_far() {
    let [.., (_, _, replies), _, (_, _, names), (_, _, pushes)] = TARGETS;
    let parsed = |text: &str| redis::parse_redis_value(text.as_bytes()).is_ok();
    assert!(replies.iter().all(|reply| parsed(&reply[1..])));
    let mut pushes = pushes.iter().filter(|push| push.starts_with('>'));
    assert!(pushes.all(|push| parsed(push)));
    let leases = names.iter().filter(|name| name.parse::<LeaseId>().is_ok());
    assert_eq!(leases.count(), 1);
}
