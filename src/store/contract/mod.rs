//! The contract suite: one list of checks that every backend must pass, each on a new, empty store.
//! A backend in this crate makes a test of each check with [`for_each_check`] and [`as_tests`]; one
//! in another crate runs all of [`CHECKS`].
//!
//! A check must never require anything that `tables` and `handle` do not promise, or depend on the
//! backend that it checks.

// These are tests. They are also compiled for other crates, with the feature `testing`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod approvals;
mod artifacts;
mod asks;
mod budgets;
mod chat;
mod concurrency;
mod conversations;
mod droids;
mod events;
mod grants;
mod ids;
mod knowledge;
mod ledger;
mod messages;
pub(crate) mod model;
mod pages;
mod prelude;
mod prune;
mod prune_mail;
mod prune_shared;
mod random;
mod roots;
pub(crate) mod rows;
pub(crate) mod rows_shared;
mod schedules;
mod script;
mod script_shared;
mod sessions;
mod shared_state;
mod signals;
mod tasks;
pub(crate) mod tools;
mod transactions;
mod turns;
mod unique_names;
mod usage;

use std::sync::Arc;

use ghost_domain::time::BoxFuture;

use crate::{Store, StoreError};

/// The place of a store's data while no store is open: a directory, a schema, or memory.
pub trait Medium: Send + Sync {
    /// Opens the store. It is empty the first time. Later it contains everything that was
    /// acknowledged before.
    fn open(&self) -> BoxFuture<'_, Result<Store, StoreError>>;
}

/// One check on an empty medium. It panics if the backend breaks the contract.
pub type Check = fn(Arc<dyn Medium>) -> BoxFuture<'static, ()>;

/// Passes all checks to the macro `$then`, grouped by family. `$medium` creates an empty medium.
macro_rules! for_each_check {
    ($then:ident $(, $medium:expr)?) => {
        $then! {
            ($($medium)?)
            agents: agents_are_put_and_listed, tombstones_of_creators_of_living_agents_are_kept,
                dynamic_agents_are_counted, meta_is_kept, skills_are_held_and_removed, jobs_are_newest_first,
                requests_are_kept_by_principal;
            approvals: approvals_round_trip_and_are_listed, standing_approvals_are_found, closed_approvals_are_pruned;
            artifacts: artifacts_are_kept_by_path, artifacts_are_listed_by_prefix_and_agent;
            asks: asks_round_trip, open_asks_are_found, dead_letters_are_newest_first;
            budgets: budgets_are_listed_by_scope, budgets_are_listed_by_sort_and_page,
                accounts_of_deleted_agents_are_pruned, lists_are_bounded;
            chat: channels_are_listed_by_name, members_are_listed_both_ways, members_leave_and_come_back,
                unread_channels_follow_the_cursor, posts_are_read_by_cursor, commands_update_a_thousand_members;
            concurrency: concurrent_commands_keep_one_order, reads_see_whole_commits_only,
                a_cancelled_caller_affects_no_other, a_nested_write_is_refused_at_once;
            conversations: conversations_are_found_by_thread, conversations_are_listed_latest_first,
                entries_are_in_order, entries_of_a_turn_are_found, deliveries_fall_due;
            events: events_are_gapless_and_in_order, correlation_ids_are_read_back, events_are_published_after_commit,
                ephemeral_kinds_are_refused, events_are_paged, a_filter_with_few_matches_reads_to_the_end,
                bounds_follow_pruning, the_sequence_continues_after_reopening;
            droids: droids_are_listed_by_parent_and_by_life, live_droids_are_counted_through_every_change,
                droids_that_ended_are_pruned;
            grants: live_grants_of_an_agent_are_found, grants_are_replaced_removed_and_pruned;
            ids: ids_are_read_by_range;
            knowledge: entries_round_trip, entries_that_are_not_deleted_are_listed, versions_are_newest_first;
            ledger: calls_round_trip, calls_are_filtered, calls_are_summed, call_lists_are_bounded;
            messages: mail_round_trips, inboxes_are_in_order_of_append, the_depth_is_exact, marking_moves_mail,
                crash_counts_add_up_and_are_reset, waiting_agents_have_waking_mail,
                mail_of_a_root_with_a_spent_budget_is_not_ready, agents_with_waking_mail_of_a_root_are_found,
                quiet_mail_is_made_to_wake, recent_mail_is_newest_first, inbox_state_equals_the_single_queries,
                the_order_continues_after_reopening;
            model: commands_see_their_writes_and_leave_none_if_undone, sequences_equal_memory, batches_equal_memory;
            pages: budgets_are_paged, calls_are_paged, open_tasks_are_paged, short_lists_are_paged, tasks_are_paged,
                turns_are_paged;
            prune: pruned_turns_take_their_journals, open_turns_and_held_letters_keep_journals,
                prompts_are_kept_while_a_journal_names_them, open_asks_are_kept, running_calls_are_kept,
                usage_and_requests_are_pruned, held_letters_are_kept, needed_tasks_are_kept, a_prune_is_bounded,
                a_refused_prune_deletes_nothing;
            prune_mail: only_consumed_mail_is_pruned, mail_of_held_letters_is_kept,
                mail_is_kept_until_its_turn_has_ended, only_turns_of_cron_jobs_are_pruned_with_their_mail,
                a_turn_with_waiting_mail_is_kept;
            prune_shared: old_posts_are_pruned_and_sequences_continue, pruning_leaves_no_gap_in_a_channel,
                conversations_in_use_are_kept, active_conversations_are_cut_from_their_start, old_runs_are_pruned,
                deleted_knowledge_is_pruned;
            roots: tallies_are_kept_and_pruned;
            schedules: schedules_round_trip, schedules_are_listed_and_counted, schedules_are_removed,
                schedules_fall_due, runs_are_newest_first, runs_are_trimmed, snapshots_are_replaced;
            sessions: a_session_has_its_own_ended_turns, the_start_of_a_session_round_trips,
                turns_that_an_open_turn_quotes_are_kept;
            shared_state: values_round_trip, values_are_removed, keys_are_listed_by_prefix;
            signals: signals_follow_commits_in_order, signals_of_undone_commands_are_dropped;
            unique_names: a_taken_name_fails_its_command_only, released_names_are_free;
            tasks: tasks_round_trip, tasks_are_listed_by_priority, dependants_are_found, history_is_in_order;
            transactions: a_refusal_undoes_its_writes_alone, a_panic_is_undone_and_continues_in_the_caller,
                failed_queries_do_not_use_up_the_readers, answers_are_returned,
                a_closed_store_returns_closed, acknowledged_commands_survive_reopening;
            turns: turns_round_trip, open_turns_are_found, turn_lists_are_filtered, turns_of_a_root_are_listed,
                journals_are_in_order, prompts_are_stored_once;
            usage: totals_equal_sums, totals_stop_at_the_largest_number, totals_survive_pruning_of_the_feed;
        }
    };
}

macro_rules! as_table {
    (() $($family:ident: $($check:ident),+;)+) => {
        &[$($((concat!(stringify!($family), "::", stringify!($check)), |medium| {
            Box::pin(async move { $family::$check(tools::Bench::on(medium).await).await })
        })),+),+]
    };
}

/// Makes a test of each check: `for_each_check!(as_tests, <an expression that creates an empty
/// medium>);`.
#[cfg(test)]
macro_rules! as_tests {
    (($medium:expr) $($family:ident: $($check:ident),+;)+) => {
        $(mod $family {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                $crate::contract::check(stringify!($family), stringify!($check), std::sync::Arc::new($medium)).await;
            })+
        })+
    };
}

#[cfg(test)]
pub(crate) use {as_tests, for_each_check};

/// All checks, with their names.
pub const CHECKS: &[(&str, Check)] = for_each_check!(as_table);

/// Runs the check with this name.
#[cfg(test)]
pub(crate) async fn check(family: &str, name: &str, medium: Arc<dyn Medium>) {
    let name = format!("{family}::{name}");
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).expect("the table and the tests are one list");
    check(medium).await;
}
