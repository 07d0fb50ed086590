drop view turnkeeper.history_turns, turnkeeper.turn_events, turnkeeper.turns_now, turnkeeper.waiting;
drop function turnkeeper.newest_write;
drop table turnkeeper.scheduler_lock, turnkeeper.mcp_logins, turnkeeper.mcp_tools, turnkeeper.page_sessions,
    turnkeeper.api_tokens,
    turnkeeper.webhook_deliveries, turnkeeper.webhooks, turnkeeper.replies, turnkeeper.spawned_calls,
    turnkeeper.agent_trees, turnkeeper.detached_calls, turnkeeper.awaited_calls, turnkeeper.extractions,
    turnkeeper.output_drafts, turnkeeper.output_chunks, turnkeeper.outputs, turnkeeper.call_starts,
    turnkeeper.late_results,
    turnkeeper.failed_attempts, turnkeeper.request_parts, turnkeeper.spend_reservations,
    turnkeeper.spend, turnkeeper.pinned_levels, turnkeeper.summaries, turnkeeper.journal, turnkeeper.requested_ends,
    turnkeeper.turns,
    turnkeeper.suspects, turnkeeper.model_health, turnkeeper.worker_heartbeat, turnkeeper.ended_grants,
    turnkeeper.leases, turnkeeper.responses,
    turnkeeper.api_conversations,
    turnkeeper.retries, turnkeeper.messages, turnkeeper.schedules, turnkeeper.notes, turnkeeper.agents,
    turnkeeper.definitions, turnkeeper.set_aside, turnkeeper.settings;
drop sequence turnkeeper.tokens;
drop function turnkeeper.call_holds, turnkeeper.turn_holds, turnkeeper.message_holds, turnkeeper.lease_holds,
    turnkeeper.words_in, turnkeeper.words_asked, turnkeeper.last_rank, turnkeeper.time_of, turnkeeper.rank_of,
    turnkeeper.highest_priority, turnkeeper.lowest_priority, turnkeeper.lane_of, turnkeeper.user_may_be;
