//! Waiting between real processes, which are killed and stopped.
//!
//! A test starts helpers as its children. The test checks what they report, and knows nothing of the store.

/// Makes a test of each scenario and store that processes share.
macro_rules! over_shared_stores {
    ($($scenario:ident),+ $(,)?) => {
        over_shared_stores!(sqlite: $($scenario),+);
        over_shared_stores!(redis: $($scenario),+);
    };
    ($store:ident: $($scenario:ident),+) => {
        mod $store {
            $(
                #[test]
                fn $scenario() {
                    super::$scenario(&crate::fixture::Fixture::$store());
                }
            )+
        }
    };
}

pub(crate) mod child;
mod deaths;
pub(crate) mod ends;
pub(crate) mod fork;
