//! What every store must do, a function per behaviour.
//!
//! The list below is turned into one test per behaviour and store. A server that is missing fails
//! its tests.

mod handoff;
mod holding;
mod leases;
mod leaving;
mod looking;
mod names;
mod operations;
mod order;
mod threads;
mod trying;
mod waiting;

use crate::fixture::Fixture;

macro_rules! conformance {
    (everywhere $everywhere:tt one_place $one_place:tt) => {
        conformance!(@everywhere $everywhere);
        mod in_one_place {
            use super::*;
            conformance!(@one_place $one_place);
        }
    };
    (@one_place { $($module:ident :: $behaviour:ident),+ $(,)? }) => {
        conformance!(@store memory, $($module::$behaviour),+);
        conformance!(@store sqlite, $($module::$behaviour),+);
        conformance!(@store redis, $($module::$behaviour),+);
        conformance!(@store sentinel, $($module::$behaviour),+);
        conformance!(@store cluster, $($module::$behaviour),+);
    };
    (@everywhere { $($module:ident :: $behaviour:ident),+ $(,)? }) => {
        conformance!(@store memory, $($module::$behaviour),+);
        conformance!(@store sqlite, $($module::$behaviour),+);
        conformance!(@store redis, $($module::$behaviour),+);
        conformance!(@store sentinel, $($module::$behaviour),+);
        conformance!(@store cluster, $($module::$behaviour),+);
        conformance!(@store redlock3, $($module::$behaviour),+);
        conformance!(@store redlock5, $($module::$behaviour),+);
        conformance!(@store allowed, $($module::$behaviour),+);
    };
    (@store $store:ident, $($module:ident :: $behaviour:ident),+) => {
        mod $store {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    $module::$behaviour(Fixture::$store()).await;
                }
            )+
        }
    };
}

conformance! {
    everywhere {
        holding::tasks_on_two_clients_exclude_each_other,
        holding::a_refusal_tells_the_time_left,
        holding::an_owner_enters_again_and_the_store_shows_the_count,
        holding::tasks_of_one_owner_meet_in_one_lease,
        holding::without_an_owner_nobody_enters_again,
        holding::a_drop_releases_before_the_next_question,
        holding::a_stale_guard_does_nothing_to_the_new_holder,
        holding::a_forced_release_makes_the_holder_lost,
        holding::run_releases_after_a_value_and_after_a_panic,
        holding::run_drops_the_work_when_the_lease_is_lost,
        holding::shutdown_releases_everything,
        holding::shutdown_ends_all_waiting,
        holding::a_lease_held_too_long_is_lost_and_passes_on,
        leases::a_fixed_lease_ends_on_time_and_is_not_renewed,
        leases::a_renewed_lease_outlives_five_ttls,
        leases::fixed_and_renewed_holds_keep_their_own_terms,
        leases::ensure_renews_or_says_why_not,
        leases::ttls_outside_the_bounds_are_refused,
        leases::the_states_are_told_one_after_the_other,
        leaving::a_timeout_in_the_middle_of_a_line_disturbs_nobody,
        leaving::a_waiter_that_is_cancelled_anywhere_disturbs_nobody,
        leaving::a_waiter_that_is_cancelled_as_its_turn_comes_passes_it_on,
        leaving::a_shutdown_lets_the_others_go_on,
        looking::a_holder_is_described,
        looking::held_locks_are_listed_by_name,
        looking::spaces_know_nothing_of_each_other,
        names::what_may_be_a_name_is_locked_and_listed,
        names::what_may_not_be_a_name_is_refused_before_the_store,
        operations::the_same_operation_twice_equals_once,
        operations::a_stranger_changes_nothing,
        threads::threads_enter_again_and_exclude_each_other,
        threads::a_lease_is_renewed_while_its_thread_is_busy,
        threads::the_blocking_api_refuses_to_block_a_runtime,
        waiting::waiters_get_the_lock_after_a_release,
        waiting::waiters_get_the_lock_after_a_drop,
        waiting::waiters_get_the_lock_at_the_end_of_a_fixed_lease,
        waiting::waiters_get_the_lock_after_a_forced_release,
        handoff::a_lease_goes_from_task_to_task_without_the_store,
        handoff::it_can_be_switched_off,
        handoff::only_a_renewed_lease_goes_to_one_who_wants_the_same,
        handoff::a_lease_goes_on_after_its_last_hold,
        handoff::a_lease_that_went_on_is_not_entered_again,
        order::tasks_of_a_client_are_served_in_the_order_they_came,
        trying::a_free_lock_is_taken,
        trying::a_lock_of_this_process_is_refused_without_the_store,
        trying::nobody_whose_turn_comes_is_overtaken,
        waiting::a_waiter_gets_the_lock_of_a_dead_holder,
        waiting::a_timeout_ends_the_waiting,
        waiting::a_waiter_that_is_not_polled_stops_nobody,
    }
    // Where the records of a name are in one place, which keeps a queue and the order of a batch.
    one_place {
        leaving::a_front_whose_time_is_over_passes_its_place_on,
        leaving::storms_of_cancellations_leave_nothing_behind,
        leaving::a_client_that_is_gone_is_not_waited_for,
        operations::a_batch_is_answered_in_its_order,
        operations::tokens_grow_over_ten_thousand_grants_and_restarts_of_the_client,
        handoff::a_forced_release_ends_the_chain,
        handoff::after_so_many_times_the_process_queues_up_again,
        order::clients_are_served_in_the_order_of_the_queue,
        order::nobody_overtakes_the_queue,
        trying::nobody_who_waits_is_overtaken,
    }
}
