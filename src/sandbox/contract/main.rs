//! The contract of all sandboxes: the same cases run in `local`, in `docker`, and in `remote` with a real toolbox server on
//! this machine. Cases of containers alone are in `containers`, those that kill and stop an engine in `engine`; those of
//! `remote` alone are in `remote_only`, and those with a server that lies in `liars`.
//!
//! A machine without a sandbox skips its cases and says so. With `GHOST_SANDBOX=required` (`local`, `remote`) and
//! `GHOST_DOCKER=required` (`docker`) they fail instead. `docker` needs the toolbox image (`deploy/toolbox/build`).

// A failure in a test is a panic with a message. The tests look at the machine's processes, as an operator would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods, clippy::print_stderr)]

mod bounds;
mod commands;
mod containers;
mod deaths;
mod engine;
mod escapes;
mod files;
mod liars;
mod machine;
mod network;
mod place;
mod remote_only;
mod user;

/// Makes a test of each case.
macro_rules! of_kind {
    ($name:ident, $kind:ident, { $($module:ident: $($case:ident),+;)+ }) => {
        mod $name { $($(
            #[test]
            fn $case() {
                crate::$module::$case(crate::place::Kind::$kind);
            }
        )+)+ }
    };
}

/// Makes a test of each case for each kind of sandbox.
macro_rules! cases {
    ($($name:ident: $kind:ident),+; $cases:tt) => {
        $(of_kind!($name, $kind, $cases);)+
    };
}

cases! { local: Local, docker: Docker, remote: Remote; {
    commands: exit_codes_and_signals, outputs_are_cut_between_characters,
        standard_input_arrives, the_environment_is_an_allow_list, public_settings_of_tls_can_be_read_and_keys_cannot, programs_and_directories_that_are_not_there,
        many_commands_of_one_agent_run_at_once;
    bounds: a_deadline_kills_the_whole_tree, the_end_of_a_command_ends_what_it_left, a_dropped_call_kills_the_whole_tree,
        too_much_memory, too_many_processes, too_much_on_disk, a_deep_directory_stops_its_agent_alone;
    files: writes_stay_within_the_prefixes, access_to_the_workspace_is_bounded, rights_hold_from_the_next_command,
        a_link_in_place_of_a_prefix_is_refused,
        a_link_that_comes_and_goes_leads_nowhere;
    escapes: no_attempt_gets_through, the_daemon_and_its_files_cannot_be_reached,
        nothing_is_gained_by_being_privileged, agents_see_nothing_of_each_other;
    deaths: a_killed_runner_is_an_error_and_leaves_nothing, a_stopped_runner_is_an_error_after_the_deadline;
} }

// The copy of a toolbox server has modes of its own.
cases! { local_modes: Local, docker_modes: Docker; { files: other_users_read_nothing; } }

// A toolbox server gives commands no network.
cases! { local_proxy: Local, docker_proxy: Docker; {
    network: the_port_of_the_proxy_leads_to_the_outlet, nothing_else_can_be_reached, connections_end_with_their_command,
        a_connection_that_is_not_read_stops_no_other;
} }
