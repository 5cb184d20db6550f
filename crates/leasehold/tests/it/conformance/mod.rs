//! What every store must do, a function per behaviour.
//!
//! The list below is turned into one test per behaviour and store. A server that is missing fails
//! its tests.

mod annotations;
mod cancelling;
mod elections;
mod handoff;
mod holding;
mod jobs;
mod latches;
mod leases;
mod leaving;
mod listings;
mod min_hold;
mod observing;
mod operations;
mod sharing;
mod threads;
mod trying;
mod waiting;

use leasehold::{Error, ErrorKind};

use crate::fixture::Fixture;

#[track_caller]
fn assert_conflict(error: &Error, words: &str) {
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let text = error.to_string();
    let named = error.lock().is_some() && error.store().is_some();
    assert!(named && text.contains(words), "{text}");
    assert!(!error.is_transient(), "{text}");
}

macro_rules! conformance {
    (everywhere $everywhere:tt notified $notified:tt one_place $one_place:tt one_record $one_record:tt rule $rule:tt client $client:tt) => {
        conformance!(@stores [memory sqlite postgres etcd zookeeper redis sentinel cluster buckets redlock3 redlock5 allowed objects] $everywhere);
        mod where_clients_are_notified {
            use super::*;
            conformance!(@stores [memory sqlite postgres etcd zookeeper redis sentinel cluster buckets redlock3 redlock5 allowed] $notified);
        }
        mod in_one_place {
            use super::*;
            conformance!(@stores [memory sqlite postgres etcd zookeeper redis sentinel cluster buckets] $one_place);
        }
        mod in_one_record {
            use super::*;
            conformance!(@stores [memory sqlite postgres etcd zookeeper redis sentinel cluster buckets objects] $one_record);
        }
        mod of_the_rule {
            use super::*;
            conformance!(@stores [memory postgres redis] $rule);
        }
        mod of_the_client {
            use super::*;
            conformance!(@stores [memory redis redlock3] $client);
        }
    };
    (@stores [$($store:ident)+] $behaviours:tt) => {
        $( conformance!(@store $store $behaviours); )+
    };
    (@store $store:ident { $($module:ident :: $behaviour:ident),+ $(,)? }) => {
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
        elections::a_successor_leads_when_the_leader_resigns,
        elections::a_value_is_replaced_and_its_length_is_checked,
        elections::the_events_of_a_lock_come_in_their_order,
        holding::tasks_on_two_clients_exclude_each_other,
        holding::a_stale_guard_does_not_affect_the_new_holder,
        holding::a_revocation_makes_the_holder_lost,
        jobs::jobs_are_refused_where_no_completions_are_kept,
        latches::it_opens_when_all_have_arrived_or_is_not_made,
        leases::a_fixed_lease_ends_on_time_and_is_not_renewed,
        leases::a_renewed_lease_outlives_its_ttl,
        leaving::a_cancelled_waiter_affects_no_other,
        listings::a_holder_is_described,
        listings::held_locks_are_listed_by_name,
        listings::waiters_are_described_in_their_order,
        listings::namespaces_and_tenants_are_separate,
        min_hold::a_released_lock_stays_taken_until_its_end,
        min_hold::a_revocation_ends_it,
        operations::the_same_operation_twice_equals_once,
        sharing::shared_locks_are_made_or_refused_with_a_reason,
        sharing::a_set_is_held_as_a_whole_or_not_at_all,
        waiting::waiters_get_the_lock_after_a_release,
        waiting::waiters_get_the_lock_at_the_end_of_a_fixed_lease,
        waiting::waiters_get_the_lock_after_a_revocation,
        waiting::a_timeout_ends_the_waiting,
    }
    // Where a client is notified of a change that another one made.
    notified {
        observing::each_change_of_holder_and_annotation_is_noticed,
        observing::no_change_is_lost_in_a_storm,
        observing::every_observer_is_notified,
    }
    // Where the records of a name are in one place, which keeps a queue and the order of a batch.
    one_place {
        cancelling::a_dropped_acquisition_leaves_nothing,
        leaving::a_client_is_subscribed_until_it_is_dropped,
        listings::an_entry_has_the_first_waiters_until_their_queue_expires,
        listings::a_long_list_is_complete_ordered_and_has_the_client_info,
        annotations::completions_are_listed_in_order_with_any_key,
        jobs::a_waiter_takes_over_a_run_that_failed,
        jobs::all_waiters_return_when_the_run_is_complete,
        latches::waiters_of_one_that_expires_wait_for_the_next,
        observing::each_change_of_the_queue_is_noticed,
        sharing::readers_share_the_lock_and_a_writer_is_alone,
    }
    // Where they are in one place, with a queue or without.
    one_record {
        jobs::a_completed_run_is_not_repeated,
        jobs::each_key_has_one_run,
        jobs::a_holder_that_was_cut_off_completes_nothing,
        latches::a_hundred_waiters_go_on_when_it_opens,
        latches::a_name_is_used_as_a_lock_or_as_a_latch,
        sharing::many_tasks_never_hold_more_permits_than_there_are,
        sharing::all_holders_are_described,
    }
    // What the rule and the client decide. The random histories of each store compare its replies and notices with the
    // rule.
    rule {
        elections::each_of_several_leases_expires_at_its_own_end,
        handoff::a_revocation_ends_the_chain,
        handoff::after_the_limit_of_handoffs_the_process_joins_the_queue_again,
        jobs::a_lease_is_not_handed_off_to_a_run,
        jobs::a_run_that_failed_keeps_the_lock_for_a_while,
        jobs::an_owner_that_enters_again_repeats_no_run,
        latches::counts_ids_and_ttls_are_checked,
        leaving::a_head_that_times_out_passes_its_position_on,
        leaving::an_abandoned_acquisition_is_not_requested,
        min_hold::each_kind_of_lock_has_one,
        operations::a_release_of_all_permits_serves_all_waiters,
        sharing::a_resize_that_was_dropped_is_known_at_the_next_one,
        sharing::a_writer_of_a_client_ends_a_window_that_begins_while_it_waits,
        sharing::an_upgrade_waits_for_the_readers_only,
        sharing::an_upgrade_that_is_dropped_holds_nothing,
        sharing::numbers_are_the_smallest_that_are_free,
        sharing::a_number_of_permits_that_is_set_counts,
        sharing::permits_are_given_back_and_taken_by_a_resize,
        sharing::readers_of_a_client_share_a_lease,
        sharing::fixed_leases_are_not_shared,
        sharing::a_revocation_ends_the_leases_of_all_holders,
        sharing::permits_are_shared_and_waited_for_in_order,
        sharing::a_set_has_locks_of_several_kinds,
        trying::try_lock_overtakes_no_waiter,
    }
    // What the client decides, whatever the store is: in one place, over a network, and over many masters.
    client {
        elections::a_lock_that_passes_on_has_no_leader_until_a_value_is_proclaimed,
        elections::a_leader_that_is_cut_off_cannot_proclaim,
        elections::each_leadership_has_a_lease_of_its_own,
        handoff::a_lease_is_handed_off_without_the_store,
        handoff::it_can_be_switched_off,
        handoff::only_a_renewed_lease_is_handed_off_to_a_task_that_wants_the_same,
        handoff::a_lease_is_handed_off_after_its_last_hold,
        handoff::a_lease_that_was_handed_off_is_not_entered_again,
        holding::a_lease_of_each_kind_that_is_held_too_long_is_lost_and_passes_on,
        holding::run_drops_the_work_when_the_lease_is_lost,
        holding::run_releases_after_a_value_and_after_a_panic,
        holding::tasks_of_one_owner_share_one_lease,
        holding::without_an_owner_there_is_no_re_entry,
        holding::an_owner_enters_again_and_the_store_shows_the_count,
        holding::a_drop_releases_before_the_next_request,
        holding::shutdown_releases_everything,
        leases::ensure_renews_or_fails_with_the_reason,
        leases::ttls_outside_the_bounds_are_refused,
        leaving::a_timeout_in_the_local_queue_affects_no_other_waiter,
        leaving::a_waiter_that_is_cancelled_at_its_turn_passes_it_on,
        leaving::a_shutdown_delays_no_other_client,
        min_hold::a_lost_lease_begins_none,
        sharing::sets_in_any_order_never_wait_for_each_other,
        threads::a_lease_is_renewed_while_its_thread_is_busy,
        threads::threads_enter_again_and_exclude_each_other,
        trying::a_lock_of_this_process_is_refused_without_the_store,
        trying::try_lock_does_not_overtake_a_waiter_at_its_turn,
        trying::work_is_not_begun_while_another_holds_the_lock,
        trying::a_free_lock_is_taken,
        waiting::a_waiter_that_is_not_polled_delays_no_other,
        waiting::waiters_get_the_lock_after_a_drop,
    }
}
