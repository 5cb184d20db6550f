//! Every row of the short form comes out as it must.

use std::collections::BTreeSet;

use super::*;

/// A test for each row, by its key, and one that none is left out.
macro_rules! rows {
    ($($name:ident $key:literal)*) => {
        $(
            #[test]
            fn $name() {
                check($key);
            }
        )*

        #[test]
        fn every_row_has_its_test() {
            let tested: BTreeSet<_> = [$($key),*].into();
            let rows = rows(Extent::Short);
            let keys: BTreeSet<_> = rows.iter().map(|row| row.key).collect();
            assert_eq!(keys, tested);
            assert_eq!(keys.len(), rows.len());
        }
    };
}

/// Visits all states of a row, or, where something must break, until it does.
fn check(key: &str) {
    let rows = rows(Extent::Short);
    let row = rows.iter().find(|row| row.key == key).unwrap();
    let report = row.explore(Until::Broken(&row.breaks));
    let faults = row.faults(&report);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for (_, trace) in &report.broken {
        assert!(
            !trace.to_string().contains("cannot be found again"),
            "{trace}"
        );
    }
}

rows! {
    one_store_grows_tokens "one store"
    a_majority_grows_tokens "majority"
    a_lease_that_is_asked_for_again_where_it_was_lost_does_no_harm "refilled"
    a_fenced_resource_never_goes_back "fenced resource"
    without_a_second_phase_tokens_repeat "no second phase"
    a_token_written_everywhere_overtakes "written everywhere"
    a_token_written_by_anybody_overtakes "written by anybody"
    a_token_written_by_anybody_deceives_the_resource
        "written by anybody, fenced resource"
    a_token_written_by_anybody_or_equal_repeats "written by anybody or equal"
    counters_may_be_read_before "read before"
    counters_read_before_and_written_or_equal_repeat "read before or equal"
    counters_read_before_and_written_or_any_repeat "read before or any"
    an_id_used_twice_overtakes "id twice"
    a_token_in_doubt_repeats "in doubt"
    a_restart_with_data_does_no_harm "restart with data"
    a_restart_without_data_does_no_harm "restart"
    a_restart_at_once_repeats_tokens "restart at once"
    a_restart_at_once_deceives_the_resource "restart at once, fenced resource"
    a_restart_after_the_ttl_repeats_tokens "restart after the ttl"
    a_restart_that_only_caught_up_repeats_tokens "restart caught up"
    a_majority_that_is_started_again_together_does_no_harm "two restarts together"
    one_store_excludes "time, one store"
    a_majority_excludes "time"
    a_deadline_from_the_reply_deceives "deadline from the reply"
    no_deadline_deceives "no deadline"
    a_restart_kept_out_excludes "time, restart"
    a_restart_at_once_deceives "time, restart at once"
    a_restart_kept_out_too_short_deceives "time, restart early"
    a_flushed_master_excludes "flush"
    a_flushed_master_deceives_if_silence_is_an_answer "flush, no answer"
    a_flushed_master_deceives_if_one_answers_for_all "flush, one answer"
    a_master_with_old_data_excludes "old data"
    a_master_with_old_data_deceives_if_a_setting_vouches_for_it "old data, setting of now"
    a_master_with_an_old_copy_excludes "old copy"
    a_master_with_an_old_copy_deceives_if_its_process_vouches_for_it "old copy, same process"
    masters_that_are_used_first_exclude "first use"
    an_old_decision_deceives "first use, unchecked"
    a_clock_jump_deceives "clock jump"
    one_store_that_forgets_deceives "one store forgets"
    drift_inside_the_allowance_excludes "drift inside"
    drift_inside_the_allowance_and_a_restart_exclude "drift inside, restart"
    drift_outside_the_allowance_deceives "drift outside"
    drift_without_margin_deceives "drift without margin"
    renewed_leases_exclude "renewed"
    renewed_leases_and_a_restart_exclude "renewed, restart"
    renewed_leases_and_a_clock_jump_deceive "renewed, clock jump"
    renewed_leases_and_drift_exclude "renewed, drift inside"
    a_replica_with_a_clock_grows_tokens "replica"
    a_replica_without_a_clock_repeats_tokens "replica, no clock"
    a_replica_at_once_repeats_tokens "replica, at once"
    a_replica_with_its_clock_behind_repeats_tokens "replica, clock behind"
    an_old_store_that_goes_on_repeats_tokens "replica, old store woken"
    a_node_on_the_host_keeps_and_releases "watchdog"
    a_connection_that_ends_costs_nothing "watchdog, ends"
    a_lease_that_was_given_up_ends "watchdog, gives up"
    a_node_that_begins_again_does_no_harm "watchdog, stops"
    a_slow_node_does_no_harm "watchdog, slow"
    late_deeds_do_no_harm "watchdog, late"
    a_child_keeps_the_lease "watchdog, child"
    a_longest_hold_is_heeded "watchdog, longest hold"
    a_remote_node_keeps "watchdog, remote"
    a_release_on_a_lost_connection_hits_the_living "watchdog, lost connection, no guard"
    a_client_id_does_not_help_against_that "watchdog, lost connection, client id"
    a_lease_id_does_not_help_against_that "watchdog, lost connection, lease id"
    a_remote_node_that_releases_hits_the_living "watchdog, remote release"
    an_unguarded_release_hits_others "watchdog, no guard"
    a_release_by_client_id_hits_the_next_lease "watchdog, client id"
    a_lease_id_that_is_used_twice_is_hit "watchdog, lease id twice"
    a_child_that_is_ignored_is_hit "watchdog, child ignored"
    a_renewal_of_what_was_released_does_nothing "watchdog, unheeded"
    a_renewal_that_creates_revives "watchdog, renewal creates"
    a_renewal_of_anything_keeps_others "watchdog, unheeded, renewal of anything"
    without_a_longest_pause_a_lease_is_kept_for_ever "watchdog, no longest pause"
    too_much_patience_loses_leases "watchdog, patience"
    a_time_from_the_answer_promises_too_much "watchdog, from the answer"
    a_holder_that_goes_on_meets_another "watchdog, trust"
    a_client_that_boasts_loses_its_lease "watchdog, boast"
    a_lease_that_is_not_taken_back_is_stuck "watchdog, forgetful"
}

#[test]
fn a_row_that_holds_where_it_must_break_is_told() {
    let rows = rows(Extent::Short);
    let row = rows.iter().find(|row| row.key == "time").unwrap();
    let report = row.explore(Until::Done);
    let must_break = Row {
        breaks: vec![Property::Exclusion],
        reaches: Vec::new(),
        explore: Box::new(|_| unreachable!()),
        ..*row
    };
    assert_eq!(must_break.faults(&report).len(), 1);
}

#[test]
fn a_model_that_grants_nothing_is_told() {
    let rows = rows(Extent::Short);
    let row = rows.iter().find(|row| row.key == "one store").unwrap();
    let mut report = row.explore(Until::Done);
    report.successes = 1;
    assert_eq!(row.faults(&report).len(), 1);
}
