//! The contract that every backend must pass: one table of checks, each over a fresh, empty store. A backend runs them
//! as tests of their own with [`for_each_check`] and [`as_tests`]; one in another crate walks [`CHECKS`].
//!
//! Must never: ask for anything that `tables` and `handle` do not promise, or know which backend it looks at.

// These are tests; only where they are compiled differs, by the `testing` feature.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod asks;
mod budgets;
mod chat;
mod concurrency;
mod conversations;
mod dice;
mod events;
mod ids;
mod knowledge;
mod ledger;
mod messages;
mod model;
mod prune;
mod prune_mail;
mod prune_together;
mod roots;
mod rows;
mod rows_together;
mod schedules;
mod script;
mod script_together;
mod shared_state;
mod signals;
mod taken;
mod tasks;
mod tools;
mod transactions;
mod turns;
mod usage;

use std::sync::Arc;

use ghost_domain::time::BoxFuture;

use crate::{Store, StoreError};

/// Where a store's data lies while no store is open: a directory, a schema, a piece of memory.
pub trait Medium: Send + Sync {
    /// Opens the store. The first time it is empty; later it holds what was acknowledged before.
    fn open(&self) -> BoxFuture<'_, Result<Store, StoreError>>;
}

/// One check over an empty medium. It panics if the backend does not keep the contract.
pub type Check = fn(Arc<dyn Medium>) -> BoxFuture<'static, ()>;

/// Hands every check to the macro `$then`, by family; `$medium` makes an empty medium.
macro_rules! for_each_check {
    ($then:ident $(, $medium:expr)?) => {
        $then! {
            ($($medium)?)
            agents: agents_are_put_and_listed, creators_of_the_living_are_kept, dynamic_agents_are_counted, meta_is_kept, skills_are_held_and_removed,
                jobs_are_newest_first, requests_are_kept_by_principal;
            asks: asks_round_trip, open_asks_are_found, dead_letters_are_newest_first;
            budgets: budgets_are_listed_by_scope, budgets_are_listed_by_sort_and_page,
                accounts_of_gone_agents_are_pruned, usage_is_summed, lists_are_bounded;
            chat: channels_are_listed_by_name, members_are_listed_both_ways, members_leave_and_come_back,
                unread_channels_follow_the_cursor, posts_are_read_by_cursor, a_post_concerns_a_thousand;
            concurrency: concurrent_commands_keep_one_order, reads_see_whole_commits_only,
                a_caller_that_gives_up_hurts_nobody, a_write_within_a_write_is_refused_at_once;
            conversations: conversations_are_found_by_thread, conversations_are_listed_last_spoken_first,
                entries_are_in_order, entries_of_a_turn_are_found, deliveries_fall_due;
            events: events_are_gapless_and_in_order, correlations_come_back, refused_commands_use_no_sequence, events_are_published_after_commit,
                ephemeral_kinds_are_refused, events_are_paged, a_filter_that_matches_little_ends,
                bounds_follow_pruning, the_sequence_goes_on_over_opening;
            ids: ids_are_read_by_range;
            knowledge: entries_round_trip, what_is_there_is_listed, versions_are_newest_first;
            ledger: calls_round_trip, calls_are_filtered, call_lists_are_bounded;
            messages: mail_round_trips, inboxes_are_in_order_of_append, the_depth_is_exact, marking_moves_mail,
                crashes_add_up_and_are_forgiven, waiting_agents_have_waking_mail,
                mail_of_a_root_whose_turn_is_aside_is_not_ready,
                agents_wait_for_a_root_whose_mail_wakes_them, quiet_mail_is_roused,
                recent_mail_is_newest_first,
                a_look_gives_what_the_single_queries_give,
                the_order_goes_on_over_opening;
            model: sequences_equal_memory, batches_equal_memory;
            prune: pruned_turns_take_their_journals, open_turns_and_held_letters_keep_journals,
                prompts_live_while_a_journal_names_them, open_asks_are_kept, running_calls_are_kept,
                usage_and_requests_are_pruned, held_letters_are_kept, needed_tasks_are_kept, a_prune_is_bounded,
                a_refused_prune_deletes_nothing;
            prune_mail: only_consumed_mail_is_pruned, mail_of_held_letters_is_kept, mail_ends_with_its_turn,
                turns_of_cron_jobs_go_with_their_mail_and_alone, a_turn_that_waiting_mail_goes_on_with_is_kept;
            prune_together: old_posts_go_and_channels_go_on, what_is_left_of_a_channel_has_no_gap, conversations_on_their_way_are_kept, conversations_that_go_on_are_cut_from_their_start, old_runs_go,
                deleted_knowledge_goes;
            roots: tallies_are_kept_and_pruned;
            schedules: schedules_round_trip, schedules_are_listed_and_counted, schedules_are_removed, schedules_fall_due,
                runs_are_newest_first, runs_are_trimmed, snapshots_are_replaced;
            shared_state: values_round_trip, values_are_removed, keys_are_listed_by_prefix;
            signals: signals_follow_commits_in_order, signals_of_undone_commands_are_dropped;
            taken: taken_names_are_errors_of_their_command, names_that_were_given_up_are_free;
            tasks: tasks_round_trip, tasks_are_listed_by_priority, dependants_are_found, history_is_in_order;
            transactions: commands_see_their_own_writes, scans_see_writes_before_them, a_refusal_undoes_its_writes_alone,
                a_refusal_after_scans_undoes_its_writes_alone, a_refusal_restores_replaced_rows,
                a_panic_is_undone_and_goes_on_in_the_caller, a_failed_query_hurts_nothing, answers_come_back,
                a_closed_store_says_so, acknowledged_commands_outlive_the_store;
            turns: turns_round_trip, open_turns_are_found, turn_lists_are_filtered, turns_of_a_root_are_listed, journals_are_in_order,
                prompts_are_kept_once;
            usage: totals_equal_sums, totals_outlive_the_feed;
        }
    };
}

macro_rules! as_table {
    (() $($family:ident: $($check:ident),+;)+) => {
        &[$($((concat!(stringify!($family), "::", stringify!($check)), |medium| Box::pin($family::$check(medium)))),+),+]
    };
}

/// Makes a test of every check: `for_each_check!(as_tests, <an expression that makes an empty medium>);`.
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

/// Every check, by name.
pub const CHECKS: &[(&str, Check)] = for_each_check!(as_table);

/// Runs the check of that name.
#[cfg(test)]
pub(crate) async fn check(family: &str, name: &str, medium: Arc<dyn Medium>) {
    let name = format!("{family}::{name}");
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name).expect("the table and the tests are one list");
    check(medium).await;
}
