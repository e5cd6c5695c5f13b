//! Mistakes that users of rate limiters reported, each with the tests that fail if tollgate makes
//! it.
//!
//! - A name in brackets is a test in this file.
//! - A path is relative to `tests/`. The names after it are tests in that file.
//! - `suite` is the conformance suite. `memory_store/contract.rs` runs it on each store in memory,
//!   and `redis/contract.rs` on each server. A case that fails prints its name.
//!
//! | mistake | test |
//! |---|---|
//! | A first request that costs more than one unit leaves a key that never expires | [`a_first_request_of_cost_two_leaves_a_key_that_expires`]; `redis/life.rs`: `a_first_request_of_cost_two_leaves_a_key_that_expires`; `redis/healing.rs`: `a_key_without_an_end_gets_one_by_a_charge_and_by_a_denial` |
//! | Every hit renews the window, which never ends | suite `waits::requests_do_not_prolong_the_window`; `redis/life.rs`: `hits_do_not_prolong_the_life_of_a_window` |
//! | At its end a window passes its count on to the next | suite `waits::a_new_window_does_not_inherit_the_old_count`; `redis/windows.rs`: `an_ending_window_is_neither_forgotten_early_nor_inherited` |
//! | State is forgotten early and the limit doubled | `memory_store/reclaim.rs`: `no_state_is_forgotten_before_its_wait_is_over`, `a_key_is_evicted_ten_seconds_after_its_reset`; `redis/life.rs`: `a_key_lives_exactly_as_long_as_its_state` |
//! | Denied requests are recorded, so a caller that keeps trying never passes | suite `basics::denied_requests_are_not_recorded`; [`a_caller_that_keeps_trying_passes_after_the_reported_wait`]; `redis/denials.rs`: `a_denied_request_writes_nothing` |
//! | A log grows with what it denies | `alone/allocations.rs`: `denied_requests_do_not_lengthen_a_log`; `redis/denials.rs`: `denied_requests_do_not_grow_a_log` |
//! | A state of another form makes every request fail | suite `keys::policies_of_another_name_window_or_algorithm_do_not_share_a_quota`; [`a_policy_with_a_changed_algorithm_finds_no_state`]; `redis/healing.rs`: `a_foreign_value_fails_no_request_and_blocks_no_caller` |
//! | A script that the server has forgotten is an error to callers | `redis/scripts.rs`: `flushed_scripts_fail_no_request_and_grant_nothing_twice` |
//! | A call whose reply was lost is sent again and charges twice | `redis/lost.rs`: `a_reply_that_is_lost_after_the_charge_charges_once`, `a_reply_that_is_lost_after_the_script_was_sent_whole_charges_once`, `an_answer_that_comes_too_late_is_an_error_and_charges_once`; `redis/cluster/masters.rs`: `a_node_that_answers_too_late_charges_once`; `faults/mod.rs`: `every_policy_keeps_its_promise_under_every_fault` |
//! | The keys of one check are in different slots, and the error is granted | `redis/cluster/mod.rs`: `all_policies_of_a_key_share_a_slot`; `redis/cluster/sets.rs`: `a_set_over_several_slots_charges_no_key_when_one_refuses`, `a_caller_that_leaves_between_two_slots_leaves_no_half_of_a_set` |
//! | A connection never comes back after Redis restarted | `redis/scripts.rs`: `a_restart_under_load_fails_only_calls_in_flight`; `redis/lost.rs`: `a_server_that_stopped_answering_is_used_again_when_it_recovers`; `faults/mod.rs`: `every_policy_keeps_its_promise_under_every_fault` |
//! | After a failover the old primary stays in use | `redis/sentinel.rs`: `a_connection_to_a_demoted_master_is_replaced`, `a_demoted_master_is_replaced_by_its_successor`, `a_dead_master_is_replaced_by_its_successor`; `redis/cluster/masters.rs`: `a_master_that_dies_is_replaced_without_a_restart`; `faults/mod.rs`: `every_policy_keeps_its_promise_under_every_fault` |
//! | A master that is down is mistaken for a wrong name, and the store does not recover | `redis/sentinel.rs`: `a_master_that_is_down_is_not_a_misconfiguration` |
//! | The first call after an idle hour fails | `redis/lost.rs`: `the_first_request_after_connections_were_cut_passes`; `faults/idle.rs`: `the_first_request_after_an_idle_hour_passes` |
//! | All processes reconnect at once, and retry without a pause | `faults/storm.rs`: `a_lost_server_is_not_flooded_with_connection_attempts` |
//! | A service does not start while its Redis is down | `redis/connect.rs`: `a_store_connects_while_redis_is_down_and_decides_once_it_is_up` |
//! | A missing permission is mistaken for a missing key | `redis/connect.rs`: `a_missing_permission_is_an_error_and_grants_nothing`, `a_forbidden_command_of_an_algorithm_is_an_error_and_grants_nothing` |
//! | A raised limit makes callers wait longer, or locks them out while a deployment rolls | suite `versions::an_edit_makes_no_caller_wait_for_the_old_bucket`, `versions::a_raised_version_passes_at_its_rate_beside_the_old_one` |
//! | A tier that refills slowly uses up the key for a faster one | suite `versions::an_edit_makes_no_caller_wait_for_the_old_bucket`, `versions::a_slow_tier_uses_up_no_faster_one` |
//! | Two versions of a policy on one store: one cuts what the other owes | suite `versions::a_version_keeps_what_it_owes_beside_another`, `changes::two_versions_admit_no_more_than_both_allow`; `redis/versions.rs`: `rotating_versions_have_four_entries_and_a_refusal_adds_one` |
//! | While a clock is behind, a refused class or tier gives back what others owe | suite `versions::a_refused_class_forgives_nothing_while_the_clock_is_behind` |
//! | A clock that steps back refills tokens, or blocks every caller | suite `changes::a_clock_that_steps_back_refills_nothing_and_blocks_no_caller`; `redis/healing.rs`: `a_tat_of_next_year_is_an_empty_bucket_at_once`; `faults/clock.rs`: `a_promoted_replica_with_a_slow_clock_keeps_the_limit` |
//! | Times of 16 digits lose their last digits | suite `waits::microseconds_of_a_16_digit_time_are_kept`; `redis/healing.rs`: `stored_values_are_digits_only`; `redis/contract.rs`: `large_numbers_reach_commands_as_digits` |
//! | The first request on a fresh key is denied by rounding | suite `basics::the_first_request_on_a_fresh_key_passes` |
//! | A cost equal to the capacity never passes | suite `basics::a_cost_equal_to_the_capacity_passes`; [`a_transfer_of_the_whole_quota_passes`] |
//! | The interval is cut to whole milliseconds, and limits above 1,000 a second become 1,000 | suite `waits::limits_above_a_thousand_a_second_are_not_truncated` |
//! | `Retry-After` is 0, negative, or missing after the limit was lowered | [`retry_after_is_never_zero`], [`a_lowered_limit_reports_retry_after`]; suite `changes::a_lowered_limit_reports_a_wait` |
//! | A wait of -1, or of 115 days, because a denied request of large cost was charged | suite `basics::a_denied_large_cost_does_not_change_the_wait`; [`a_denied_large_cost_does_not_change_the_reported_wait`] |
//! | A denied rule charges the others | suite `sets::a_denied_policy_charges_none_of_the_others`; [`a_request_refused_by_burst_leaves_daily_untouched`] |
//! | A month has 30 days, day 31 is lost in February, or a day has always 24 hours | `calendar/zones.rs`: `boundaries_equal_those_of_python_over_forty_years`, `days_have_23_24_or_25_hours_and_months_as_many_days_as_they_have` |
//! | An edit of zone or anchor forgives a calendar window, again with each edit | suite `changes::other_boundaries_apply_when_the_window_has_ended`; `calendar/edits.rs`: `twenty_years_of_edits_forgive_no_window`, `memory_and_redis_answer_alike_over_edits`; `calendar/fleet.rs`: `two_processes_with_two_anchors_share_one_quota`; `calendar/wrappers.rs`: `a_lease_that_outlives_an_edit_lifts_no_limit` |
//! | A calendar window in memory follows a clock that was read once | `calendar/steps.rs`: `a_window_ends_when_the_wall_clock_steps_beyond_its_end`, `a_window_keeps_its_end_when_the_wall_clock_steps_back` |
//! | Another time to live of slots lets more run, and a longer block frees its keys | suite `slot_times::another_time_to_live_ends_no_slot_and_adds_none`, `blocks::another_time_changes_no_block_that_runs`; `service/replace.rs`: `another_time_to_live_lets_no_more_requests_run`, `another_time_of_blocks_frees_no_blocked_key`; `redis/slots.rs`: `an_edit_of_the_time_to_live_ends_no_slot_that_runs`; `redis/blocks.rs`: `a_block_of_another_time_is_refused_until_its_own_end` |
//! | What a class uses beyond its estimate is forgiven, though the quota has room | suite `headroom::a_class_is_charged_and_in_debt_by_the_whole_quota`; `redis/tiers.rs`: `what_a_class_used_beyond_its_estimate_is_charged_by_the_whole_quota` |
//! | In a full memory store a block blocks all keys without an entry, and no unblock lifts it | `memory_store/never_shared.rs`: `a_block_without_room_blocks_no_key_and_is_shown_and_counted`, `a_block_takes_the_place_of_a_key_that_is_not_pinned`, `no_block_takes_the_place_of_a_slot_a_debt_or_a_block`; `../examples/playground/tests/stress.rs`: `a_block_in_a_full_memory_blocks_no_user_that_never_asked` |
//! | In a full memory store new keys wait for the debt of another | `memory_store/never_shared.rs`: `debt_without_room_is_forgiven_and_newcomers_do_not_wait_for_it` |
//! | An observer that panics while a handler panics aborts the process | `observe/decisions.rs`: `an_observer_may_panic_while_a_handler_panics` |
//! | A request with many extensions holds up Redis when it is settled, and itself when it says what it used | `../crates/tollgate/src/charge/reservation.rs`: `extensions_without_others_between_them_are_one_grant`, `beyond_the_most_grants_the_oldest_count_as_used`; `redis/returns.rs`: `a_request_of_many_refunds_is_sent_in_parts` |
//! | A slot that is granted after its caller has gone belongs to no caller until its time to live ends | `redis/late_claims.rs`: `late_grants_are_refunded_with_the_rates_of_their_sets`, `what_is_granted_to_a_caller_that_has_left_is_refunded`, `an_answer_that_its_caller_does_not_read_is_refunded`, `a_late_grant_over_nodes_is_refunded_on_each`, `a_claim_is_awaited_beyond_the_response_timeout`, `a_claim_that_was_not_sent_never_reaches_redis`, `claims_that_are_lost_with_their_connection_are_counted`; `slots/mod.rs`: `stalls_leave_no_slot_without_a_holder_and_lose_none`, `lost_claims_are_counted_and_their_slots_are_free_within_a_time_to_live`; `log_ins/mod.rs`: `stalls_leave_no_turn_without_a_holder_and_refuse_no_right_log_in`, `turns_of_lost_claims_are_free_within_a_time_to_live`; `gateways/mod.rs`: `stalls_leave_no_stream_without_a_holder_and_charge_no_late_claim`, `streams_of_lost_claims_are_over_within_a_time_to_live` |
//! | After an outage a quiet node refuses corrections for ever, and what a stall makes late is forgiven | `failure/charges.rs`: `a_quiet_node_corrects_charges_after_an_outage`, `a_stall_forgives_nothing_of_what_exceeds_the_estimate`, `a_correction_that_is_never_answered_is_unknown`; `failure/breaker.rs`: `an_open_circuit_refuses_refunds_and_resets_until_a_probe_is_due` |
//! | A rule in shadow changes what an enforced one decides | `service/shadow.rs`: `no_answer_field_charge_or_slot_differs_from_a_run_without`; `redis/shadow.rs` |
//! | A rule in shadow evicts keys of enforced ones, or starts blocks that others enforce | `service/apart_in_shadow.rs`: `a_flood_of_keys_in_shadow_evicts_no_key_of_an_enforced_rule`, `a_rule_in_shadow_neither_charges_nor_blocks_its_enforced_namesake`, `denials_in_shadow_push_out_no_denial_of_an_enforced_rule`; `redis/shadow.rs`: `a_rule_in_shadow_neither_charges_nor_blocks_its_enforced_namesake` |
//! | Rules in shadow make enforced decisions late | `redis/shadow.rs`: `no_check_in_shadow_is_sent_while_an_enforced_one_waits`, `a_call_in_shadow_carries_little_work`; `service/apart_in_shadow.rs`: `failures_in_shadow_open_no_circuit_and_are_counted_as_dropped` |
//! | A raise does not reach those who wait, while newcomers pass | `service/replace.rs`: `a_raise_reaches_those_who_wait_for_slots_in_their_order`, `those_who_wait_ask_by_other_keys_and_rules_too`, `a_raise_reaches_those_who_wait_in_until_ready` |
//! | Chosen quotas of requests take away those of other callers | `service/request_quotas.rs`: `ten_thousand_different_quotas_in_turn_each_hold`, `each_rule_has_a_table_of_its_own`; `../crates/tollgate/src/plan/made_policies.rs`: `a_full_table_makes_each_policy_again_and_keeps_the_latest`, `what_is_not_allowed_is_not_kept` |
//! | A handler panics because a file renamed, shadowed or unblocked the rule that it names | `service/names.rs`: `a_rule_that_is_renamed_or_unblocked_is_an_error_and_no_panic`, `blocks_of_a_rule_in_shadow_are_those_of_its_enforced_namesake`, `a_limiter_reports_names_that_it_does_not_have` |
//! | Each request looks at every rule, and work grows with the square of the rules | `../crates/tollgate/src/plan/path_index.rs`: `one_of_five_thousand_rules_is_looked_at` |
//! | Check and increment are two steps, between which a burst passes | suite `concurrency::a_burst_of_concurrent_requests_gets_the_limit`; `memory_store/threads.rs`; `service/concurrency.rs`; `redis/load.rs`: `processes_that_share_a_limit_get_it_exactly`, `merged_callers_get_exactly_the_limit` |
//! | A refund lands in the next window | suite `refunds::a_refund_does_not_land_in_the_next_window` |
//! | A refund creates a key | suite `refunds::a_refund_creates_no_quota_on_a_fresh_key`; [`a_refund_that_comes_too_late_adds_no_key`]; `redis/life.rs`: `a_refund_that_comes_too_late_creates_no_key` |
//! | A refund exceeds the capacity | suite `refunds::a_refund_never_exceeds_the_capacity`, `refunds::a_refund_returns_no_more_than_the_remaining_debt` |
//! | The leftmost forwarded address is trusted, and a map grows with every invented one | `axum_server/keys.rs`: `invented_entries_to_the_left_do_not_change_the_key`; [`invented_forwarded_addresses_add_no_keys`] |
//! | `ip:port` is not parsed | `axum_server/keys.rs`: `callers_behind_a_trusted_proxy_do_not_share_one_bucket` |
//! | Only the first of several header lines is read | `axum_server/keys.rs`: `several_lines_of_a_forwarding_header_are_one_list` |
//! | A caller rotates through the addresses of its IPv6 network | `axum_server/keys.rs`: `a_caller_cannot_rotate_through_the_addresses_of_its_network`; [`an_ipv6_peer_cannot_rotate_through_its_network`] |
//! | Behind a proxy all callers share one bucket | `axum_server/keys.rs`: `callers_behind_a_trusted_proxy_do_not_share_one_bucket` |
//! | If the server does not pass on peer addresses, no message says so | `alone/missing_peer.rs` |
//! | A clone that was not polled ready is called | `service/readiness.rs`; among other layers, `service/stacks.rs`, `stacks/orders.rs` |
//! | A future that is dropped half-way leaks what it held | `service/cancellation.rs`, `failure/cancellation.rs` |
//! | A share of a quota below one unit is an error while the store answers | `failure/fallback.rs`: `a_share_below_one_unit_refuses_during_the_outage_and_at_no_other_time`, `at_least_one_unit_is_granted_to_each_key` |
//! | Rules of running services cannot be switched off | `service/replace.rs`: `a_switch_reaches_running_services_and_keeps_later_rules`, `a_switch_lets_waiting_callers_pass_and_ends_no_running_slot` |
//! | Requests wait for a store that accepts connections and never answers | `failure/timeout.rs`: `a_silent_store_is_awaited_for_the_timeout`; `failure/policies.rs`; `faults/mod.rs`: `every_policy_keeps_its_promise_under_every_fault` |
//! | Calls that wait for a hanging server fill the memory | `redis/load.rs`: `a_hanging_redis_does_not_accumulate_callers`; `alone/stopped_server.rs` |
//! | A page request that imitates gRPC is refused with a 200 | `grpc/answers.rs`: `a_request_that_is_not_a_post_is_not_answered_as_grpc` |
//! | A second cookie of the same name counts as a new caller | `../crates/tollgate/src/extract/cookie.rs`: `cookies_that_differ_are_counted_by_the_peers_address` |
//! | Late failures of a past outage open the circuit again | `failure/breaker.rs`: `late_failures_of_a_past_outage_do_not_open_the_circuit` |
//! | An unknown tier has no limit | `service/tiers.rs`: `an_unknown_tier_is_never_unlimited` |
//! | A change of tier forgets past usage | `service/tiers.rs`: `a_change_of_tier_keeps_past_usage` |
//! | A tier of a small burst forgives the debt that another has made | `service/tiers.rs`, `redis/tiers.rs`: `a_tier_of_a_smaller_burst_forgives_no_debt_of_a_larger` |
//! | Callers of two tiers that share a call are decided by the limit of one | `redis/tiers.rs`: `concurrent_tiers_of_one_key_are_not_confused` |
//! | A preflight is refused because it has no key | `service/exemptions.rs`: `a_preflight_needs_no_key_and_costs_nothing`; `stacks/http_layers.rs` |
//! | An address in a forged header, or a neighbour in its /64, is exempt | `service/exemptions.rs`: `a_forged_address_is_not_exempt`, `listed_addresses_are_exempt_and_their_neighbours_are_limited` |
//! | A handler that reads the verdict fails if the layer is disabled | `axum_server/verdicts.rs`: `a_handler_finds_an_empty_report_where_no_limit_applies` |
//! | Keys are never evicted, or the user has to run an eviction thread | `memory_store/reclaim.rs`: `idle_keys_are_evicted_by_the_use_of_other_keys`, `one_time_callers_do_not_accumulate`; `memory_store/cap.rs` |
//! | gRPC is left unlimited, or answered with an HTTP 429 that its clients cannot read | `grpc/denials.rs`: `a_client_reads_the_code_the_wait_and_the_policy`, `a_client_that_waits_for_the_pushback_passes`; `grpc/mounts.rs`: `http_and_grpc_on_one_port_share_a_quota`; `grpc/streams.rs`: `a_stream_is_refused_before_it_begins`; `grpc/web.rs` |
//! | A quote in a policy's name breaks the field | [`a_quote_in_a_policy_name_breaks_neither_field_nor_document`] |
//! | A denial, the path that an attack uses, is the most expensive one | `alone/allocations.rs`: `a_denial_allocates_only_what_its_answer_needs`, `a_grpc_denial_allocates_only_what_its_answer_needs`, `the_thousandth_denial_allocates_as_much_as_the_second`; `alone/no_clock.rs` |
//! | Refunds take connections from checks and make them late, and the circuit opens | `attacks.rs`: `refunded_log_ins_do_not_lift_the_limit_on_guesses`; `failure/breaker.rs`: `failed_refunds_and_resets_never_open_the_circuit` |
//! | Questions about usage take the connections of checks | `redis/usage.rs`: `a_check_does_not_wait_behind_questions_about_usage` |
//! | One request of a large cost occupies Redis for milliseconds | `attacks.rs`: `requests_of_a_large_cost_do_not_lift_the_limit_on_guesses`; `redis_docs/work.rs`: `a_large_cost_takes_no_more_commands_than_a_cost_of_one` |
//! | A denial reads state whose size the policy's author chose | `attacks.rs`: `denials_by_a_ring_of_a_thousand_do_not_lift_the_limit_on_guesses`; `redis_docs/work.rs`: `a_check_costs_the_server_no_more_than_documented` |
//! | One late call counts as a failure for each caller that it carried | `failure/breaker.rs`: `a_late_call_counts_as_one_failure_for_all_its_requests` |
//! | The name of a long key is made under a lock that all callers need | `attacks.rs`: `keys_of_400_kb_do_not_lift_the_limit_on_guesses`; `../crates/tollgate-redis/src/wire/names.rs`: `no_key_has_a_longer_text_than_the_longest` |
//! | One stall counts as a failure for each look at the clock and each call in flight | `redis/timeouts.rs`: `a_stall_is_one_failure_whatever_the_load` |
//! | New keys of a slot that moves count as an outage | `redis/cluster/moves.rs`: `new_keys_of_a_moving_slot_do_not_open_the_circuit` |
//! | A look or a refusal by a version of a policy with a smaller burst forgives debt | suite `versions::a_version_keeps_what_it_owes_beside_another`; `redis/denials.rs`: `a_denied_request_writes_nothing` |
//! | Two versions of a policy side by side lift the limit | suite `changes::two_versions_admit_no_more_than_both_allow` |
//! | A caller waits for ever for a store that was connected in a runtime that is not driven | `redis/timeouts.rs`: `a_caller_does_not_hang_if_the_runtime_of_the_store_is_not_driven` |
//! | A deadline that passed in our own queue is taken for an outage | `failure/breaker.rs`: `an_overloaded_queue_does_not_count_as_a_store_failure`; `redis/timeouts.rs`: `a_deadline_that_passes_in_the_queue_is_no_timeout_of_redis` |
//! | A refusal is lost because the request's body has not arrived | `axum_server/behind_nginx.rs`: `nginx_passes_on_each_refusal_and_fails_no_upstream`; `axum_server/refusals.rs`: `an_http2_client_sends_the_whole_refused_body` |
//! | Slow senders of refused bodies hold connections or memory | `alone/slow_senders.rs`: `a_thousand_slow_senders_hold_little_memory_and_end_soon` |
//! | Connect clients read a refusal as unavailable | `grpc/connect.rs`: `a_unary_call_gets_an_error_in_json_by_its_http_status`, `a_stream_gets_one_envelope_of_its_content_type` |
//! | A server or proxy without RESP3 is refused, and `protocol=resp2` is ignored | `redis/proxies.rs`: `a_proxy_that_speaks_resp2_only_keeps_the_contract`, `resp2_is_spoken_if_the_url_asks_for_it` |
//! | A proxy that spreads keys over servers multiplies the limit | `redis/proxies.rs`: `a_proxy_that_spreads_keys_is_refused_with_the_reason`, `a_proxy_that_spreads_keys_is_refused_once_its_servers_are_up` |
//! | One credential can be spelled in many ways, each with a quota | `axum_server/keys.rs`: `spellings_of_one_bearer_token_share_a_quota`, `passwords_of_one_basic_user_share_a_quota`, `blanks_around_a_value_over_http2_do_not_change_the_key` |
//! | All of NAT64 is one key, and 6to4 gives one IPv4 address 65,536 keys | `axum_server/keys.rs`: `nat64_and_6to4_addresses_count_as_their_ipv4_address`, `a_6to4_address_does_not_pose_as_a_trusted_proxy` |
//! | A planted second cookie puts its victim into a bucket that an attacker empties | `axum_server/keys.rs`: `a_planted_second_cookie_does_not_deny_its_victim`, `an_invented_second_cookie_earns_no_quota_of_its_own` |
//! | A caller that is always refused holds a quota of others in a Cluster | `redis/cluster/sets.rs`: `a_caller_that_is_always_refused_holds_no_quota_of_others` |
//! | A set that loses a race in a Cluster is answered as an outage | `redis/cluster/sets.rs`: `a_set_that_loses_a_race_is_denied_with_a_wait` |
//! | A leaky bucket keeps the places of callers that have left | `axum_server/deadlines.rs`: `a_client_that_disconnects_in_the_queue_gives_its_place_back` |
//! | A request is delayed beyond its own deadline | `grpc/deadlines.rs`: `calls_that_cannot_meet_their_deadline_do_not_hold_up_the_next` |
//! | A missing peer address is blamed on the caller | `alone/missing_peer.rs`: `a_missing_peer_address_is_a_500_and_the_log_names_the_missing_call` |
//! | A rule by an extension that no layer has set gives no hint | `alone/missing_extension.rs`: `a_missing_extension_is_named_once_in_the_log` |
//! | A merged part with `.layer` charges the unknown paths of the whole app | `axum_server/paths.rs`: `a_merged_part_with_layer_charges_unknown_paths_of_the_whole_app`, `a_merged_part_with_route_layer_charges_its_own_routes_only` |
//! | A denial in a log does not say which limit refused | `service/responses.rs`: `the_text_of_a_denial_names_the_policies_that_refused` |
//! | A table full of denied keys goes unnoticed | `memory_store/cap.rs`: `a_full_table_of_denied_keys_is_logged_once_and_counted` |
//! | The example to copy switches its limit off when Redis is down | `../examples/tests/redis_example.rs`: `two_redis_examples_share_their_limit` |
//! | A caller far above its limit asks Redis for each request | `scale/denials.rs`: `a_denied_key_costs_at_most_one_call_a_second` |
//! | A denial from a cache outlives a refund or a reset, or denies a smaller cost that fits | `scale/denials.rs`: `a_refund_or_a_reset_by_this_process_is_seen_at_once`, `a_reset_by_another_process_is_seen_soon`, `a_smaller_cost_passes_where_a_larger_one_is_denied` |
//! | A denied caller reaches Redis by inventing the key of another rule | `scale/denials.rs`: `a_denied_key_next_to_invented_keys_is_answered_from_the_cache` |
//! | Invented keys fill a cache of denials without a bound | `scale/denials.rs`: `invented_keys_do_not_exceed_the_capacity` |
//! | A label of metrics holds a key, and invented keys fill the memory | `../examples/playground/tests/metrics.rs`: `invented_keys_add_no_series_and_no_label_holds_a_key` |
//! | Counts of usage are never trimmed | `usage/flushes.rs`: `old_minutes_are_forgotten`; `usage/over_redis.rs`: `invented_keys_do_not_add_entries_beyond_the_stated_number`; `usage/exact.rs`: `invented_keys_do_not_grow_the_usage_without_bound` |
//! | Processes that count locally exceed the limit together | `scale/fleets.rs`: `thousands_of_fleets_with_faults_keep_every_bound` |
//! | Units that were fetched ahead are spent twice | `../crates/tollgate/src/scale/lease/account/schedules.rs`: `requests_refetches_and_ends_use_each_unit_once`, `refused_sets_take_back_no_unit_twice`; `scale/runtimes.rs`: `a_runtime_that_ends_with_fetches_on_their_way_grants_nothing_twice` |
//! | A lease counts from its answer, and is spent in the next window | `scale/fleets.rs`: `thousands_of_fleets_with_faults_keep_every_bound`; `scale/runtimes.rs`: `a_lease_that_arrives_after_its_life_is_refunded` |
//! | Units that were fetched ahead outlive their lease while Redis is down | `scale/outages.rs`: `leases_are_spent_without_the_store_until_they_end`, `each_policy_keeps_deadline_and_bound_in_an_outage` |
//! | A background task ends with its runtime, and unused units are never given back | `scale/runtimes.rs`: `a_second_runtime_returns_what_is_left_by_the_first` |
//! | Units held while a circuit opens stay charged until the window ends | `scale/runtimes.rs`: `units_unspent_while_the_circuit_is_open_are_refunded_later` |
//! | A request of cost 0 uses up the confirmation of a denial | `scale/denials.rs`: `requests_of_cost_0_do_not_put_off_the_confirmation` |
//! | The runtime that returns leases is alive and not driven, and nothing is returned | `scale/returns.rs`: `a_runtime_that_is_not_driven_does_not_keep_the_units_of_others`, `a_request_of_a_cold_key_takes_over_the_return_of_leases`, `a_fetch_that_is_never_answered_does_not_keep_its_key_from_leases` |
//! | A lease whose fetch is answered after the callers' deadline is lost | `scale/returns.rs`: `a_lease_that_arrives_after_the_deadline_of_callers_is_not_lost` |
//! | A process that stops in order loses what its leases hold | `scale/stops.rs`: `ten_processes_that_stop_in_turn_lose_no_unit`, `a_stop_waits_for_fetches_on_their_way` |
//! | Refunds that a failover refused are dropped, though nothing of them was executed | `scale/returns.rs`: `units_whose_refund_was_refused_are_refunded_once_redis_is_up`, `a_refund_that_may_have_been_executed_is_not_sent_again` |
//! | A lease copies a long key under a lock that others need | `scale/returns.rs`: `keys_of_more_than_four_kilobytes_are_not_leased` |
//! | In a full server, usage that lives for weeks evicts limits that live for seconds | `usage/evictions.rs`: `limits_hold_in_full_memory_under_the_documented_policies`, `a_server_that_evicts_limits_in_use_is_logged_with_what_rules_need` |
//! | A local page that shows keys answers to any host, so that a rebound name can read them | `../examples/playground/tests/dashboard.rs`: `only_loopback_and_given_hosts_can_read_the_page_and_its_events` |
//! | A question about usage holds the pages of all processes at once, in memory and in one answer of Redis | `usage/over_redis.rs`: `the_pages_of_many_processes_are_read_in_parts_and_each_once` |
//! | One slow answer holds up all other questions about usage for its whole timeout | `redis/usage.rs`: `a_slow_answer_does_not_hold_up_the_next_question`, `a_question_waits_no_longer_than_the_response_timeout_for_others` |
//! | What a process counted is lost without a word, because the runtime that would store it is gone | `usage/flushes.rs`: `another_runtime_stores_the_counts_if_the_first_does_not_run` |
//! | A denial by many rules needs more headers than its client or a proxy accepts | `grpc/denials.rs`: `a_denial_by_sixty_rules_with_long_names_fits_in_eight_kilobytes`; `../crates/tollgate/src/answer/fields/mod.rs`: `the_items_of_many_rules_are_those_that_deny_and_fit_in_a_kilobyte` |
//! | A long key is named again for each rule of a request that counts it | `usage/long_keys.rs`: `a_long_key_is_named_once_for_all_rules_of_a_request`, `keys_are_named_while_decisions_are_counted` |
//! | N callers that wait for one key ask N times for each that passes | `programs/queues.rs`: `callers_pass_in_order_of_arrival_and_ask_three_times_at_most`, `callers_of_many_threads_ask_three_times_at_most_for_each_that_passes`, `callers_over_redis_ask_three_times_at_most_for_each_that_passes` |
//! | A turn is handed to a caller that has left, or a wake-up is lost | `programs/queues.rs`: `a_caller_that_leaves_the_queue_is_skipped`; `../crates/tollgate/src/limiter/wait_queue/tests.rs`: `a_caller_that_leaves_is_never_called` |
//! | A waker that is dropped stops a queue for the whole patience of its head | `../crates/tollgate/src/limiter/wait_queue/schedules.rs`; `../crates/tollgate/src/limiter/turn.rs`: `a_caller_finds_a_turn_that_it_was_not_woken_for_within_a_second`; `programs/queues.rs`: `no_caller_sleeps_while_it_has_its_turn`; `../examples/playground/tests/stress.rs`: `clients_that_wait_pass_without_pauses_and_none_sleeps_in_its_turn` |
//! | The head of a queue is in a runtime that is not driven, or is not polled any more, and holds up all others | `../crates/tollgate/src/limiter/wait_queue/schedules.rs`: `a_caller_that_is_not_polled_holds_up_no_other`, `a_caller_that_comes_back_late_takes_no_turn_with_it`; `../crates/tollgate/src/limiter/wait_queue/tests.rs`: `a_caller_that_is_not_polled_in_its_turn_is_passed_by_after_a_second`; `programs/queues.rs`: `a_first_caller_that_is_not_polled_holds_up_others_for_two_seconds_more`, `callers_in_a_runtime_that_is_not_driven_hold_up_no_others` |
//! | Waiters of sets that share one key ask hundreds of times for each that passes | `programs/queues.rs`: `callers_of_many_tenants_wait_for_their_common_quota_in_one_queue`, `callers_that_wait_for_two_quotas_ask_four_times_at_most`, `a_thousand_used_up_tenants_do_not_hold_up_one_that_is_not`, `a_caller_of_two_quotas_passes_among_callers_of_either`; `../examples/playground/tests/stress.rs`: `requests_that_wait_for_two_rules_take_few_checks` |
//! | A refused request waits for a release on its way beyond the timeout | `failure/slots.rs`: `a_refused_request_waits_for_a_release_no_longer_than_the_timeout` |
//! | Trailers of gRPC-Web are found only in a chunk of their own | `grpc/web.rs`: `trailers_are_found_wherever_chunks_begin`; `../crates/tollgate/src/charge/web_trailers.rs`: `chunks_have_the_trailers_of_the_whole_body` |
//! | A part of a gRPC-Web message that a caller chose is taken for trailers | `grpc/web.rs`: `content_that_a_caller_chose_is_not_taken_for_trailers`; `../crates/tollgate/src/charge/web_trailers.rs`: `a_message_that_looks_like_trailers_is_a_message` |
//! | A client takes a time for seconds, a fraction for nothing, and resumes in one instant with others | `../crates/tollgate/src/pause/real_servers.rs`; `../crates/tollgate/src/pause/fields.rs`: `a_large_number_is_a_time_since_the_epoch`; `programs/pauses.rs`: `requests_resume_at_random_times_after_a_pause` |
//! | Jobs that would wait a minute are lost in an outage of a second | `programs/queues.rs`: `callers_wait_while_redis_is_down`, `a_failing_store_is_asked_by_the_first_only_and_ever_more_rarely` |
//! | An origin is the text of its URL: spellings are not paused together, and passwords are kept | `programs/pauses.rs`: `a_pause_of_an_origin_holds_for_all_its_spellings`, `an_origin_takes_little_memory_whatever_its_links_are`; `../crates/tollgate/src/pause/origin.rs`: `spellings_of_an_origin_are_one_key` |
//! | Usage is added after the response, so that concurrent requests pass together | `service/charges.rs`: `requests_in_flight_hold_their_estimates` |
//! | A correction lands in the next window, or prolongs the life of a key | `service/charges.rs`: `a_correction_refunds_the_window_that_paid_and_no_other`; suite `refunds::a_refund_does_not_land_in_the_next_window`; `redis/life.rs`: `hits_do_not_prolong_the_life_of_a_window`, `refunds_and_resets_leave_no_key_without_an_end` |
//! | A client that leaves does not pay for what was produced, or a failed upstream keeps the whole estimate | `service/charges.rs`: `the_drop_of_the_last_handle_settles_to_what_was_used`, `a_condition_refunds_errors_and_leaves_other_charges_to_the_handler`; `../examples/tests/llm_gateway_example.rs`: `the_llm_gateway_charges_a_client_that_leaves_its_prompt_and_more`, `the_llm_gateway_charges_what_the_model_produced_before_it_failed` |
//! | What streams used and held when they ended in an outage is forgiven, and their slots stay taken | `redis/kept.rs`: `streams_that_end_while_redis_is_dead_are_charged_and_free_their_slots`; `failure/kept.rs`: `random_histories_over_outages_end_as_without_them`, `what_may_have_been_executed_is_never_kept` |
//! | A password in a URL is read once: when it changes, or a token ends, the store is down | `redis/credentials.rs`: `no_call_to_a_server_fails_while_its_password_changes`, `a_connection_authenticates_again_before_its_token_ends`, `a_refused_password_is_asked_for_once_more` |
//! | A reservation expires while the stream goes on | `service/charges.rs`: `a_reservation_lasts_as_long_as_the_work` |
//! | A floor or a large estimate refuses every request of small quotas | `service/charges.rs`: `an_estimate_is_bounded_by_a_share_of_the_quota` |
//! | A crash or a cancelled stream leaves a slot in use for ever | `slots/mod.rs`: `no_more_than_the_limit_go_on_whatever_fails`; `service/slots.rs`: `a_slot_is_free_when_the_request_ends_in_any_other_way`, `a_caller_that_leaves_before_the_answer_holds_no_slot` |
//! | New arrivals prolong a slot that no request holds, or one ends under a long stream | `redis/slots.rs`: `a_slot_ends_a_time_to_live_after_its_last_renewal`, `slots_that_have_ended_are_removed_by_the_next`; `service/times_of_slots.rs`: `a_slot_is_renewed_as_long_as_it_is_held` |
//! | A slot is free only after slow work behind the response | `service/slots.rs`: `a_slot_is_free_before_the_client_has_the_last_byte`; `slots/turns.rs`: `a_client_with_one_slot_is_never_refused_for_its_own_last_request` |
//! | A refusal for want of a slot is charged to a rate | suite `slots::a_refused_set_takes_no_slot_and_charges_no_rate`; `redis/slots.rs`: `a_set_takes_all_of_its_slots_and_rates_or_none` |
//! | Refunds fill the queue of renewals, and slots are lost | `redis/returns.rs`: `slots_are_kept_and_released_while_refunds_fill_their_queue`, `a_release_passes_renewals_that_are_queued` |
//! | One call of renewals or refunds, or the settlement of a charge with many extensions, holds up Redis | `redis/returns.rs`: `a_call_carries_at_most_a_hundred_renewals`, `a_call_carries_as_many_refunds_of_a_log_as_it_has_time_for`, `a_request_of_many_refunds_is_sent_in_parts`, `a_request_of_many_refunds_ends_with_its_first_failure` |
//! | A renewal is executed after the release, and takes a slot that no request holds | `redis/returns.rs`: `a_renewal_that_is_executed_after_the_release_claims_nothing` |
//! | A full Redis evicts slots, blocks and short quotas first, by the policy that the docs advise | `redis/evictions.rs`: `slots_blocks_and_short_limits_survive_under_the_documented_policies`; `usage/evictions.rs`: `a_server_that_evicts_limits_in_use_is_logged_with_what_rules_need`, `one_master_of_a_cluster_that_evicts_limits_first_is_logged`; `../examples/playground/tests/stress.rs`: `slots_blocks_and_guesses_hold_while_redis_evicts_invented_keys` |
//! | One node of a Cluster that stalls loses the slots of the others | `redis/cluster/masters.rs`: `a_master_that_stalls_costs_no_slot_of_other_masters` |
//! | Each slot holds a long key twice, and each renewal hashes it | `alone/long_keys.rs`: `a_slot_and_its_permit_hold_one_copy_of_a_long_key`; `../crates/tollgate-core/src/key/long.rs`: `a_long_key_is_hashed_once_for_its_clones_and_first_maker`; `../crates/tollgate-redis/src/wire/names.rs`: `a_long_key_is_hashed_once_for_each_secret` |
//! | A failover frees slots and forgives debt; a server without memory leaves slots behind, or panics | `redis/slot_faults.rs`: `slots_and_debts_outlive_a_failover_to_a_replica_that_has_them`, `a_full_server_fails_claims_with_an_error_and_takes_back_slots`, `no_slot_is_left_behind_by_requests_of_a_full_server` |
//! | A call without a limit waits for a store whose runtime has ended | `redis/timeouts.rs`: `a_patient_call_ends_with_the_runtime_of_its_store` |
//! | A second or late release frees the slot of another | suite `slots::a_second_release_frees_nothing`; `slots/mod.rs`: `no_more_than_the_limit_go_on_whatever_fails` |
//! | 1,500 log-ins of a refused address take a turn of the name each, before the right one | `log_ins/mod.rs`: `log_ins_of_a_refused_address_take_no_turn_of_a_name`; `service/slots.rs`: `requests_that_exceed_a_rate_take_no_turn_of_a_queue` |
//! | A slot is handed to a waiter that has left, or to one that came later | `service/slots.rs`: `requests_wait_for_slots_in_order_of_arrival`, `callers_of_different_rates_wait_for_one_slot_in_order`; `programs/queues.rs`: `a_caller_that_leaves_the_queue_is_skipped` |
//! | A slot is released twice, or renewed after its release, in a rare order of threads | `../crates/tollgate/src/in_flight/schedules.rs` |
//! | A holder whose time to live has ended goes on, since it is not notified | `service/times_of_slots.rs`: `a_holder_hears_within_a_time_to_live_that_no_renewal_succeeds`, `a_holder_hears_at_once_that_others_have_its_slot` |
//! | A file that is renamed over, moved as a link, or in a folder that is gone for a while is no longer watched | `rules/edits.rs`: `a_file_that_is_written_or_renamed_over_is_followed`, `links_are_followed_also_as_kubernetes_moves_them`, `a_file_that_is_gone_or_is_none_keeps_the_rules`; `rules/walk.rs`: `a_fleet_decides_each_request_by_the_rules_of_its_edit` |
//! | A malformed file stops the server, or passes for a success | `rules/edits.rs`: `a_file_that_is_not_valid_changes_nothing_and_says_why`, `a_file_that_is_written_in_pieces_is_not_used_halfway`; `service/replace.rs`: `an_invalid_set_changes_nothing` |
//! | A raised limit does not help callers that were refused, or does not reach known keys | `service/replace.rs`: `services_and_clones_from_before_follow`, `no_algorithm_gives_quota_back`; `rules/limits.rs`: `in_memory`, `in_redis` |
//! | The report of an edit says that usage is kept where a tier, a key or a window starts again | `../crates/tollgate-cli/src/rules/tests.rs`: `changes_name_rules_that_start_again`; `../crates/tollgate/src/config/tests/replacement.rs`: `a_replacement_compares_the_keys_that_files_say` |
//! | A file renames a rule, or puts it in shadow, and handlers that name it panic | `rules/edits.rs`: `a_file_that_lacks_a_required_rule_changes_nothing`; `../crates/tollgate/src/config/tests/requests.rs`: `a_file_without_a_required_rule_is_refused` |
//! | A key of 3,000 parentheses ends the process | `../crates/tollgate-core/src/key/parse.rs`: `a_key_of_more_than_16_levels_is_refused`; `../crates/tollgate/src/config/tests/secrets.rs`: `tables_that_are_nested_too_deeply_are_named_with_their_line` |
//! | A checker accepts a mistyped network, or a list in the place of a table, and does not name what never passes | `../crates/tollgate-cli/tests/cli/check.rs`: `a_check_refuses_what_a_service_refuses_and_names_what_never_passes`; `../crates/tollgate-cli/src/rules/tests.rs`: `requests_that_never_pass_are_named` |
//! | 100 mistakes in 5,000 rules take 7.6 seconds, a status waits for a replacement, a request for a log | `../crates/tollgate/src/config/tests/every_mistake.rs`: `a_thousand_mistakes_are_found_in_work_that_grows_with_the_text`; `../crates/tollgate/src/watch/watcher.rs`: `the_status_does_not_wait_for_a_replacement_of_rules`; `../examples/playground/log.rs`: `lines_that_a_file_does_not_take_in_time_are_dropped_and_counted` |
//! | The first line of a wrong file, a secret, stands in the log, and a name of a field has escape sequences | `rules/edits.rs`: `a_secret_in_the_place_of_rules_is_not_quoted`; `../crates/tollgate/src/config/tests/secrets.rs`: `errors_of_a_text_that_is_no_rules_do_not_quote_it`, `names_in_errors_are_cut_and_escaped` |
//! | Each name that rules ever had leaves 17 series of metrics, and layers overwrite each other's gauge | `observe/metrics.rs`: `series_of_removed_rules_end_and_those_of_idle_rules_stay`, `layers_with_one_policy_name_do_not_overwrite_each_other` |
//! | Rules with a byte order mark are "not JSON", and UTF-16 is "not valid UTF-8" | `../crates/tollgate/src/config/tests/secrets.rs`: `a_byte_order_mark_is_skipped`, `a_text_of_another_format_is_named_as_such`; `rules/edits.rs`: `a_file_that_is_not_valid_changes_nothing_and_says_why`; `../crates/tollgate-cli/tests/cli/replay.rs`: `a_byte_order_mark_is_skipped_and_utf_16_is_named` |
//! | A WebSocket over HTTP/2 passes a rule for `GET` | `axum_server/websockets.rs`: `a_rule_for_get_counts_websockets_over_http_2` |
//! | An IPv6 key in an operator's table reads `@2001%3Adb8%3A%3A/64` | `../crates/tollgate-cli/tests/cli/usage.rs`: `keys_are_shown_as_people_write_them_and_read_back` |

use std::fs;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use tollgate::extract::{ClientIp, PeerAddr, PeerIp};
use tollgate::layer::ResponseBody;
use tollgate::store::{Check, Reply, Store, Times};
use tollgate::{
    Algorithm, Denial, Fields, Head, Key, Limiter, MemoryStore, Policy, PolicyExt, Quota, RateLimitLayer,
};
use tollgate_tests::{EVERY_ALGORITHM, Strict, a_minute, call, clock, field, per_user, request, store, user};
use tower::Layer;

const SECOND: Duration = Duration::from_secs(1);

/// A request that costs that much, under the rules below.
fn costing(cost: u64) -> Request<Body> {
    let mut request = request("ada");
    request.headers_mut().insert("x-cost", HeaderValue::from(cost));
    request
}

fn cost(head: &Head<'_>) -> u64 {
    head.headers()["x-cost"].to_str().ok().and_then(|cost| cost.parse().ok()).expect("a number")
}

fn status_and_wait(response: &Response<ResponseBody<Body>>) -> (u16, Option<u64>) {
    let wait = field(response, "retry-after").map(|seconds| seconds.parse().expect("whole seconds"));
    (response.status().as_u16(), wait)
}

#[tokio::test]
async fn a_first_request_of_cost_two_leaves_a_key_that_expires() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let store = MemoryStore::builder().clock(&time).max_keys(600).build();
        let limiter = Limiter::new([a_minute("p", algorithm, 2)]).store(store.clone());
        let (ada, bob) = (Key::from("ada"), Key::from("bob"));
        assert!(limiter.check(&ada, 2).await.is_ok());
        let denial = limiter.check(&ada, 2).await.unwrap_err();
        time.advance(denial.retry_after().unwrap());
        assert!(limiter.check(&ada, 2).await.is_ok(), "{algorithm:?} is full for ever");
        // Two windows are the longest that any of them remembers.
        time.advance(130 * SECOND);
        for _ in 0..100 {
            assert!(limiter.check(&bob, 0).await.is_ok());
        }
        assert_eq!(store.keys(), 0, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_caller_that_keeps_trying_passes_after_the_reported_wait() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let mut service = RateLimitLayer::new([a_minute("p", algorithm, 3).by(user())])
            .store(store(&time))
            .layer(Strict::default());
        while call(&mut service, request("ada")).await.status() == 200 {}
        let (status, wait) = status_and_wait(&call(&mut service, request("ada")).await);
        let wait = wait.unwrap();
        assert_eq!(status, 429);
        for waited in 1..=wait {
            time.advance(SECOND);
            let due = (wait - waited, call(&mut service, request("ada")).await);
            if due.0 > 0 {
                assert_eq!(status_and_wait(&due.1), (429, Some(due.0)), "{algorithm:?} after {waited} s");
            } else {
                assert_eq!(due.1.status(), 200, "{algorithm:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_policy_with_a_changed_algorithm_finds_no_state() {
    let store = store(&clock());
    for algorithm in EVERY_ALGORITHM {
        let layer = RateLimitLayer::new([a_minute("p", algorithm, 1).by(user())]).store(store.clone());
        let mut service = layer.layer(Strict::default());
        assert_eq!(call(&mut service, request("ada")).await.status(), 200, "{algorithm:?}");
        assert_eq!(call(&mut service, request("ada")).await.status(), 429, "{algorithm:?}");
    }
}

/// A bank that lets a new user move 2,000 a day.
#[tokio::test]
async fn a_transfer_of_the_whole_quota_passes() {
    for algorithm in EVERY_ALGORITHM {
        let rule = || a_minute("transfers", algorithm, 2_000).by(user()).cost(cost);
        let mut service = RateLimitLayer::new([rule()]).store(store(&clock())).layer(Strict::default());
        assert_eq!(call(&mut service, costing(2_000)).await.status(), 200, "{algorithm:?}");
        assert_eq!(call(&mut service, costing(1)).await.status(), 429, "{algorithm:?}");

        let mut service = RateLimitLayer::new([rule()]).store(store(&clock())).layer(Strict::default());
        let mut statuses = Vec::new();
        for cost in [1_999, 1, 1, 2_001] {
            statuses.push(call(&mut service, costing(cost)).await.status().as_u16());
        }
        assert_eq!(statuses, [200, 200, 429, 422], "{algorithm:?}");
    }
}

#[tokio::test]
async fn retry_after_is_never_zero() {
    let time = clock();
    for fields in [Fields::Ietf, Fields::XDelta, Fields::None] {
        let policy = Policy::new("p", Quota::per_second(1_000).burst(1));
        let layer = RateLimitLayer::new([policy.by(user())]).store(store(&time)).fields(fields);
        let mut service = layer.layer(Strict::default());
        assert_eq!(call(&mut service, request("ada")).await.status(), 200);
        for _ in 0..3 {
            let denied = call(&mut service, request("ada")).await;
            assert_eq!(status_and_wait(&denied), (429, Some(1)), "a millisecond or less, rounded up");
            time.advance(Duration::from_micros(300));
        }
        time.advance(Duration::from_micros(100));
        assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    }
}

#[tokio::test]
async fn a_lowered_limit_reports_retry_after() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let store = store(&time);
        let layer =
            |limit| RateLimitLayer::new([a_minute("p", algorithm, limit).by(user())]).store(store.clone());
        let (mut before, mut after) =
            (layer(100).layer(Strict::default()), layer(10).layer(Strict::default()));
        while call(&mut before, request("ada")).await.status() == 200 {}
        let denied = call(&mut after, request("ada")).await;
        let (status, wait) = status_and_wait(&denied);
        assert_eq!(
            (status, field(&denied, "ratelimit").map(|told| told.contains(";r=0;"))),
            (429, Some(true))
        );
        let wait = wait.unwrap_or_else(|| panic!("{algorithm:?} says nothing"));
        assert!((1..=120).contains(&wait), "{algorithm:?}: {wait}");
        time.advance(Duration::from_secs(wait));
        assert_eq!(call(&mut after, request("ada")).await.status(), 200, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_denied_large_cost_does_not_change_the_reported_wait() {
    for algorithm in EVERY_ALGORITHM {
        let rule = a_minute("p", algorithm, 10).by(user()).cost(cost);
        let mut service = RateLimitLayer::new([rule]).store(store(&clock())).layer(Strict::default());
        call(&mut service, costing(10)).await;
        let before = status_and_wait(&call(&mut service, costing(1)).await);
        for large in [10, 9, u64::MAX, 11] {
            let (status, wait) = status_and_wait(&call(&mut service, costing(large)).await);
            match large {
                11.. => assert_eq!((status, wait), (422, None), "{algorithm:?}: it can never pass"),
                _ => {
                    assert!(status == 429 && wait.is_some_and(|wait| wait <= 120), "{algorithm:?}: {wait:?}");
                }
            }
        }
        assert_eq!(status_and_wait(&call(&mut service, costing(1)).await), before, "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_request_refused_by_burst_leaves_daily_untouched() {
    let time = clock();
    let rules = [
        Policy::new("burst", Quota::per_second(3)).by(user()),
        Policy::new("daily", Quota::per_day(5)).with_algorithm(Algorithm::FIXED_WINDOW).by(user()),
    ];
    let layer = RateLimitLayer::new(rules).store(store(&time));
    let mut service = layer.layer(Strict::default());
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(call(&mut service, request("ada")).await.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429, 429, 429, 429, 429]);
    let report = layer.limiter().look(&Head::from(&request("ada"))).await.unwrap();
    assert_eq!(report.statuses()[1].remaining(), 2, "three passed");
    time.advance(SECOND);
    assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    assert_eq!(call(&mut service, request("ada")).await.status(), 200);
    let denied = call(&mut service, request("ada")).await;
    let denial = denied.extensions().get::<Denial>().unwrap();
    assert_eq!(denial.violated().collect::<Vec<_>>(), ["daily"]);
}

#[tokio::test]
async fn a_permit_refunds_at_most_its_cost() {
    for algorithm in EVERY_ALGORITHM {
        let limiter = Limiter::new([a_minute("p", algorithm, 10)]).store(store(&clock()));
        let ada = Key::from("ada");
        let mut permit = limiter.check(&ada, 3).await.unwrap();
        for _ in 0..10 {
            permit.charge("p").settle(0).await;
        }
        permit.refund().await;
        let left = async || limiter.look(&ada).await.unwrap().statuses()[0].remaining();
        assert_eq!(left().await, 10, "{algorithm:?}");
        let _kept = limiter.check(&ada, 1).await.unwrap();
        assert_eq!(left().await, 9, "{algorithm:?}");
    }
}

/// Units of a request were given back together with unused tokens: 12 of 12 calls passed a limit of
/// 5 an hour.
#[tokio::test]
async fn a_refund_of_one_policy_lifts_no_other_limit() {
    for algorithm in EVERY_ALGORITHM {
        let policies = [a_minute("calls", algorithm, 5), a_minute("tokens", algorithm, 100)];
        let limits = Limiter::new(policies).store(store(&clock()));
        let (user, tenant) = (Key::from("ada"), Key::from("acme"));
        let mut passed = 0;
        for _ in 0..12 {
            let asked = [("calls", &user, 1), ("tokens", &tenant, 10)];
            let Ok(mut permit) = limits.check_each(&asked).await else { continue };
            passed += 1;
            permit.charge("tokens").settle(1).await;
        }
        let left = limits.look_each(&[("tokens", &tenant)]).await.unwrap();
        assert_eq!((passed, left.statuses()[0].remaining()), (5, 95), "{algorithm:?}");
    }
}

#[tokio::test]
#[should_panic(expected = "the limiter has no policy \"token\": its policies are [\"calls\", \"tokens\"]")]
async fn a_charge_of_an_unknown_policy_panics_with_the_names() {
    let policy = |name: &str| Policy::new(name, Quota::per_minute(5));
    let limits = Limiter::new([policy("calls"), policy("tokens")]).store(store(&clock()));
    let mut permit = limits.check(&Key::from("ada"), 1).await.unwrap();
    permit.charge("token");
}

#[tokio::test]
async fn a_permit_of_other_rules_is_refunded_by_its_own() {
    let store = store(&clock());
    let policy = |name: &str| Policy::new(name, Quota::per_minute(5));
    let two = Limiter::new([policy("a"), policy("b")]).store(store);
    let ada = Key::from("ada");
    let permit = two.check(&ada, 2).await.unwrap();
    permit.refund().await;
    let left: Vec<u64> = two.look(&ada).await.unwrap().statuses().iter().map(|s| s.remaining()).collect();
    assert_eq!(left, [5, 5]);
}

#[tokio::test]
async fn the_empty_key_is_a_missing_key_for_a_limiter() {
    let limiter = Limiter::new([Policy::new("p", Quota::per_minute(1))]);
    let denial = limiter.check(&Key::from(""), 1).await.unwrap_err();
    assert_eq!(denial.reason(), tollgate::Reason::NoKey);
    let denial = limiter.until_ready(&Key::from(""), 1, SECOND).await.unwrap_err();
    assert_eq!(denial.reason(), tollgate::Reason::NoKey);
}

#[test]
fn costs_that_can_never_pass_do_not_keep_keys_from_eviction() {
    let store = tollgate::MemoryStore::builder().max_keys(100).clock(&clock()).build();
    let policy = Policy::new("p", Quota::per_day(1_000));
    let ask = |key: &Key, cost| {
        let Reply::Now(Ok(verdict)) = store.acquire(&[Check::new(&policy, key, cost)], Times::ONCE) else {
            panic!("a store in memory answers at once");
        };
        verdict.is_granted()
    };
    for n in 0..100_u32 {
        assert!(ask(&Key::from(n), 1));
        assert!(!ask(&Key::from(n), 1_001));
    }
    assert!((1_000..5_000_u32).all(|n| ask(&Key::from(n), 1)), "each newcomer has a quota of its own");
}

#[tokio::test]
async fn a_refund_that_comes_too_late_adds_no_key() {
    for algorithm in EVERY_ALGORITHM {
        let time = clock();
        let store = store(&time);
        let limiter = Limiter::new([a_minute("p", algorithm, 5)]).store(store.clone());
        let ada = Key::from("ada");
        let after_a_reset = limiter.check(&ada, 2).await.unwrap();
        let in_another_window = limiter.check(&ada, 1).await.unwrap();
        limiter.reset(&ada).await;
        after_a_reset.refund().await;
        assert_eq!(store.keys(), 0, "{algorithm:?}");
        time.advance(200 * SECOND);
        assert!(limiter.check(&ada, 2).await.is_ok());
        in_another_window.refund().await;
        assert_eq!(limiter.look(&ada).await.unwrap().statuses()[0].remaining(), 3, "{algorithm:?}");
    }
}

fn from_peer(address: &str) -> Request<Body> {
    let mut request = request("ada");
    request.extensions_mut().insert(PeerAddr(address.parse().expect("an address with a port")));
    request
}

#[tokio::test]
async fn invented_forwarded_addresses_add_no_keys() {
    let store = store(&clock());
    let client = ClientIp::from_header("x-forwarded-for").trusting(["10.0.0.0/8"]);
    let rule = Policy::new("p", Quota::per_minute(2)).by(client);
    let mut service = RateLimitLayer::new([rule]).store(store.clone()).layer(Strict::default());
    let mut passed = 0;
    for n in 0..1_000_u32 {
        // Directly with an invented header, and through the proxy, which appends the address.
        let [_, b, c, d] = n.to_be_bytes();
        let invented = format!("203.{b}.{c}.{d}");
        for (peer, list) in
            [("192.0.2.1:5", invented.clone()), ("10.0.0.1:5", format!("{invented}, 192.0.2.1"))]
        {
            let mut request = from_peer(peer);
            request.headers_mut().insert("x-forwarded-for", HeaderValue::try_from(list).unwrap());
            passed += u32::from(call(&mut service, request).await.status() == 200);
        }
    }
    assert_eq!((passed, store.keys()), (2, 1), "all of them are one caller");
}

#[tokio::test]
async fn an_ipv6_peer_cannot_rotate_through_its_network() {
    let rule = Policy::new("p", Quota::per_minute(2)).by(PeerIp::new());
    let store = store(&clock());
    let mut service = RateLimitLayer::new([rule]).store(store.clone()).layer(Strict::default());
    let mut passed = 0;
    for n in 0..1_000 {
        let request = from_peer(&format!("[2001:db8::{n:x}:{n:x}]:443"));
        passed += u32::from(call(&mut service, request).await.status() == 200);
    }
    assert_eq!((passed, store.keys()), (2, 1));
    for (address, status) in [
        ("[2001:db8:0:1::]:1", 200),
        ("[::ffff:192.0.2.1]:1", 200),
        ("192.0.2.1:1", 200),
        ("192.0.2.1:2", 429),
    ] {
        assert_eq!(call(&mut service, from_peer(address)).await.status(), status, "{address}");
    }
}

#[tokio::test]
async fn a_quote_in_a_policy_name_breaks_neither_field_nor_document() {
    let rules = [per_user(r#"say "hi", \o/;r=9"#, 1), per_user("plain", 5)];
    let mut service = RateLimitLayer::new(rules).store(store(&clock())).layer(Strict::default());
    let passed = call(&mut service, request("ada")).await;
    assert_eq!(field(&passed, "ratelimit"), Some(r#""say \"hi\", \\o/;r=9";r=0;t=60, "plain";r=4;t=12"#));
    assert_eq!(
        field(&passed, "ratelimit-policy"),
        Some(r#""say \"hi\", \\o/;r=9";q=1;w=60, "plain";q=5;w=60"#)
    );
    let denied = call(&mut service, request("ada")).await;
    let document = denied.into_body().collect().await.unwrap().to_bytes();
    let document = std::str::from_utf8(&document).unwrap();
    assert!(document.ends_with(r#","violated-policies":["say \"hi\", \\o/;r=9"]}"#), "{document}");
}

/// Each part between semicolons in the right column of the table names files, then tests in them.
#[test]
fn the_table_names_only_tests_that_exist() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read =
        |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let own = read(&tests.join("regressions.rs"));
    let rows = own.lines().filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |")).skip(1);
    let mut found = 0;
    for row in rows {
        let (_, proof) = row.rsplit_once(" | ").expect("two columns");
        for part in proof.split("; ") {
            let mut source = if part.starts_with('[') { own.clone() } else { String::new() };
            for name in part.split('`').skip(1).step_by(2) {
                if name.ends_with(".rs") {
                    source += &read(&tests.join(name));
                    found += 1;
                    continue;
                }
                let name = name.split_once("::").map_or(name, |(module, case)| {
                    let suite = tests.join("../crates/tollgate-conformance/src/suite");
                    source += &read(&suite.join(format!("{module}.rs")));
                    case
                });
                let function = format!("fn {name}");
                let exists = source.lines().any(|line| {
                    line.split_once(&function).is_some_and(|(_, rest)| rest.starts_with(['(', '<']))
                });
                assert!(exists, "no test `{name}` for this row: {row}");
                found += 1;
            }
        }
    }
    assert!(found > 100, "only {found} names were found in the table");
}
