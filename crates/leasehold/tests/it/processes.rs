//! Waiting between real processes, which are killed and stopped.
//!
//! A test starts helpers as its children. The test checks what they report, and knows nothing of the store.

/// Makes a test of each story and store that processes share.
macro_rules! over_shared_stores {
    ($($story:ident),+ $(,)?) => {
        over_shared_stores!(@store sqlite, $($story),+);
        over_shared_stores!(@store redis, $($story),+);
    };
    (@store $store:ident, $($story:ident),+) => {
        mod $store {
            $(
                #[test]
                fn $story() {
                    // As the test harness names it.
                    let path = concat!(module_path!(), "::", stringify!($story));
                    let (_, test) = path.split_once("::").unwrap();
                    super::$story(test, crate::fixture::Fixture::$store);
                }
            )+
        }
    };
}

pub(crate) mod child;
mod crowd;
mod deaths;
mod ends;
mod fork;
