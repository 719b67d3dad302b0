/* Every case of the suite: CASE(name, capabilities it needs). CMake reads the names from these lines, so one line is
 * one case; its function is `case_<name>`, in the file that the heading names. No include guard: a list to expand. */

/* basic_test.c */
CASE(acquire_release, 0)
CASE(try_is_busy, 0)
CASE(timed_acquire_times_out, 0)
CASE(timed_acquire_is_granted, 0)
CASE(blocking_acquire_is_granted, 0)
CASE(granted_just_before_the_deadline, 0)
CASE(double_release, 0)
CASE(errors_and_outputs, 0)

/* owner_test.c */
CASE(reentry_counts, 0)
CASE(no_reentry, 0)
CASE(handle_owner_any_thread_releases, 0)
CASE(handle_owner_second_acquire, 0)
CASE(thread_owner_excludes_threads, 0)
CASE(release_by_other_thread, 0)

/* lease_test.c */
CASE(fixed_lease_ends, 0)
CASE(fixed_lease_ends_before_next_grant, 0)
CASE(lease_counts_from_the_grant, 0)
CASE(renewal_outlives_three_leases, 0)
CASE(renewal_of_many_locks, 0)
CASE(extended_lease, 0)
CASE(extended_lease_of_a_reader, DLOCK_CAP_SHARED)
CASE(extended_lease_of_a_permit, DLOCK_CAP_PERMIT)
CASE(extension_of_a_renewed_grant, 0)

/* loss_test.c */
CASE(break_is_reported, DLOCK_CAP_BREAK)
CASE(break_counts_down, DLOCK_CAP_BREAK)
CASE(other_thread_after_loss, DLOCK_CAP_BREAK)
CASE(break_before_a_hand_over, DLOCK_CAP_BREAK)
CASE(holder_killed, NEEDS_PROCESSES)
CASE(holder_stopped, NEEDS_PROCESSES)
CASE(holder_stopped_release, NEEDS_PROCESSES)
CASE(reader_stopped, DLOCK_CAP_SHARED | NEEDS_PROCESSES)
CASE(permit_holder_stopped, DLOCK_CAP_PERMIT | NEEDS_PROCESSES)

/* callback_test.c */
CASE(on_lost_may_call_the_library, 0)
CASE(on_lost_may_free_its_handle, 0)
CASE(free_waits_for_on_lost, 0)
CASE(close_waits_for_on_lost, 0)
CASE(on_lost_shows_the_lost_grant, 0)
CASE(release_takes_on_lost_back, 0)

/* queue_test.c */
CASE(fifo_processes, DLOCK_CAP_QUEUE)
CASE(fifo_threads, DLOCK_CAP_QUEUE)
CASE(nobody_barges, DLOCK_CAP_QUEUE)
CASE(dead_waiters_are_skipped, NEEDS_PROCESSES)
CASE(first_waiter_killed_when_granted, NEEDS_PROCESSES)
CASE(holder_killed_with_a_long_queue, DLOCK_CAP_QUEUE | NEEDS_PROCESSES)
CASE(stopped_waiter_reports_no_stale_grant, NEEDS_PROCESSES)
CASE(timed_out_waiter_leaves_the_queue, 0)
CASE(permit_waiter_gives_up, DLOCK_CAP_PERMIT)

/* cancel_test.c */
CASE(cancel_ends_waits, 0)
CASE(cancel_is_not_remembered, 0)
CASE(cancel_races_with_the_grant, 0)
CASE(stop_ends_waits, 0)

/* lifecycle_test.c */
CASE(close_ends_waits, 0)
CASE(close_refuses_every_call, 0)
CASE(close_while_threads_work, 0)
CASE(free_gives_back_its_share, 0)
CASE(free_ends_waits, 0)
CASE(free_while_another_handle_waits, 0)
CASE(free_and_close_in_any_order, 0)
CASE(clients_leave_nothing_behind, 0)

/* fork_test.c */
CASE(fork_child_is_refused, 0)
CASE(fork_parent_keeps_its_lock, 0)
CASE(fork_child_frees_and_closes, 0)
CASE(fork_while_a_thread_waits, 0)
CASE(fork_child_opens_its_own, NEEDS_PROCESSES)
CASE(fork_child_opens_its_own_and_goes_on, NEEDS_PROCESSES)
CASE(fork_child_outlives_the_holder, NEEDS_PROCESSES)
CASE(exec_child_outlives_the_holder, NEEDS_PROCESSES)
CASE(child_outlives_a_reader, DLOCK_CAP_SHARED | NEEDS_PROCESSES)
CASE(child_outlives_a_permit, DLOCK_CAP_PERMIT | NEEDS_PROCESSES)

/* names_test.c */
CASE(names_of_every_kind, 0)
CASE(names_stay_distinct, 0)
CASE(names_of_200_bytes, 0)
CASE(prefix_is_part_of_the_name, 0)

/* options_test.c */
CASE(client_options_refused, 0)
CASE(features_absent, 0)

/* uris_test.c */
CASE(uris_refused, 0)
CASE(uri_unknown_key_is_named, 0)
CASE(uri_secrets_stay_secret, 0)

/* unreachable_test.c */
CASE(closed_port, NEEDS_HOST)
CASE(closed_port_lazy, NEEDS_HOST)
CASE(silent_server, NEEDS_HOST)
CASE(silent_server_lazy, NEEDS_HOST)
CASE(unanswered_connect, NEEDS_HOST)
CASE(unresolvable_host, NEEDS_HOST)

/* admin_test.c */
CASE(inspect_shows_the_holder, DLOCK_CAP_INSPECT)
CASE(inspect_shows_who_and_since_when, DLOCK_CAP_INSPECT)
CASE(list_by_prefix, DLOCK_CAP_LIST)
CASE(break_wakes_a_waiter, DLOCK_CAP_BREAK)

/* contention_test.c */
CASE(exclusion_among_processes_and_threads, 0)
CASE(exclusion_among_clients_of_one_process, 0)
CASE(exclusion_with_many_names, 0)
CASE(exclusion_with_mixed_options, 0)
CASE(exclusion_with_impatient_waiters, 0)
CASE(local_hand_over, 0)
CASE(other_processes_get_their_turn, 0)
CASE(fairness, DLOCK_CAP_QUEUE)

/* shared_test.c */
CASE(readers_together, DLOCK_CAP_SHARED)
CASE(readers_of_one_client, DLOCK_CAP_SHARED)
CASE(reader_waits_for_a_writer, DLOCK_CAP_SHARED)
CASE(reader_reentry, DLOCK_CAP_SHARED)
CASE(writer_reenters_as_reader, DLOCK_CAP_SHARED)
CASE(upgrade_is_refused, DLOCK_CAP_SHARED)
CASE(renewal_of_many_readers, DLOCK_CAP_SHARED)
CASE(reader_killed, DLOCK_CAP_SHARED | NEEDS_PROCESSES)

/* shared_queue_test.c */
CASE(readers_and_writers_take_turns, DLOCK_CAP_SHARED | DLOCK_CAP_QUEUE)
CASE(writer_gives_up, DLOCK_CAP_SHARED)
CASE(waiting_writer_killed, DLOCK_CAP_SHARED | NEEDS_PROCESSES)
CASE(crowd_of_readers_enters_at_once, DLOCK_CAP_SHARED)
CASE(readers_and_writers_exclude, DLOCK_CAP_SHARED)
CASE(impatient_readers_and_writers, DLOCK_CAP_SHARED)
CASE(writers_do_not_starve, DLOCK_CAP_SHARED)

/* downgrade_test.c */
CASE(downgrade, DLOCK_CAP_SHARED)
CASE(downgrade_lets_readers_in, DLOCK_CAP_SHARED)
CASE(downgrade_of_a_counted_lock, DLOCK_CAP_SHARED)
CASE(writer_reads_on, DLOCK_CAP_SHARED)
CASE(downgrade_refused, DLOCK_CAP_SHARED)
CASE(downgrade_after_a_break, DLOCK_CAP_SHARED | DLOCK_CAP_BREAK)
CASE(renewal_after_a_downgrade, DLOCK_CAP_SHARED | NEEDS_PROCESSES)
CASE(downgrades_exclude_writers, DLOCK_CAP_SHARED)

/* permit_test.c */
CASE(permits_up_to_the_limit, DLOCK_CAP_PERMIT)
CASE(permits_of_one_thread, DLOCK_CAP_PERMIT)
CASE(permits_are_given_back_together, DLOCK_CAP_PERMIT)
CASE(permits_of_handles_and_threads, DLOCK_CAP_PERMIT)
CASE(renewal_of_many_permits, DLOCK_CAP_PERMIT)
CASE(permit_holder_killed, DLOCK_CAP_PERMIT | NEEDS_PROCESSES)
CASE(permits_limit_a_rate, DLOCK_CAP_PERMIT)
CASE(permits_disagree_about_the_limit, DLOCK_CAP_PERMIT)
CASE(permits_and_locks_do_not_mix, DLOCK_CAP_PERMIT)
CASE(permit_options_refused, DLOCK_CAP_PERMIT)

/* permit_queue_test.c */
CASE(freed_permits_wake_waiters, DLOCK_CAP_PERMIT | DLOCK_CAP_WAKE)
CASE(permits_never_exceed_the_limit, DLOCK_CAP_PERMIT)
CASE(impatient_permit_waiters, DLOCK_CAP_PERMIT)

/* admin_modes_test.c */
CASE(inspect_shows_every_reader, DLOCK_CAP_SHARED | DLOCK_CAP_INSPECT)
CASE(inspect_shows_every_permit, DLOCK_CAP_PERMIT | DLOCK_CAP_INSPECT)
CASE(break_takes_all_readers, DLOCK_CAP_SHARED | DLOCK_CAP_BREAK)
CASE(break_takes_all_permits, DLOCK_CAP_PERMIT | DLOCK_CAP_BREAK)

/* deaths_test.c */
CASE(exclusion_when_holders_die, NEEDS_PROCESSES)
CASE(readers_and_writers_die, DLOCK_CAP_SHARED | NEEDS_PROCESSES)
CASE(permit_holders_die, DLOCK_CAP_PERMIT | NEEDS_PROCESSES)

/* any_test.c */
CASE(any_takes_a_free_one, 0)
CASE(any_waits_for_the_first, 0)
CASE(any_of_a_few_slots, 0)

/* all_test.c */
CASE(all_of_several, 0)
CASE(all_or_nothing, 0)
CASE(all_wait_for_the_busy_one, 0)
CASE(all_share_the_time, 0)
CASE(all_refused, 0)
CASE(all_reenter, 0)
CASE(all_are_released, 0)
CASE(all_of_two_clients, 0)
CASE(all_cancelled, 0)
CASE(all_of_mixed_modes, DLOCK_CAP_SHARED | DLOCK_CAP_PERMIT)
CASE(all_in_opposite_orders, 0)
CASE(all_permits_of_one_name, DLOCK_CAP_PERMIT)
CASE(all_permits_for_several_callers, DLOCK_CAP_PERMIT)

/* async_test.c */
CASE(async_acquire_and_release, 0)
CASE(async_ends_of_waits, 0)
CASE(async_refused, 0)
CASE(async_many_on_one_name, 0)
CASE(async_many_names, 0)
CASE(async_callbacks_go_on, 0)
CASE(async_readers, DLOCK_CAP_SHARED)

/* async_ends_test.c */
CASE(async_cancel_races_with_the_grant, 0)
CASE(async_cancel_in_line, 0)
CASE(async_free_while_waiting, 0)
CASE(async_free_while_releasing, 0)
CASE(async_close_while_waiting, 0)
CASE(async_callback_frees_its_handle, 0)

/* manual_test.c */
CASE(manual_dispatch, 0)
CASE(manual_calls_that_wait, 0)
CASE(manual_on_lost, 0)
CASE(manual_loop, 0)
CASE(manual_ends, 0)

/* export_test.c */
CASE(export_to_another_process, DLOCK_CAP_EXPORT)
CASE(export_from_hand_to_hand, DLOCK_CAP_EXPORT)
CASE(export_in_front_of_waiters, DLOCK_CAP_EXPORT)
CASE(ticket_ends_with_its_lease, DLOCK_CAP_EXPORT)
CASE(export_of_a_fixed_lease, DLOCK_CAP_EXPORT)
CASE(export_of_a_reader, DLOCK_CAP_EXPORT | DLOCK_CAP_SHARED)
CASE(export_of_a_permit, DLOCK_CAP_EXPORT | DLOCK_CAP_PERMIT)
CASE(export_refused, DLOCK_CAP_EXPORT)
CASE(import_refused, DLOCK_CAP_EXPORT)

/* linger_test.c */
CASE(linger_costs_nothing, DLOCK_CAP_WANTED)
CASE(linger_fences_grow, DLOCK_CAP_WANTED)
CASE(linger_ends_when_wanted, DLOCK_CAP_WANTED)
CASE(linger_not_while_others_wait, DLOCK_CAP_WANTED)
CASE(linger_is_over_in_time, DLOCK_CAP_WANTED)
CASE(linger_for_other_wishes, DLOCK_CAP_WANTED)
CASE(linger_and_loss, DLOCK_CAP_WANTED | DLOCK_CAP_BREAK | NEEDS_PROCESSES)
CASE(wanted_tells_the_holder, DLOCK_CAP_WANTED)
CASE(wanted_by_those_who_wait_already, DLOCK_CAP_WANTED | DLOCK_CAP_QUEUE)

/* ready_test.c */
CASE(quarantine_grants_nothing, DLOCK_CAP_VOLATILE)
CASE(quarantine_keeps_what_is_granted, DLOCK_CAP_VOLATILE)
